"""Which result of a check means that an event has happened. Pure.

Left out, it is a check that needs attention. `NAME < 2` compares the number in a row of the
report's table whose first column is NAME; `rows < 2` compares how many rows the table has.
"""

import operator
import re

from runbooks import Report

_CONDITION = re.compile(
    r"^\s*(?P<name>\S.*?)\s*(?P<sign><=|>=|==|!=|<|>)\s*(?P<number>-?[\d.]+)\s*$"
)
_SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ROWS = "rows"


def parse_condition(text: str) -> str:
    """Return the condition as written. Raises ValueError."""
    if text and not _CONDITION.match(text):
        raise ValueError("must compare a row of the check's table, such as `members < 2`")
    return text


def has_failed(report: Report, condition: str) -> bool | None:
    """Return whether a report means failed; None: it has no such row, so nothing is known."""
    if not condition:
        return not report.healthy
    match = _CONDITION.match(condition)
    value = _find_number(report, match["name"]) if match else None
    if match is None or value is None:
        return None
    return bool(_SIGNS[match["sign"]](value, float(match["number"])))


def _find_number(report: Report, name: str) -> float | None:
    if report.table is None:
        return None
    if name == ROWS:
        return len(report.table.rows)
    for row in report.table.rows:
        number = re.match(r"-?\d+(\.\d+)?", row[1].replace(",", "")) if len(row) > 1 else None
        if row and row[0] == name and number:
            return float(number[0])
    return None
