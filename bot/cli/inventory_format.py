"""What is found out about hosts, drawn for a terminal and for programs. Pure."""

from collections.abc import Sequence
from typing import Any

from bot.hosts.live_check import HostCheck
from bot.model.text import escape_to_one_line

_HEADINGS = ("HOST", "ADDRESS", "REACHABLE", "KEY", "LOGIN", "ANSWERS", "ROOT")


def format_checks(checks: Sequence[HostCheck]) -> str:
    """Return a table, and below it what is so and what to do about those that need something."""
    rows = [_HEADINGS, *(_build_row(each) for each in checks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    sick = [each for each in checks if not each.is_healthy]
    said = [_format_problem(each) for each in checks if each.error or each.advice]
    lines += ["", *said] if said else []
    return "\n".join([*lines, "", _format_summary(len(checks), len(sick))])


def checks_to_data(checks: Sequence[HostCheck]) -> list[dict[str, Any]]:
    """Return what json prints: null where it is not known."""
    return [vars(each) | {"well": each.is_healthy} for each in checks]


def _format_problem(check: HostCheck) -> str:
    words = escape_to_one_line(check.error or check.advice)
    return words if words.startswith(check.host) else f"{check.host}: {words}"


def _build_row(check: HostCheck) -> tuple[str, ...]:
    claims = (check.reachable, check.key, check.login, check.answers)
    root = "?" if check.root is None else check.root or "-"
    return (check.host, check.address, *(_format_tristate(each) for each in claims), root)


def _format_tristate(answer: bool | None) -> str:  # noqa: FBT001 - it is what is told
    return "?" if answer is None else "yes" if answer else "NO"


def _format_summary(host_count: int, problem_count: int) -> str:
    if not problem_count:
        return "the host is well" if host_count == 1 else f"all {host_count} hosts are well"
    return f"{problem_count} of {host_count} {'is' if problem_count == 1 else 'are'} not well"
