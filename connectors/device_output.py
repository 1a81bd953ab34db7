"""Tables in a network device's output, parsed by the TextFSM templates of ntc-templates.

The names of columns are theirs: https://github.com/networktocode/ntc-templates
"""

import re
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, cast

from connectors.command import Hint
from connectors.errors import ParseError

LACKS_FEATURE = "its software lacks the feature"

# Errors that a device prints for a command that it does not know or does not allow.
HINTS = (
    Hint(
        r"% ?(Invalid input|Incomplete|Ambiguous|Unknown command|Unrecognized)"
        r"|(^|\n)\s*(Invalid input:|Ambiguous input:|unknown command|syntax error)",
        f"this device does not know the command: {LACKS_FEATURE}, or the login may not use it "
        "(check whether it needs an enable_file)",
    ),
    Hint(
        r"% ?Invalid command at",
        "this output looks like Cisco NX-OS, which Keyturn does not support",
    ),
    Hint(
        r"Authorization failed|Access denied|not authorized|Permission denied",
        "the login may not read this",
    ),
    Hint(r"\w+d is not running", "that daemon of FRR is not running on the router"),
)
# How unsupported systems begin their output of commands that supported ones have too.
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
        """Return a column that holds several values."""
        return tuple(str(word) for word in self._columns[column])

    def get_joined(self, column: str) -> str:
        """Return a column that holds one value or several, in one text."""
        value = self._columns[column]
        return ", ".join(self.get_texts(column)) if isinstance(value, list) else str(value)

    def get_number(self, column: str) -> int:
        text = self.get_text(column)
        if not text.isdecimal():
            raise ParseError(f"the device printed {text!r} as {column.lower()}: not a number")
        return int(text)


def parse_rows(template: str, answer: str) -> tuple[Row, ...]:
    """Parse output that must hold at least one row. template: such as `cisco_ios_show_vlan`.

    A template returns no rows for output that it does not match, such as an error message. So no
    rows are a ParseError.
    """
    import textfsm

    machine = textfsm.TextFSM(StringIO(_read_template(template)))
    try:
        found = cast("list[dict[str, Any]]", machine.ParseTextToDicts(answer))  # pyright: ignore[reportUnknownMemberType]  # it ships no types
    except textfsm.TextFSMError:
        found = []
    if not found:
        raise ParseError(f"the device printed something unexpected: {format_answer(answer)}")
    return tuple(Row(row) for row in found)


def format_answer(answer: str) -> str:
    """Return the beginning of the output, to quote in an error, and which system it looks like."""
    words = " / ".join(line.strip() for line in answer.splitlines() if line.strip())
    foreign = next((name for name, sign in _FOREIGN.items() if sign.search(answer)), "")
    guess = f". It looks like {foreign}, not like the platform in the inventory" if foreign else ""
    return (repr(words[:200]) if words else "nothing") + guess


@cache
def _read_template(template: str) -> str:
    file = files("ntc_templates") / "templates" / f"{template}.textfsm"
    return file.read_text(encoding="utf-8")
