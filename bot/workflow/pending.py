"""Awaited: what of all that is not over waits for one person."""

from bot.db import runs, search
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import Policy
from bot.policy.people import Area
from bot.workflow.approval_count import get_ruling
from bot.workflow.delegation_rules import find_delegator

_MAX_RUNS = 100


def list_runs_awaiting_person(tx: Transaction, policy: Policy, person: str) -> list[Run]:
    """Return the runs that this person can resolve, then those that they can still decide.

    Of each the newest hundred are looked at.
    """
    unknown = search.find_newest_runs(
        tx, search.RunFilter(states=frozenset({State.UNKNOWN})), most=_MAX_RUNS
    )
    waiting = search.find_newest_runs(
        tx, search.RunFilter(states=frozenset({State.PENDING})), most=_MAX_RUNS
    )
    votes = runs.list_votes_on(tx, [run.id for run in waiting])
    voted = {run for run, cast in votes.items() if any(vote.person == person for vote in cast)}
    return [run for run in unknown if can_resolve(policy, run, person)] + [
        run for run in waiting if run.id not in voted and can_decide(tx, policy, run, person)
    ]


def can_decide(tx: Transaction, policy: Policy, run: Run, person: str) -> bool:
    """Say whether this person's yes or no would count for the run."""
    request, ruling = get_ruling(tx, policy, run)
    mine = policy.get_approval_ruling(person, request, ruling).allowed
    return mine or bool(find_delegator(tx, policy, request, ruling, person))


def can_resolve(policy: Policy, run: Run, person: str) -> bool:
    """Say whether this person may tell how an unknown run ended."""
    if run.state is not State.UNKNOWN or run.hosts:
        return False
    area = get_resolution_area(policy, run)
    return area is not None and person in area.owners


def get_freeze_after_approval(policy: Policy, run: Run, *, now: int) -> str:
    """Say why a run will still wait once it is approved; "" if no freeze holds it now."""
    if run.state is not State.PENDING or run.host not in policy.inventory.hosts:
        return ""
    return policy.describe_freeze(host=run.host, runbook=run.runbook, now=now)


def get_resolution_area(policy: Policy, run: Run) -> Area | None:
    """Return the area whose owners resolve a run, also once its host has left the inventory."""
    if run.host in policy.inventory.hosts:
        return policy.get_area(run.host)
    return policy.organisation.areas.get(run.area)
