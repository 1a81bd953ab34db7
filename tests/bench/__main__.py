"""`make bench`: fill SQLite and PostgreSQL, measure, print; the full run writes the page too."""

import argparse
import platform
import tempfile
from pathlib import Path

from tests.bench import acknowledging, fanning, log, slope
from tests.bench.measuring import table

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "benchmarks.md"
_PLOT = _ROOT / "docs" / "pictures" / "fan-out.svg"
_HOSTS = (1, 10, 100, 200, 400)
_QUICK, _FULL = 100_000, 10_000_000


def main() -> None:
    asked = _asked()
    said: list[str] = []
    for name in asked.on:
        with tempfile.TemporaryDirectory(dir=asked.directory) as place:
            rounds = 40 if asked.quick else 200
            found = log.figures_of(name, count=asked.count, rounds=rounds, place=Path(place))
        _say(said, f"\n## {name}, {asked.count:,} runs and as many entries\n")
        _say(said, f"Filled in {found.seconds:,.0f} s.\n")
        _say(said, table(found.figures))
    _say(said, "\n## The Slack door, on SQLite, beside a bare Bolt app\n")
    _say(said, table(acknowledging.figures(3 if asked.quick else 30)))
    _say(said, "\n## Many hosts at once, and one, beside other clients\n")
    hosts = fanning.measured(*(((20,), 2) if asked.quick else (_HOSTS, 5)), quick=asked.quick)
    _say(said, fanning.told_in_words(hosts))
    _say(said, table(fanning.single(20 if asked.quick else 200)))
    if not asked.quick:
        _PLOT.write_text(slope.drawn(fanning.slopes(hosts)), encoding="utf-8")
        _say(said, f"\n![Seconds over hosts, warm](pictures/{_PLOT.name})\n")
        _PAGE.write_text(_page(said), encoding="utf-8")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} entries, no page")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--on", nargs="+", default=["SQLite", "PostgreSQL"])
    parser.add_argument("--directory", help="where there is room for the databases")
    asked = parser.parse_args()
    asked.count = asked.count or (_QUICK if asked.quick else _FULL)
    return asked


def _say(said: list[str], words: str) -> None:
    print(words, flush=True)
    said.append(words)


def _page(said: list[str]) -> str:
    head = (
        "# Benchmarks\n\n"
        "Written by `make bench`; `make bench QUICK=1` prints the same for a hundred thousand "
        "entries in less than two minutes. Each figure stands beside what the database's own "
        "driver does in the same run: rates of the machine, which differ, come out of the ratio. "
        "p95: nineteen of twenty are as quick or quicker. The raw page is forty rows of one host "
        "by its index.\n\n"
        f"Measured with Python {platform.python_version()} on {platform.system()} "
        f"{platform.machine()}.\n"
    )
    return head + "\n".join(said) + "\n"


if __name__ == "__main__":
    main()
