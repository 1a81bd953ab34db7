"""The benchmarks page: targets, measurements, and other clients beside Keyturn."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench.measurements import Figure, Part, columns

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "benchmarks.md"
# The last results, a file for each part, so that one part can be measured again.
_RESULTS = _ROOT / "var" / "bench" / "results"


def keep(name: str, part: Part) -> None:
    """Store the results of a part for this page and the next."""
    _RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(part), indent=1, ensure_ascii=False)
    (_RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def write(names: Sequence[str]) -> None:
    """Write the page from all stored results. names: of the parts, in order."""
    files = {name: _RESULTS / f"{name}.json" for name in names}
    parts = {name: _read(file) for name, file in files.items() if file.exists()}
    _PAGE.write_text(render_page(parts), encoding="utf-8")


def _read(file: Path) -> Part:
    stored = json.loads(file.read_text(encoding="utf-8"))
    return Part(stored["text"], [Figure(**figure) for figure in stored["targets"]])


def render_page(parts: Mapping[str, Part]) -> str:
    """Return the page in Markdown."""
    figures = [figure for part in parts.values() for figure in part.targets]
    rows = [[one.what, _measured(one), one.target, one.verdict] for one in figures]
    text = [_head(), "## Targets\n", columns([["what", "measured", "target", "met"], *rows]), ""]
    if "hosts" in parts:
        text += ["## Clients\n", _CLIENTS, parts["hosts"].text, ""]
    return "\n".join([*text, _NOTES])


def _measured(figure: Figure) -> str:
    """Return what was measured, and the ratio where the target is one."""
    is_ratio = "×" in figure.target and figure.ratio
    return f"{figure.text}, {figure.ratio} ×" if is_ratio else figure.text


def _head() -> str:
    return f"""\
# Benchmarks

`make bench` measures what users notice and writes this page. `make bench QUICK=1` prints the same
in a few minutes, with fewer hosts and entries. `KEEP=DIR` keeps the filled databases for the next
run (22 GB), and `ARGS="--only history log"` measures only these parts. [Contents](README.md)

Measured with Python {platform.python_version()} on {platform.system()} {platform.machine()}, \
{os.cpu_count()} cores, which Keyturn shares
with the hosts, the databases and the other clients.
"""


_CLIENTS = """\
The same command on the same hosts, connections open, clients in turn; medians. *Keyturn, the whole
path* includes policy, plan, gate, the signed log and the stored output. The other clients do none
of that.
"""

_NOTES = """\
## Notes

* Ratios compare with a peer in the same run. *p95*: 19 of 20 are at least as fast.
* History and log hold ten million entries of three million runs. The files are read once before
  measuring.
* *Append, each durable* commits one signed entry a transaction. The raw driver inserts the same
  rows without hash and signature.
* *One check* and *one change* go over the API to one host with an open connection.
* A change reads each host, plans, runs a step, and reads again. The step is recorded on the host,
  so that it runs once.
"""
