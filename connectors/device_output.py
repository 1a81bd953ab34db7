"""Tables in a network device's output, parsed by the TextFSM templates of ntc-templates.

The names of columns are theirs: https://github.com/networktocode/ntc-templates
"""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any, cast

from connectors.command import Hint
from connectors.errors import ParseError
from connectors.rows import OddRow, Rows, make_odd_row

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
# A line that is so much deeper than an odd one continues it.
_CONTINUED = 8
# For a template that passes over what it does not know.
_MORE_RULES = {
    "cisco_ios_show_cdp_neighbors": r"""
  ^\s*$$
  ^Total\s+cdp\s+entries\s+displayed
  ^. -> Error"""
}


class Row:
    """One row of a table, by its columns."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __str__(self) -> str:
        return " ".join(self.get_joined(column) for column in self._columns).strip()

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
            raise ParseError(f"{text!r} as {column.lower()} is no number")
        return int(text)


def parse_rows(template: str, answer: str) -> Rows[Row]:
    """Parse output that must hold at least one row. template: such as `cisco_ios_show_vlan`.

    A line that the template refuses is odd. A template returns no rows for output that it does not
    match, such as an error message. So no rows are a ParseError.
    """
    import textfsm

    machine = textfsm.TextFSM(StringIO(_read_template(template)))
    odd: list[OddRow] = []
    end = 0  # of the indentation of what may continue an odd line
    for line in answer.splitlines():
        indent = len(line) - len(line.lstrip())
        if end and line.strip() and indent >= end:
            odd[-1] = OddRow(f"{odd[-1].text} / {line.strip()}", odd[-1].reason)
            continue
        end = 0
        try:
            machine.ParseText(f"{line}\n", eof=False)  # pyright: ignore[reportUnknownMemberType]  # it ships no types
        except textfsm.TextFSMError:
            odd.append(make_odd_row(line, "it is no row of this table"))
            end = indent + _CONTINUED
    found = cast("list[list[Any]]", machine.ParseText(""))  # pyright: ignore[reportUnknownMemberType]
    if not found or (odd and any(sign.search(answer) for sign in _FOREIGN.values())):
        raise ParseError(f"the device printed something unexpected: {format_answer(answer)}")
    names = cast("list[str]", machine.header)  # pyright: ignore[reportUnknownMemberType]
    return Rows((Row(dict(zip(names, row, strict=True))) for row in found), odd)


def split_odd_lines(answer: str, like: str, row: str) -> tuple[str, Sequence[OddRow]]:
    """Return the output without lines that a template would take for a part of the row before.

    like: the regular expression of what a row holds anywhere. row: that of the beginning of a row.
    """
    odd = [
        line for line in answer.splitlines() if re.search(like, line) and not re.match(row, line)
    ]
    kept = "\n".join(line for line in answer.splitlines() if line not in odd)
    return kept, [make_odd_row(line, "it is no row of this table") for line in odd]


def parse_row(template: str, text: str) -> Row:
    """Parse the text of one row of several lines. Raises ParseError if it has a line too many."""
    rows = parse_rows(template, text)
    if len(rows) != 1 or rows.odd:
        reason = f": {rows.odd[0].text[:120]!r}" if rows.odd else ""
        raise ParseError(f"its format is unknown{reason}")
    return rows[0]


def format_answer(answer: str) -> str:
    """Return the beginning of the output, to quote in an error, and which system it looks like."""
    words = " / ".join(line.strip() for line in answer.splitlines() if line.strip())
    foreign = next((name for name, sign in _FOREIGN.items() if sign.search(answer)), "")
    guess = f". It looks like {foreign}, not like the platform in the inventory" if foreign else ""
    return (repr(words[:200]) if words else "nothing") + guess


@cache
def _read_template(template: str) -> str:
    file = files("ntc_templates") / "templates" / f"{template}.textfsm"
    return file.read_text(encoding="utf-8").rstrip() + _MORE_RULES.get(template, "") + "\n"
