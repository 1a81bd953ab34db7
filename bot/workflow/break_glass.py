"""Breaking the glass: an emergency goes through a freeze and without approvals.

It is for one run and for an hour at most, and everybody sees it. Nothing else is passed: the log,
the plan and the lock hold.
"""

from bot.audit import change_log, evidence, refusals
from bot.db import break_glass, outbox, runs
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.write_lock import urgent_write
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.plain_text import join_to_one_line
from bot.model.run import Run, State
from bot.policy import Policy
from bot.workflow.approval_count import count_approvals
from bot.workflow.approvals import check_policy_version
from bot.workflow.break_glass_rules import get_break_glass_refusal
from bot.workflow.context import WorkflowContext, build_policy_request
from bot.workflow.second_factor import get_shown_factor, is_area_owner
from bot.workflow.visibility import require_view
from connectors.command import InvisibleCharacterError

MIN_REASON_LENGTH = 20
_MAX_REASON_LENGTH = 1000
_MIN_REVIEW_LENGTH = 10
ACTIVE_SECONDS = 60 * 60
_SECOND = 1_000_000
_BREAK_GLASS_STATES = frozenset({State.PENDING, State.QUEUED})


class BreakGlassActions:
    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def request_break_glass(self, number: int, *, person: str, reason: str) -> Run:
        """Note that the asker means to break the glass for this run; that is done on its page."""
        require_view(self._context, number, person=person)
        why = check_break_glass_reason(reason)
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            _check_is_needed(tx, policy, run, person)
            refusal = self._get_refusal(tx, policy, run, person)
            if not refusal:
                break_glass.request_break_glass(tx, run=number, person=person, reason=why)
                _log_break_glass(tx, "break-glass requested", run, person, why)
                outbox.announce_run(tx, number)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotAllowed(refusal)
        return run

    def activate_break_glass(
        self, number: int, *, person: str, session: str, digest: str, reason: str
    ) -> Run:
        """Break the glass: the plan with this digest starts now, whoever has not approved it."""
        require_view(self._context, number, person=person)
        why = check_break_glass_reason(reason)
        policy = self._context.policies.get_policy()
        with urgent_write(), self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state not in _BREAK_GLASS_STATES or run.expires_at is None:
                raise TooLate(f"run {number} is {run.state.phrase}: there is no glass to break")
            if len(digest) < 10 or not run.digest.startswith(digest):
                raise TooLate(f"run {number} has another plan now: look at it again")
            _check_is_needed(tx, policy, run, person)
            refusal = self._get_refusal(tx, policy, run, person)
            if not refusal:
                check_policy_version(policy, run)
                run = self._activate(tx, policy, run, person, session, why)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotAllowed(refusal)
        return run

    def _activate(
        self, tx: Transaction, policy: Policy, run: Run, person: str, session: str, reason: str
    ) -> Run:
        factor = get_shown_factor(tx, policy, person=person, session=session)
        if not factor:
            raise StepUpRequired("Breaking the glass takes your second factor, shown just before.")
        until = min(tx.now + ACTIVE_SECONDS * _SECOND, run.expires_at or tx.now)
        break_glass.request_break_glass(tx, run=run.id, person=person, reason=reason)
        break_glass.activate_break_glass(tx, run.id, until=until, factor=factor)
        change_log.append_entry(
            tx,
            "break-glass activated",
            run=run.id,
            person=person,
            host=run.host,
            reason=reason,
            until=until,
            factor=factor,
            digest=run.digest,
        )
        if run.state is State.PENDING:
            run = runs.move_run(tx, run, State.QUEUED)
        outbox.announce_run(tx, run.id)
        self._context.dispatcher.enqueue_run(tx, run.id, policy.inventory[run.host].site)
        return run

    def review_break_glass(self, number: int, *, person: str, findings: str) -> BreakGlass:
        """Say as somebody else what one thinks of it, so that its asker may do it again."""
        require_view(self._context, number, person=person)
        said = _check_text(findings)
        if len(said) < _MIN_REVIEW_LENGTH:
            raise InvalidRequestError(
                f"say what you found, in {_MIN_REVIEW_LENGTH} characters or more"
            )
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            broken = break_glass.get_break_glass(tx, number)
            if broken is None or broken.activated_at is None:
                raise InvalidRequestError(f"no glass was broken for run {number}")
            if broken.reviewed_at is not None:
                who = policy.get_person_name(broken.reviewer)
                raise TooLate(f"run {number} was reviewed by {who} already")
            if not can_review(policy, run, person, now=tx.now):
                raise NotAllowed(
                    "somebody else who is an owner, or could have approved it, reviews this"
                )
            break_glass.record_review(tx, number, reviewer=person, words=said)
            _log_break_glass(tx, "break-glass reviewed", run, person, said)
            outbox.announce_run(tx, number)
        return broken

    def _get_refusal(self, tx: Transaction, policy: Policy, run: Run, person: str) -> str:
        """Say why this person may not break the glass for this run; "" if they may."""
        why = get_break_glass_refusal(policy, run, person, now=tx.now)
        if why:
            return why
        broken = break_glass.get_break_glass(tx, run.id)
        if broken is not None and broken.activated_at is not None:
            return f"the glass of run {run.id} is broken already"
        overdue = break_glass.get_overdue_review(tx, person)
        # What the table says was reviewed has to be so by the signed log as well.
        number = overdue.run if overdue else evidence.get_unreviewed_run(tx, person)
        if number is None:
            return ""
        return (
            f"nobody has reviewed run {number}, for which you broke the glass more than a day "
            f"ago: have somebody else review it first, with “review {number}” and what they found"
        )


def _check_is_needed(tx: Transaction, policy: Policy, run: Run, person: str) -> None:
    """Raise TooLate or Unfit where the requester's glass would let nothing through."""
    broken = break_glass.get_break_glass(tx, run.id)
    if run.requested_by != person or (broken and broken.activated_at is not None):
        return
    if run.state not in _BREAK_GLASS_STATES | {State.PLANNING}:
        raise TooLate(f"run {run.id} is {run.state.phrase}: there is no glass to break")
    if run.kind != "change":
        raise InvalidRequestError(
            f"run {run.id} changes nothing and needs no approval: it starts by itself"
        )
    hosts = [host for host in run.hosts or (run.host,) if host in policy.inventory.hosts]
    frozen = any(
        policy.describe_freeze(host=host, runbook=run.runbook, now=tx.now) for host in hosts
    )
    counted = count_approvals(tx, policy, run)
    if counted.is_met and not frozen:
        raise InvalidRequestError(
            f"run {run.id} lacks no approval and no freeze holds it: it starts by itself, and "
            "there is no glass to break"
        )


def can_review(policy: Policy, run: Run, person: str, *, now: int) -> bool:
    """Say whether this person may review what another did."""
    if person == run.requested_by or policy.find_person(person) is None:
        return False
    request = build_policy_request(run, now=now)
    able = policy.get_approval_ruling(person, request, policy.get_request_ruling(request)).allowed
    return able or is_area_owner(policy, person)


def check_break_glass_reason(text: str) -> str:
    """Return the reason, or raise Unfit: whoever reviews it must learn something from it."""
    said = _check_text(text)
    if len(said) < MIN_REASON_LENGTH:
        raise InvalidRequestError(
            f"say why it cannot wait, in {MIN_REASON_LENGTH} characters or more: “because …”; "
            f"these are {len(said)}"
        )
    return said


def _check_text(text: str) -> str:
    try:
        said = join_to_one_line(text)
    except InvisibleCharacterError as unclean:
        raise InvalidRequestError(f"what you say {unclean}") from None
    if len(said) > _MAX_REASON_LENGTH:
        raise InvalidRequestError(
            f"that has {len(said)} characters: say it in {_MAX_REASON_LENGTH}"
        )
    return said


def _log_refusal(tx: Transaction, run: Run, person: str, reason: str) -> None:
    refusals.log_person_refusal(
        tx, "break-glass refused", person=person, run=run, reason=reason, digest=run.digest
    )


def _log_break_glass(tx: Transaction, kind: str, run: Run, person: str, reason: str) -> None:
    change_log.append_entry(
        tx, kind, run=run.id, person=person, host=run.host, reason=reason, digest=run.digest
    )
