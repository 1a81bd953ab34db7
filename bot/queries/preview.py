"""Preview a request: what it would need, without making it."""

from dataclasses import replace

from bot.auth import agents
from bot.db import grants, stats
from bot.db.database import Transaction
from bot.model.agents import SOURCE, AgentOrigin, get_agent_name, is_agent
from bot.policy import Policy, PolicyRequest, Ruling
from bot.policy.explain import AreaEvaluation, Preview, PreviewQuestion, evaluate_preview
from bot.policy.grants import get_grant_obstacle
from bot.queries import approval_count
from bot.queries.delegation_rules import list_active_delegates
from runbooks._catalogue import get_kind


def preview_request(
    tx: Transaction,
    policy: Policy,
    question: PreviewQuestion,
    *,
    person: str,
    source: str,
    behalf: str = "",
) -> Preview:
    """Return what a request by this person would need, with delegations and standing grants.

    person: a person, or the id of an agent; then behalf is the person that it acts for, or "".
    """
    if is_agent(person):
        agent = agents.find_agent(tx, get_agent_name(person))
        origin = AgentOrigin(agent.owner if agent else "", behalf)
        question, source = replace(question, agent=origin), SOURCE
    words = question.runbook.words
    preview = evaluate_preview(
        policy,
        question,
        person=person,
        source=source,
        now=tx.now,
        is_first_success=approval_count.is_first_success(tx, policy, person=person, runbook=words),
        is_review_overdue=approval_count.is_review_overdue(tx, policy, person),
    )
    areas = [_add_stored_rights(tx, policy, question, area) for area in preview.areas]
    return replace(preview, areas=areas, usual_wait=stats.get_usual_wait(tx, words))


def _add_stored_rights(
    tx: Transaction, policy: Policy, question: PreviewQuestion, area: AreaEvaluation
) -> AreaEvaluation:
    """Add the delegates who can approve, and the grant that replaces the approval."""
    if area.request is None or not area.evaluation.required_approvals:
        return area
    ruling = policy.get_request_ruling(area.request)
    delegates = [
        f"{policy.get_person_name(person)} on behalf of {policy.get_person_name(delegator)}"
        for person, delegator in list_active_delegates(tx, policy, area.request, ruling)
    ]
    evaluation = replace(area.evaluation, approvers=[*area.evaluation.approvers, *delegates])
    grant = _describe_grant(tx, policy, question, area.request, ruling)
    return replace(area, evaluation=evaluation, grant=grant)


def list_granted_fields(tx: Transaction, *, person: str, words: str) -> set[str]:
    """Return the fields on whose values a standing grant depends, and so the preview."""
    found = grants.list_active_grants(tx, person=person, words=words)
    return {name for grant in found for name in grant.values}


def _describe_grant(
    tx: Transaction,
    policy: Policy,
    question: PreviewQuestion,
    request: PolicyRequest,
    ruling: Ruling,
) -> str:
    """Return the grant that would replace the approval now, in a sentence; "" without one."""
    if len(question.hosts) != 1:
        return ""
    person, words = request.requested_by, request.runbook
    for grant in grants.list_active_grants(tx, person=person, words=words):
        left = grants.count_uses_left(tx, grant)
        if (
            left
            and grant.covers_values(request.host, question.values)
            and not get_grant_obstacle(policy, request, ruling, grant.granted_by)
        ):
            giver = policy.get_person_name(grant.granted_by)
            return (
                f"Runs without another approval: standing grant {grant.id} by {giver}, "
                f"{left} of {grant.per_hour} uses left this hour."
            )
    return ""


def preview_without_database(
    policy: Policy, question: PreviewQuestion, *, person: str, source: str, now: int
) -> Preview | None:
    """Return the preview of a check that runs immediately, without a query; None for others.

    now: microseconds since 1970, by the database's clock.
    """
    if get_kind(question.runbook) != "check" or "first_time" in policy.mentions:
        return None
    preview = evaluate_preview(policy, question, person=person, source=source, now=now)
    return preview if preview.needs_no_approval else None
