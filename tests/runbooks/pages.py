"""Pages of declared runbooks, for tests: a check and a change without a fault."""

from pathlib import Path
from typing import Any, cast

from runbooks import Change, Check
from runbooks._declared import check_page, load_page

CHECK = """\
words: swap check
sentence: Check how much swap a host uses.
examples: [web1, web1 50]
fields:
  most: {type: number, least: 1, most: 100, default: 80, description: "Per cent that is too much"}
read:
  areas:
    file: /proc/swaps
    as: table
    columns: [name, kind, size, used, priority]
    numbers: [size, used]
    skip: 1
state:
  full: areas.filter(area, area.used * 100 > area.size * most)
report:
  summary: '{host} has {count(areas.size(), "swap area")}'
  findings:
    - each: full
      text: "{row.name} is more than {most} % full: find out which program grows"
  table:
    columns: [Area, Used]
    rows:
      - each: areas
        cells: ["{row.name}", "{as_size(row.used * 1024)} of {as_size(row.size * 1024)}"]
"""
CHANGE = """\
words: swappiness set
sentence: Set how eagerly the kernel swaps, until the next boot.
examples: [web1 10]
fields:
  value: {type: number, least: 0, most: 200, description: "0 to 200"}
never:
  - when: value == 1
    because: "1 means something else on old kernels: use 0 or 2"
read:
  now: {file: /proc/sys/vm/swappiness, as: number, least: 0, most: 200}
current_state: swappiness is {now}
refuse:
  - when: now > 150
    because: "{host} swaps to memory: ask its owner first"
steps:
  - title: Set swappiness to {value}
    when: now != value
    do: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={value}"], root: true}
    undo: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={now}"], root: true}
    before: "{now}"
    after: "{value}"
undo: sets what was set before
sets: swappiness
takes_down: []
notes:
  - text: It lasts until the next boot.
"""


def load(text: str) -> Any:
    """Return the class of a page, checked as a whole. Raises PageError."""
    runbook = load_page(Path("page.yaml"), text.encode())
    check_page(runbook)
    return runbook


def load_check_page(text: str = CHECK) -> type[Check[Any]]:
    return cast("type[Check[Any]]", load(text))


def load_change_page(text: str = CHANGE) -> type[Change[Any]]:
    return cast("type[Change[Any]]", load(text))


def change_text(text: str, before: str, after: str) -> str:
    """Return a page with one part exchanged, which must be in it."""
    assert before in text
    return text.replace(before, after, 1)
