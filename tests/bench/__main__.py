"""`make bench`: measure and print, part by part; the full run's figures go into the page too.

Databases take long to fill: with a directory to keep them in, later runs use them again.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.bench import (
    acknowledging,
    bursting,
    fanning,
    flooding,
    history,
    idling,
    log,
    page,
    queueing,
    slope,
    starting,
    switching,
    watching,
)
from tests.bench.measuring import Part

_PLOT = Path(__file__).parents[2] / "docs" / "pictures" / "fan-out.svg"
_HOSTS = (1, 10, 100, 200, 400)
_WAITS = "idle"
_QUICK, _FULL = 50_000, 10_000_000
_SIZES = (1_000, 100_000, 1_000_000, 10_000_000)


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
    # In a quick run what mostly waits, in a process of its own, does so while others are measured;
    # not while peers are installed, whose programs a process that begins would keep open.
    order = sorted(asked.only, key=lambda name: asked.quick and name == _WAITS)
    with ThreadPoolExecutor(1) as beside:
        begun: dict[str, Future[Part]] = {}
        for name in order:
            if asked.quick and order[-1] == _WAITS and name != "hosts" and not begun:
                begun[_WAITS] = beside.submit(_PARTS[_WAITS], asked)
            began = time.perf_counter()
            part = begun[name].result() if name in begun else _PARTS[name](asked)
            print(f"\n## {_TITLES[name]}\n\n{part.text}", flush=True)
            print(f"\n{name} took {time.perf_counter() - began:,.0f} s", flush=True)
            if not asked.quick:
                page.keep(name, part)
                page.write(_TITLES)


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
    sizes = {asked.count // 10, *(size for size in _SIZES if size < asked.count), asked.count}
    rounds = 40 if asked.quick else 200
    return _on_each(asked, lambda name: history.measured(name, sorted(sizes), rounds, asked.keep))


def _log(asked: argparse.Namespace) -> Part:
    return _on_each(asked, lambda name: log.measured(name, asked.count, asked.keep))


def _on_each(asked: argparse.Namespace, measured: Callable[[str], Part]) -> Part:
    parts = {name: measured(name) for name in asked.on}
    text = "\n\n".join(f"### {name}\n\n{part.text}" for name, part in parts.items())
    return Part(text, [figure for part in parts.values() for figure in part.targets])


def _slack(asked: argparse.Namespace) -> Part:
    alone = acknowledging.measured(1 if asked.quick else 30)
    whole = bursting.measured(1 if asked.quick else 5)
    said = "The whole service, with ten hosts behind sshd, while 300 requests come at once:"
    return Part(f"{alone.text}\n\n{said}\n\n{whole.text}", [*alone.targets, *whole.targets])


def _hosts(asked: argparse.Namespace) -> Part:
    found = fanning.measured(*(((20,), 2) if asked.quick else (_HOSTS, 5)), quick=asked.quick)
    part = fanning.part(found, fanning.single(20 if asked.quick else 200, quick=asked.quick))
    if asked.quick:
        return part
    drawn = slope.drawn(fanning.slopes(found), across="hosts", upward="seconds, warm")
    _PLOT.write_text(drawn, encoding="utf-8")
    picture = f"![Seconds over hosts, warm, by client](pictures/{_PLOT.name})"
    return Part(f"{picture}\n\n{part.text}", part.targets)


def _waves(asked: argparse.Namespace) -> Part:
    return fanning.waves(*((40, 2) if asked.quick else (200, 5)))


def _idle(asked: argparse.Namespace) -> Part:
    return idling.measured(60 if asked.quick else 500)


def _output(asked: argparse.Namespace) -> Part:
    return flooding.measured(128 if asked.quick else 1024)


def _watch(asked: argparse.Namespace) -> Part:
    return watching.measured(5 if asked.quick else 30)


def _switch(asked: argparse.Namespace) -> Part:
    return switching.measured(20 if asked.quick else 200)


def _queue(asked: argparse.Namespace) -> Part:
    return queueing.measured(quick=asked.quick)


def _start(asked: argparse.Namespace) -> Part:
    return starting.measured(1 if asked.quick else 7)


_PARTS: Mapping[str, Callable[[argparse.Namespace], Part]] = {
    "hosts": _hosts,
    "waves": _waves,
    "idle": _idle,
    "output": _output,
    "watch": _watch,
    "switch": _switch,
    "log": _log,
    "history": _history,
    "slack": _slack,
    "queue": _queue,
    "start": _start,
}
_TITLES = {
    "hosts": "Many hosts at once, and one, beside other clients",
    "waves": "A change of many hosts",
    "idle": "Hosts that nothing is asked of",
    "output": "A host that says very much",
    "watch": "A page that shows what two hundred hosts say",
    "switch": "A network device",
    "log": "The change log",
    "history": "The history of all runs",
    "slack": "The Slack door, on SQLite, beside a bare Bolt app",
    "queue": "The queue of four workers, on PostgreSQL",
    "start": "Starting",
}


if __name__ == "__main__":
    main()
