"""Find the standing grant that replaces the approvals of a run, before its request and after."""

from collections.abc import Callable
from dataclasses import replace

from bot.audit.grant_evidence import is_grant_logged
from bot.db import grants
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.model.run import Run
from bot.policy import Policy, PolicyRequest, Ruling


def find_grant(
    tx: Transaction,
    policy: Policy,
    run: Run,
    request: PolicyRequest,
    ruling: Ruling,
    *,
    read_grant: Callable[[Transaction, int], Grant] = grants.get_grant,
) -> tuple[Grant | None, str]:
    """Return the grant that replaces the approvals of a run, or why none does.

    read_grant: Reads a grant again, where it has to be locked.
    """
    exhausted: list[str] = []
    if not ruling.allowed or not ruling.required_approvals:
        return None, ""
    for candidate in grants.list_active_grants(tx, person=run.requested_by, words=run.runbook):
        grant = read_grant(tx, candidate.id)
        if not grant.holds(tx.now) or not grant.covers(run) or not is_grant_logged(tx, grant):
            continue
        if get_grant_obstacle(policy, request, ruling, grant.granted_by):
            continue
        if grants.count_taken(tx, grant.id, except_run=run.id) < grant.per_hour:
            return grant, ""
        exhausted.append(f"Grant {grant.id} has reached its limit of {grant.per_hour} this hour.")
    return None, " ".join(exhausted)


def get_grant_obstacle(
    policy: Policy, request: PolicyRequest, ruling: Ruling, granted_by: str
) -> str:
    """Return why this person's grant cannot replace the approval; "" if it can."""
    granted = replace(request, has_grant=True)
    owners = policy.get_area(request.host).owners
    able = granted_by in owners and policy.get_approval_ruling(granted_by, granted, ruling).allowed
    reasons = (
        (not request.reversible, "cannot cover irreversible changes"),
        (ruling.requires_second_factor, "cannot cover changes that require a second factor"),
        (ruling.requires_signature, "cannot cover changes that require signatures"),
        (not policy.get_request_ruling(granted).allowed, "is not allowed by the policy"),
        (not able, "is not from an owner who could approve it"),
        (
            not policy.is_met(ruling.requirements, {granted_by}),
            f"cannot replace the {ruling.required_approvals} approvals that it needs",
        ),
    )
    return next((why for holds, why in reasons if holds), "")
