"""Rows of a network device's answer, read by the TextFSM templates of ntc-templates.

https://github.com/networktocode/ntc-templates; the names of columns are theirs.
"""

from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, cast

import textfsm

from connectors.command import Hint
from connectors.trouble import NotUnderstood

# What a device that does not know, or does not tell, says instead.
HINTS = (
    Hint(
        r"% ?(Invalid input|Incomplete|Ambiguous|Unknown command|Unrecognized)",
        "this device has no such words: its software lacks the feature, or the login may not "
        "look at it (does it need an enable_file?)",
    ),
    Hint(
        r"Authorization failed|Access denied|not authorized|Permission denied",
        "the login may not look at this",
    ),
    Hint(r"\w+d is not running", "that daemon of FRR is not running on the router"),
)


class Row:
    """One row of a table, by its columns."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def text(self, column: str) -> str:
        return str(self._columns[column])

    def texts(self, column: str) -> tuple[str, ...]:
        """Return a column that holds several words."""
        return tuple(str(word) for word in self._columns[column])

    def number(self, column: str) -> int:
        word = self.text(column)
        if not word.isdecimal():
            raise NotUnderstood(f"the device names no {column.lower()} where it should: {word!r}")
        return int(word)


def rows(template: str, answer: str) -> tuple[Row, ...]:
    """Read an answer that must hold at least one row.

    template: such as `cisco_ios_show_vlan`. Where nothing matches, templates answer with nothing,
    for an error message too: none is never taken for an answer here.
    """
    machine = textfsm.TextFSM(StringIO(_text(template)))
    try:
        found = cast("list[dict[str, Any]]", machine.ParseTextToDicts(answer))  # pyright: ignore[reportUnknownMemberType]  # it ships no types
    except textfsm.TextFSMError:
        found = []
    if not found:
        raise NotUnderstood(f"the device answered with something else: {said(answer)}")
    return tuple(Row(row) for row in found)


def said(answer: str) -> str:
    """Return the beginning of an answer, to be quoted in an error."""
    words = " / ".join(line.strip() for line in answer.splitlines() if line.strip())
    return repr(words[:200]) if words else "nothing"


@cache
def _text(template: str) -> str:
    file = files("ntc_templates") / "templates" / f"{template}.textfsm"
    return file.read_text(encoding="utf-8")
