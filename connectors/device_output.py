"""Rows of a network device's answer, read by the TextFSM templates of ntc-templates.

https://github.com/networktocode/ntc-templates; the names of columns are theirs.
"""

import re
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, cast

import textfsm

from connectors.command import Hint
from connectors.errors import ParseError

LACKS_FEATURE = "its software lacks the feature"

# What a device that does not know, or does not tell, says instead.
HINTS = (
    Hint(
        r"% ?(Invalid input|Incomplete|Ambiguous|Unknown command|Unrecognized)",
        f"this device has no such words: {LACKS_FEATURE}, or the login may not look at it (does "
        "it need an enable_file?)",
    ),
    Hint(
        r"% ?Invalid command at",
        "this answer looks like Cisco NX-OS, which is not among the platforms that Keyturn knows",
    ),
    Hint(
        r"Authorization failed|Access denied|not authorized|Permission denied",
        "the login may not look at this",
    ),
    Hint(r"\w+d is not running", "that daemon of FRR is not running on the router"),
)
# How systems that Keyturn does not know begin to answer what they share with those that it knows.
_FOREIGN = {
    "Cisco NX-OS": re.compile(
        r"^-{60,}\nPort +Name +Status|P - Up in port-channel|Cisco Nexus",
        re.M,
    ),
    "Arista EOS": re.compile(r"^Number of channels in use: *\d|\bArista\b", re.M),
    "a shell": re.compile(r"\bshow: (?:command )?not found", re.M),
}


class Row:
    """One row of a table, by its columns."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def get_text(self, column: str) -> str:
        return str(self._columns[column])

    def get_texts(self, column: str) -> tuple[str, ...]:
        """Return a column that holds several words."""
        return tuple(str(word) for word in self._columns[column])

    def get_number(self, column: str) -> int:
        word = self.get_text(column)
        if not word.isdecimal():
            raise ParseError(f"the device names no {column.lower()} where it should: {word!r}")
        return int(word)


def parse_rows(template: str, answer: str) -> tuple[Row, ...]:
    """Read an answer that must hold at least one row.

    template: such as `cisco_ios_show_vlan`. Where nothing matches, templates answer with nothing,
    for an error message too: none is never taken for an answer here.
    """
    machine = textfsm.TextFSM(StringIO(_read_template(template)))
    try:
        found = cast("list[dict[str, Any]]", machine.ParseTextToDicts(answer))  # pyright: ignore[reportUnknownMemberType]  # it ships no types
    except textfsm.TextFSMError:
        found = []
    if not found:
        raise ParseError(f"the device answered with something else: {format_answer(answer)}")
    return tuple(Row(row) for row in found)


def format_answer(answer: str) -> str:
    """Return the beginning of an answer, to be quoted in an error, and what it looks like."""
    words = " / ".join(line.strip() for line in answer.splitlines() if line.strip())
    foreign = next((name for name, sign in _FOREIGN.items() if sign.search(answer)), "")
    looks = (
        f". It looks like {foreign}, and not like the platform in the inventory" if foreign else ""
    )
    return (repr(words[:200]) if words else "nothing") + looks


@cache
def _read_template(template: str) -> str:
    file = files("ntc_templates") / "templates" / f"{template}.textfsm"
    return file.read_text(encoding="utf-8")
