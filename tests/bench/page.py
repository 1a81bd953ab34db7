"""The page of benchmarks: every target beside what was measured, and then part by part."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from tests.bench.measuring import Figure, Part, columns

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "benchmarks.md"
# What was measured last, a file for each part: so that the page may be written part by part.
_TOLD = _ROOT / "var" / "bench" / "told"


def keep(name: str, part: Part) -> None:
    """Keep what a part came to for this page and the next."""
    _TOLD.mkdir(parents=True, exist_ok=True)
    kept = json.dumps(asdict(part), indent=1, ensure_ascii=False)
    (_TOLD / f"{name}.json").write_text(kept, encoding="utf-8")


def write(titles: Mapping[str, str]) -> None:
    """Write the page of all that is kept. titles: of the parts, in their order."""
    kept = {name: _TOLD / f"{name}.json" for name in titles}
    parts = {
        name: json.loads(file.read_text("utf-8")) for name, file in kept.items() if file.exists()
    }
    figures = [Figure(**figure) for part in parts.values() for figure in part["targets"]]
    rows = [[one.what, _measured(one), one.target, one.verdict] for one in figures]
    targets = columns([["what", "measured", "target", "met"], *rows])
    said = [_head(), f"## Targets\n\n{targets}\n", _WORDS]
    said += [f"## {titles[name]}\n\n{part['text'].strip()}\n" for name, part in parts.items()]
    _PAGE.write_text("\n".join(said), encoding="utf-8")


def _measured(figure: Figure) -> str:
    """Return what was measured; where the target is a peer's share, that too."""
    is_share = "×" in figure.target and figure.ratio
    return f"{figure.said}, {figure.ratio} ×" if is_share else figure.said


def _head() -> str:
    return f"""\
# Benchmarks

Written by `make bench`; `make bench QUICK=1` prints the same within two minutes, of fewer hosts
and fifty thousand entries. `KEEP=DIR` keeps what was filled in for the next run (22 GB), and
`ARGS="--only history log"` measures these parts anew and leaves the others of the page as they
are.

Measured with Python {platform.python_version()} on {platform.system()} {platform.machine()}, \
{os.cpu_count()} cores, which Keyturn shares with the hosts, the databases and the peers.
"""


_WORDS = """\
## What the words mean

* Beside most figures stands what a *peer* does in the same run, by turns: rates of the machine,
  which differ, come out of the ratio. The raw driver is the database's own, without Keyturn. p95:
  nineteen of twenty are as quick or quicker.
* A run leaves three entries here, as a check does; ten million entries are three million runs, or
  three years with one every half minute. Two of nineteen are changes, with a plan and an approval.
* *A page of 40 runs* is what the history asks of the database, below a random run of the past
  where it does not say *newest*. The raw page beside it is forty rows of one host by its index. No
  page counts anything, and none takes longer because there is more behind it: each looks at a
  bounded number of runs and says where to go on.
* Before it is measured, a database's files are read once: its machine has the memory for them (12
  GB for PostgreSQL, 2 of which are its `shared_buffers`, and 7 GB for SQLite). Where it has not,
  each row that comes from the disk takes the disk's own time.
* *Drawn* is the whole answer, from the request to its HTML; *a core* is how many of them a
  processor does in a second. It is asked for again and again: rows that were drawn before are
  shown again, as those of the newest page are. Beside the rate stands that of a bare table of as
  many rows, five cells each, which Jinja draws of what is at hand.
* *Append, each durable* is one entry a transaction, chained and signed by itself; *a commit* of 32
  or 200 is what a wave of hosts writes down before it is told anything. The raw driver inserts
  such rows into an empty table with the same indexes, without hash or signature, each commit a
  transaction that it begins and ends, as drivers do by themselves; to PostgreSQL these are three
  messages, and another row tells what one INSERT that commits itself takes. Our log has a hundred
  thousand entries then, and what ten million change is in the table of slopes. Most of what an
  entry takes in a commit of many is its Ed25519 signature: each has its own, so that each
  can be proven alone.
* *The whole path* is what a request goes through: rules, plan, gate, the signed log, and what the
  host said kept. The clients beside it do nothing of that. Their times are those of these hosts
  on this machine: of one check and of one change, what Go's client takes for a bare command is the
  host's own, once for a check and three times for a change.
* *Verify* recomputes every hash and the signatures that bind them; raw is to read the same rows.

## What is missed, and where its time goes

Hosts, peers and Keyturn share the cores here, so what the hosts take bounds every client.

* *CPU a command* is that of the whole path, with three signed entries, the run, its words and what
  the host said. Half of it is SSH: thirteen packets, sealed and opened one by one in Python, and
  the calls of the kernel for them: asyncssh takes more than the target for that alone. What a
  run records takes another third of a millisecond. Of the clients here only Go's stays below it.
* *A change in waves* has each host read, told a step, and read again. Three commands that take the
  host no more than a check does are the target by themselves, and the step takes it more: it is
  noted in the host's own log and kept by a marker, so that it runs once however often it is sent
  and can be asked after. That is sixteen processes there, where a check starts six. These
  commands alone, from 32 threads, without a rule, a wave or a line written down, are the row below
  it: they are over the target already. What the whole path adds to them is the change's ratio.
"""
