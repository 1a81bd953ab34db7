"""Counter-proposals: an approver proposes other values, which the requester accepts or withdraws.

The proposal is a run of its own, with its own plan and digest. Its requester is the requester of
the original, and neither they nor the approvers who chose the values can approve it. The original
stays pending, with its approvals, until the proposal is accepted; the same transaction supersedes
it. The proposal ends when the original is decided in another way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from bot.audit import change_log, events
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model import request_form
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.request_form import format_request, get_field_texts
from bot.model.run import RefusedBy, Run, State
from bot.policy import Policy
from bot.queries.approval_count import get_ruling
from bot.queries.delegation_rules import find_delegator
from bot.workflow import standing_grants
from bot.workflow.approvals import check_policy_version, get_decision_refusal
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import end_run
from bot.workflow.requests import (
    SENSITIVE_REQUEST_MESSAGE,
    describe_policy_refusal,
    refuse_child_run,
    shorten_reason,
)
from bot.workflow.submit_plan import move_to_approval
from runbooks import AnyRunbook


def propose_values(
    context: WorkflowContext,
    number: int,
    *,
    person: str,
    changed_values: Mapping[str, str],
    reason: str = "",
) -> Run:
    """Propose other values for a pending request; return the run that has them."""
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        _check_can_be_edited(tx, run)
        no = get_decision_refusal(tx, policy, run, person)
        if no:
            raise NotAllowed(no)
        fields = {name: value.strip() for name, value in changed_values.items()}
        runbook = _build_edited_request(context, run, fields)
        if get_field_texts(runbook) == run.values:
            raise InvalidRequestError(f"these are the values of run {number}: change at least one")
        editors = _list_editors(tx, policy, run, person)
        _check_approvers_remain(tx, policy, replace(run, editors=editors))
        values = _build_proposal(run, runbook, run.hosts, editors)
        if context.database.redactor.has_secret(values.request):
            raise InvalidRequestError(SENSITIVE_REQUEST_MESSAGE)
        new = runs.add_run(tx, values)
        change_log.append_entry(
            tx,
            events.CounterProposed(
                digest=run.digest,
                proposal=new.id,
                values=_describe_changed_values(run.values, new.values),
                reason=shorten_reason(reason),
            ),
            run=number,
            person=person,
            host=run.host,
        )
        change_log.append_entry(
            tx,
            events.Proposed(
                requested_by=new.requested_by,
                editors=tuple(new.editors),
                original_run=number,
                original_digest=run.digest,
                values=new.values,
                request=new.request,
                reason=shorten_reason(reason),
            ),
            run=new,
            person=person,
        )
        children = [
            _build_child_proposal(context, child, fields, editors)
            for child in runs.list_children(tx, number)
        ]
        planned = [runs.add_run(tx, replace(child, parent=new.id)) for child in children] or [new]
        for each in planned:
            context.dispatcher.enqueue_run(tx, each.id, policy.inventory[each.host].site)
    return new


def accept_proposal(context: WorkflowContext, number: int, *, person: str, digest: str) -> Run:
    """Accept the plan that an approver proposes; it is then decided like any other.

    The original request is superseded in the same transaction.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        original_id = runs.get_run(tx, number).proposal_for
        # The original is always locked first; no other transaction locks both.
        original = runs.lock_run(tx, original_id) if original_id else None
        run = runs.lock_run(tx, number)
        if run.requested_by != person:
            requester = policy.get_person_name(run.requested_by)
            raise NotAllowed(f"only {requester}, who requested it, can accept run {number}")
        if (
            run.state is not State.COUNTER_PROPOSED
            or run.expires_at is None
            or tx.now >= run.expires_at
        ):
            raise TooLate(f"run {number} {run.state.phrase}: it cannot be accepted any more")
        if not run.matches_digest(digest):
            raise TooLate(run.describe_other_digest(digest, "accept"))
        if original is None or not _is_pending(tx, original):
            status = f"run {original.id} {original.state.phrase}" if original else "none"
            raise TooLate(f"the original request of run {number} is not pending: {status}")
        check_policy_version(tx, policy, run)
        request, ruling = get_ruling(tx, policy, run)
        grant, _ = standing_grants.choose_grant(tx, policy, run, request, ruling)
        if ruling.allowed:
            why = f"Run {number} replaces it with other values"
            # Before the log is locked: ending a request locks its child runs.
            end_run(context, tx, original, State.SUPERSEDED, why, person=person)
        change_log.append_entry(
            tx, events.Accepted(digest=run.digest), run=number, person=person, host=run.host
        )
        if not ruling.allowed:
            why = describe_policy_refusal(policy, request, ruling)
            return end_run(context, tx, run, State.REFUSED, why, refused_by=RefusedBy.POLICY)
        accepted = move_to_approval(context, tx, run, ruling, grant)
        if accepted.state is State.QUEUED:
            context.dispatcher.enqueue_run(tx, number, policy.inventory[run.host].site)
        outbox.announce_run(tx, number)
    return accepted


def end_superseded_proposals(context: WorkflowContext) -> list[Run]:
    """End open proposals whose original request was decided in another way, or has ended."""
    with context.database.reading() as tx:
        superseded = runs.list_outdated_proposals(tx)
    ended: list[Run] = []
    # One transaction each, as in expire_runs().
    for number in superseded:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.COUNTER_PROPOSED and run.proposal_for is not None:
                original = runs.get_run(tx, run.proposal_for)
                why = f"The original request, run {original.id}, {original.state.phrase}"
                ended.append(end_run(context, tx, run, State.WITHDRAWN, why))
    return ended


def _is_pending(tx: Transaction, run: Run) -> bool:
    return run.state is State.PENDING and run.expires_at is not None and tx.now < run.expires_at


def _check_can_be_edited(tx: Transaction, run: Run) -> None:
    refuse_child_run(run, "propose values for")
    if run.undo_of is not None or run.is_sequence:
        what = "a request of several changes" if run.is_sequence else "an undo"
        raise InvalidRequestError(f"{what} has no values of its own: deny it with a reason")
    if run.timing is not None:
        raise InvalidRequestError(
            "the values of a schedule cannot be changed here: deny it and name the values you "
            "would approve"
        )
    if run.origin.agent is not None:
        raise InvalidRequestError(
            "an agent cannot accept other values: deny it and name the values you would approve"
        )
    if not _is_pending(tx, run):
        raise TooLate(
            f"run {run.id} {run.state.phrase}: only a run that needs approval can be edited"
        )


def _build_edited_request(
    context: WorkflowContext, run: Run, changed_values: Mapping[str, str]
) -> AnyRunbook:
    """Return the request with other values. Raises InvalidRequestError with every problem."""
    known = context.runbooks[run.runbook]
    editable = [name for name in known.model_fields if name != "host"]
    unknown = [name for name in changed_values if name not in editable]
    if unknown or not changed_values:
        text = (
            f"you can change these values of {run.runbook}: {', '.join(editable)}"
            if editable
            else f"{run.runbook} has no values that you can change"
        )
        raise InvalidRequestError(
            f"{run.runbook} has no value {unknown[0]}: {text}" if unknown else text
        )
    values = {**run.values, "host": run.host, **changed_values}
    try:
        return known.model_validate({name: value for name, value in values.items() if value})
    except ValidationError as error:
        problems = [
            f"{problem['loc'][0] if problem['loc'] else run.runbook}: "
            f"{request_form.describe_invalid_value(problem)}"
            for problem in error.errors()
        ]
        raise InvalidRequestError("; ".join(problems)) from None


def _list_editors(tx: Transaction, policy: Policy, run: Run, person: str) -> tuple[str, ...]:
    """Return the people who chose the values, and on whose behalf; they may not approve it."""
    delegator = find_delegator(tx, policy, *get_ruling(tx, policy, run), person)
    return tuple(dict.fromkeys(name for name in (*run.editors, person, delegator) if name))


def _check_approvers_remain(tx: Transaction, policy: Policy, run: Run) -> None:
    request, ruling = get_ruling(tx, policy, run)
    able = [person.id for person in policy.list_approvers(request, ruling)]
    if not policy.is_met(ruling.requirements, able):
        raise InvalidRequestError(
            "if you change the values, you cannot approve them, and too few others could: deny "
            "the run and name the values you would approve"
        )


def _build_proposal(
    run: Run, runbook: AnyRunbook, hosts: Sequence[str], editors: Sequence[str]
) -> runs.NewRun:
    host_values = {"host": run.values["host"]} if hosts else {}
    return runs.NewRun(
        runbook=run.runbook,
        kind=run.kind,
        values=get_field_texts(runbook) | host_values,
        request=format_request(runbook, **host_values),
        host=run.host,
        area=run.area,
        requested_by=run.requested_by,
        origin=run.origin,
        reason=run.reason,
        hosts=hosts,
        editors=editors,
        proposal_for=run.id,
        ticket=run.ticket,
    )


def _build_child_proposal(
    context: WorkflowContext, child: Run, changed_values: Mapping[str, str], editors: Sequence[str]
) -> runs.NewRun:
    return replace(
        _build_proposal(child, _build_edited_request(context, child, changed_values), (), editors),
        proposal_for=None,
    )


def _describe_changed_values(
    old_values: Mapping[str, str], new_values: Mapping[str, str]
) -> dict[str, str]:
    names = dict.fromkeys([*old_values, *new_values])
    return {
        name: f"{old_values.get(name, '(empty)')} → {new_values.get(name, '(empty)')}"
        for name in names
        if old_values.get(name) != new_values.get(name)
    }
