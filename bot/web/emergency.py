"""Emergency stop page: stop everything, and resume."""

from functools import partial

from fastapi import APIRouter, Response

from bot.db import stops
from bot.web.visit import Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/stop")


@router.get("")
def show_stop(visit: Visit) -> Response:
    return _render_page(visit)


def _render_page(visit: VisitOfPage, *, refusal: DomainError | None = None) -> Response:
    with visit.read_viewable() as tx:
        policy = visit.policy.without_people(stops.list_banned_people(tx))
        held = stops.get_stop_of_everything(tx)
        stepped_up = visit.is_stepped_up(tx)
    own = held is not None and held.person == visit.person
    order = "resume" if held else "stop"
    ruling = visit.policy.get_order_ruling(visit.person, order, is_own=own)
    return visit.render(
        "emergency_stop.html",
        refusal=refusal,
        done=visit.done,
        held=held,
        own=own,
        allowed=ruling.allowed,
        factor_first=ruling.requires_second_factor and not stepped_up,
        may_ban=visit.policy.get_order_ruling(visit.person, "ban").allowed,
        able=policy.list_people_allowed(order, except_person=held.person if held else ""),
    )


_action = partial(add_action, router, page="/stop", render=_render_page)


@_action("")
def stop_everything(visit: Visit) -> str:
    """Stop every run, and end every request until another person resumes."""
    visit.service.stop_everything(person=visit.person, reason=visit.reason, session=visit.session)
    return "/stop?done=stopped"


@_action("/resume")
def resume_everything(visit: Visit) -> str:
    visit.service.resume_everything(
        person=visit.person, reason=visit.reason, session=visit.session
    )
    return "/stop?done=resumed"
