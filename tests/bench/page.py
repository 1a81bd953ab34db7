"""The benchmarks page: targets, measurements, and other clients beside Keyturn."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.measurements import USUAL_SPEED, Figure, Part, columns

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "benchmarks.md"
# The last results, a file for each part, so that one part can be measured again.
_RESULTS = _ROOT / "var" / "bench" / "results"


def keep(name: str, part: Part, speed: float) -> None:
    """Store the results of a part for this page and the next. speed: milliseconds of the fixed
    piece of Python while it was measured."""
    _RESULTS.mkdir(parents=True, exist_ok=True)
    stored = asdict(part) | {"commit": _read_commit(), "speed": speed}
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    (_RESULTS / f"{name}.json").write_text(text, encoding="utf-8")


def write(names: Sequence[str]) -> Sequence[str]:
    """Write the page if there are results of every part.

    Args:
        names: Of the parts, in the order of the page.

    Returns:
        Those that were never measured here, for which the page is left as it is.
    """
    files = {name: _RESULTS / f"{name}.json" for name in names}
    missing = [name for name, file in files.items() if not file.exists()]
    if not missing:
        stored = {name: json.loads(file.read_text("utf-8")) for name, file in files.items()}
        _PAGE.write_text(_render_page(stored), encoding="utf-8")
    return missing


def _read_commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(words, cwd=_ROOT, text=True).strip()


def _render_page(stored: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page in Markdown."""
    rows = [
        _render_row(Figure(**figure), one["speed"])
        for one in stored.values()
        for figure in one["targets"]
    ]
    head = _head(
        sorted({one["commit"] for one in stored.values()}),
        sorted(one["speed"] for one in stored.values()),
    )
    text = [head, "## Targets\n", columns([_COLUMNS, *rows]), ""]
    if "hosts" in stored:
        text += ["## Clients\n", _CLIENTS, stored["hosts"]["text"], ""]
    if "growth" in stored:
        text += ["## Growth\n", _GROWTH, stored["growth"]["text"], ""]
    return "\n".join([*text, _NOTES])


_COLUMNS = ["what", "measured", f"at {USUAL_SPEED} ms", "target", "met"]


def _render_row(measured: Figure, speed: float) -> list[str]:
    """Return the cells of a figure. speed: that of its part."""
    usual = measured.on(speed)
    scaled = "" if usual.value == measured.value else usual.text
    return [measured.what, _measured(measured), scaled, usual.target, usual.verdict]


def _measured(figure: Figure) -> str:
    """Return what was measured, and the ratio where the target is one."""
    is_ratio = "×" in figure.target and figure.ratio
    return f"{figure.text}, {figure.ratio} ×" if is_ratio else figure.text


def _head(commits: Sequence[str], speeds: Sequence[float]) -> str:
    return f"""\
# Benchmarks

`make bench` measures what users notice and writes this page. `make bench QUICK=1` prints the same
in a few minutes, with fewer hosts and entries. `KEEP=DIR` keeps the filled databases for the next
run (22 GB), and `ARGS="--only history log"` measures only these parts. [Contents](README.md)

Measured at {" and ".join(commits)} with Python {platform.python_version()} on \
{platform.system()} {platform.machine()}, {os.cpu_count()} cores, which
Keyturn shares with the hosts, the databases and the other clients. To compare machines: the sum of
the squares of a million numbers took Python {speeds[0]:.0f} to {speeds[-1]:.0f} ms there.
The targets are for a machine on which it takes {USUAL_SPEED} ms: times, rates and shares of a core
are converted to it, part by part, and judged by that. What waits for a disk does not follow that
number.
"""


_CLIENTS = """\
The same command on the same hosts, connections open, clients in turn; medians of three rounds of
each that stays open. *Keyturn, the whole path* includes policy, plan, gate, the signed log and the
stored output. The other clients do none of that.
"""

_GROWTH = """\
What grows with an installation, filled in before it is measured: milliseconds of the processor
with ten of it, and up to thousands.
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
* A check over many hosts: SSH alone is as fast as Go's. Policy, plan, stored output and four
  writes for each host, one after the other in Python, are the rest: 1.6 ms of the processor a
  command at 400 hosts. The ratios to OpenSSH and Ansible follow from it. A child run is stored
  with its request and not with its result, so that after a crash it is known which hosts were to
  be read.
* An approved change commits five times, each before the next: the approval, the claim, the intent,
  the outcome, the proof. None may be left out.
* A change in waves sends each host three commands, one after the other, where a check sends one:
  it reads, runs the step and reads again. And three waves wait for one another.
* Durable appends: each entry is bound to the one before, so that writers take turns, and each
  waits for the disk. Rows of the raw driver are bound to nothing: there, fifty-two writers share
  the disk's time.
* A witness before the first step is `keyturn witness`, a process on the same machine. The change
  waits for its answer, which it stores durably, after the intent of the step.
* A page of the change log has fifty entries and two thousand escaped values: of its time four
  fifths are Jinja's.
* Idle, a service verifies old entries with half a percent of a core until it has seen all of them
  once since its start. Ten times a second uvicorn looks whether it should end, and once a second
  the duties look for what is due: the rest.
* A start with chat imports 2,000 modules. The libraries hold 94 MB with chat, and Keyturn's own
  modules with routes, pages and runbooks 53 MB.
* What later runs leave behind: 2 KB a run are objects of Python. A part of them is what
  cel-expr-python 0.1.3 never releases: what a function that is called in an expression was given
  and returned. `uptime check`, which calls five with short texts, leaves 0.8 KB until a restart.
  The rest is not known; it is not the page cache of SQLite.
* A declared runbook of one's own takes 1.3 ms of a start at most, four fifths of it for the class
  that it becomes.
"""
