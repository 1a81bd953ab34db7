"""Passing: whether broken glass lets a run through a freeze and without approvals now."""

import logging

from bot.audit import evidence
from bot.db import break_glass, runs
from bot.db.database import Transaction
from bot.model.run import Run
from bot.policy import Policy
from bot.workflow.context import build_policy_request
from bot.workflow.second_factor import is_factor_still_valid

log = logging.getLogger(__name__)

# Where a person sits. A token, a schedule or a script has no emergencies.
_INTERACTIVE_SOURCES = frozenset({"slack", "web"})


def is_break_glass_active(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Say whether broken glass lets this run through now, by all that counts at this moment."""
    broken = break_glass.get_break_glass(tx, run.parent or run.id)
    if broken is None or not broken.open(tx.now):
        return False
    whole = run if run.parent is None else runs.get_run(tx, run.parent)
    if get_break_glass_refusal(policy, whole, broken.person, now=tx.now):
        return False
    doubt = evidence.find_doubt_of_break_glass(tx, whole, broken)
    if doubt:
        log.critical("run %d: the change log does not bear out %s", run.id, doubt)
        return False
    return is_factor_still_valid(tx, policy, person=broken.person, digest=broken.factor)


def get_break_glass_refusal(policy: Policy, run: Run, person: str, *, now: int) -> str:
    """Say why this person may not break the glass for the run by the rules; "" if they may."""
    if run.requested_by != person:
        name = policy.get_person_name(run.requested_by)
        return f"only {name}, who asked for run {run.id}, can break its glass"
    if run.kind != "change" or run.parent is not None:
        return "glass is broken for a whole request that changes something"
    request = build_policy_request(run, now=now)
    if request.source not in _INTERACTIVE_SOURCES:
        return "glass is broken by people in chat or on the web, never by a token or a schedule"
    ruling = policy.get_break_glass_ruling(request)
    if ruling.allowed:
        return ""
    said = "; ".join(ruling.policy_notes)
    return f"the policy lets you break no glass for this{f': {said}' if said else ''}"
