"""Counting: what the approvals of a run must come to now, and which of those given count.

The rules are asked again each time, since they may look at the clock, at a freeze, or at what the
asker has done before. Whatever they say by now, nothing of what they said before is weakened: what
was shown to people stays in the run as its terms, and the stricter of then and now holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.db import runs
from bot.db.database import Transaction
from bot.model.run import Run, State
from bot.policy import Policy, PolicyRequest, Ruling
from bot.workflow import delegation_rules
from bot.workflow.context import build_policy_request
from bot.workflow.second_factor import has_valid_factor


@dataclass(frozen=True)
class ApprovalCount:
    """keys: whose approvals count. lost: who approved, and could not do so any more.

    met: whether the keys are enough. missing: how many more it takes at the least.
    no: by whom it was denied, "" if by nobody.
    """

    request: PolicyRequest
    ruling: Ruling
    approvers: Sequence[str]
    lost_approvers: Sequence[str]
    missing_approvals: int
    denied_by: str = ""

    @property
    def is_met(self) -> bool:
        return self.ruling.allowed and not self.missing_approvals


def is_first_success(tx: Transaction, policy: Policy, *, person: str, runbook: str) -> bool:
    """Say whether this person has never had this runbook succeed; looked up where a rule asks."""
    return "first_time" not in policy.mentions or runs.is_first_time(
        tx, person=person, words=runbook
    )


def get_ruling(tx: Transaction, policy: Policy, run: Run) -> tuple[PolicyRequest, Ruling]:
    """Return what the rules look at, and the stricter of what they say now and have said.

    Once a run is under way the clock stands still for it: no rule about hours stops it half-way.
    """
    at = run.started_at if run.state is State.RUNNING else None
    first = is_first_success(tx, policy, person=run.requested_by, runbook=run.runbook)
    request = replace(build_policy_request(run, now=at or tx.now), is_first_success=first)
    ruling = policy.get_request_ruling(request)
    if not ruling.allowed:
        return request, ruling
    terms = (
        ruling.requirements.escalate_requirements()
        if request.is_escalated
        else ruling.requirements
    )
    return request, replace(ruling, requirements=terms.merge_with(run.requirements))


def count_approvals(
    tx: Transaction, policy: Policy, run: Run, approved_run: Run | None = None
) -> ApprovalCount:
    """Count the approvals of a run. keyed: the run that was approved, if it is another."""
    request, ruling = get_ruling(tx, policy, run)
    approved = approved_run or run
    votes = runs.list_votes(tx, approved.id)
    given = [
        vote
        for vote in votes
        if vote.approves
        and vote.digest == approved.digest
        and (not ruling.requires_second_factor or has_valid_factor(tx, policy, vote))
    ]
    in_force = delegation_rules.list_logged_delegations(tx, now=request.now)
    turned = {
        vote.person: delegation_rules.get_counted_approver(policy, in_force, vote, request, ruling)
        for vote in given
    }
    # A delegator and their delegate have one key between them.
    keys = list(dict.fromkeys(key for key in turned.values() if key))
    lost = [person for person, key in turned.items() if not key]
    no = next((vote.person for vote in votes if not vote.approves), "")
    return ApprovalCount(
        request, ruling, keys, lost, policy.count_missing_approvals(ruling.requirements, keys), no
    )
