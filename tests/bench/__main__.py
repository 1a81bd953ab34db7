"""`make bench`: measure and print, part by part; the full run's figures go into the page too.

Databases take long to fill: with a directory to keep them in, later runs use them again.
"""

import argparse
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.bench import acknowledging, fanning, history, log, queueing, slope
from tests.bench.measuring import table

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "benchmarks.md"
_PLOT = _ROOT / "docs" / "pictures" / "fan-out.svg"
# What was measured last, a file for each part: so that the page may be written part by part.
_TOLD = _ROOT / "var" / "bench" / "told"
_HOSTS = (1, 10, 100, 200, 400)
_QUICK, _FULL = 100_000, 10_000_000
_SIZES = (1_000, 100_000, 1_000_000, 10_000_000)


def main() -> None:
    asked = _asked()
    for name in asked.only:
        began = time.perf_counter()
        said = f"## {_TITLES[name]}\n\n{_PARTS[name](asked)}\n"
        print(f"\n{said}\n{name} took {time.perf_counter() - began:,.0f} s", flush=True)
        if not asked.quick:
            _TOLD.mkdir(parents=True, exist_ok=True)
            (_TOLD / f"{name}.md").write_text(said, encoding="utf-8")
            _PAGE.write_text(_page(), encoding="utf-8")


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


def _history(asked: argparse.Namespace) -> str:
    sizes = {asked.count // 10, *(size for size in _SIZES if size < asked.count), asked.count}
    rounds = 40 if asked.quick else 200
    return _on_each(asked, lambda name: history.told(name, sorted(sizes), rounds, asked.keep))


def _log(asked: argparse.Namespace) -> str:
    return _on_each(asked, lambda name: log.told(name, asked.count, asked.keep))


def _on_each(asked: argparse.Namespace, told: Callable[[str], str]) -> str:
    return "\n\n".join(f"### {name}\n\n{told(name)}" for name in asked.on)


def _slack(asked: argparse.Namespace) -> str:
    return table(acknowledging.figures(3 if asked.quick else 30))


def _hosts(asked: argparse.Namespace) -> str:
    hosts = fanning.measured(*(((20,), 2) if asked.quick else (_HOSTS, 5)), quick=asked.quick)
    said = [fanning.told_in_words(hosts), table(fanning.single(20 if asked.quick else 200))]
    if not asked.quick:
        _PLOT.write_text(slope.drawn(fanning.slopes(hosts)), encoding="utf-8")
        said.append(f"\n![Seconds over hosts, warm](pictures/{_PLOT.name})")
    return "\n".join(said)


def _queue(asked: argparse.Namespace) -> str:
    return table(queueing.figures(quick=asked.quick))


_PARTS: Mapping[str, Callable[[argparse.Namespace], str]] = {
    "history": _history,
    "log": _log,
    "slack": _slack,
    "hosts": _hosts,
    "queue": _queue,
}
_TITLES = {
    "history": "The history of all runs",
    "log": "The change log",
    "slack": "The Slack door, on SQLite, beside a bare Bolt app",
    "hosts": "Many hosts at once, and one, beside other clients",
    "queue": "The queue of four workers, on PostgreSQL",
}


def _page() -> str:
    parts = [_TOLD / f"{name}.md" for name in _PARTS]
    return _head() + "\n".join(part.read_text("utf-8") for part in parts if part.exists())


def _head() -> str:
    return (
        "# Benchmarks\n\n"
        "Written by `make bench`; `make bench QUICK=1` prints the same for a hundred thousand "
        "entries. `KEEP=DIR` keeps what was filled in for the next run (22 GB), and "
        '`ARGS="--only history log"` measures these parts anew and leaves the others of the page '
        "as they are.\n\n"
        "* Each figure stands beside what the database's own driver does in the same run: rates "
        "of the machine, which differ, come out of the ratio. p95: nineteen of twenty are as "
        "quick or quicker.\n"
        "* A run leaves three entries here, as a check does; ten million entries are three "
        "million runs, or three years with one every half minute. Two of nineteen are changes, "
        "with a plan and an approval.\n"
        "* *A page of 40 runs* is what the history asks of the database, below a random run of "
        "the past where it does not say *newest*. The raw page beside it is forty rows of one "
        "host by its index. No page counts anything, and none takes longer because there is more "
        "behind it: each looks at a bounded number of runs and says where to go on.\n"
        "* Before it is measured, a database's files are read once: its machine has the memory "
        "for them (12 GB for PostgreSQL, 7 GB for SQLite). Where it has not, each row that comes "
        "from the disk takes the disk's own time.\n"
        "* *Drawn* is the whole answer, from the request to its HTML; *a core* is how many of "
        "them a processor does in a second.\n"
        "* *Append, each durable* is one entry a transaction, chained and signed by itself; *a "
        "commit* of 32 or 200 is what a wave of hosts writes down before it is told anything. "
        "The raw driver inserts such rows into an empty table with the same indexes, without "
        "hash or signature; ours has a hundred thousand entries then, and what ten million "
        "change is in the table of slopes. Most of what an entry takes in a commit of many is "
        "its Ed25519 signature: each has its own, so that each can be proven alone.\n"
        "* *Verify* recomputes every hash and the signatures that bind them; raw is to read the "
        "same rows.\n\n"
        f"Measured with Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}.\n\n"
    )


if __name__ == "__main__":
    main()
