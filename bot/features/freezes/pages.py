"""The page of freezes: what holds changes now and next; order one, and end it early."""

from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter, Response

from bot.features.freezes import rows
from bot.features.freezes.actions import LONGEST_DAYS, FreezeActions, get_end_refusal, get_refusal
from bot.features.freezes.facts import apply_freezes
from bot.model.times import DEADLINE_EXAMPLES, to_datetime, to_microseconds
from bot.web.pages import PageLink, Pages
from bot.web.templating import parse_reader_deadline
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/freezes")


def _find_page() -> str:
    return "/freezes"


PAGES = Pages(
    router,
    section="/policy",
    links=[
        PageLink("hosts", "Freezes", _find_page, "clock"),
        PageLink("policy", "Freezes", _find_page, "clock"),
        PageLink("freeze", "Freezes", _find_page, "clock"),
    ],
)
_DONE_NOTICES: Mapping[str, str] = {
    "ordered": "Frozen. Changes there wait; checks still run.",
    "ended": "Ended. What it held starts within seconds.",
}


@router.get("")
def show_freezes(visit: Visit) -> Response:
    """Show the freezes of the policy, and those that people ordered."""
    return _render_page(visit)


def _render_page(
    visit: VisitOfPage, *, number: int = 0, refusal: DomainError | None = None
) -> Response:
    """number: of the freeze that a person tried to end."""
    del number
    person = visit.person
    with visit.read_viewable() as tx:
        policy, now = apply_freezes(tx, visit.policy), to_datetime(tx.now)
        endable = {
            one.id
            for one in rows.list_active(tx)
            if not get_end_refusal(policy, one, person=person)
        }
    return visit.render(
        "freezes/freezes.html",
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        typed=visit.form,
        freezes=[
            (
                one,
                *map(to_microseconds, (one.begins_at, one.ends_at)),
                one.order is not None and one.order.number in endable,
            )
            for one in policy.list_freeze_periods(now)
        ],
        can_order=any(
            not get_refusal(policy, [area], person=person) for area in policy.organisation.areas
        ),
        deadline_examples=DEADLINE_EXAMPLES,
        longest_days=LONGEST_DAYS,
    )


_action = partial(add_action, router, page="/freezes", render=_render_page)


@_action("")
def order_freeze(visit: Visit) -> str:
    """Hold changes from now on."""
    with visit.read_viewable() as tx:
        until = parse_reader_deadline(visit.request, visit.form.get("until", ""), now=tx.now)
    visit.service.bind(FreezeActions).order_freeze(
        visit.form.get("hosts", "").replace(" ", ""),
        person=visit.person,
        until=until,
        reason=visit.reason,
        source="web",
    )
    return "/freezes?done=ordered"


@_action("/{number}/end")
def end_freeze(visit: Visit, number: IdPath) -> str:
    """End a freeze that a person ordered."""
    visit.service.bind(FreezeActions).end_freeze(
        number, person=visit.person, reason=visit.reason, source="web"
    )
    return "/freezes?done=ended"
