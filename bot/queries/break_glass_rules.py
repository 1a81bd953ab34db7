"""Whether break-glass lets a run start without approvals and during a freeze."""

import logging

from bot.audit import evidence
from bot.db import break_glass, runs
from bot.db.database import Transaction
from bot.model.run import Run
from bot.policy import Policy
from bot.queries.second_factor import is_factor_still_valid
from bot.workflow.context import build_policy_request

log = logging.getLogger(__name__)

# Only people use break-glass: no token, schedule or script does.
_INTERACTIVE_SOURCES = frozenset({"slack", "web"})


def is_break_glass_active(tx: Transaction, policy: Policy, run: Run) -> bool:
    """Return whether break-glass is active for this run and still valid."""
    usage = break_glass.get_break_glass(tx, run.parent or run.id)
    if usage is None or not usage.open(tx.now):
        return False
    parent = run if run.parent is None else runs.get_run(tx, run.parent)
    if get_break_glass_refusal(policy, parent, usage.person, now=tx.now):
        return False
    doubt = evidence.find_mismatch_of_break_glass(tx, parent, usage)
    if doubt:
        log.critical("run %d: the change log does not confirm %s", run.id, doubt)
        return False
    return is_factor_still_valid(tx, policy, person=usage.person, digest=usage.factor)


def get_break_glass_refusal(policy: Policy, run: Run, person: str, *, now: int) -> str:
    """Return why the rules do not let this person use break-glass for the run; "" if they do."""
    if run.requested_by != person:
        name = policy.get_person_name(run.requested_by)
        return f"only {name}, who requested run {run.id}, can use break-glass for it"
    if run.kind != "change" or run.parent is not None:
        return "break-glass applies to whole requests that change something"
    request = build_policy_request(run, now=now)
    if request.source not in _INTERACTIVE_SOURCES:
        return "break-glass is for people in chat or on the web, not for tokens or schedules"
    ruling = policy.get_break_glass_ruling(request)
    if ruling.allowed:
        return ""
    notes = "; ".join(ruling.policy_notes)
    return f"the policy does not allow you break-glass for this{f': {notes}' if notes else ''}"
