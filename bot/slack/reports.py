"""What a check saw, drawn: the findings, and its table as aligned text. Pure."""

from collections.abc import Sequence

from bot.slack.blocks import Block, bullets, preformatted, rich, shortened, words
from bot.slack.sentences import counted
from bot.visible import one_line
from runbooks import Report, Table

_MOST_FINDINGS = 20
_MOST_ROWS = 40
_MOST_TABLE = 3000


def drawn(report: Report) -> list[Block]:
    parts = [*_findings(report.findings)] if report.findings else []
    if report.table and report.table.rows:
        parts.append(preformatted(aligned(report.table)))
    return [rich(*parts)] if parts else []


def aligned(table: Table) -> str:
    """Return the columns below each other; what is too much is counted, not hidden."""
    rows = [[one_line(cell) for cell in row] for row in [table.columns, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    shown, room = 0, _MOST_TABLE
    while shown < min(len(lines), _MOST_ROWS) and len(lines[shown]) < room:
        room -= len(lines[shown]) + 1
        shown += 1
    left = len(lines) - shown
    return "\n".join(lines[:shown] + ([f"… and {counted(left, 'more row')}"] if left else []))


def _findings(findings: Sequence[str]) -> list[Block]:
    items = [[words(shortened(finding, 300))] for finding in findings[:_MOST_FINDINGS]]
    if len(findings) > _MOST_FINDINGS:
        items.append([words(f"… and {len(findings) - _MOST_FINDINGS} more")])
    return [bullets(*items)]
