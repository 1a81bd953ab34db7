"""What is found out about hosts, drawn for a terminal and for programs. Pure."""

from collections.abc import Sequence
from typing import Any

from bot.hosts.live_check import HostCheck
from bot.model.text import escape_to_one_line

_HEADINGS = ("HOST", "ADDRESS", "REACHABLE", "KEY", "LOGIN", "ANSWERS", "ROOT")


def format_checks(standings: Sequence[HostCheck]) -> str:
    """Return a table, and below it what is so and what to do about those that need something."""
    rows = [_HEADINGS, *(_row(each) for each in standings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    sick = [each for each in standings if not each.well]
    said = [_said(each) for each in standings if each.trouble or each.advice]
    lines += ["", *said] if said else []
    return "\n".join([*lines, "", _summary(len(standings), len(sick))])


def checks_to_data(standings: Sequence[HostCheck]) -> list[dict[str, Any]]:
    """Return what json prints: null where it is not known."""
    return [vars(each) | {"well": each.well} for each in standings]


def _said(standing: HostCheck) -> str:
    words = escape_to_one_line(standing.trouble or standing.advice)
    return words if words.startswith(standing.host) else f"{standing.host}: {words}"


def _row(standing: HostCheck) -> tuple[str, ...]:
    claims = (standing.reachable, standing.key, standing.login, standing.answers)
    root = "?" if standing.root is None else standing.root or "-"
    return (standing.host, standing.address, *(_claim(each) for each in claims), root)


def _claim(claim: bool | None) -> str:  # noqa: FBT001 - it is what is told
    return "?" if claim is None else "yes" if claim else "NO"


def _summary(hosts: int, sick: int) -> str:
    if not sick:
        return "the host is well" if hosts == 1 else f"all {hosts} hosts are well"
    return f"{sick} of {hosts} {'is' if sick == 1 else 'are'} not well"
