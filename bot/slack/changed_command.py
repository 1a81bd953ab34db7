"""`/keyturn changed …`: what changed around a point in time."""

from collections.abc import Mapping, Sequence

from bot.db.database import Database
from bot.model import times
from bot.model.run import Decision
from bot.model.text import align_rows
from bot.model.times import InvalidTimeError
from bot.queries import timeline
from bot.queries.timeline import Timeline, TimelineEvent
from bot.slack.blocks import (
    Message,
    bold,
    code,
    format_notification,
    preformatted,
    rich_text,
    rich_text_section,
    shorten_text,
)
from bot.slack.parsing import TypedCommand

_MAX_EVENTS = 20


def answer_changed_command(
    command: TypedCommand, database: Database, *, person_names: Mapping[str, str]
) -> Message:
    """Answer `changed 02:00 ±30m web*`: a time, a range around it and a pattern of hosts.

    Without them, the last hour. person_names: names by person id. Raises InvalidRequestError if
    there is no valid time.
    """
    zone = command.zone
    with database.reading(command.view_rights) as tx:
        now = tx.now
        at, within, host = _parse_changed_command(command.rest.split(), now, zone)
        shown = timeline.build_timeline(tx, at, span=within, host_pattern=host, limit=_MAX_EVENTS)
        allowed = timeline.list_approvals(tx, shown.events)
    where = "" if host == "*" else f" on {host}"
    first, last = (
        times.format_timestamp(one, zone) for one in (at - within, min(at + within, now))
    )
    title = f"Between {first} and {last}{'' if zone == 'UTC' else f' {zone}'}{where}"
    parts = [rich_text_section(bold(title))]
    if shown.events:
        rows = [_build_event_row(one, allowed, person_names, zone) for one in shown.events]
        parts.append(preformatted("\n".join(shorten_text(row, 200) for row in align_rows(rows))))
        parts += map(rich_text_section, _describe_omitted(shown, at, within, zone))
        parts.append(rich_text_section("Details: ", code("/keyturn run N")))
    else:
        parts.append(rich_text_section("No known changes."))
    return Message(format_notification(title), [rich_text(*parts)])


def _describe_omitted(timeline_shown: Timeline, at: int, time_range: int, zone: str) -> list[str]:
    sentences: list[str] = []
    if timeline_shown.omitted:
        sentences.append(
            f"Less likely and not shown: {timeline_shown.omitted}. The web pages list more."
        )
    if timeline_shown.searched_span < time_range:
        ends = at - timeline_shown.searched_span, at + timeline_shown.searched_span
        first, last = (times.format_timestamp(one, zone) for one in ends)
        sentences.append(f"There are too many events: only {first} to {last} was searched.")
    return sentences


def _parse_changed_command(typed_words: list[str], now: int, zone: str) -> tuple[int, int, str]:
    """Return time, range and host pattern; a last word that is not a time is the pattern."""
    within = "".join(word for word in typed_words if word[0] in "±+")
    rest = [word for word in typed_words if word[0] not in "±+"]
    try:
        return *times.parse_time_and_span(" ".join(rest), within, now=now, zone=zone), "*"
    except InvalidTimeError:
        # Names of hosts have no such character: this is a malformed time or an unknown zone.
        if len(rest) == 1 or {":", "/"} & set(rest[-1]):
            raise
        at, span = times.parse_time_and_span(" ".join(rest[:-1]), within, now=now, zone=zone)
        return at, span, rest[-1].lower()


def _build_event_row(
    event: TimelineEvent,
    approvals: Mapping[int, Sequence[Decision]],
    person_names: Mapping[str, str],
    zone: str,
) -> tuple[str, str, str, str]:
    run = f"run {event.run}" if event.run else "-"
    text = timeline.describe_event(event, approvals.get(event.run or 0, ()), person_names)
    return times.format_timestamp(event.at, zone)[11:], run, event.label, text
