"""Policy page: the permissions of everyone, or of one person, as a matrix."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Response

from bot.audit import events
from bot.auth.agents import list_agents
from bot.db.database import Transaction
from bot.db.delegations import list_active_delegations
from bot.db.grants import list_newest_active_grants
from bot.model import request_form
from bot.model.agents import is_agent
from bot.model.request_form import RequestSyntaxError
from bot.policy.explain import parse_preview_question
from bot.policy.matrix import build_current_matrix
from bot.queries.log_search import EntryFilter, find_newest_entries
from bot.queries.preview import preview_request
from bot.web.health import can_view_health
from bot.web.pages import read_sections
from bot.web.second_factor import get_key_address
from bot.web.visit import Visit, VisitOfPage

router = APIRouter()

# How many versions of the policy are listed.
_MAX_VERSIONS = 10
WordsQuery = Annotated[str, Query(max_length=300)]
PersonPath = Annotated[str, Path(max_length=64)]


@router.get("/policy")
def show_policy(visit: Visit, who: WordsQuery = "", what: WordsQuery = "") -> Response:
    """Show the permissions of everyone, the owners of areas, and the freezes.

    Args:
        visit: The visit.
        who: A person, and
        what: a request, whose decision is explained.
    """
    return _render_page(visit, person="", who=who, what=what)


@router.get("/policy/{person}")
def show_person_policy(visit: Visit, person: PersonPath) -> Response:
    """Show the permissions of one person."""
    if visit.policy.find_person(person) is None:
        raise HTTPException(404, "There is no person with this id in the policy.")
    return _render_page(visit, person=person)


def _explain(
    tx: Transaction, visit: VisitOfPage, who: str, what: str
) -> tuple[Sequence[str], str]:
    """Return what the policy decides about a request, in sentences, or what is wrong with it."""
    if not (who and what):
        return (), ""
    if not is_agent(who) and visit.policy.find_person(who) is None:
        return (), f"there is no person {who} in the policy: choose one of the list"
    try:
        words = request_form.split_words(what.removeprefix("/keyturn"))
        question = parse_preview_question(visit.policy, words)
    except RequestSyntaxError as error:
        return (), str(error)
    # An agent is explained as acting for the reader.
    behalf = visit.person if is_agent(who) else ""
    preview = preview_request(tx, visit.policy, question, person=who, source="web", behalf=behalf)
    return preview.describe(subject=visit.user.get_person_name(who)), ""


def _render_page(
    visit: VisitOfPage,
    *,
    person: str,
    who: str = "",
    what: str = "",
) -> Response:
    with visit.read_viewable() as tx:
        now = tx.now
        explanation, problem = _explain(tx, visit, who, what)
        agents = [one for one in list_agents(tx) if not one.get_refusal(now)]
        versions = find_newest_entries(
            tx, EntryFilter(kind=events.PolicyChanged.kind), limit=_MAX_VERSIONS
        )
        sections = read_sections(visit.deps.pages, "policy", tx, visit.policy)
        grants = list_newest_active_grants(tx, visit.person)
        delegations = list_active_delegations(tx)
    return visit.render(
        "policy.html",
        status=422 if problem else 200,
        typed={"who": who or person, "what": what},
        explanation=explanation,
        problem=problem,
        people=sorted(visit.policy.organisation.people.values(), key=lambda one: one.name),
        agents=agents,
        versions=versions,
        sections=sections,
        matrix=build_current_matrix(visit.policy, now, person=person),
        own=visit.person,
        make=get_key_address(visit),
        grants=grants,
        delegations=delegations,
        name=visit.user.get_person_name(person) if person else "",
        mine=person == visit.person,
        health=can_view_health(visit),
    )
