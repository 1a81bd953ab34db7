"""Break-glass: start a change in an emergency, without approvals and during a freeze.

Break-glass applies to one run, lasts an hour at most, and notifies everyone. Change log, plan and
host lock apply as always.
"""

from bot.audit import change_log, events, evidence, refusals
from bot.db import break_glass, outbox, runs
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.write_lock import urgent_write
from bot.model.errors import (
    BreakGlassNotNeededError,
    InvalidRequestError,
    NotAllowed,
    StepUpRequired,
    TooLate,
)
from bot.model.run import Run, State
from bot.model.times import SECOND
from bot.policy import Policy
from bot.queries.approval_count import count_approvals
from bot.queries.break_glass_rules import (
    can_review,
    check_break_glass_reason,
    check_text,
    get_break_glass_refusal,
)
from bot.queries.second_factor import get_shown_factor
from bot.workflow.approvals import check_policy_version
from bot.workflow.context import WorkflowContext
from bot.workflow.plans import check_can_be_requested, request_shown_plan
from bot.workflow.visibility import require_view

_MIN_REVIEW_LENGTH = 10
ACTIVE_SECONDS = 60 * 60
_BREAK_GLASS_STATES = frozenset({State.PLANNED, State.PENDING, State.QUEUED})


class BreakGlassActions:
    """What people may do about break-glass."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def request_break_glass(self, number: int, *, person: str, reason: str) -> Run:
        """Announce that the requester wants break-glass, which is activated on the run's page."""
        require_view(self._context, number, person=person)
        why = check_break_glass_reason(reason)
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            _check_is_needed(tx, policy, run, person)
            refusal = self._get_refusal(tx, policy, run, person)
            if not refusal:
                break_glass.request_break_glass(tx, run=number, person=person, reason=why)
                requested = events.BreakGlassRequested(digest=run.digest, reason=why)
                change_log.append_entry(tx, requested, run=run, person=person)
                outbox.announce_run(tx, number)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotAllowed(refusal)
        return run

    def activate_break_glass(
        self, number: int, *, person: str, session: str, digest: str, reason: str
    ) -> Run:
        """Start the plan with this digest now, without its approvals."""
        require_view(self._context, number, person=person)
        why = check_break_glass_reason(reason)
        policy = self._context.policies.get_policy()
        with urgent_write(), self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state not in _BREAK_GLASS_STATES or run.expires_at is None:
                raise TooLate(f"run {number} {run.state.phrase}: break-glass does not apply")
            if not run.matches_digest(digest):
                raise TooLate(run.describe_other_digest(digest, "start"))
            _check_is_needed(tx, policy, run, person)
            refusal = self._get_refusal(tx, policy, run, person)
            if not refusal:
                check_policy_version(tx, policy, run)
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
            raise StepUpRequired("Break-glass requires your second factor: enter it first.")
        if run.state is State.PLANNED:
            check_can_be_requested(tx, policy, run, person, run.digest)
            why = run.reason or reason
            run = request_shown_plan(self._context, tx, policy, run, why, is_emergency=True)
            if run.is_ended:
                return run
        until = min(tx.now + ACTIVE_SECONDS * SECOND, run.expires_at or tx.now)
        break_glass.request_break_glass(tx, run=run.id, person=person, reason=reason)
        break_glass.activate_break_glass(tx, run.id, until=until, factor=factor)
        change_log.append_entry(
            tx,
            events.BreakGlassActivated(
                reason=reason, until=until, factor=factor, digest=run.digest
            ),
            run=run,
            person=person,
        )
        if run.state is State.PENDING:
            run = runs.move_run(tx, run, State.QUEUED)
        outbox.announce_run(tx, run.id)
        self._context.dispatcher.enqueue_run(tx, run.id, policy.inventory[run.host].site)
        return run

    def review_break_glass(self, number: int, *, person: str, findings: str) -> BreakGlass:
        """Record the review by another person, which the requester needs before the next use."""
        require_view(self._context, number, person=person)
        review = check_text(findings)
        if len(review) < _MIN_REVIEW_LENGTH:
            raise InvalidRequestError(
                f"describe what you found: enter at least {_MIN_REVIEW_LENGTH} characters"
            )
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            usage = break_glass.get_break_glass(tx, number)
            if usage is None or usage.activated_at is None:
                raise InvalidRequestError(f"run {number} needs no review")
            if usage.reviewed_at is not None:
                who = policy.get_person_name(usage.reviewer)
                raise TooLate(f"{who} has already reviewed run {number}")
            if not can_review(policy, run, person, now=tx.now):
                raise NotAllowed(
                    "another person has to review this: an owner, or someone who could have "
                    "approved it"
                )
            break_glass.record_review(tx, number, reviewer=person, words=review)
            reviewed = events.BreakGlassReviewed(digest=run.digest, reason=review)
            change_log.append_entry(tx, reviewed, run=run, person=person)
            outbox.announce_run(tx, number)
        return usage

    def _get_refusal(self, tx: Transaction, policy: Policy, run: Run, person: str) -> str:
        """Return why this person may not use break-glass for this run; "" if they may."""
        why = get_break_glass_refusal(policy, run, person, now=tx.now)
        if why:
            return why
        usage = break_glass.get_break_glass(tx, run.id)
        if usage is not None and usage.activated_at is not None:
            return f"break-glass is already active for run {run.id}"
        overdue = break_glass.get_overdue_review(tx, person)
        # The signed log has to confirm the reviews that the table lists.
        number = overdue.run if overdue else evidence.get_unreviewed_run(tx, person)
        if number is None:
            return ""
        return (
            f"your run {number} is older than a day and not reviewed: first ask "
            f"another person to review it with “review {number}” and their findings"
        )


def _check_is_needed(tx: Transaction, policy: Policy, run: Run, person: str) -> None:
    """Raise TooLate or InvalidRequestError where break-glass would bypass nothing.

    What a change needs is known with its plan: until then, break-glass may be needed.
    """
    usage = break_glass.get_break_glass(tx, run.id)
    if run.requested_by != person or (usage and usage.activated_at is not None):
        return
    if run.state not in _BREAK_GLASS_STATES | {State.PLANNING}:
        raise TooLate(f"run {run.id} {run.state.phrase}: break-glass does not apply")
    if run.kind != "change":
        raise InvalidRequestError(
            f"run {run.id} is read-only and needs no approval: it starts by itself"
        )
    if run.state is State.PLANNING:
        return
    frozen = policy.find_freeze(run.target_hosts, runbook=run.runbook, now=tx.now)
    counted = count_approvals(tx, policy, run)
    lacks_ticket = counted.ruling.requires_ticket and not run.ticket
    starts_later = counted.start_at is not None and tx.now < counted.start_at
    if not counted.is_met or frozen or lacks_ticket or starts_later:
        return
    if run.state is State.PLANNED:
        raise BreakGlassNotNeededError(
            f"run {run.id} needs no approval and no freeze holds it: run it on its page, without "
            "break-glass"
        )
    raise BreakGlassNotNeededError(
        f"run {run.id} needs no more approvals and no freeze holds it: it starts by itself, "
        "without break-glass"
    )


def _log_refusal(tx: Transaction, run: Run, person: str, reason: str) -> None:
    refusals.log_person_refusal(
        tx, events.BreakGlassRefused(reason=reason, digest=run.digest), person=person, run=run
    )
