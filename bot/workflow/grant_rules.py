"""Granted: what a standing grant lets through, and how often, looked at like an approval.

It only narrows what takes an approval: who may ask, freezes, forbids, the plan and its digest are
looked at as ever. What cannot be undone, takes a second factor, or takes several people's keys
cannot be granted.
"""

from dataclasses import replace

from bot.audit import change_log
from bot.audit.grant_evidence import has_all_uses_counted, is_grant_logged
from bot.db import grants
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.model.run import Run
from bot.policy import Policy, PolicyRequest, Ruling


def choose_grant(
    tx: Transaction, policy: Policy, run: Run, request: PolicyRequest, ruling: Ruling
) -> tuple[Grant | None, str]:
    """Return the grant that stands in for the approval of a planned run, or why none does.

    Others cannot use or revoke it until this transaction ends. Call it before the log is written
    to: whoever holds the log waits for nothing else.
    """
    spent: list[str] = []
    if not ruling.allowed or not ruling.required_approvals:
        return None, ""
    for found in grants.list_active_grants(tx, person=run.requested_by, words=run.runbook):
        held = grants.lock_grant(tx, found.id)
        if not held.holds(tx.now) or not held.covers(run) or not is_grant_logged(tx, held):
            continue
        if get_grant_obstacle(policy, request, ruling, held.granted_by):
            continue
        if grants.count_taken(tx, held.id, but=run.id) < held.per_hour:
            return held, ""
        spent.append(f"Grant {held.id} has none of its {held.per_hour} left this hour.")
    return None, " ".join(spent)


def get_grant_refusal(
    tx: Transaction, policy: Policy, run: Run, request: PolicyRequest, ruling: Ruling
) -> str:
    """Say why the run's grant does not let it through at this moment; "" if it does.

    request: what the rules look at, with the moment that counts for this run.
    """
    held = grants.lock_grant(tx, run.grant_id or 0)
    why = (
        "was revoked"
        if held.revoked_at is not None
        else "has ended"
        if not held.holds(request.now)
        else "is not for this"
        if not held.covers(run)
        else "is not borne out by the change log"
        if not is_grant_logged(tx, held)
        else "was used more often than its rows say"
        if not has_all_uses_counted(tx, held, except_run=run.id)
        else "has none left this hour"
        if grants.count_used(tx, held.id, but=run.id) >= held.per_hour
        else get_grant_obstacle(policy, request, ruling, held.granted_by)
    )
    return f"Grant {held.id} {why}, so it takes an approval" if why else ""


def use_grant(tx: Transaction, run: Run) -> None:
    """Count the run against its grant, in the transaction that lets it through."""
    held = grants.lock_grant(tx, run.grant_id or 0)
    grants.record_use(tx, held.id, run.id)
    change_log.append_entry(
        tx,
        "grant used",
        run=run.id,
        person=run.requested_by,
        host=run.host,
        grant=held.id,
        granted_by=held.granted_by,
        uses=grants.count_used(tx, held.id),
        per_hour=held.per_hour,
    )


def count_uses_left(tx: Transaction, grant: Grant) -> int:
    """Return how often it may still be used at this moment."""
    return max(grant.per_hour - grants.count_taken(tx, grant.id), 0)


def get_grant_obstacle(
    policy: Policy, request: PolicyRequest, ruling: Ruling, granted_by: str
) -> str:
    """Say why this person's grant cannot stand in for the approval; "" if it can. Pure."""
    granted = replace(request, has_grant=True)
    owners = policy.get_area(request.host).owners
    able = granted_by in owners and policy.get_approval_ruling(granted_by, granted, ruling).allowed
    reasons = (
        (not request.reversible, "cannot be for what cannot be undone"),
        (ruling.requires_second_factor, "cannot be for what takes a second factor"),
        (not policy.get_request_ruling(granted).allowed, "is against the policy"),
        (not able, "is not from an owner who could approve it"),
        (
            not policy.is_met(ruling.requirements, {granted_by}),
            f"cannot stand in for the {ruling.required_approvals} approvals that it takes",
        ),
    )
    return next((why for holds, why in reasons if holds), "")
