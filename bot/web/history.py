"""The history of every run, newest first, filtered and paged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from bot.run import State
from bot.store import runs, search
from bot.web.pages import page
from bot.web.parts import Here
from bot.web.visitor import Visiting, Visitor
from bot.web.wanted import GROUPS, wanted
from runbooks import catalogue

router = APIRouter()

_ON_A_PAGE = 40


@dataclass(frozen=True)
class Choices:
    """What the filters offer; other words may be typed too, for what has left since."""

    hosts: Sequence[str]
    people: Mapping[str, str]
    runbooks: Sequence[str]
    groups: Mapping[str, str]
    states: Sequence[State]


@router.get("/runs")
def history(request: Request, parts: Here, visitor: Visiting) -> Response:
    """Show one page of runs. The address says everything, so it can be sent to somebody."""
    with parts.database.reading() as tx:
        now = tx.now
        sought = wanted(request.query_params, now=now)
        # Half a filter would mislead, so what does not fit finds nothing.
        found = search.Page([], None)
        if not sought.problems:
            found = search.page(tx, sought.filter, most=_ON_A_PAGE)
        votes = runs.votes_on(tx, [run.id for run in found.runs])
    return page(
        request,
        "history.html",
        wanted=sought,
        choices=_choices(visitor),
        runs=found.runs,
        votes=votes,
        now=now,
        older=sought.address(before=found.older) if found.older else "",
        paged=sought.filter.before is not None,
    )


def _choices(visitor: Visitor) -> Choices:
    people = visitor.policy.household.people.values()
    return Choices(
        hosts=sorted(host.name for host in visitor.policy.inventory),
        people={person.id: person.name for person in sorted(people, key=lambda one: one.name)},
        runbooks=list(catalogue()),
        groups={name: title for name, (title, _) in GROUPS.items()},
        states=list(State),
    )
