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
from bot.model.run import Run, State
from bot.policy import Policy
from bot.workflow import grant_rules
from bot.workflow.approval_count import get_ruling
from bot.workflow.approvals import NotAllowed, TooLate, check_policy_version, why_not_decide
from bot.workflow.context import WorkflowContext
from bot.workflow.delegation_rules import find_delegator
from bot.workflow.finish import end_run
from bot.workflow.requests import (
    LEAVE_IT_OUT,
    InvalidRequest,
    field_texts,
    fold_reason,
    format_typed,
)
from runbooks import AnyRunbook


def propose_values(
    parts: WorkflowContext,
    number: int,
    *,
    person: str,
    changes: Mapping[str, str],
    reason: str = "",
) -> Run:
    """Propose other values for a request that waits; return the run that has them."""
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        _must_wait(tx, run)
        no = why_not_decide(tx, policy, run, person)
        if no:
            raise NotAllowed(no)
        fields = {name: value.strip() for name, value in changes.items()}
        runbook = _edited(parts, run, fields)
        if field_texts(runbook) == run.fields:
            raise InvalidRequest(f"those are the values of run {number} already: change one")
        editors = _editors(tx, policy, run, person)
        _somebody_is_left(tx, policy, replace(run, editors=editors))
        values = _new(run, runbook, run.hosts, editors)
        if parts.database.redactor.holds(values.request):
            raise InvalidRequest(LEAVE_IT_OUT)
        new = runs.add_run(tx, values)
        change_log.append_entry(
            tx,
            "counter-proposed",
            run=number,
            person=person,
            host=run.host,
            digest=run.digest,
            proposal=new.id,
            values=_moved(run.fields, new.fields),
            why=fold_reason(reason),
        )
        change_log.append_entry(
            tx,
            "proposed",
            run=new.id,
            person=person,
            host=new.host,
            asked_by=new.asked_by,
            editors=new.editors,
            instead_of_run=number,
            instead_of_digest=run.digest,
            fields=new.fields,
            request=new.request,
            reason=fold_reason(reason),
        )
        children = [
            _child(parts, part, fields, editors) for part in runs.list_children(tx, number)
        ]
        planned = [runs.add_run(tx, replace(child, parent=new.id)) for child in children] or [new]
        for each in planned:
            parts.dispatch.enqueue(tx, each.id, policy.inventory[each.host].site)
    return new


def accept_proposal(parts: WorkflowContext, number: int, *, person: str, digest: str) -> Run:
    """Let the asker take over the plan that an approver proposes: then it is decided as ever.

    The original request, which was pending until now, is replaced in the same transaction.
    """
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        counters = runs.get_run(tx, number).counters
        # The original is always locked first: no other transaction locks both.
        original = runs.lock_run(tx, counters) if counters else None
        run = runs.lock_run(tx, number)
        if run.asked_by != person:
            asker = policy.name_person(run.asked_by)
            raise NotAllowed(f"only {asker}, whose request it is, can accept run {number}")
        if run.state is not State.OFFERED or run.expires is None or tx.now >= run.expires:
            raise TooLate(f"run {number} is {run.state}: there is nothing to accept")
        if len(digest) < 10 or not run.digest.startswith(digest):
            raise TooLate(f"run {number} has another plan now: look at it again")
        if original is None or not _is_pending(tx, original):
            standing = f"run {original.id} is {original.state}" if original else "it has none"
            raise TooLate(f"run {number} is for a request that is not pending: {standing}")
        check_policy_version(policy, run)
        request, ruling = get_ruling(tx, policy, run)
        given, _ = grant_rules.choose_grant(tx, policy, run, request, ruling)
        if ruling.allowed:
            why = f"Replaced by run {number}, which has other values"
            # Before the log is locked: ending a request locks its parts.
            end_run(parts, tx, original, State.REPLACED, why, person=person)
        change_log.append_entry(
            tx, "accepted", run=number, person=person, host=run.host, digest=run.digest
        )
        if not ruling.allowed:
            why = "; ".join(ruling.says) or "no rule of the policy allows it"
            return end_run(parts, tx, run, State.REFUSED, f"The policy refuses: {why}")
        waits = bool(ruling.approvals) and given is None
        accepted = runs.move_run(
            tx,
            run,
            State.WAITING if waits else State.READY,
            shown=tx.now if waits else None,
            terms=ruling.terms,
            needed=ruling.approvals,
            groups=ruling.groups,
            says=ruling.says,
            grant=given.id if given else None,
            summary="",
        )
        if not waits:
            parts.dispatch.enqueue(tx, number, policy.inventory[run.host].site)
        outbox.announce_run(tx, number)
    return accepted


def end_overtaken(parts: WorkflowContext) -> list[Run]:
    """End the open proposals whose original request was decided otherwise, or has ended."""
    with parts.database.reading() as tx:
        overtaken = runs.overtaken_proposals(tx)
    ended: list[Run] = []
    # One transaction each, as for what expires.
    for number in overtaken:
        with parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state is State.OFFERED and run.counters is not None:
                original = runs.get_run(tx, run.counters)
                why = f"Run {original.id}, for which it was proposed, is {original.state}"
                ended.append(end_run(parts, tx, run, State.WITHDRAWN, why))
    return ended


def _is_pending(tx: Transaction, run: Run) -> bool:
    return run.state is State.WAITING and run.expires is not None and tx.now < run.expires


def _must_wait(tx: Transaction, run: Run) -> None:
    if run.parent is not None:
        raise InvalidRequest(
            f"run {run.id} is a part of run {run.parent}: propose values for that"
        )
    if run.undo_of is not None:
        raise InvalidRequest("an undo has no values of its own: deny it and say why")
    if run.timing is not None:
        raise InvalidRequest(
            "the values of a schedule are its owner's: deny it and say what you would take"
        )
    if not _is_pending(tx, run):
        raise TooLate(f"run {run.id} is {run.state}: only one that waits can be edited")


def _edited(parts: WorkflowContext, run: Run, fields: Mapping[str, str]) -> AnyRunbook:
    """Return the request with other values. Raises Unfit with every problem at once."""
    known = parts.runbooks[run.words]
    offered = [name for name in known.model_fields if name != "host"]
    strange = [name for name in fields if name not in offered]
    if strange or not fields:
        have = f"{run.words} can be edited in {', '.join(offered)}" if offered else "nothing can"
        raise InvalidRequest(f"{strange[0]} is not among its values: {have}" if strange else have)
    values = {**run.fields, "host": run.host, **fields}
    try:
        return known.model_validate({name: value for name, value in values.items() if value})
    except ValidationError as error:
        problems = [
            f"{problem['loc'][0] if problem['loc'] else run.words}: "
            f"{request_form.describe_invalid_value(problem)}"
            for problem in error.errors()
        ]
        raise InvalidRequest("; ".join(problems)) from None


def _editors(tx: Transaction, policy: Policy, run: Run, person: str) -> tuple[str, ...]:
    """Return who may not approve it: whoever edited it, and the owner whom they stood in for."""
    stood_for = find_delegator(tx, policy, *get_ruling(tx, policy, run), person)
    return tuple(dict.fromkeys(name for name in (*run.editors, person, stood_for) if name))


def _somebody_is_left(tx: Transaction, policy: Policy, edited: Run) -> None:
    request, ruling = get_ruling(tx, policy, edited)
    able = [person.id for person in policy.approvers(request, ruling)]
    if not policy.met(ruling.terms, able):
        raise InvalidRequest(
            "you would have edited it, so you could not approve it, and without you there are too "
            "few who could: deny it, and say which values you would approve"
        )


def _new(
    run: Run, runbook: AnyRunbook, hosts: Sequence[str], editors: Sequence[str]
) -> runs.NewRun:
    spelled = {"host": run.fields["host"]} if hosts else {}
    return runs.NewRun(
        words=run.words,
        kind=run.kind,
        fields=field_texts(runbook) | spelled,
        request=format_typed(runbook, **spelled),
        host=run.host,
        area=run.area,
        asked_by=run.asked_by,
        origin=run.origin,
        reason=run.reason,
        hosts=hosts,
        editors=editors,
        counters=run.id,
    )


def _child(
    parts: WorkflowContext, part: Run, fields: Mapping[str, str], editors: Sequence[str]
) -> runs.NewRun:
    return replace(_new(part, _edited(parts, part, fields), (), editors), counters=None)


def _moved(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    names = dict.fromkeys([*before, *after])
    return {
        name: f"{before.get(name, '(empty)')} → {after.get(name, '(empty)')}"
        for name in names
        if before.get(name) != after.get(name)
    }
