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
    backups,
    change_log,
    device_sessions,
    drift_readings,
    enrolled_steps,
    fanout,
    growth,
    history_pages,
    idle_hosts,
    large_policy,
    many_writers,
    memory,
    open_pages,
    page,
    queueing,
    request_burst,
    service_start,
    slack_acknowledgement,
    witnessed_changes,
)
from tests.bench.measurements import Part, measure_speed

_HOSTS = (100, 200, 400)
_QUICK, _FULL = 50_000, 10_000_000
_BACKED_UP = 1_000_000


def main() -> None:
    options = _parse_options()
    with ExitStack() as stack:
        if options.quick and not options.keep:
            # What one part fills in, the next one uses again.
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="keyturn-bench-"))
            options.keep = Path(place)
            # PostgreSQL's own user has to get through.
            options.keep.chmod(0o755)
        _measure(options)


def _measure(options: argparse.Namespace) -> None:
    for name in options.only:
        before, began = measure_speed(), time.perf_counter()
        part = _PARTS[name](options)
        print(f"\n## {_TITLES[name]}\n\n{part.text}", flush=True)
        print(f"\n{name} took {time.perf_counter() - began:,.0f} s", flush=True)
        if not options.quick:
            page.keep(name, part, (before + measure_speed()) / 2)
            if missing := page.write(list(_PARTS)):
                print(f"the page waits for {', '.join(missing)}", flush=True)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} entries, no page")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument("--count", type=int, default=0, help="of entries")
    parser.add_argument("--on", nargs="+", default=["SQLite", "PostgreSQL"])
    parser.add_argument("--keep", type=Path, help="where filled databases are kept (22 GB)")
    options = parser.parse_args()
    options.count = options.count or (_QUICK if options.quick else _FULL)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    return options


def _history(options: argparse.Namespace) -> Part:
    rounds = 40 if options.quick else 200
    return _on_each(
        options, lambda name: history_pages.measure(name, options.count, rounds, options.keep)
    )


def _log(options: argparse.Namespace) -> Part:
    return _on_each(options, lambda name: change_log.measure(name, options.count, options.keep))


def _on_each(options: argparse.Namespace, measure: Callable[[str], Part]) -> Part:
    parts = {name: measure(name) for name in options.on}
    text = "\n\n".join(f"### {name}\n\n{part.text}" for name, part in parts.items())
    return Part(text, [figure for part in parts.values() for figure in part.targets])


def _writers(options: argparse.Namespace) -> Part:
    return many_writers.measure(2 if options.quick else 10)


def _queue(options: argparse.Namespace) -> Part:
    return queueing.measure(*((500, 30, 1) if options.quick else (3_000, 300, 5)))


def _device(options: argparse.Namespace) -> Part:
    return device_sessions.measure(10 if options.quick else 100)


def _memory(options: argparse.Namespace) -> Part:
    return memory.measure(200 if options.quick else 5_000)


def _slack(options: argparse.Namespace) -> Part:
    acknowledgements = slack_acknowledgement.measure(1 if options.quick else 30)
    bursts = request_burst.measure(1 if options.quick else 5)
    return Part(
        f"{acknowledgements.text}\n\n{bursts.text}", [*acknowledgements.targets, *bursts.targets]
    )


def _hosts(options: argparse.Namespace) -> Part:
    rounds = fanout.measure(*(((20,), 2) if options.quick else (_HOSTS, 3)), quick=options.quick)
    return fanout.part(rounds, fanout.single(20 if options.quick else 200, quick=options.quick))


def _waves(options: argparse.Namespace) -> Part:
    return fanout.waves(*((40, 2) if options.quick else (200, 5)))


def _idle(options: argparse.Namespace) -> Part:
    return idle_hosts.measure(60 if options.quick else 500)


def _open(options: argparse.Namespace) -> Part:
    return open_pages.measure(*((100, 50) if options.quick else (500, 500)))


def _drift(options: argparse.Namespace) -> Part:
    return drift_readings.measure(20 if options.quick else 200)


def _enrolled(options: argparse.Namespace) -> Part:
    return enrolled_steps.measure(10 if options.quick else 40)


def _witness(options: argparse.Namespace) -> Part:
    return witnessed_changes.measure(10 if options.quick else 200)


def _policy(options: argparse.Namespace) -> Part:
    return large_policy.measure(*((500, 200, 50, 1) if options.quick else (5_000, 2_000, 500, 7)))


def _growth(options: argparse.Namespace) -> Part:
    return growth.measure((10, 100) if options.quick else (10, 100, 1_000, 5_000))


def _backup(options: argparse.Namespace) -> Part:
    entries = min(options.count, _BACKED_UP)
    return _on_each(options, lambda name: backups.measure(name, entries, options.keep))


def _start(options: argparse.Namespace) -> Part:
    return service_start.measure(1 if options.quick else 7, options.count, options.keep)


_PARTS: Mapping[str, Callable[[argparse.Namespace], Part]] = {
    "hosts": _hosts,
    "waves": _waves,
    "idle": _idle,
    "device": _device,
    "open": _open,
    "drift": _drift,
    "enrolled": _enrolled,
    "witness": _witness,
    "log": _log,
    "writers": _writers,
    "queue": _queue,
    "history": _history,
    "slack": _slack,
    "policy": _policy,
    "growth": _growth,
    "backup": _backup,
    "start": _start,
    "memory": _memory,
}
_TITLES = {
    "hosts": "Many hosts and one host, beside other clients",
    "waves": "A change of many hosts",
    "idle": "Idle hosts",
    "device": "A network device",
    "open": "Open pages, beside pending runs",
    "drift": "Drift",
    "enrolled": "Enrolled hosts",
    "witness": "Witnesses of the change log",
    "log": "The change log",
    "writers": "Many writers on PostgreSQL",
    "queue": "Runs for workers on PostgreSQL",
    "history": "History and log pages",
    "slack": "Slack, beside a bare Bolt app",
    "policy": "A policy of thousands of people",
    "growth": "Rules, areas, schedules, runbooks and features",
    "backup": "Backup and restore",
    "start": "Starting",
    "memory": "Memory over many runs",
}


if __name__ == "__main__":
    main()
