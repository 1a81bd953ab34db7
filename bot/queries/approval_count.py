"""Count the approvals of a run: which of them are valid now, and how many are missing.

The rules are evaluated again each time, because they may depend on the time, on a freeze or on
earlier runs of the requester. The requirements that people were shown stay with the run, and the
stricter of old and new requirements applies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.audit import evidence
from bot.auth import agents
from bot.db import runs
from bot.db.database import Transaction
from bot.model.agents import get_agent_name, is_agent
from bot.model.run import Decision, Run, State
from bot.model.sequence import group_hosts_by_runbook
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.policy import NO_LIMIT
from bot.queries import delegation_rules
from bot.queries.second_factor import has_valid_factor
from bot.queries.signatures import has_valid_signature, is_request_signed


@dataclass(frozen=True)
class ApprovalCount:
    """The valid approvals of a run, and what its rules require now."""

    policy: Policy
    """By which they were counted."""
    request: PolicyRequest
    ruling: Ruling
    approvers: Sequence[str]
    """The people whose approvals count: a delegator counts instead of the delegate."""
    lost_approvers: Sequence[str]
    """People who approved, and whose approval is not valid any more."""
    missing_approvals: int
    """How many more approvals are needed at least."""
    denied_by: str = ""
    """Who denied the run; empty if no one did."""
    lacks_signed_request: bool = False
    """Whether the requester still has to sign the plan."""
    start_at: int | None = None
    """The latest of the earliest starts that the approvals name; None if none names one."""

    @property
    def is_met(self) -> bool:
        return self.ruling.allowed and not self.missing_approvals and not self.lacks_signed_request


def is_first_success(tx: Transaction, policy: Policy, *, person: str, runbook: str) -> bool:
    """Return whether no run of this runbook by this person has succeeded, if a rule uses that."""
    return "first_time" not in policy.mentions or runs.is_first_time(
        tx, person=person, words=runbook
    )


def is_review_overdue(tx: Transaction, policy: Policy, person: str) -> bool:
    """Return whether no one reviewed a run of this person in time, if a rule uses that."""
    return policy.rules.requires_reviews and bool(evidence.get_unreviewed_run(tx, person))


def build_policy_request(run: Run, *, now: int) -> PolicyRequest:
    """Return the input of the policy's rules. now: microseconds since 1970."""
    reversible = run.plan.is_reversible if run.plan else True
    return PolicyRequest(
        runbook=run.runbook,
        kind=run.kind,
        host=run.host,
        # The rules judge a request for a schedule as they will judge its runs.
        source="schedule" if run.timing else run.origin.source,
        requested_by=run.requested_by,
        reversible=reversible,
        hosts=run.hosts,
        now=now,
        is_escalated=run.escalated_at is not None,
        editors=run.editors,
        overrides_guard=bool(run.guard_override),
        agent=run.origin.agent,
        parts=group_hosts_by_runbook(run.values) if run.is_sequence else (),
    )


def get_policy_request(tx: Transaction, policy: Policy, run: Run) -> PolicyRequest:
    """Return the input of the rules about a run."""
    at = run.started_at if run.state is State.RUNNING else None
    request = build_policy_request(run, now=at or tx.now)
    first = any(
        is_first_success(tx, policy, person=run.requested_by, runbook=part.runbook)
        for part in request.split_parts()
    )
    return replace(
        request,
        is_first_success=first,
        is_review_overdue=is_review_overdue(tx, policy, run.requested_by),
        margin=policy.read_margin(tx, policy, run) if "margin" in policy.mentions else NO_LIMIT,
    )


def get_ruling(tx: Transaction, policy: Policy, run: Run) -> tuple[PolicyRequest, Ruling]:
    """Return the input of the rules, and the stricter of their current and earlier ruling.

    A running run is judged by the time of its start, so that no rule about hours interrupts it.
    """
    request = get_policy_request(tx, policy, run)
    if refusal := _get_agent_refusal(tx, run):
        return request, Ruling(allowed=False, policy_notes=(refusal,))
    ruling = policy.get_request_ruling(request)
    if not ruling.allowed:
        return request, ruling
    requirements = (
        ruling.requirements.escalate_requirements()
        if request.is_escalated
        else ruling.requirements
    )
    return request, replace(ruling, requirements=requirements.merge_with(run.requirements))


def show_requirements(run: Run, ruling: Ruling) -> Run:
    """Return an open run with what the rules require of its approvals now, to be shown."""
    requirements = ruling.requirements.merge_with(run.requirements)
    is_pending = run.state is State.PENDING
    needed = requirements.required_approvals if is_pending else run.required_approvals
    return replace(run, requirements=requirements, required_approvals=needed)


def _get_agent_refusal(tx: Transaction, run: Run) -> str:
    """Return why an agent may request nothing any more; "" for people. A pause ends no run."""
    if not is_agent(run.requested_by):
        return ""
    agent = agents.find_agent(tx, get_agent_name(run.requested_by))
    if agent is None:
        return "there is no such agent"
    return agent.get_refusal(tx.now, ignores_pause=True)


def count_approvals(
    tx: Transaction, policy: Policy, run: Run, approved_run: Run | None = None
) -> ApprovalCount:
    """Count the approvals of a run. approved_run: the run that was approved, if it is another."""
    request, ruling = get_ruling(tx, policy, run)
    approved = approved_run or run
    votes = runs.list_decisions(tx, approved.id)
    valid = [
        vote
        for vote in votes
        if vote.approves
        and vote.digest == approved.digest
        and (not ruling.requires_second_factor or has_valid_factor(tx, policy, vote))
        and (not ruling.requires_signature or has_valid_signature(policy, vote, approved))
    ]
    in_force = delegation_rules.list_logged_delegations(tx, now=request.now)
    counted = {
        vote.person: delegation_rules.get_counted_approver(policy, in_force, vote, request, ruling)
        for vote in valid
    }
    # A delegator and their delegate count as one.
    approvers = list(dict.fromkeys(name for name in counted.values() if name))
    lost = [person for person, name in counted.items() if not name]
    denied_by = next((vote.person for vote in votes if not vote.approves), "")
    return ApprovalCount(
        policy,
        request,
        ruling,
        approvers,
        lost,
        policy.count_missing_approvals(ruling.requirements, approvers),
        denied_by,
        ruling.requires_signed_request and not is_request_signed(tx, policy, approved),
        max((vote.start_at for vote in valid if vote.start_at is not None), default=None),
    )


def is_decision_complete(
    tx: Transaction, policy: Policy, run: Run, decision: Decision, ruling: Ruling
) -> bool:
    """Return whether a decision is complete. ruling: of get_ruling().

    An approval is not where the rules require a second factor or a signature that it lacks, or
    that is not valid any more.
    """
    if not decision.approves:
        return True
    return (not ruling.requires_second_factor or has_valid_factor(tx, policy, decision)) and (
        not ruling.requires_signature or has_valid_signature(policy, decision, run)
    )
