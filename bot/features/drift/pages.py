"""Drift pages: what changed outside Keyturn, what may have changed it, and the answers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from bot.db.database import Transaction
from bot.features.drift import rows
from bot.features.drift.actions import DriftActions
from bot.features.drift.details import read_details
from bot.model.drift_state import DRIFTED_STATES, DriftState
from bot.model.run_states import StatusDisplay, Tone
from bot.model.times import DEADLINE_EXAMPLES
from bot.policy import Policy
from bot.web.pages import HomeTile, PageLink, Pages, PageSection
from bot.web.templating import parse_reader_deadline
from bot.web.visit import IdPath, Visit, VisitOfPage, add_action
from connectors.errors import DomainError
from connectors.inventory import Host

router = APIRouter(prefix="/drift")


def _build_tiles(tx: Transaction) -> Sequence[HomeTile]:
    """Count what is not as set, for Home."""
    drifted = sum(key.state in DRIFTED_STATES for key in rows.list_keys(tx, most=_MAX_COUNTED))
    return [HomeTile(f"{drifted}", "changed outside Keyturn", "/drift")] if drifted else []


def _find_host_page(host: Host) -> str:
    return f"/drift?host={host.name}"


def _read_host_drift(tx: Transaction, _policy: Policy, *, host: Host) -> Mapping[str, object]:
    """Name what is not as set on a host, for its page."""
    keys = rows.list_keys(tx, host=host.name, most=_MAX_COUNTED)
    drifted = [key for key in keys if key.state in DRIFTED_STATES]
    return {"drifted": drifted} if drifted else {}


PAGES = Pages(
    router,
    section="/hosts",
    sections=[PageSection("host", "drift/drift_host.html", _read_host_drift)],
    links=[
        PageLink("hosts", "Drift", lambda: "/drift", "swap"),
        PageLink("host", "Drift", _find_host_page, "swap"),
    ],
    build_tiles=_build_tiles,
)
# How the pages show each state.
_BADGES: Mapping[DriftState, StatusDisplay] = {
    DriftState.AS_SET: StatusDisplay(
        "As set", Tone.SUCCESS, "check", "It is as Keyturn set it, or as a person accepted it."
    ),
    DriftState.CHANGED: StatusDisplay(
        "Changed outside", Tone.DANGER, "swap", "Something other than Keyturn changed it."
    ),
    DriftState.MISSING: StatusDisplay(
        "Missing", Tone.DANGER, "question", "It is not there, or cannot be set now."
    ),
    DriftState.UNREADABLE: StatusDisplay(
        "Cannot be read", Tone.WARNING, "alert", "The last reading failed."
    ),
}

FilterQuery = Annotated[str, Query(max_length=100)]
# On the page; and as Home counts, which is opened often.
_MAX_KEYS, _MAX_COUNTED = 500, 100
_DONE_NOTICES: Mapping[str, str] = {
    "read": "Keyturn reads the host within seconds, unless it has just done so.",
    "adopted": "Adopted. Keyturn watches this value from now on; nothing was sent to the host.",
    "expected": "Expected. Until then, another value is no drift.",
}


@router.get("")
def list_keys(visit: Visit, host: FilterQuery = "", state: str = "") -> Response:
    """Show the values that Keyturn watches, those that are not as set first."""
    wanted = DriftState(state) if state in set(DriftState) else None
    name = host.strip().lower()
    with visit.read_viewable() as tx:
        keys = rows.list_keys(tx, host=name, state=wanted, most=_MAX_KEYS)
    return visit.render(
        "drift/drift.html",
        badges=_BADGES,
        keys=keys,
        states=[*DriftState],
        typed={"host": name, "state": wanted or ""},
        drifted=sum(key.state in DRIFTED_STATES for key in keys),
        is_cut=len(keys) == _MAX_KEYS,
    )


@router.get("/{number}")
def show_key(visit: Visit, number: IdPath) -> Response:
    """Show one value: when it changed, what happened on its host then, and the answers."""
    return _render_key(visit, number)


def _render_key(
    visit: VisitOfPage, number: int, *, refusal: DomainError | None = None
) -> Response:
    with visit.read_viewable() as tx:
        details = read_details(tx, visit.policy, number, person=visit.person)
    return visit.render(
        "drift/drift_key.html",
        badges=_BADGES,
        refusal=refusal,
        notice=_DONE_NOTICES.get(visit.done, ""),
        typed=visit.form,
        details=details,
        key=details.key,
        is_drifted=details.key.state in DRIFTED_STATES,
        deadline_examples=DEADLINE_EXAMPLES,
    )


_action = partial(add_action, router, page="/drift/{number}", render=_render_key)


@_action("/{number}/read")
def read_key(visit: Visit, number: IdPath) -> str:
    """Have the values of the host read now."""
    with visit.read_viewable() as tx:
        host = rows.get_key(tx, number).host
    visit.service.bind(DriftActions).read_host_now(host, person=visit.person)
    return f"/drift/{number}?done=read"


@_action("/{number}/restore")
def restore_value(visit: Visit, number: IdPath) -> str:
    """Plan again what set the value, and redirect to its plan."""
    run = visit.service.bind(DriftActions).restore_value(number, visit.plan_terms)
    return f"/runs/{run.id}"


@_action("/{number}/adopt")
def adopt_value(visit: Visit, number: IdPath) -> str:
    """Accept the value on the host."""
    visit.service.bind(DriftActions).adopt_value(
        number, person=visit.person, reason=visit.reason, session=visit.session
    )
    return f"/drift/{number}?done=adopted"


@_action("/{number}/expect")
def expect_value(visit: Visit, number: IdPath) -> str:
    """Let the value vary until a time."""
    with visit.read_viewable() as tx:
        until = parse_reader_deadline(visit.request, visit.form.get("until", ""), now=tx.now)
    visit.service.bind(DriftActions).expect_value(
        number,
        person=visit.person,
        until=until,
        value_range=visit.form.get("range", "").strip(),
        reason=visit.reason,
        session=visit.session,
    )
    return f"/drift/{number}?done=expected"
