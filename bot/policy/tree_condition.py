"""Which result of a check means that an event has happened. Pure.

Without a condition, it is a check that needs attention. A condition compares a cell of the
report's table:

    Link of eth0 != up              the cell in the column Link of the row that begins with eth0
    State of sw1 Vlan10 != Active   the same; its first cells, where several rows begin alike
    state != active (running)       of a table with two columns, a name and its value
    rows < 2                        how many rows the table has
"""

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass

from runbooks import Report

_CONDITION = re.compile(
    r"(?:(?P<column>\S.*?) of )?(?P<row>\S.*?)\s*(?P<sign><=|>=|==|!=|<|>|=)\s*(?P<value>\S.*)"
)
# With a unit such as %, ms or GiB/s, but not the beginning of a date, an address or `3 of 4`.
_NUMBER = re.compile(r"(?P<number>-?\d[\d,]*(?:\.\d+)?)\s*(?P<unit>%|[A-Za-z]\S*|)")
_SIGNS = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY = frozenset({"=", "==", "!="})
ROWS = "rows"
_MAX_NAMED = 10


class ConditionError(ValueError):
    """A condition cannot be evaluated. The message says why, and what to write."""


@dataclass(frozen=True)
class Condition:
    """A cell of a report's table, and what it is compared with."""

    column: str
    """The heading of its column; "" for the second of two columns."""
    row: str
    """The first cell of its row, or the first cells with a space between them."""
    sign: str
    value: str

    @property
    def counts_rows(self) -> bool:
        return not self.column and self.row == ROWS


def parse_condition(text: str) -> Condition:
    """Return the parts of a condition. Raises ConditionError."""
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise ConditionError(
            "must compare a cell of the check's table, such as `Link of eth0 != up`, or the "
            "number of its rows: `rows < 2`"
        )
    condition = Condition(match["column"] or "", match["row"], match["sign"], match["value"])
    needs_number = condition.counts_rows or condition.sign not in _EQUALITY
    if needs_number and _parse_number(condition.value) is None:
        raise ConditionError(
            f"`{condition.value}` is not a number: compare words with = or !=, and only numbers "
            "with < and >"
        )
    return condition


def find_problem(condition: Condition, columns: Sequence[str], rows: Sequence[str]) -> str:
    """Return why no report with these columns and rows can meet a condition; "" if one can.

    rows: the first cells of all rows, where they are known; otherwise empty.
    """
    if condition.counts_rows:
        return ""
    try:
        _find_column(condition, columns)
    except ConditionError as error:
        return str(error)
    if rows and condition.row not in rows:
        return f"the table has no row {condition.row}; it has {_join(rows)}"
    return ""


def has_failed(report: Report, when: str) -> bool:
    """Return whether a report means failed. when: a condition, or "" for any finding.

    Raises ConditionError where the report does not have what the condition compares.
    """
    if not when:
        return not report.healthy
    condition = parse_condition(when)
    if report.table is None:
        if condition.counts_rows:
            return _compare_cell("0", condition)
        raise ConditionError(f"the report has no table: {report.summary}")
    if condition.counts_rows:
        return _compare_cell(str(len(report.table.rows)), condition)
    at = _find_column(condition, report.table.columns)
    return _compare_cell(_find_row(condition, report.table.rows)[at], condition)


def _find_column(condition: Condition, columns: Sequence[str]) -> int:
    if not condition.column:
        if len(columns) == 2:
            return 1
        raise ConditionError(
            f"the table has {len(columns)} columns, so name one: `COLUMN of {condition.row} "
            f"{condition.sign} {condition.value}` with one of {_join(columns)}"
        )
    found = [n for n, one in enumerate(columns) if one.casefold() == condition.column.casefold()]
    if len(found) == 1:
        return found[0]
    count = "no column" if not found else f"{len(found)} columns"
    raise ConditionError(
        f"the table has {count} called {condition.column}; it has {_join(columns)}"
    )


def _find_row(condition: Condition, rows: Sequence[Sequence[str]]) -> Sequence[str]:
    found = [row for row in rows if condition.row in _list_names(row)]
    if len(found) == 1:
        return found[0]
    if not found:
        names = dict.fromkeys(row[0] for row in rows)
        raise ConditionError(f"the table has no row {condition.row}; it has {_join([*names])}")
    longer = [" ".join(row[:2]) for row in found]
    raise ConditionError(
        f"{len(found)} rows begin with {condition.row}: name more cells, such as {_join(longer)}"
    )


def _list_names(row: Sequence[str]) -> list[str]:
    """Return the ways to name a row: its first cell, its first two, and so on."""
    return [" ".join(row[:count]) for count in range(1, len(row) + 1)]


def _compare_cell(cell: str, condition: Condition) -> bool:
    compare = _SIGNS[condition.sign]
    is_number, wanted = _parse_number(cell), _parse_number(condition.value)
    if is_number and wanted and is_number[1] == wanted[1]:
        return bool(compare(is_number[0], wanted[0]))
    if condition.sign in _EQUALITY and not (is_number and wanted):
        return bool(compare(cell.casefold(), condition.value.casefold()))
    raise ConditionError(
        f"{condition.row} is {cell or 'empty'}, which cannot be compared with {condition.value}: "
        "write a number with the same unit"
    )


def _parse_number(text: str) -> tuple[float, str] | None:
    """Return a number and its unit; None for words."""
    match = _NUMBER.fullmatch(text.strip())
    return (float(match["number"].replace(",", "")), match["unit"]) if match else None


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return (", ".join(names[:_MAX_NAMED]) or "none") + more
