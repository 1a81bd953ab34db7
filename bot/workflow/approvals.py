"""Approve, deny, withdraw and expire runs; record how a run with an unknown outcome ended."""

from dataclasses import dataclass, replace

from bot.audit import change_log, events, refusals
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.references import hide_references
from bot.model.run import (
    EXPIRING_STATES,
    STATES_BEFORE_INTENT,
    Decision,
    Run,
    State,
    StepState,
    describe_decider,
)
from bot.model.run_states import describe_outcome
from bot.model.times import MINUTE, format_deadline, format_span
from bot.policy import Policy, PolicyRequest, Ruling
from bot.queries.approval_count import count_approvals, get_ruling, is_decision_complete
from bot.queries.delegation_rules import find_delegator, list_approvers_and_delegates
from bot.queries.pending import get_resolution_area
from bot.queries.policy_result import is_plan_outdated
from bot.queries.second_factor import get_shown_factor
from bot.queries.signatures import check_plan_signature, is_request_signed
from bot.workflow import agent_limits
from bot.workflow.context import WorkflowContext, compute_start_deadline
from bot.workflow.finish import RunEnd, end_run, end_runs
from bot.workflow.requests import refuse_child_run, shorten_reason

# How long before the end of its plan a run starts at the latest, so that it can wait its turn.
_SHORTEST_START_PERIOD = 10 * MINUTE
# The input of the rules, and their ruling.
_RequestAndRuling = tuple[PolicyRequest, Ruling]


@dataclass(frozen=True)
class ApprovalTerms:
    """Why a person approves a plan, and from when on."""

    reason: str = ""
    start_at: int | None = None
    """The earliest start, in microseconds since 1970; None for as soon as possible."""


def approve_run(
    context: WorkflowContext,
    number: int,
    *,
    person: str,
    digest: str,
    terms: ApprovalTerms = ApprovalTerms(),
    session: str = "",
    signature: str = "",
) -> Run:
    """Approve the plan with this digest.

    Args:
        digest: The whole digest, or at least its first ten digits.
        signature: Over the document of the plan, as ssh-keygen writes it.
        session: The web session, in which a second factor may have been entered.

    Raises:
        NotAllowed: This person may not approve it.
        StepUpRequired: The rules require a second factor.
        InvalidRequestError: The signature is missing or not valid, or the run cannot start then.
        TooLate: The run has another plan, has ended, or was approved by this person.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        check_is_pending(context, tx, run)
        if not run.matches_digest(digest):
            raise TooLate(run.describe_other_digest(digest, "approve"))
        factor = get_shown_factor(tx, policy, person=person, session=session)
        weighed = get_ruling(tx, policy, run)
        signing_key = ""
        no = _get_decision_refusal(tx, policy, run, person, weighed)
        lacking = "" if no or factor else _get_missing_factor_message(run, weighed)
        vote = _build_decision(tx, policy, run, person, terms.reason, weighed, approves=True)
        if not no:
            check_policy_version(tx, policy, run)
            _check_reason_is_given(run, terms.reason, weighed)
            _check_start_time(tx, run, terms.start_at)
            signing_key = _check_signatures(tx, policy, run, person, signature, weighed)
        if no or lacking:
            _log_refusal(tx, events.ApprovalRefused, run, person, no or lacking)
        elif not _record_approval(
            tx,
            policy,
            run,
            replace(vote, factor=factor, signature=signature, start_at=terms.start_at),
        ):
            raise TooLate(f"You have already approved run {number}")
        else:
            approved = events.Approved(
                digest=run.digest,
                reason=shorten_reason(terms.reason),
                factor=factor,
                on_behalf_of=vote.on_behalf_of,
                signature=signature,
                signing_key=signing_key,
                start_at=terms.start_at,
            )
            change_log.append_entry(tx, approved, run=run, person=person)
            run = _queue_if_approved(context, tx, policy, run)
            outbox.announce_run(tx, number)
    if lacking:
        raise StepUpRequired(lacking)
    if no:
        raise NotAllowed(no)
    return run


def sign_request(
    context: WorkflowContext, number: int, *, person: str, digest: str, signature: str
) -> Run:
    """Record the requester's signature over the plan, where the rules require it.

    Raises:
        NotAllowed: Another person requested it.
        TooLate: The run has another plan, is not pending, or was signed already.
        InvalidRequestError: The rules do not require it, or the signature is not valid.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        check_is_pending(context, tx, run)
        if run.requested_by != person:
            name = policy.get_person_name(run.requested_by)
            raise NotAllowed(f"only {name}, who requested run {number}, signs the request")
        if not run.matches_digest(digest):
            raise TooLate(run.describe_other_digest(digest, "sign"))
        if not get_ruling(tx, policy, run)[1].requires_signed_request:
            raise InvalidRequestError(f"the policy does not require you to sign run {number}")
        if is_request_signed(tx, policy, run):
            raise TooLate(f"You have already signed run {number}")
        check_policy_version(tx, policy, run)
        key = check_plan_signature(policy, person, signature, run.plan)
        signed = events.RequestSigned(
            digest=run.digest, signature=signature, signing_key=key.fingerprint
        )
        change_log.append_entry(tx, signed, run=run, person=person)
        # Approvers can decide from now on, and are reminded accordingly.
        run = runs.amend_run(tx, run, pending_since=tx.now, reminded_at=None)
        outbox.announce_run(tx, number)
        # Approvals may be complete already, if the rule or the key changed meanwhile.
        return _queue_if_approved(context, tx, policy, run)


def deny_run(context: WorkflowContext, number: int, *, person: str, reason: str) -> Run:
    """Deny a run of which nothing was sent yet. One denial is final.

    Raises:
        NotAllowed: This person may not deny it.
        TooLate: A command was sent, or the run has ended.
        InvalidRequestError: The reason is missing, or the run belongs to another.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state not in STATES_BEFORE_INTENT:
            raise TooLate(_describe_earlier_decision(context, tx, run))
        if run.plan_only:
            raise TooLate(f"Run {number} is only a plan: it was not requested")
        refuse_child_run(run, "deny")
        # Owners who chose the values may not approve the run, but they may deny it.
        no = get_decision_refusal(tx, policy, replace(run, editors=()), person)
        if not no:
            if not reason.strip():
                raise InvalidRequestError(f"give a reason to deny run {number}")
            weighed = get_ruling(tx, policy, run)
            vote = _build_decision(tx, policy, run, person, reason, weighed, approves=False)
            runs.add_decision(tx, vote)
            who = describe_decider(vote, policy.get_person_name)
            summary = f"{who} denied it: {shorten_reason(reason)}"
            # Before the end is logged: agents are locked before the log.
            agent_limits.pause_after_denials(tx, run)
            ending = RunEnd(
                run, State.DENIED, summary, person=person, reason=shorten_reason(reason)
            )
            [run] = end_runs(context, tx, [ending])
        else:
            _log_refusal(tx, events.DenialRefused, run, person, no)
    if no:
        raise NotAllowed(no)
    return run


def withdraw_run(context: WorkflowContext, number: int, *, person: str) -> Run:
    """Withdraw the person's own request before anything was sent."""
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        refuse_child_run(run, "withdraw")
        if not run.is_requested_for(person):
            name = context.policies.get_policy().get_person_name(run.requested_by)
            raise NotAllowed(f"only {name} can withdraw run {number}; an owner can deny it")
        if run.state not in STATES_BEFORE_INTENT:
            raise TooLate(_describe_earlier_decision(context, tx, run))
        # Withdrawing a counter-proposal leaves the original request pending.
        return end_run(
            context, tx, run, State.WITHDRAWN, "The requester withdrew it", person=person
        )


def expire_runs(context: WorkflowContext) -> list[Run]:
    """End every run that was not decided or started in time."""
    with context.database.reading() as tx:
        due = [run.id for run in runs.list_due_to_expire(tx)]
    expired: list[Run] = []
    # One transaction each: holding the log lock while waiting for a run can deadlock.
    for number in due:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state in EXPIRING_STATES:
                why = (
                    "The plan was not requested in time"
                    if run.state is State.PLANNED
                    else "No one decided or started it in time"
                )
                expired.append(end_run(context, tx, run, State.EXPIRED, why))
    return expired


def resolve_run(
    context: WorkflowContext, number: int, *, person: str, succeeded: bool, reason: str
) -> Run:
    """Record how a run with an unknown outcome ended, as an owner found it on the host."""
    policy = context.policies.get_policy()
    if len(reason.strip()) < 10:
        raise InvalidRequestError("say how you know: enter at least ten characters")
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state is not State.UNKNOWN:
            raise TooLate(
                f"run {number} {run.state.phrase}: only a run with an unknown outcome can be "
                "resolved"
            )
        area = get_resolution_area(policy, run)
        if area is None or person not in area.owners:
            raise NotAllowed(
                f"only an owner of {area.title if area else run.area} can resolve this run"
            )
        state = State.SUCCEEDED if succeeded else State.FAILED
        if run.hosts:
            raise InvalidRequestError("resolve the runs of its hosts: this run follows from them")
        summary = (
            f"Resolved as {state} by {policy.get_person_name(person)}: {shorten_reason(reason)}"
        )
        for record in runs.list_steps(tx, number):
            # Its outcome is not awaited any more.
            if record.state is StepState.INTENT:
                runs.record_outcome(tx, replace(record, state=StepState.UNKNOWN, ended_at=tx.now))
        return end_run(context, tx, run, state, summary, person=person)


def _build_decision(
    tx: Transaction,
    policy: Policy,
    run: Run,
    person: str,
    reason: str,
    evaluated: _RequestAndRuling,
    *,
    approves: bool,
) -> Decision:
    """Return the decision: in the person's own right if they have it, otherwise on behalf."""
    request, ruling = evaluated
    on_behalf_of = ""
    if not policy.get_approval_ruling(person, request, ruling).allowed:
        counted = {vote.on_behalf_of or vote.person for vote in runs.list_decisions(tx, run.id)}
        on_behalf_of = find_delegator(
            tx, policy, request, ruling, person, counted_approvers=counted
        )
    return Decision(
        run.id,
        person,
        approves,
        run.digest,
        tx.now,
        shorten_reason(reason),
        on_behalf_of=on_behalf_of,
    )


def _record_approval(tx: Transaction, policy: Policy, run: Run, decision: Decision) -> bool:
    """Record an approval; return False if this person has given a complete one before."""
    if runs.add_decision(tx, decision):
        return True
    before = next(one for one in runs.list_decisions(tx, run.id) if one.person == decision.person)
    if is_decision_complete(tx, policy, run, before, get_ruling(tx, policy, run)[1]):
        return False
    runs.replace_decision(tx, decision)
    return True


def _queue_if_approved(context: WorkflowContext, tx: Transaction, policy: Policy, run: Run) -> Run:
    """Queue the run once enough people who may approve it have approved it."""
    counted = count_approvals(tx, policy, run)
    requirements = counted.ruling.requirements
    if not counted.is_met:
        return runs.amend_run(
            tx,
            run,
            requirements=requirements,
            required_approvals=requirements.required_approvals,
            approver_groups=counted.ruling.approver_groups,
        )
    queued = runs.move_run(
        tx,
        run,
        State.QUEUED,
        requirements=requirements,
        expires_at=compute_start_deadline(
            context, policy, run, now=max(tx.now, counted.start_at or 0)
        ),
    )
    context.dispatcher.enqueue_run(tx, run.id, policy.inventory[run.host].site)
    return queued


def get_decision_refusal(tx: Transaction, policy: Policy, run: Run, person: str) -> str:
    """Return why this person may not decide the run; "" if they may."""
    return _get_decision_refusal(tx, policy, run, person, get_ruling(tx, policy, run))


def _get_decision_refusal(
    tx: Transaction, policy: Policy, run: Run, person: str, evaluated: _RequestAndRuling
) -> str:
    request, ruling = evaluated
    answer = policy.get_approval_ruling(person, request, ruling)
    if answer.allowed or find_delegator(tx, policy, request, ruling, person):
        return ""
    able = list_approvers_and_delegates(tx, policy, request, ruling)
    names = ", ".join(other.name for other in able) or "no one"
    why = "you requested it" if person == run.requested_by else "; ".join(answer.policy_notes)
    return f"You cannot decide run {run.id}{f': {why}' if why else ''}. Those who can: {names}."


def check_policy_version(tx: Transaction, policy: Policy, run: Run) -> None:
    """Raise TooLate if the policy changed since the plan was made: the gate would refuse it."""
    if is_plan_outdated(tx, policy, run):
        raise TooLate(
            f"Run {run.id} was planned under an earlier policy and cannot start any more: its "
            "requester can re-plan it"
        )


def _check_reason_is_given(run: Run, reason: str, evaluated: _RequestAndRuling) -> None:
    if not reason.strip() and evaluated[1].requires_reason:
        raise InvalidRequestError(
            f"the policy requires a reason for this approval: enter it on the page of run "
            f"{run.id}, or type approve {run.id} {run.short_digest} because REASON"
        )


def _check_start_time(tx: Transaction, run: Run, start_at: int | None) -> None:
    """Raise InvalidRequestError if the run cannot start at the time that its approver names."""
    if start_at is None:
        return
    when = format_deadline(start_at)
    if run.timing is not None:
        raise InvalidRequestError(
            f"run {run.id} is a schedule, which has its own times: approve it without a time"
        )
    if start_at <= tx.now:
        raise InvalidRequestError(f"{when} has passed already: approve it without a time")
    latest = (run.plan.expires_at if run.plan else 0) - _SHORTEST_START_PERIOD
    if start_at > latest:
        raise InvalidRequestError(
            f"{when} is too late for the plan of run {run.id}, which can start until "
            f"{format_deadline(latest)}: name an earlier time, or ask for the request again "
            "nearer to it"
            if latest > tx.now
            else f"the plan of run {run.id} expires too soon to start later: approve it without "
            "a time, or ask for the request again"
        )


def _check_signatures(
    tx: Transaction,
    policy: Policy,
    run: Run,
    person: str,
    signature: str,
    evaluated: _RequestAndRuling,
) -> str:
    """Return the fingerprint of the key that signed the approval; "" without a signature.

    Raises InvalidRequestError for a signature that is required and missing, or not valid.
    """
    ruling = evaluated[1]
    if ruling.requires_signed_request and not is_request_signed(tx, policy, run):
        name = policy.get_person_name(run.requested_by)
        raise InvalidRequestError(
            f"{name}, who requested run {run.id}, has to sign it before it is approved: "
            f"`keyturn sign {run.id}` in a terminal"
        )
    if signature:
        return check_plan_signature(policy, person, signature, run.plan).fingerprint
    if ruling.requires_signature:
        raise InvalidRequestError(
            f"approving run {run.id} takes your signature over its plan: type `keyturn sign "
            f"{run.id}` in a terminal"
        )
    return ""


def _get_missing_factor_message(run: Run, evaluated: _RequestAndRuling) -> str:
    """Return that this approval requires a second factor; "" if it does not."""
    if not evaluated[1].requires_second_factor:
        return ""
    return (
        f"Approving run {run.id} requires your second factor, which you cannot enter in chat: "
        "approve it on its web page. /keyturn web signs you in."
    )


def check_is_pending(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Raise unless the run itself waits for approvals, and has not expired."""
    refuse_child_run(run, "decide")
    if run.state is not State.PENDING:
        raise TooLate(_describe_earlier_decision(context, tx, run))
    if run.expires_at is not None and tx.now >= run.expires_at:
        raise TooLate(f"Run {run.id} expired before this approval: request it again")


def _describe_earlier_decision(context: WorkflowContext, tx: Transaction, run: Run) -> str:
    """Describe the earlier decision, for a person who decides too late."""
    votes = runs.list_decisions(tx, run.id)
    last = votes[-1] if votes else None
    if last is None:
        outcome = hide_references(describe_outcome(run))
        return f"Run {run.id} {run.state.phrase} already. {outcome}".strip()
    ago = f"{format_span(tx.now - last.decided_at)} ago"
    name = context.policies.get_policy().get_person_name(last.person)
    if not last.approves:
        return f"Run {run.id} was denied by {name} {ago}."
    return f"Run {run.id} was approved by {name} {ago}; it {run.state.phrase}."


def _log_refusal(
    tx: Transaction,
    event_type: type[events.ApprovalRefused | events.DenialRefused],
    run: Run,
    person: str,
    reason: str,
) -> None:
    refused = event_type(digest=run.digest, reason=shorten_reason(reason))
    refusals.log_person_refusal(tx, refused, person=person, run=run)
