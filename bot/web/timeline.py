"""What changed around a moment: whatever may have to do with it, the likeliest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.audit import timeline
from bot.audit.timeline import TimelineEvent
from bot.db.database import Transaction
from bot.model import times
from bot.model.run import Decision
from bot.model.run_states import RUN_STATUS_DISPLAYS, StatusDisplay, Tone
from bot.model.times import InvalidTimeError
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.web.templating import render_page
from connectors.command import InvisibleCharacterError, refuse_invisible

router = APIRouter()

_MAX_EVENTS = 100
_RANK_BADGES: Mapping[int, StatusDisplay] = {
    0: StatusDisplay("Changed", Tone.INFO, "play", "It was done, or begun."),
    1: StatusDisplay(
        "Attempted", Tone.WARNING, "ban", "It was asked for, and ended before it was begun."
    ),
    2: StatusDisplay(
        "Seen", Tone.PENDING, "eye", "Something that was found, told from outside or left out."
    ),
    3: StatusDisplay(
        "Everywhere", Tone.NEUTRAL, "server", "It names no host and may concern each."
    ),
}
_PENDING_PREFIX = "not yet: "
_REQUESTED_BADGE = StatusDisplay("Asked for", Tone.PENDING, "clock", "It may still be done.")

TimeQuery = Annotated[str, Query(max_length=100)]
HostsQuery = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class ShownEvent:
    """One happening. apart: how long before or after. votes: who allowed it, if somebody did."""

    event: TimelineEvent
    rank_badge: StatusDisplay
    state_badge: StatusDisplay | None
    time_difference: str
    decisions: Sequence[Decision]


@router.get("/around")
def show_timeline(
    request: Request,
    parts: WebDeps,
    visitor: CurrentVisitor,
    at: TimeQuery = "",
    within: TimeQuery = "",
    host: HostsQuery = "",
    zone: TimeQuery = "",
) -> Response:
    """Show what happened then. Without a moment it is now, and the hour before."""
    typed = {"at": at.strip(), "within": within.strip(), "host": host.strip(), "zone": zone}
    problems: dict[str, str] = {}
    with parts.database.reading(visitor.view_rights) as tx:
        now = tx.now
        at_once, reach = _parse_question(typed, now, problems)
        found: list[ShownEvent] = []
        left_out, looked = 0, reach
        if not problems:
            wanted = typed["host"].lower() or "*"
            listed = timeline.build_timeline(
                tx, at_once, span=reach, host_pattern=wanted, limit=_MAX_EVENTS
            )
            found = _build_shown_events(tx, listed.events, at_once)
            left_out, looked = listed.omitted, listed.searched_span
    return render_page(
        request,
        "around.html",
        status=422 if problems else 200,
        typed=typed,
        problems=problems,
        found=found,
        at=at_once,
        reach=reach,
        left_out=left_out,
        looked=looked,
        hosts=sorted(one.name for one in visitor.policy.inventory),
    )


def _parse_question(
    typed: Mapping[str, str], now: int, problems: dict[str, str]
) -> tuple[int, int]:
    zone = typed["zone"] or "UTC"
    at, reach = now, times.parse_span("30 min" if typed["at"] else "1 h")
    try:
        refuse_invisible(typed["host"])
    except InvisibleCharacterError as unclean:
        problems["hosts"] = str(unclean)
    try:
        at = times.parse_past_moment(typed["at"], now=now, zone=zone) if typed["at"] else now
    except InvalidTimeError as trouble:
        problems["moment"] = str(trouble)
    try:
        reach = times.parse_span(typed["within"]) if typed["within"] else reach
    except InvalidTimeError as trouble:
        problems["within"] = str(trouble)
    return at, reach


def _build_shown_events(
    tx: Transaction, events: Sequence[TimelineEvent], moment: int
) -> list[ShownEvent]:
    allowed = timeline.list_approvals(tx, events)
    return [
        ShownEvent(
            one,
            _REQUESTED_BADGE if one.state.startswith(_PENDING_PREFIX) else _RANK_BADGES[one.rank],
            RUN_STATUS_DISPLAYS.get(one.state.removeprefix(_PENDING_PREFIX)),
            _format_time_difference(one.at - moment),
            allowed.get(one.run or 0, ()),
        )
        for one in events
    ]


def _format_time_difference(microseconds: int) -> str:
    return f"{times.format_span(abs(microseconds))} {'after' if microseconds > 0 else 'before'}"
