"""`make bench`: measure and print, part by part; the full run's figures go into the page too.

Databases take long to fill: with a directory to keep them in, later runs use them again.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.bench import (
    acknowledging,
    bursting,
    fanning,
    history,
    idling,
    log,
    page,
    starting,
)
from tests.bench.measuring import Part

_HOSTS = (100, 200, 400)
_QUICK, _FULL = 50_000, 10_000_000


def main() -> None:
    asked = _asked()
    with ExitStack() as stack:
        if asked.quick and not asked.keep:
            # What one part fills in, the next one uses again.
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="keyturn-bench-"))
            asked.keep = Path(place)
            # PostgreSQL's own user has to get through.
            asked.keep.chmod(0o755)
        _measure(asked)


def _measure(asked: argparse.Namespace) -> None:
    for name in asked.only:
        began = time.perf_counter()
        part = _PARTS[name](asked)
        print(f"\n## {_TITLES[name]}\n\n{part.text}", flush=True)
        print(f"\n{name} took {time.perf_counter() - began:,.0f} s", flush=True)
        if not asked.quick:
            page.keep(name, part)
            page.write(list(_PARTS))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} entries, no page")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument("--count", type=int, default=0, help="of entries")
    parser.add_argument("--on", nargs="+", default=["SQLite", "PostgreSQL"])
    parser.add_argument("--keep", type=Path, help="where filled databases are kept (22 GB)")
    asked = parser.parse_args()
    asked.count = asked.count or (_QUICK if asked.quick else _FULL)
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    return asked


def _history(asked: argparse.Namespace) -> Part:
    rounds = 40 if asked.quick else 200
    return _on_each(asked, lambda name: history.measured(name, asked.count, rounds, asked.keep))


def _log(asked: argparse.Namespace) -> Part:
    return _on_each(asked, lambda name: log.measured(name, asked.count, asked.keep))


def _on_each(asked: argparse.Namespace, measured: Callable[[str], Part]) -> Part:
    parts = {name: measured(name) for name in asked.on}
    text = "\n\n".join(f"### {name}\n\n{part.text}" for name, part in parts.items())
    return Part(text, [figure for part in parts.values() for figure in part.targets])


def _slack(asked: argparse.Namespace) -> Part:
    alone = acknowledging.measured(1 if asked.quick else 30)
    whole = bursting.measured(1 if asked.quick else 5)
    return Part(f"{alone.text}\n\n{whole.text}", [*alone.targets, *whole.targets])


def _hosts(asked: argparse.Namespace) -> Part:
    found = fanning.measured(*(((20,), 2) if asked.quick else (_HOSTS, 5)), quick=asked.quick)
    return fanning.part(found, fanning.single(20 if asked.quick else 200, quick=asked.quick))


def _waves(asked: argparse.Namespace) -> Part:
    return fanning.waves(*((40, 2) if asked.quick else (200, 5)))


def _idle(asked: argparse.Namespace) -> Part:
    return idling.measured(60 if asked.quick else 500)


def _start(asked: argparse.Namespace) -> Part:
    return starting.measured(1 if asked.quick else 7)


_PARTS: Mapping[str, Callable[[argparse.Namespace], Part]] = {
    "hosts": _hosts,
    "waves": _waves,
    "idle": _idle,
    "log": _log,
    "history": _history,
    "slack": _slack,
    "start": _start,
}
_TITLES = {
    "hosts": "Many hosts and one host, beside other clients",
    "waves": "A change of many hosts",
    "idle": "Idle hosts",
    "log": "The change log",
    "history": "History and log pages",
    "slack": "Slack, beside a bare Bolt app",
    "start": "Starting",
}


if __name__ == "__main__":
    main()
