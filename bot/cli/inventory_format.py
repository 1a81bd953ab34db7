"""Results of host checks as a table and as JSON data. Pure."""

from collections.abc import Sequence
from typing import Any

from bot.hosts.live_check import HostCheck
from bot.model.text import escape_to_one_line

_HEADINGS = ("HOST", "ADDRESS", "REACHABLE", "KEY", "LOGIN", "ANSWERS", "ROOT")


def format_checks(checks: Sequence[HostCheck]) -> str:
    """Return a table, and below it each problem with its fix."""
    rows = [_HEADINGS, *(_build_row(each) for each in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    failed = [each for each in checks if not each.is_healthy]
    problems = [_format_problem(each) for each in checks if each.error or each.advice]
    lines += ["", *problems] if problems else []
    return "\n".join([*lines, "", _format_summary(len(checks), len(failed))])


def checks_to_data(checks: Sequence[HostCheck]) -> list[dict[str, Any]]:
    """Return the checks as JSON data; null where a value is unknown."""
    return [vars(each) | {"healthy": each.is_healthy} for each in checks]


def _format_problem(check: HostCheck) -> str:
    message = escape_to_one_line(check.error or check.advice)
    return message if message.startswith(check.host) else f"{check.host}: {message}"


def _build_row(check: HostCheck) -> tuple[str, ...]:
    results = (check.reachable, check.key, check.login, check.answers)
    root = "?" if check.root is None else check.root or "-"
    return (check.host, check.address, *(_format_tristate(each) for each in results), root)


def _format_tristate(value: bool | None) -> str:  # noqa: FBT001 - the value to format
    return "?" if value is None else "yes" if value else "NO"


def _format_summary(host_count: int, problem_count: int) -> str:
    if not problem_count:
        return (
            "The host is healthy." if host_count == 1 else f"All {host_count} hosts are healthy."
        )
    return f"{problem_count} of {host_count} hosts failed."
