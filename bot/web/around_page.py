"""What changed around a moment: whatever may have to do with it, the likeliest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from bot import hindsight, moment
from bot.civil import NotATime
from bot.run import Vote
from bot.store import around
from bot.store.around import Happening
from bot.store.database import Transaction
from bot.web import badge
from bot.web.badge import Badge
from bot.web.pages import page
from bot.web.parts import Here
from bot.web.visitor import Visiting
from connectors.command import UncleanText, clean

router = APIRouter()

_MOST = 100
_RANKS: Mapping[int, Badge] = {
    0: Badge("Changed", "blue", "play", "It was done, or begun."),
    1: Badge("Attempted", "orange", "ban", "It was asked for, and ended before it was begun."),
    2: Badge("Seen", "yellow", "eye", "Something that was found, told from outside or left out."),
    3: Badge("Everywhere", "grey", "server", "It names no host and may concern each."),
}
_NOT_YET = "not yet: "
_ASKED = Badge("Asked for", "yellow", "clock", "It may still be done.")

Typed = Annotated[str, Query(max_length=100)]
Hosts = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True)
class Shown:
    """One happening. apart: how long before or after. votes: who allowed it, if somebody did."""

    one: Happening
    rank: Badge
    state: Badge | None
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
            listed = around.seen(tx, at_once, within=reach, host=wanted, most=_MOST)
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
    at, reach = now, hindsight.span("30 min" if typed["at"] else "1 h")
    try:
        clean(typed["host"])
    except UncleanText as unclean:
        problems["hosts"] = str(unclean)
    try:
        at = hindsight.moment(typed["at"], now=now, zone=zone) if typed["at"] else now
    except NotATime as trouble:
        problems["moment"] = str(trouble)
    try:
        reach = hindsight.span(typed["within"]) if typed["within"] else reach
    except NotATime as trouble:
        problems["within"] = str(trouble)
    return at, reach


def _shown(tx: Transaction, found: Sequence[Happening], at: int) -> list[Shown]:
    allowed = around.allowed(tx, found)
    return [
        Shown(
            one,
            _ASKED if one.state.startswith(_NOT_YET) else _RANKS[one.rank],
            badge.RUN.get(one.state.removeprefix(_NOT_YET)),
            _apart(one.at - at),
            allowed.get(one.run or 0, ()),
        )
        for one in found
    ]


def _apart(length: int) -> str:
    return f"{moment.span(abs(length))} {'after' if length > 0 else 'before'}"
