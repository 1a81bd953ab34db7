"""Bans page: list the bans, ban a person, and lift a ban."""

from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Response

from bot.db import stops
from bot.db.stops import Ban
from bot.web.auth import User
from bot.web.visit import Visit, VisitOfPage, add_action
from connectors.errors import DomainError

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
def show_bans(visit: Visit) -> Response:
    return _render_page(visit)


def _render_page(visit: VisitOfPage, *, refusal: DomainError | None = None) -> Response:
    with visit.read_viewable() as tx:
        held = stops.list_bans(tx)
        stepped_up = visit.is_stepped_up(tx)
    ruling = visit.policy.get_order_ruling(visit.person, "ban")
    people = visit.policy.organisation.people.values()
    return visit.render(
        "bans.html",
        refusal=refusal,
        done=visit.done,
        rows=[_build_row(visit.user, one, stepped_up=stepped_up) for one in held],
        people=sorted((one.name, one.id) for one in people if one.id != visit.person),
        allowed=ruling.allowed,
        factor_first=ruling.requires_second_factor and not stepped_up,
        able=sorted(visit.policy.list_people_allowed("ban", except_person=visit.person)),
    )


_action = partial(add_action, router, page="/bans", render=_render_page)


@_action("")
def ban_person(visit: Visit) -> str:
    who = visit.form.get("person", "").strip().lower()
    visit.service.ban_person(
        who, banned_by=visit.person, reason=visit.reason, session=visit.session
    )
    return "/bans?done=banned"


@_action("/lift")
def unban_person(visit: Visit) -> str:
    who = visit.form.get("person", "")
    visit.service.unban_person(
        who, unbanned_by=visit.person, reason=visit.reason, session=visit.session
    )
    return "/bans?done=lifted"


def _build_row(user: User, ban: Ban, *, stepped_up: bool) -> _BanRow:
    own = ban.banned_by == user.id
    ruling = user.policy.get_order_ruling(user.id, "resume", is_own=own)
    able = sorted(user.policy.list_people_allowed("resume", except_person=ban.banned_by))
    return _BanRow(
        ban, own, ruling.allowed, ruling.requires_second_factor and not stepped_up, able
    )
