"""The pages of lists of hosts: read one, and confirm exactly what was read."""

from collections.abc import Mapping, Sequence
from functools import partial

from fastapi import APIRouter, Response

from bot.audit import change_log, events
from bot.audit.inclusion import list_vouched_entries
from bot.db.database import Transaction
from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.state import HostList, ListState, find_refusal
from bot.model.run_states import StatusDisplay, Tone
from bot.model.times import DAY
from bot.web.pages import PageLink, Pages
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError

router = APIRouter(prefix="/host-lists")


def _find_page() -> str:
    return "/host-lists"


PAGES = Pages(router, section="/hosts", links=[PageLink("hosts", "Lists", _find_page, "server")])
BADGES: Mapping[ListState, StatusDisplay] = {
    "open": StatusDisplay("Open", Tone.PENDING, "clock", "People have not confirmed it yet."),
    "confirmed": StatusDisplay(
        "Confirmed", Tone.INFO, "check", "Two people stand behind it. It is not written yet."
    ),
    "written": StatusDisplay("Written", Tone.SUCCESS, "check", "It is in the inventory."),
    "withdrawn": StatusDisplay("Withdrawn", Tone.NEUTRAL, "ban", "Nothing was changed."),
    "expired": StatusDisplay("Expired", Tone.NEUTRAL, "clock", "Too few people confirmed it."),
}
_DONE_NOTICES: Mapping[str, str] = {
    "confirmed": "Confirmed.",
    "withdrawn": "Withdrawn. Nothing was changed.",
}


@router.get("")
def show_host_lists(visit: Visit) -> Response:
    """Show the lists that the person may see."""
    actions = visit.service.bind(HostListActions)
    lists, unreadable = actions.list_viewable(visit.person), actions.list_unreadable()
    with visit.read_viewable() as tx:
        sources = _list_readings(tx) if _owns_something(visit) else ()
    return visit.render(
        "host_lists/host_lists.html",
        lists=lists,
        unreadable=unreadable,
        badges=BADGES,
        sources=sources,
    )


def _owns_something(visit: VisitOfPage) -> bool:
    areas = visit.policy.organisation.areas.values()
    return any(visit.person in area.owners for area in areas)


def _list_readings(tx: Transaction) -> Sequence[tuple[int, events.HostSourceRead]]:
    """Return when and how each source was read last with another result than before."""
    found: dict[str, tuple[int, events.HostSourceRead]] = {}
    entries = change_log.list_entries_since(tx, events.HostSourceRead.kind, tx.now - 30 * DAY)
    for entry in sorted(list_vouched_entries(tx, entries), key=lambda one: one.seq):
        if isinstance(entry.event, events.HostSourceRead):
            found[entry.event.source] = (entry.at, entry.event)
    return [found[name] for name in sorted(found)]


@router.get("/{number}")
def show_host_list(visit: Visit, number: IdPath) -> Response:
    """Show every change of a list."""
    return _render_list(visit, number)


def _render_list(
    visit: VisitOfPage, number: int, *, refusal: DomainError | None = None
) -> Response:
    actions = visit.service.bind(HostListActions)
    found = actions.get_viewable(number, visit.person)
    with visit.read_viewable() as tx:
        is_stepped_up = visit.is_stepped_up(tx)
    return visit.render(
        "host_lists/host_list.html",
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        one=found,
        badge=BADGES[found.state],
        can_confirm=_can_confirm(visit, found),
        needs_factor=actions.needs_factor(visit.person),
        is_stepped_up=is_stepped_up,
        can_withdraw=_can_withdraw(visit, found),
        area_titles=visit.policy.join_area_titles(
            [name for name in found.areas if name in visit.policy.organisation.areas]
        ),
    )


def _can_confirm(visit: VisitOfPage, one: HostList) -> bool:
    is_open = one.state == "open" and visit.person not in one.people
    return is_open and not find_refusal(visit.policy, one, visit.person)


def _can_withdraw(visit: VisitOfPage, one: HostList) -> bool:
    is_concerned = one.proposed_by == visit.person or not find_refusal(
        visit.policy, one, visit.person
    )
    return one.state in {"open", "confirmed"} and is_concerned


_action = partial(add_action, router, page="/host-lists/{number}", render=_render_list)


@_action("/{number}/confirm")
def confirm_host_list(visit: Visit, number: IdPath) -> str:
    """Confirm the list whose digest the form has: the one that was read."""
    visit.service.bind(HostListActions).confirm(
        number,
        person=visit.person,
        digest=visit.form.get("digest", ""),
        session=visit.session,
    )
    return f"/host-lists/{number}?done=confirmed"


@_action("/{number}/withdraw")
def withdraw_host_list(visit: Visit, number: IdPath) -> str:
    """Withdraw a list."""
    visit.service.bind(HostListActions).withdraw(number, person=visit.person, reason=visit.reason)
    return f"/host-lists/{number}?done=withdrawn"
