"""The bans: who is shut out and why, shutting somebody out, and letting them in again."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from bot.db import stops
from bot.db.stops import Ban
from bot.web.auth import Visiting, Visitor
from bot.web.blanks import Filled
from bot.web.deps import Here, WebParts
from bot.web.emergency import ordered
from bot.web.templating import page
from bot.workflow.second_factor import get_shown_factor

router = APIRouter(prefix="/bans")


@dataclass(frozen=True)
class _Row:
    """A ban, and whether whoever looks at it may lift it. able: who else may."""

    ban: Ban
    own: bool
    allowed: bool
    factor_first: bool
    able: list[str]


@router.get("")
def show(request: Request, parts: Here, visitor: Visiting, done: str = "") -> Response:
    return _page(request, parts, visitor, done=done)


@router.post("")
def shut_out(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    def act() -> None:
        who, why = form.get("person", "").strip().lower(), form.get("reason", "")
        parts.workflow.ban(who, by=visitor.id, why=why, session=visitor.session)

    return _done(request, parts, visitor, act, "banned")


@router.post("/lift")
def let_in(request: Request, parts: Here, visitor: Visiting, form: Filled) -> Response:
    def act() -> None:
        who, why = form.get("person", ""), form.get("reason", "")
        parts.workflow.unban(who, by=visitor.id, why=why, session=visitor.session)

    return _done(request, parts, visitor, act, "lifted")


def _done(
    request: Request, parts: WebParts, visitor: Visitor, act: Callable[[], None], word: str
) -> Response:
    def anew(status: int, alert: str) -> Response:
        return _page(request, parts, visitor, status=status, alert=alert)

    done = f"/bans?done={word}"
    return ordered(act, done=done, factor="/step-up?next=/bans", anew=anew)


def _page(
    request: Request,
    parts: WebParts,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    done: str = "",
) -> Response:
    with parts.database.reading(visitor.sight) as tx:
        held = stops.list_bans(tx)
        stepped_up = bool(
            get_shown_factor(tx, visitor.policy, person=visitor.id, session=visitor.session)
        )
    ruling = visitor.policy.may_order(visitor.id, "ban")
    people = visitor.policy.household.people.values()
    return page(
        request,
        "bans.html",
        status=status,
        alert=alert,
        done=done,
        rows=[_row(visitor, one, stepped_up=stepped_up) for one in held],
        people=sorted((one.name, one.id) for one in people if one.id != visitor.id),
        allowed=ruling.allowed,
        factor_first=ruling.step_up and not stepped_up,
        able=sorted(visitor.policy.able_to("ban", besides=visitor.id)),
    )


def _row(visitor: Visitor, ban: Ban, *, stepped_up: bool) -> _Row:
    own = ban.by == visitor.id
    ruling = visitor.policy.may_order(visitor.id, "resume", own=own)
    able = sorted(visitor.policy.able_to("resume", besides=ban.by))
    return _Row(ban, own, ruling.allowed, ruling.step_up and not stepped_up, able)
