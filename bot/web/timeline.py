"""What changed around a moment: whatever may have to do with it, the likeliest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot.audit import timeline
from bot.audit.timeline import TimelineEvent
from bot.db.database import Transaction
from bot.model import times
from bot.model.run import Vote
from bot.model.run_states import STATUSES, StatusDisplay, Tone
from bot.model.times import NotATime
from bot.web.auth import Visiting
from bot.web.deps import Here
from bot.web.templating import page
from connectors.command import InvisibleCharacterError, refuse_invisible

router = APIRouter()

_MOST = 100
_RANKS: Mapping[int, StatusDisplay] = {
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
_NOT_YET = "not yet: "
_ASKED = StatusDisplay("Asked for", Tone.PENDING, "clock", "It may still be done.")

Typed = Annotated[str, Query(max_length=100)]
Hosts = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class Shown:
    """One happening. apart: how long before or after. votes: who allowed it, if somebody did."""

    one: TimelineEvent
    rank: StatusDisplay
    state: StatusDisplay | None
    apart: str
    votes: Sequence[Vote]


@router.get("/around")
def show(
    request: Request,
    parts: Here,
    visitor: Visiting,
    at: Typed = "",
    within: Typed = "",
    host: Hosts = "",
    zone: Typed = "",
) -> Response:
    """Show what happened then. Without a moment it is now, and the hour before."""
    typed = {"at": at.strip(), "within": within.strip(), "host": host.strip(), "zone": zone}
    problems: dict[str, str] = {}
    with parts.database.reading(visitor.sight) as tx:
        now = tx.now
        at_once, reach = _understood(typed, now, problems)
        found: list[Shown] = []
        left_out, looked = 0, reach
        if not problems:
            wanted = typed["host"].lower() or "*"
            listed = timeline.build_timeline(tx, at_once, within=reach, host=wanted, most=_MOST)
            found = _shown(tx, listed.happenings, at_once)
            left_out, looked = listed.left_out, listed.within
    return page(
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


def _understood(typed: Mapping[str, str], now: int, problems: dict[str, str]) -> tuple[int, int]:
    zone = typed["zone"] or "UTC"
    at, reach = now, times.parse_span("30 min" if typed["at"] else "1 h")
    try:
        refuse_invisible(typed["host"])
    except InvisibleCharacterError as unclean:
        problems["hosts"] = str(unclean)
    try:
        at = times.parse_past_moment(typed["at"], now=now, zone=zone) if typed["at"] else now
    except NotATime as trouble:
        problems["moment"] = str(trouble)
    try:
        reach = times.parse_span(typed["within"]) if typed["within"] else reach
    except NotATime as trouble:
        problems["within"] = str(trouble)
    return at, reach


def _shown(tx: Transaction, found: Sequence[TimelineEvent], at: int) -> list[Shown]:
    allowed = timeline.list_approvals(tx, found)
    return [
        Shown(
            one,
            _ASKED if one.state.startswith(_NOT_YET) else _RANKS[one.rank],
            STATUSES.get(one.state.removeprefix(_NOT_YET)),
            _apart(one.at - at),
            allowed.get(one.run or 0, ()),
        )
        for one in found
    ]


def _apart(length: int) -> str:
    return f"{times.format_span(abs(length))} {'after' if length > 0 else 'before'}"
