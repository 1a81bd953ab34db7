"""Preview a request: what it would need, without making it."""

from collections.abc import Sequence
from dataclasses import replace

from bot.auth import agents
from bot.db import grants, stats, stops
from bot.db.database import Transaction
from bot.db.grants import Grant
from bot.model.agents import SOURCE, AgentOrigin, get_agent_name, is_agent
from bot.model.run import RequestOrigin, Run, State
from bot.policy import Policy, PolicyRequest
from bot.policy.explain import (
    AreaEvaluation,
    Evaluation,
    Preview,
    PreviewQuestion,
    evaluate_area,
    evaluate_request,
    group_hosts,
)
from bot.queries import approval_count
from bot.queries.delegation_rules import list_active_delegates
from bot.queries.standing_grants import find_grant
from bot.queries.stop_reasons import describe_active_stop
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
    policy = policy.without_people(stops.list_banned_people(tx))
    areas = [
        _forecast_area(tx, policy, question, _build_run(policy, question, hosts, person, source))
        for hosts in group_hosts(policy, question)
    ]
    words = question.runbook.words
    return Preview(
        person,
        words,
        areas,
        usual_wait=stats.get_usual_wait(tx, words),
        stop=describe_active_stop(tx, policy),
    )


def _build_run(
    policy: Policy, question: PreviewQuestion, hosts: Sequence[str], person: str, source: str
) -> Run:
    """Return the run that a request for these hosts would record."""
    return Run(
        id=0,
        version=0,
        state=State.PLANNING,
        runbook=question.runbook.words,
        kind=get_kind(question.runbook),
        values=question.values,
        host=hosts[0],
        area=policy.get_area(hosts[0]).name,
        requested_by=person,
        origin=RequestOrigin(source, agent=question.agent),
        reason="",
        requested_at=0,
        hosts=tuple(hosts) if len(hosts) > 1 else (),
    )


def _forecast_area(
    tx: Transaction, policy: Policy, question: PreviewQuestion, run: Run
) -> AreaEvaluation:
    """Evaluate a request by the count that the gate makes, with delegates and grants."""
    request, ruling = approval_count.get_ruling(tx, policy, run)
    area = evaluate_area(policy, request, can_be_undone=bool(question.runbook.undo))
    if not ruling.allowed:
        refused = Evaluation(
            allowed=False, policy_notes=ruling.policy_notes, can_view=area.evaluation.can_view
        )
        return replace(area, evaluation=refused, if_irreversible=None)
    if area.request is None:
        return area
    irreversible = area.if_irreversible
    area = replace(
        area,
        evaluation=_add_delegates(tx, policy, area.request, area.evaluation),
        if_irreversible=irreversible
        and _add_delegates(tx, policy, replace(area.request, reversible=False), irreversible),
    )
    return _add_grant(tx, policy, run, area) if area.evaluation.required_approvals else area


def _add_delegates(
    tx: Transaction, policy: Policy, request: PolicyRequest, evaluation: Evaluation
) -> Evaluation:
    """Add who may approve on behalf of others, where approvals are needed."""
    if not evaluation.required_approvals:
        return evaluation
    delegates = [
        f"{policy.get_person_name(one)} on behalf of {policy.get_person_name(delegator)}"
        for one, delegator in list_active_delegates(
            tx, policy, request, policy.get_request_ruling(request)
        )
    ]
    return replace(evaluation, approvers=[*evaluation.approvers, *delegates])


def _add_grant(tx: Transaction, policy: Policy, run: Run, area: AreaEvaluation) -> AreaEvaluation:
    """Add the standing grant that replaces the approval, or may do so."""
    request = area.request
    if request is None:
        return area
    found: list[Grant] = []
    is_lower_bound = area.evaluation.is_lower_bound
    for margin in policy.list_possible_margins() if is_lower_bound else [request.margin]:
        one = replace(request, margin=margin)
        grant, _ = find_grant(tx, policy, run, one, policy.get_request_ruling(one))
        found += [grant] if grant else []
    if not found:
        return area
    grant = found[0]
    if is_lower_bound:
        sentence = f"Standing grant {grant.id} may replace the approvals."
        return replace(area, possible_grant=sentence)
    giver, left = policy.get_person_name(grant.granted_by), grants.count_uses_left(tx, grant)
    lead = "Needs no other approval" if area.freeze else "Runs without another approval"
    sentence = (
        f"{lead}: standing grant {grant.id} by {giver}, "
        f"{left} of {grant.per_hour} uses left this hour."
    )
    # A grant covers no irreversible change.
    other = replace(request, reversible=False)
    irreversible = area.if_irreversible or _add_delegates(
        tx, policy, other, evaluate_request(policy, other)
    )
    return replace(area, grant=sentence, if_irreversible=irreversible)


def list_granted_fields(tx: Transaction, *, person: str, words: str) -> set[str]:
    """Return the fields on whose values a standing grant depends, and so the preview."""
    found = grants.list_active_grants(tx, person=person, words=words)
    return {name for grant in found for name in grant.values}
