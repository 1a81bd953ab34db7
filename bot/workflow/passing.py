"""Passing: whether broken glass lets a run through a freeze and without approvals now."""

import logging

from bot.policy import Policy
from bot.run import Run
from bot.store import glass, runs, testimony
from bot.store.database import Transaction
from bot.workflow.parts import request_of
from bot.workflow.second_factor import still_counts

log = logging.getLogger(__name__)

# Where a person sits. A token, a schedule or a script has no emergencies.
_DOORS = frozenset({"slack", "web"})


def opens(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Say whether broken glass lets this run through now, by all that counts at this moment."""
    broken = glass.of(tx, run.parent or run.id)
    if broken is None or not broken.open(tx.now):
        return False
    whole = run if run.parent is None else runs.get(tx, run.parent)
    if why_not(policy, whole, broken.person, now=tx.now):
        return False
    doubt = testimony.against_glass(tx, whole, broken)
    if doubt:
        log.critical("run %d: the change log does not bear out %s", run.id, doubt)
        return False
    return still_counts(tx, policy, person=broken.person, digest=broken.factor)


def why_not(policy: Policy, run: Run, person: str, *, now: int) -> str:
    """Say why this person may not break the glass for the run by the rules; "" if they may."""
    if run.asked_by != person:
        name = policy.name_person(run.asked_by)
        return f"only {name}, who asked for run {run.id}, can break its glass"
    if run.kind != "change" or run.parent is not None:
        return "glass is broken for a whole request that changes something"
    request = request_of(run, now=now)
    if request.door not in _DOORS:
        return "glass is broken by people in chat or on the web, never by a token or a schedule"
    ruling = policy.may_break_glass(request)
    if ruling.allowed:
        return ""
    said = "; ".join(ruling.says)
    return f"the policy lets you break no glass for this{f': {said}' if said else ''}"
