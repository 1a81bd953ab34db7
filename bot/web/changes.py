"""Changes page: what changed around a time, the most likely cause first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response

from bot.db.database import Transaction
from bot.model import times
from bot.model.run import Decision
from bot.model.run_states import RUN_STATUS_DISPLAYS, StatusDisplay, Tone
from bot.model.times import InvalidTimeError
from bot.queries import timeline
from bot.queries.timeline import TimelineEvent
from bot.web.visit import Visit
from connectors.visible_text import InvisibleCharacterError, refuse_invisible

router = APIRouter()

_MAX_EVENTS = 100
_RANK_BADGES: Mapping[int, StatusDisplay] = {
    0: StatusDisplay("Change", Tone.INFO, "play", "The change was made or started."),
    1: StatusDisplay(
        "Not run", Tone.WARNING, "ban", "It was requested and ended before it started."
    ),
    2: StatusDisplay(
        "Finding", Tone.PENDING, "eye", "A check result, an external event or a skipped schedule."
    ),
    3: StatusDisplay(
        "Global", Tone.NEUTRAL, "server", "It names no host and may affect all hosts."
    ),
}
_REQUESTED_BADGE = StatusDisplay("Requested", Tone.PENDING, "clock", "It has not started yet.")

TimeQuery = Annotated[str, Query(max_length=100)]
HostsQuery = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class ShownEvent:
    """One event with its badges."""

    event: TimelineEvent
    rank_badge: StatusDisplay
    state_badge: StatusDisplay | None
    time_difference: str
    """Time before or after the chosen time, as text."""
    decisions: Sequence[Decision]
    """The approvals of the run, if any."""


@router.get("/changes")
def show_changes(
    visit: Visit,
    at: TimeQuery = "",
    within: TimeQuery = "",
    host: HostsQuery = "",
    zone: TimeQuery = "",
) -> Response:
    """Show the events around a time. The default is the last hour."""
    typed = {"at": at.strip(), "within": within.strip(), "host": host.strip(), "zone": zone}
    problems: dict[str, str] = {}
    with visit.read_viewable() as tx:
        now = tx.now
        time, span = _parse_typed_times(typed, now, problems)
        events: list[ShownEvent] = []
        omitted, searched_span = 0, span
        if not problems:
            host_pattern = typed["host"].lower() or "*"
            found = timeline.build_timeline(
                tx, time, span=span, host_pattern=host_pattern, limit=_MAX_EVENTS
            )
            events = _build_shown_events(tx, found.events, time, now)
            omitted, searched_span = found.omitted, found.searched_span
    return visit.render(
        "changes.html",
        status=422 if problems else 200,
        typed=typed,
        problems=problems,
        events=events,
        at=time,
        now=now,
        span=span,
        omitted=omitted,
        searched=searched_span,
        hosts=sorted(one.name for one in visit.policy.inventory),
    )


def _parse_typed_times(
    typed: Mapping[str, str], now: int, problems: dict[str, str]
) -> tuple[int, int]:
    """Return the time and the span in microseconds, and add problems by field."""
    zone = typed["zone"] or "UTC"
    at, span = now, times.parse_span(times.DEFAULT_SPAN)
    try:
        refuse_invisible(typed["host"])
    except InvisibleCharacterError as error:
        problems["hosts"] = str(error)
    try:
        times.parse_span(typed["within"] or times.DEFAULT_SPAN)
    except InvalidTimeError as error:
        problems["within"] = str(error)
    try:
        # An invalid span is reported above, and here replaced, so that both problems are shown.
        within = "" if "within" in problems else typed["within"]
        at, span = times.parse_time_and_span(typed["at"], within, now=now, zone=zone)
    except InvalidTimeError as error:
        problems["time"] = str(error)
    return at, span


def _build_shown_events(
    tx: Transaction, events: Sequence[TimelineEvent], time: int, now: int
) -> list[ShownEvent]:
    approvals = timeline.list_approvals(tx, events)
    earlier = "ago" if time == now else "before"
    return [
        ShownEvent(
            one,
            _RANK_BADGES[one.rank] if one.has_started else _REQUESTED_BADGE,
            RUN_STATUS_DISPLAYS.get(one.state),
            f"{times.format_span(abs(one.at - time))} {'after' if one.at > time else earlier}",
            approvals.get(one.run or 0, ()),
        )
        for one in events
    ]
