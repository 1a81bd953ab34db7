"""`/keyturn changed …`: what changed around a moment, as one asks at two in the morning."""

from collections.abc import Mapping, Sequence

from bot.audit import timeline
from bot.audit.timeline import Timeline, TimelineEvent
from bot.db.database import Database
from bot.model import times
from bot.model.run import Vote
from bot.model.times import NotATime
from bot.model.view_rights import Sight
from bot.slack.blocks import (
    Message,
    bold,
    code,
    line,
    notification,
    preformatted,
    rich,
    shortened,
    words,
)
from bot.workflow.requests import InvalidRequest

_MOST = 20
_HALF_AN_HOUR = 1_800_000_000


def changed(
    database: Database,
    sight: Sight,
    typed: str,
    zone: str = "UTC",
    *,
    names: Mapping[str, str],
) -> Message:
    """Answer `02:00 ±30m web*`: when, how far around it and on which hosts; the rest is usual.

    sight: of whoever asks; zone: theirs. names: of people, by their ids. Raises Unfit where
    that says no moment.
    """
    with database.reading(sight) as tx:
        try:
            at, within, host = _understood(typed.split(), tx.now, zone)
        except NotATime as trouble:
            raise InvalidRequest(str(trouble)) from None
        seen = timeline.build_timeline(tx, at, within=within, host=host, most=_MOST)
        allowed = timeline.list_approvals(tx, seen.happenings)
    where = "" if host == "*" else f" on {host}"
    first, last = (times.format_moment(one, zone) for one in (at - within, at + within))
    title = f"Between {first} and {last}{'' if zone == 'UTC' else f' {zone}'}{where}"
    if not seen.happenings:
        return Message(
            notification(title), [rich(line(bold(title)), line(words("Nothing that I know of.")))]
        )
    lines = (_line(one, allowed, names, zone) for one in seen.happenings)
    shown = "\n".join(shortened(each, 200) for each in lines)
    more = [words("All of one: "), code("/keyturn run N")]
    rest = [line(words(said)) for said in _not_shown(seen, at, within, zone)]
    return Message(
        notification(title), [rich(line(bold(title)), preformatted(shown), *rest, line(*more))]
    )


def _not_shown(seen: Timeline, at: int, within: int, zone: str) -> list[str]:
    said: list[str] = []
    if seen.left_out:
        said.append(f"Left out as less likely: {seen.left_out}. The web pages show more.")
    if seen.within < within:
        ends = at - seen.within, at + seen.within
        first, last = (times.format_moment(one, zone) for one in ends)
        said.append(f"So much happened that only {first} to {last} was looked at.")
    return said


def _understood(typed: list[str], now: int, zone: str) -> tuple[int, int, str]:
    """Return moment, span and host; what is no moment at the end is a host."""
    within, rest = _HALF_AN_HOUR, list[str]()
    for word in typed:
        if word[0] in "±+":
            within = times.parse_span(word)
        else:
            rest.append(word)
    if not rest:
        raise NotATime(f"around when? Type {times.PAST_EXAMPLES}, then ±30m, then a host")
    try:
        return times.parse_past_moment(" ".join(rest), now=now, zone=zone), within, "*"
    except NotATime:
        # No host's name has such a sign: it belongs to a time, or to a zone that there is not.
        if len(rest) == 1 or {":", "/"} & set(rest[-1]):
            raise
        at = times.parse_past_moment(" ".join(rest[:-1]), now=now, zone=zone)
        return at, within, rest[-1].lower()


def _line(
    one: TimelineEvent, allowed: Mapping[int, Sequence[Vote]], names: Mapping[str, str], zone: str
) -> str:
    run = f"run {one.run}" if one.run else "-"
    told = timeline.describe_event(one, allowed.get(one.run or 0, ()), names)
    return f"{times.format_moment(one.at, zone)[11:]}  {run:<8}  {one.state:<14}  {told}"
