"""Grant rules: which runs a standing grant approves in advance, and how often.

A grant replaces an approval and nothing else: the rules about requesters, freezes, plan and digest
apply as always. Irreversible changes, and changes that require a second factor or several
approvals, cannot be granted.
"""

from bot.audit import change_log, events
from bot.audit.grant_evidence import has_all_uses_counted, is_grant_logged
from bot.db import grants
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.model.run import Run
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.grants import get_grant_obstacle
from bot.queries.standing_grants import find_grant


def choose_grant(
    tx: Transaction, policy: Policy, run: Run, request: PolicyRequest, ruling: Ruling
) -> tuple[Grant | None, str]:
    """Return the grant that replaces the approval of a planned run, or why none does.

    The grant is locked until this transaction ends. Call this before writing to the log: a
    transaction that holds the log must not wait for other locks.
    """
    return find_grant(tx, policy, run, request, ruling, read_grant=grants.lock_grant)


def get_grant_refusal(
    tx: Transaction, policy: Policy, run: Run, request: PolicyRequest, ruling: Ruling
) -> str:
    """Return why the run's grant does not approve it now; "" if it does.

    request: the input of the rules, with the time that counts for this run.
    """
    grant = grants.lock_grant(tx, run.grant_id or 0)
    why = (
        "was revoked"
        if grant.revoked_at is not None
        else "has ended"
        if not grant.holds(request.now)
        else "does not cover this run"
        if not grant.covers(run)
        else "is not confirmed by the change log"
        if not is_grant_logged(tx, grant)
        else "was used more often than the database lists"
        if not has_all_uses_counted(tx, grant, except_run=run.id)
        else "has reached its limit this hour"
        if grants.count_used(tx, grant.id, except_run=run.id) >= grant.per_hour
        else get_grant_obstacle(policy, request, ruling, grant.granted_by)
    )
    return f"Grant {grant.id} {why}, so the run needs an approval" if why else ""


def use_grant(tx: Transaction, run: Run) -> None:
    """Count the run against its grant, in the transaction that starts it."""
    grant = grants.lock_grant(tx, run.grant_id or 0)
    grants.record_use(tx, grant.id, run.id)
    change_log.append_entry(
        tx,
        events.GrantUsed(
            grant=grant.id,
            granted_by=grant.granted_by,
            uses=grants.count_used(tx, grant.id),
            per_hour=grant.per_hour,
        ),
        run=run,
        person=run.requested_by,
    )
