"""Bans page: list the bans, ban a person, and lift a ban."""

from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request, Response

from bot.db import stops
from bot.db.stops import Ban
from bot.queries.second_factor import get_shown_factor
from bot.web.auth import CurrentUser, User
from bot.web.deps import WebDependencies, WebDeps
from bot.web.form_values import FormValues
from bot.web.refusals import perform_and_redirect
from bot.web.templating import render_page

router = APIRouter(prefix="/bans")


@dataclass(frozen=True)
class _BanRow:
    """A ban, and whether the user may lift it."""

    ban: Ban
    is_own: bool
    can_unban: bool
    needs_second_factor: bool
    others_allowed: list[str]
    """Names of the other people who may lift it."""


@router.get("")
def show_bans(request: Request, deps: WebDeps, user: CurrentUser, done: str = "") -> Response:
    return _render_page(request, deps, user, done=done)


@router.post("")
def ban_person(request: Request, deps: WebDeps, user: CurrentUser, form: FormValues) -> Response:
    def act() -> None:
        who, why = form.get("person", "").strip().lower(), form.get("reason", "")
        deps.service.ban_person(who, banned_by=user.id, reason=why, session=user.session_token)

    render = partial(_render_page, request, deps, user)
    return perform_and_redirect(act, render, page="/bans", outcome="banned")


@router.post("/lift")
def unban_person(request: Request, deps: WebDeps, user: CurrentUser, form: FormValues) -> Response:
    def act() -> None:
        who, why = form.get("person", ""), form.get("reason", "")
        deps.service.unban_person(who, unbanned_by=user.id, reason=why, session=user.session_token)

    render = partial(_render_page, request, deps, user)
    return perform_and_redirect(act, render, page="/bans", outcome="lifted")


def _render_page(
    request: Request,
    deps: WebDependencies,
    user: User,
    *,
    status: int = 200,
    alert: str = "",
    done: str = "",
) -> Response:
    with deps.database.reading(user.view_rights) as tx:
        held = stops.list_bans(tx)
        stepped_up = bool(
            get_shown_factor(tx, user.policy, person=user.id, session=user.session_token)
        )
    ruling = user.policy.get_order_ruling(user.id, "ban")
    people = user.policy.organisation.people.values()
    return render_page(
        request,
        "bans.html",
        status=status,
        alert=alert,
        done=done,
        rows=[_build_row(user, one, stepped_up=stepped_up) for one in held],
        people=sorted((one.name, one.id) for one in people if one.id != user.id),
        allowed=ruling.allowed,
        factor_first=ruling.requires_second_factor and not stepped_up,
        able=sorted(user.policy.list_people_allowed("ban", except_person=user.id)),
    )


def _build_row(user: User, ban: Ban, *, stepped_up: bool) -> _BanRow:
    own = ban.banned_by == user.id
    ruling = user.policy.get_order_ruling(user.id, "resume", is_own=own)
    able = sorted(user.policy.list_people_allowed("resume", except_person=ban.banned_by))
    return _BanRow(
        ban, own, ruling.allowed, ruling.requires_second_factor and not stepped_up, able
    )
