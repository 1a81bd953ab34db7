"""Countering: an approver proposes other values, and the asker accepts them or takes it back.

The proposal is a run of its own, with its own plan and digest. It asks in the name of the first
asker, and whoever edited it approves it no more than the asker does. The original stays pending,
with its approvals, until the proposal is accepted: then it is replaced in the same transaction.
Once the original is decided otherwise, the proposal ends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from bot.audit import change_log
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model import request_form
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import Run, State
from bot.policy import Policy
from bot.workflow import grant_rules
from bot.workflow.approval_count import get_ruling
from bot.workflow.approvals import check_policy_version, get_decision_refusal
from bot.workflow.context import WorkflowContext
from bot.workflow.delegation_rules import find_delegator
from bot.workflow.finish import end_run
from bot.workflow.requests import (
    SENSITIVE_REQUEST_MESSAGE,
    format_request,
    get_field_texts,
    shorten_reason,
)
from runbooks import AnyRunbook


def propose_values(
    context: WorkflowContext,
    number: int,
    *,
    person: str,
    changed_values: Mapping[str, str],
    reason: str = "",
) -> Run:
    """Propose other values for a request that waits; return the run that has them."""
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
            raise InvalidRequestError(f"those are the values of run {number} already: change one")
        editors = _list_editors(tx, policy, run, person)
        _check_approvers_remain(tx, policy, replace(run, editors=editors))
        values = _build_proposal(run, runbook, run.hosts, editors)
        if context.database.redactor.has_secret(values.request):
            raise InvalidRequestError(SENSITIVE_REQUEST_MESSAGE)
        new = runs.add_run(tx, values)
        change_log.append_entry(
            tx,
            "counter-proposed",
            run=number,
            person=person,
            host=run.host,
            digest=run.digest,
            proposal=new.id,
            values=_describe_changed_values(run.values, new.values),
            reason=shorten_reason(reason),
        )
        change_log.append_entry(
            tx,
            "proposed",
            run=new.id,
            person=person,
            host=new.host,
            requested_by=new.requested_by,
            editors=new.editors,
            original_run=number,
            original_digest=run.digest,
            values=new.values,
            request=new.request,
            reason=shorten_reason(reason),
        )
        children = [
            _build_child_proposal(context, part, fields, editors)
            for part in runs.list_children(tx, number)
        ]
        planned = [runs.add_run(tx, replace(child, parent=new.id)) for child in children] or [new]
        for each in planned:
            context.dispatcher.enqueue_run(tx, each.id, policy.inventory[each.host].site)
    return new


def accept_proposal(context: WorkflowContext, number: int, *, person: str, digest: str) -> Run:
    """Let the asker take over the plan that an approver proposes: then it is decided as ever.

    The original request, which was pending until now, is replaced in the same transaction.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        counters = runs.get_run(tx, number).proposal_for
        # The original is always locked first: no other transaction locks both.
        original = runs.lock_run(tx, counters) if counters else None
        run = runs.lock_run(tx, number)
        if run.requested_by != person:
            asker = policy.get_person_name(run.requested_by)
            raise NotAllowed(f"only {asker}, whose request it is, can accept run {number}")
        if (
            run.state is not State.COUNTER_PROPOSED
            or run.expires_at is None
            or tx.now >= run.expires_at
        ):
            raise TooLate(f"run {number} is {run.state.phrase}: there is nothing to accept")
        if len(digest) < 10 or not run.digest.startswith(digest):
            raise TooLate(f"run {number} has another plan now: look at it again")
        if original is None or not _is_pending(tx, original):
            standing = (
                f"run {original.id} is {original.state.phrase}" if original else "it has none"
            )
            raise TooLate(f"run {number} is for a request that is not pending: {standing}")
        check_policy_version(policy, run)
        request, ruling = get_ruling(tx, policy, run)
        given, _ = grant_rules.choose_grant(tx, policy, run, request, ruling)
        if ruling.allowed:
            why = f"Replaced by run {number}, which has other values"
            # Before the log is locked: ending a request locks its parts.
            end_run(context, tx, original, State.SUPERSEDED, why, person=person)
        change_log.append_entry(
            tx, "accepted", run=number, person=person, host=run.host, digest=run.digest
        )
        if not ruling.allowed:
            why = "; ".join(ruling.policy_notes) or "no rule of the policy permits it"
            return end_run(context, tx, run, State.REFUSED, f"The policy refuses: {why}")
        waits = bool(ruling.required_approvals) and given is None
        accepted = runs.move_run(
            tx,
            run,
            State.PENDING if waits else State.QUEUED,
            pending_since=tx.now if waits else None,
            requirements=ruling.requirements,
            required_approvals=ruling.required_approvals,
            approver_groups=ruling.approver_groups,
            policy_notes=ruling.policy_notes,
            grant_id=given.id if given else None,
            summary="",
        )
        if not waits:
            context.dispatcher.enqueue_run(tx, number, policy.inventory[run.host].site)
        outbox.announce_run(tx, number)
    return accepted


def end_superseded_proposals(context: WorkflowContext) -> list[Run]:
    """End the open proposals whose original request was decided otherwise, or has ended."""
    with context.database.reading() as tx:
        overtaken = runs.overtaken_proposals(tx)
    ended: list[Run] = []
    # One transaction each, as for what expires.
    for number in overtaken:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.COUNTER_PROPOSED and run.proposal_for is not None:
                original = runs.get_run(tx, run.proposal_for)
                why = f"Run {original.id}, for which it was proposed, is {original.state.phrase}"
                ended.append(end_run(context, tx, run, State.WITHDRAWN, why))
    return ended


def _is_pending(tx: Transaction, run: Run) -> bool:
    return run.state is State.PENDING and run.expires_at is not None and tx.now < run.expires_at


def _check_can_be_edited(tx: Transaction, run: Run) -> None:
    if run.parent is not None:
        raise InvalidRequestError(
            f"run {run.id} is a part of run {run.parent}: propose values for that"
        )
    if run.undo_of is not None:
        raise InvalidRequestError("an undo has no values of its own: deny it and say why")
    if run.timing is not None:
        raise InvalidRequestError(
            "the values of a schedule are its owner's: deny it and say what you would take"
        )
    if not _is_pending(tx, run):
        raise TooLate(f"run {run.id} is {run.state.phrase}: only one that waits can be edited")


def _build_edited_request(
    context: WorkflowContext, run: Run, changed_values: Mapping[str, str]
) -> AnyRunbook:
    """Return the request with other values. Raises Unfit with every problem at once."""
    known = context.runbooks[run.runbook]
    offered = [name for name in known.model_fields if name != "host"]
    strange = [name for name in changed_values if name not in offered]
    if strange or not changed_values:
        have = f"{run.runbook} can be edited in {', '.join(offered)}" if offered else "nothing can"
        raise InvalidRequestError(
            f"{strange[0]} is not among its values: {have}" if strange else have
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
    """Return who may not approve it: whoever edited it, and the owner whom they stood in for."""
    stood_for = find_delegator(tx, policy, *get_ruling(tx, policy, run), person)
    return tuple(dict.fromkeys(name for name in (*run.editors, person, stood_for) if name))


def _check_approvers_remain(tx: Transaction, policy: Policy, run: Run) -> None:
    request, ruling = get_ruling(tx, policy, run)
    able = [person.id for person in policy.list_approvers(request, ruling)]
    if not policy.is_met(ruling.requirements, able):
        raise InvalidRequestError(
            "you would have edited it, so you could not approve it, and without you there are too "
            "few who could: deny it, and say which values you would approve"
        )


def _build_proposal(
    run: Run, runbook: AnyRunbook, hosts: Sequence[str], editors: Sequence[str]
) -> runs.NewRun:
    spelled = {"host": run.values["host"]} if hosts else {}
    return runs.NewRun(
        runbook=run.runbook,
        kind=run.kind,
        values=get_field_texts(runbook) | spelled,
        request=format_request(runbook, **spelled),
        host=run.host,
        area=run.area,
        requested_by=run.requested_by,
        origin=run.origin,
        reason=run.reason,
        hosts=hosts,
        editors=editors,
        proposal_for=run.id,
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
