"""Request what a plan shows, and plan a request again whose plan is not current any more."""

from dataclasses import replace

from bot.audit import events
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.agents import is_agent
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.plan import create_nonce
from bot.model.request_form import RequestSyntaxError, parse_request_for_hosts
from bot.model.resubmit import can_be_planned_again, get_resubmit_values
from bot.model.run import RefusedBy, RequestOrigin, RequestTerms, Run, State
from bot.policy import Policy
from bot.queries.approval_count import get_ruling
from bot.queries.policy_result import is_plan_current
from bot.workflow import agent_limits, standing_grants
from bot.workflow.approvals import check_policy_version
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.finish import end_if_stopped, end_run
from bot.workflow.requests import (
    check_has_reason,
    check_has_ticket,
    check_reason,
    create_fanout_request,
    create_request,
    describe_policy_refusal,
    log_request,
    request_undo,
)
from bot.workflow.sequences import request_sequence_again
from bot.workflow.submit_plan import move_to_approval, record_plan
from connectors.visible_text import quote_text


def request_plan(
    context: WorkflowContext, number: int, *, person: str, digest: str, reason: str = ""
) -> Run:
    """Request what a plan shows: it then needs its approvals, or starts if it needs none.

    Args:
        digest: The whole digest, or at least its first ten digits.
        reason: Replaces the one that was given with the plan; "" keeps that.

    Raises:
        NotAllowed: The plan is another person's.
        TooLate: It was requested already, has expired, or is not the plan with this digest.
        InvalidRequestError: The policy requires a reason, or the reason is not valid.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        check_can_be_requested(tx, policy, run, person, digest)
        if is_agent(person):
            if same := agent_limits.find_identical_request(tx, run):
                return same
            agent_limits.check_may_request_plan(tx, run)
        requested = request_shown_plan(context, tx, policy, run, reason)
        if requested.state is State.QUEUED:
            context.dispatcher.enqueue_run(tx, number, get_site(context, run.host))
        return requested


def request_shown_plan(
    context: WorkflowContext,
    tx: Transaction,
    policy: Policy,
    run: Run,
    reason: str,
    *,
    is_emergency: bool = False,
) -> Run:
    """Make a plan a request that is pending or queued, or ended if it is stopped or refused.

    is_emergency: break-glass starts it, so it needs no change ticket.
    """
    request, ruling = get_ruling(tx, policy, run)
    grant, _ = standing_grants.choose_grant(tx, policy, run, request, ruling)
    run = runs.mark_requested(tx, run, check_reason(reason) or run.reason)
    check_has_reason(run, ruling)
    if not is_emergency:
        check_has_ticket(run, ruling)
    log_request(tx, events.Requested, run)
    if run.plan is not None and run.plan.reason != run.reason:
        # Approvers decide about the reason too, so it is another plan.
        plan = replace(run.plan, reason=run.reason, nonce=create_nonce())
        run = record_plan(tx, policy, run, plan, ruling)
    if stopped := end_if_stopped(context, tx, run, policy):
        return stopped
    if not ruling.allowed:
        why = describe_policy_refusal(policy, request, ruling)
        return end_run(context, tx, run, State.REFUSED, why, refused_by=RefusedBy.POLICY)
    outbox.announce_run(tx, run.id)
    return move_to_approval(context, tx, run, ruling, grant)


def request_plan_or_replan(
    context: WorkflowContext,
    number: int,
    *,
    person: str,
    digest: str,
    origin: RequestOrigin,
    reason: str = "",
) -> Run:
    """Request what a plan shows; if it is not current, plan it again and return the new run.

    The arguments and errors are those of request_plan() and of replan_run().
    """
    policy = context.policies.get_policy()
    with context.database.reading() as tx:
        run = runs.get_run(tx, number)
        is_outdated = run.plan_only and not is_plan_current(tx, policy, run)
    if is_outdated:
        return replan_run(context, number, person=person, origin=origin)
    return request_plan(context, number, person=person, digest=digest, reason=reason)


def check_can_be_requested(
    tx: Transaction, policy: Policy, run: Run, person: str, digest: str
) -> None:
    """Raise NotAllowed or TooLate unless this person can request the plan with this digest."""
    if run.requested_by != person:
        raise NotAllowed(
            f"only {policy.get_person_name(run.requested_by)} can request what plan {run.id} shows"
        )
    if run.state is not State.PLANNED:
        raise TooLate(f"Run {run.id} {run.state.phrase}: it cannot be requested any more")
    if run.expires_at is None or tx.now >= run.expires_at:
        raise TooLate(f"Plan {run.id} has expired: re-plan it")
    if not run.matches_digest(digest):
        raise TooLate(run.describe_other_digest(digest, "request"))
    check_policy_version(tx, policy, run)


def replan_run(
    context: WorkflowContext, number: int, *, person: str, origin: RequestOrigin
) -> Run:
    """Plan a request again, with its values and its reason, and end it if it is still open.

    A plan stays a plan, and a request stays a request, whose approvers see what is different.

    Raises:
        NotAllowed: The request is another person's.
        TooLate: Its state does not permit it.
        InvalidRequestError: Its hosts or values are not valid any more.
    """
    policy = context.policies.get_policy()
    with context.database.reading() as tx:
        run = runs.get_run(tx, number)
    if run.requested_by != person:
        name = policy.get_person_name(run.requested_by)
        raise NotAllowed(f"only {name}, who requested it, can re-plan run {number}")
    if not can_be_planned_again(run):
        raise TooLate(f"Run {number} {run.state.phrase}: it cannot be re-planned")
    new = _request_again(context, policy, run, origin)
    with context.database.transaction() as tx:
        old = runs.lock_run(tx, number)
        if not old.is_ended and can_be_planned_again(old):
            why = f"Run {new.id} replaces it with a newer plan"
            end_run(context, tx, old, State.SUPERSEDED, why, person=person)
    return new


def _request_again(
    context: WorkflowContext, policy: Policy, run: Run, origin: RequestOrigin
) -> Run:
    terms = RequestTerms(
        run.requested_by,
        origin,
        run.reason,
        timing=run.timing,
        guard_override=run.guard_override,
        ticket=run.ticket,
        plan_only=run.plan_only,
        replaced_run=run,
    )
    if run.is_sequence:
        return request_sequence_again(context, run, terms)
    if run.undo_of is not None:
        return request_undo(context, run.undo_of, terms)
    runbook = context.runbooks.get(run.runbook)
    if runbook is None:
        raise InvalidRequestError(f"the runbook {quote_text(run.runbook)} does not exist any more")
    typed = [f"{name}={value}" for name, value in get_resubmit_values(run, runbook).items()]
    try:
        pattern, requests = parse_request_for_hosts(runbook, typed, policy.inventory.tags)
    except RequestSyntaxError as error:
        raise InvalidRequestError(str(error)) from None
    if pattern:
        return create_fanout_request(context, requests, terms, host_pattern=pattern)
    return create_request(context, requests[0], terms)
