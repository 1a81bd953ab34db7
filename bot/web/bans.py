"""The bans: who is shut out and why, shutting somebody out, and letting them in again."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from bot.db import stops
from bot.db.stops import Ban
from bot.web.auth import CurrentVisitor, Visitor
from bot.web.blanks import FormValues
from bot.web.deps import WebDependencies, WebDeps
from bot.web.emergency import perform_order
from bot.web.templating import render_page
from bot.workflow.second_factor import get_shown_factor

router = APIRouter(prefix="/bans")


@dataclass(frozen=True)
class _BanRow:
    """A ban, and whether whoever looks at it may lift it. able: who else may."""

    ban: Ban
    is_own: bool
    can_unban: bool
    needs_second_factor: bool
    others_allowed: list[str]


@router.get("")
def show_bans(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, done: str = ""
) -> Response:
    return _render_page(request, parts, visitor, done=done)


@router.post("")
def ban_person(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    def act() -> None:
        who, why = form.get("person", "").strip().lower(), form.get("reason", "")
        parts.workflow.ban_person(
            who, banned_by=visitor.id, reason=why, session=visitor.session_token
        )

    return _perform_and_redirect(request, parts, visitor, act, "banned")


@router.post("/lift")
def unban_person(
    request: Request, parts: WebDeps, visitor: CurrentVisitor, form: FormValues
) -> Response:
    def act() -> None:
        who, why = form.get("person", ""), form.get("reason", "")
        parts.workflow.unban_person(
            who, unbanned_by=visitor.id, reason=why, session=visitor.session_token
        )

    return _perform_and_redirect(request, parts, visitor, act, "lifted")


def _perform_and_redirect(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    action: Callable[[], None],
    outcome: str,
) -> Response:
    def anew(status: int, alert: str) -> Response:
        return _render_page(request, parts, visitor, status=status, alert=alert)

    done = f"/bans?done={outcome}"
    return perform_order(
        action, done_url=done, step_up_url="/step-up?next=/bans", render_again=anew
    )


def _render_page(
    request: Request,
    parts: WebDependencies,
    visitor: Visitor,
    *,
    status: int = 200,
    alert: str = "",
    done: str = "",
) -> Response:
    with parts.database.reading(visitor.view_rights) as tx:
        held = stops.list_bans(tx)
        stepped_up = bool(
            get_shown_factor(tx, visitor.policy, person=visitor.id, session=visitor.session_token)
        )
    ruling = visitor.policy.get_order_ruling(visitor.id, "ban")
    people = visitor.policy.organisation.people.values()
    return render_page(
        request,
        "bans.html",
        status=status,
        alert=alert,
        done=done,
        rows=[_build_row(visitor, one, stepped_up=stepped_up) for one in held],
        people=sorted((one.name, one.id) for one in people if one.id != visitor.id),
        allowed=ruling.allowed,
        factor_first=ruling.requires_second_factor and not stepped_up,
        able=sorted(visitor.policy.list_people_allowed("ban", except_person=visitor.id)),
    )


def _build_row(visitor: Visitor, ban: Ban, *, stepped_up: bool) -> _BanRow:
    own = ban.banned_by == visitor.id
    ruling = visitor.policy.get_order_ruling(visitor.id, "resume", is_own=own)
    able = sorted(visitor.policy.list_people_allowed("resume", except_person=ban.banned_by))
    return _BanRow(
        ban, own, ruling.allowed, ruling.requires_second_factor and not stepped_up, able
    )
