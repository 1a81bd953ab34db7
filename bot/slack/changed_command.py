"""`/keyturn changed …`: what changed around a moment, as one asks at two in the morning."""

from collections.abc import Mapping, Sequence

from bot.audit import timeline
from bot.audit.timeline import Timeline, TimelineEvent
from bot.db.database import Database
from bot.model import times
from bot.model.errors import InvalidRequestError
from bot.model.run import Decision
from bot.model.times import InvalidTimeError
from bot.model.view_rights import ViewRights
from bot.slack.blocks import (
    Message,
    bold,
    code,
    format_notification,
    preformatted,
    rich_text,
    rich_text_section,
    shorten_text,
    text_element,
)

_MAX_EVENTS = 20
_DEFAULT_RANGE = 1_800_000_000


def answer_changed_command(
    database: Database,
    view_rights: ViewRights,
    typed: str,
    zone: str = "UTC",
    *,
    person_names: Mapping[str, str],
) -> Message:
    """Answer `02:00 ±30m web*`: when, how far around it and on which hosts; the rest is usual.

    sight: of whoever asks; zone: theirs. names: of people, by their ids. Raises Unfit where
    that says no moment.
    """
    with database.reading(view_rights) as tx:
        try:
            at, within, host = _parse_changed_command(typed.split(), tx.now, zone)
        except InvalidTimeError as trouble:
            raise InvalidRequestError(str(trouble)) from None
        seen = timeline.build_timeline(tx, at, span=within, host_pattern=host, limit=_MAX_EVENTS)
        allowed = timeline.list_approvals(tx, seen.events)
    where = "" if host == "*" else f" on {host}"
    first, last = (times.format_moment(one, zone) for one in (at - within, at + within))
    title = f"Between {first} and {last}{'' if zone == 'UTC' else f' {zone}'}{where}"
    if not seen.events:
        return Message(
            format_notification(title),
            [
                rich_text(
                    rich_text_section(bold(title)),
                    rich_text_section(text_element("Nothing that I know of.")),
                )
            ],
        )
    lines = (_format_event(one, allowed, person_names, zone) for one in seen.events)
    shown = "\n".join(shorten_text(each, 200) for each in lines)
    more = [text_element("All of one: "), code("/keyturn run N")]
    rest = [
        rich_text_section(text_element(said)) for said in _describe_omitted(seen, at, within, zone)
    ]
    return Message(
        format_notification(title),
        [
            rich_text(
                rich_text_section(bold(title)),
                preformatted(shown),
                *rest,
                rich_text_section(*more),
            )
        ],
    )


def _describe_omitted(timeline_shown: Timeline, at: int, time_range: int, zone: str) -> list[str]:
    said: list[str] = []
    if timeline_shown.omitted:
        said.append(f"Left out as less likely: {timeline_shown.omitted}. The web pages show more.")
    if timeline_shown.searched_span < time_range:
        ends = at - timeline_shown.searched_span, at + timeline_shown.searched_span
        first, last = (times.format_moment(one, zone) for one in ends)
        said.append(f"So much happened that only {first} to {last} was looked at.")
    return said


def _parse_changed_command(typed_words: list[str], now: int, zone: str) -> tuple[int, int, str]:
    """Return moment, span and host; what is no moment at the end is a host."""
    within, rest = _DEFAULT_RANGE, list[str]()
    for word in typed_words:
        if word[0] in "±+":
            within = times.parse_span(word)
        else:
            rest.append(word)
    if not rest:
        raise InvalidTimeError(f"around when? Type {times.PAST_EXAMPLES}, then ±30m, then a host")
    try:
        return times.parse_past_moment(" ".join(rest), now=now, zone=zone), within, "*"
    except InvalidTimeError:
        # No host's name has such a sign: it belongs to a time, or to a zone that there is not.
        if len(rest) == 1 or {":", "/"} & set(rest[-1]):
            raise
        at = times.parse_past_moment(" ".join(rest[:-1]), now=now, zone=zone)
        return at, within, rest[-1].lower()


def _format_event(
    event: TimelineEvent,
    approvals: Mapping[int, Sequence[Decision]],
    person_names: Mapping[str, str],
    zone: str,
) -> str:
    run = f"run {event.run}" if event.run else "-"
    told = timeline.describe_event(event, approvals.get(event.run or 0, ()), person_names)
    return f"{times.format_moment(event.at, zone)[11:]}  {run:<8}  {event.state:<14}  {told}"
