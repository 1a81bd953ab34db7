"""Breaking the glass: an emergency goes through a freeze and without approvals.

It is for one run and for an hour at most, and everybody sees it. Nothing else is passed: the log,
the plan and the lock hold.
"""

from bot.audit import change_log, evidence, refusals
from bot.db import break_glass, outbox, runs
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.write_lock import urgent_write
from bot.model.plain_text import fold_text
from bot.model.run import Run, State
from bot.policy import Policy
from bot.workflow.approval_count import count_approvals
from bot.workflow.approvals import NotAllowed, StepUpRequired, TooLate, check_policy_version
from bot.workflow.break_glass_rules import why_not_break_glass
from bot.workflow.context import WorkflowContext, build_policy_request
from bot.workflow.requests import InvalidRequest
from bot.workflow.second_factor import get_shown_factor, is_owner
from bot.workflow.visibility import require_view
from connectors.command import InvisibleCharacterError

LEAST_REASON = 20
_LONGEST = 1000
_LEAST_REVIEW = 10
OPEN_SECONDS = 60 * 60
_SECOND = 1_000_000
_BREAKABLE = frozenset({State.WAITING, State.READY})


class BreakGlassActions:
    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def want(self, number: int, *, person: str, reason: str) -> Run:
        """Note that the asker means to break the glass for this run; that is done on its page."""
        require_view(self._parts, number, person=person)
        why = check_reason(reason)
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            _refuse_needless(tx, policy, run, person)
            refusal = self._refusal(tx, policy, run, person)
            if not refusal:
                break_glass.request_break_glass(tx, run=number, person=person, reason=why)
                _log(tx, "glass wanted", run, person, why)
                outbox.announce_run(tx, number)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotAllowed(refusal)
        return run

    def shatter(self, number: int, *, person: str, session: str, digest: str, reason: str) -> Run:
        """Break the glass: the plan with this digest starts now, whoever has not approved it."""
        require_view(self._parts, number, person=person)
        why = check_reason(reason)
        policy = self._parts.policies.current()
        with urgent_write(), self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state not in _BREAKABLE or run.expires is None:
                raise TooLate(f"run {number} is {run.state}: there is no glass to break")
            if len(digest) < 10 or not run.digest.startswith(digest):
                raise TooLate(f"run {number} has another plan now: look at it again")
            _refuse_needless(tx, policy, run, person)
            refusal = self._refusal(tx, policy, run, person)
            if not refusal:
                check_policy_version(policy, run)
                run = self._break(tx, policy, run, person, session, why)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotAllowed(refusal)
        return run

    def _break(
        self, tx: Transaction, policy: Policy, run: Run, person: str, session: str, why: str
    ) -> Run:
        factor = get_shown_factor(tx, policy, person=person, session=session)
        if not factor:
            raise StepUpRequired("Breaking the glass takes your second factor, shown just before.")
        until = min(tx.now + OPEN_SECONDS * _SECOND, run.expires or tx.now)
        break_glass.request_break_glass(tx, run=run.id, person=person, reason=why)
        break_glass.activate_break_glass(tx, run.id, until=until, factor=factor)
        change_log.append_entry(
            tx,
            "glass broken",
            run=run.id,
            person=person,
            host=run.host,
            why=why,
            until=until,
            factor=factor,
            digest=run.digest,
        )
        if run.state is State.WAITING:
            run = runs.move_run(tx, run, State.READY)
        outbox.announce_run(tx, run.id)
        self._parts.dispatch.enqueue(tx, run.id, policy.inventory[run.host].site)
        return run

    def review(self, number: int, *, person: str, words: str) -> BreakGlass:
        """Say as somebody else what one thinks of it, so that its asker may do it again."""
        require_view(self._parts, number, person=person)
        said = _clean(words)
        if len(said) < _LEAST_REVIEW:
            raise InvalidRequest(f"say what you found, in {_LEAST_REVIEW} characters or more")
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            broken = break_glass.get_break_glass(tx, number)
            if broken is None or broken.broken is None:
                raise InvalidRequest(f"no glass was broken for run {number}")
            if broken.reviewed is not None:
                who = policy.name_person(broken.reviewer)
                raise TooLate(f"run {number} was reviewed by {who} already")
            if not can_review(policy, run, person, now=tx.now):
                raise NotAllowed(
                    "somebody else who is an owner, or could have approved it, reviews this"
                )
            break_glass.record_review(tx, number, reviewer=person, words=said)
            _log(tx, "glass reviewed", run, person, said)
            outbox.announce_run(tx, number)
        return broken

    def _refusal(self, tx: Transaction, policy: Policy, run: Run, person: str) -> str:
        """Say why this person may not break the glass for this run; "" if they may."""
        why = why_not_break_glass(policy, run, person, now=tx.now)
        if why:
            return why
        broken = break_glass.get_break_glass(tx, run.id)
        if broken is not None and broken.broken is not None:
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


def _refuse_needless(tx: Transaction, policy: Policy, run: Run, person: str) -> None:
    """Raise TooLate or Unfit where the requester's glass would let nothing through."""
    broken = break_glass.get_break_glass(tx, run.id)
    if run.asked_by != person or (broken and broken.broken is not None):
        return
    if run.state not in _BREAKABLE | {State.ASKED}:
        raise TooLate(f"run {run.id} is {run.state}: there is no glass to break")
    if run.kind != "change":
        raise InvalidRequest(
            f"run {run.id} changes nothing and needs no approval: it starts by itself"
        )
    hosts = [host for host in run.hosts or (run.host,) if host in policy.inventory.hosts]
    frozen = any(policy.frozen(host=host, runbook=run.words, now=tx.now) for host in hosts)
    counted = count_approvals(tx, policy, run)
    if counted.met and not frozen:
        raise InvalidRequest(
            f"run {run.id} lacks no approval and no freeze holds it: it starts by itself, and "
            "there is no glass to break"
        )


def can_review(policy: Policy, run: Run, person: str, *, now: int) -> bool:
    """Say whether this person may review what another did."""
    if person == run.asked_by or policy.person(person) is None:
        return False
    request = build_policy_request(run, now=now)
    able = policy.may_approve(person, request, policy.may_ask(request)).allowed
    return able or is_owner(policy, person)


def check_reason(text: str) -> str:
    """Return the reason, or raise Unfit: whoever reviews it must learn something from it."""
    said = _clean(text)
    if len(said) < LEAST_REASON:
        raise InvalidRequest(
            f"say why it cannot wait, in {LEAST_REASON} characters or more: “because …”; "
            f"these are {len(said)}"
        )
    return said


def _clean(text: str) -> str:
    try:
        said = fold_text(text)
    except InvisibleCharacterError as unclean:
        raise InvalidRequest(f"what you say {unclean}") from None
    if len(said) > _LONGEST:
        raise InvalidRequest(f"that has {len(said)} characters: say it in {_LONGEST}")
    return said


def _log_refusal(tx: Transaction, run: Run, person: str, why: str) -> None:
    refusals.log_person_refusal(
        tx, "glass refused", person=person, run=run, why=why, digest=run.digest
    )


def _log(tx: Transaction, what: str, run: Run, person: str, why: str) -> None:
    change_log.append_entry(
        tx, what, run=run.id, person=person, host=run.host, why=why, digest=run.digest
    )
