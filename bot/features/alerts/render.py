"""The message that answers an alert. Pure."""

from bot.features.alerts.findings import WINDOW_HOURS, Change, Findings
from bot.features.alerts.rows import Answer
from bot.model.canonical import hash_canonical
from bot.model.run import Run
from bot.model.run_states import get_run_display
from bot.model.text import capitalise_sentence, format_count, join_names
from bot.model.times import HOUR, format_span, to_datetime
from bot.slack.blocks import (
    Block,
    Element,
    Inline,
    Message,
    actions,
    bold,
    bullet_list,
    context,
    date_element,
    emoji,
    escape_mrkdwn,
    format_notification,
    link,
    paragraph,
    preformatted,
    rich_text,
    shorten_text,
)
from bot.slack.buttons import build_form_button, build_read_button
from bot.slack.run_message import align_table
from runbooks import Report, Table

_MAX_FINDINGS, _MAX_ROWS = 3, 5
_MAX_TEXT_LENGTH = 500


def render_answer(
    answer: Answer,
    findings: Findings,
    *,
    requester: str,
    base_url: str,
    search_since: float | None = None,
) -> Message:
    """Render what was found, what changed, and buttons that open filled-in forms.

    Args:
        requester: The name of the person or agent as whom the checks ran.
        base_url: Of the web pages; "" without.
        search_since: Seconds since 1970 from when an earlier attempt is searched for; None if
            there was none.
    """
    hosts = join_names(answer.hosts)
    blocks: list[Block] = [paragraph(bold(f"Found on {hosts}"))]
    for run in findings.checks:
        blocks += _render_check(run, base_url)
    if answer.runs is None:
        blocks.append(
            paragraph(
                "Keyturn was stopped while it requested the checks: it is not known which of them "
                f"ran. See the runs of {requester}."
            )
        )
    elif not findings.checks:
        blocks.append(paragraph("No check was run."))
    blocks += _render_changes(findings, requester)
    blocks += _render_plans(answer)
    blocks.append(context(escape_mrkdwn(f"Read as {requester}. Nothing was changed.")))
    summary = "; ".join(run.summary for run in findings.checks if run.summary)
    name = hash_canonical({"alert": [answer.key.channel, answer.key.ts]})[:32]
    return Message(
        format_notification(f"Found on {hosts}: {summary or 'no result yet'}"),
        blocks,
        name=name,
        search_since=search_since,
    )


def _render_check(run: Run, base_url: str) -> list[Block]:
    display = get_run_display(run)
    number = f"Run {run.id}"
    named: Inline = link(f"{base_url}/runs/{run.id}", number) if base_url else number
    text = run.summary if run.is_ended else "no result yet; the page of the run shows it"
    line: list[Inline] = [
        emoji(display.emoji),
        " ",
        named,
        f" · {shorten_text(run.title, 200)} – {display.label}: ",
        capitalise_sentence(shorten_text(text, _MAX_TEXT_LENGTH)),
    ]
    return [paragraph(*line), *_render_report(run.report)]


def _render_report(report: Report | None) -> list[Block]:
    if report is None:
        return []
    parts: list[Element] = []
    if report.findings:
        shown = [[shorten_text(one, 300)] for one in report.findings[:_MAX_FINDINGS]]
        more = len(report.findings) - len(shown)
        shown += [[f"and {more} more"]] if more else []
        parts.append(bullet_list(*shown))
    if report.table and report.table.rows:
        rows = Table(report.table.columns, report.table.rows[:_MAX_ROWS])
        parts.append(preformatted(align_table(rows)))
    return [rich_text(*parts)] if parts else []


def _render_changes(findings: Findings, requester: str) -> list[Block]:
    title = f"Changed there in the last {WINDOW_HOURS} h"
    left_out = _list_left_out(findings, requester)
    if not findings.changes:
        return [
            paragraph(bold(title), f" · {' '.join(left_out) or 'Nothing that Keyturn knows of.'}")
        ]
    items = [_render_change(one) for one in findings.changes]
    if findings.omitted:
        items.append([f"and {format_count(findings.omitted, 'more change')}"])
    blocks = [paragraph(bold(title)), rich_text(bullet_list(*items))]
    return [*blocks, *([paragraph(" ".join(left_out))] if left_out else [])]


def _list_left_out(findings: Findings, requester: str) -> list[str]:
    """Return sentences about what the list lacks."""
    searched = format_span(findings.searched_span)
    found = {
        f"Changes that {requester} may not view are not listed.": not findings.shows_all,
        "Changes that also concern other hosts are not listed here.": findings.hides_shared,
        f"The change log is long: the last {searched} of it were searched.": (
            findings.searched_span < WINDOW_HOURS * HOUR
        ),
    }
    return [sentence for sentence, is_so in found.items() if is_so]


def _render_change(change: Change) -> list[Inline]:
    return [date_element(to_datetime(change.at)), f" {shorten_text(change.text, 400)}"]


def _render_plans(answer: Answer) -> list[Block]:
    host = answer.hosts[0] if answer.hosts else ""
    buttons = [build_form_button(f"{one}…", one, n=n) for n, one in enumerate(answer.plans)]
    more = build_read_button("What changed today", f"changed 24h {host}", n=0)
    title = (
        [
            paragraph(
                bold("Possible changes"),
                " · a button opens the filled-in form, and that shows the plan first. Nothing is "
                "requested yet.",
            )
        ]
        if answer.plans
        else []
    )
    return [*title, actions("alert", *buttons, more)]
