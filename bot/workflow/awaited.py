"""Awaited: what of all that is not over waits for one person."""

from bot.policy import Policy
from bot.policy.people import Area
from bot.run import Run, State
from bot.store import runs, search
from bot.store.database import Transaction
from bot.workflow.counting import ruling_on
from bot.workflow.stead import stand_in

_MOST = 100


def of(tx: Transaction, policy: Policy, person: str) -> list[Run]:
    """Return the runs that this person can settle, then those that they can still decide.

    Of each the newest hundred are looked at.
    """
    unsettled = search.newest(tx, search.Filter(states=frozenset({State.UNKNOWN})), most=_MOST)
    waiting = search.newest(tx, search.Filter(states=frozenset({State.WAITING})), most=_MOST)
    votes = runs.votes_on(tx, [run.id for run in waiting])
    voted = {run for run, cast in votes.items() if any(vote.person == person for vote in cast)}
    return [run for run in unsettled if may_settle(policy, run, person)] + [
        run for run in waiting if run.id not in voted and may_decide(tx, policy, run, person)
    ]


def may_decide(tx: Transaction, policy: Policy, run: Run, person: str) -> bool:
    """Say whether this person's yes or no would count for the run."""
    request, ruling = ruling_on(tx, policy, run)
    mine = policy.may_approve(person, request, ruling).allowed
    return mine or bool(stand_in(tx, policy, request, ruling, person))


def may_settle(policy: Policy, run: Run, person: str) -> bool:
    """Say whether this person may tell how an unknown run ended."""
    if run.state is not State.UNKNOWN or run.hosts:
        return False
    area = area_of(policy, run)
    return area is not None and person in area.owners


def frozen_then(policy: Policy, run: Run, *, now: int) -> str:
    """Say why a run will still wait once it is approved; "" if no freeze holds it now."""
    if run.state is not State.WAITING or run.host not in policy.inventory.hosts:
        return ""
    return policy.frozen(host=run.host, runbook=run.words, now=now)


def area_of(policy: Policy, run: Run) -> Area | None:
    """Return the area whose owners settle a run, also once its host has left the inventory."""
    if run.host in policy.inventory.hosts:
        return policy.area_of(run.host)
    return policy.household.areas.get(run.area)
