"""Breaking the glass: an emergency goes through a freeze and without approvals.

It is for one run and for an hour at most, and everybody sees it. Nothing else is passed: the log,
the plan and the lock hold.
"""

from bot.policy import Policy
from bot.run import Run, State
from bot.store import changelog, glass, news, refusals, runs, testimony
from bot.store.database import Transaction
from bot.store.glass import Glass
from bot.store.pen import in_a_hurry
from bot.text import fold_text
from bot.workflow.asking import Unfit
from bot.workflow.counting import count
from bot.workflow.deciding import NotYours, StepUpFirst, TooLate, must_be_of
from bot.workflow.parts import Parts, request_of
from bot.workflow.passing import why_not
from bot.workflow.second_factor import is_owner, shown
from bot.workflow.visibility import require_view
from connectors.command import UncleanText

LEAST_REASON = 20
_LONGEST = 1000
_LEAST_REVIEW = 10
OPEN_SECONDS = 60 * 60
_SECOND = 1_000_000
_BREAKABLE = frozenset({State.WAITING, State.READY})


class Breaking:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def want(self, number: int, *, person: str, reason: str) -> Run:
        """Note that the asker means to break the glass for this run; that is done on its page."""
        require_view(self._parts, number, person=person)
        why = reason_for(reason)
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            run = runs.hold(tx, number)
            _refuse_needless(tx, policy, run, person)
            refusal = self._refusal(tx, policy, run, person)
            if not refusal:
                glass.want(tx, run=number, person=person, reason=why)
                _log(tx, "glass wanted", run, person, why)
                news.announce(tx, number)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotYours(refusal)
        return run

    def shatter(self, number: int, *, person: str, session: str, digest: str, reason: str) -> Run:
        """Break the glass: the plan with this digest starts now, whoever has not approved it."""
        require_view(self._parts, number, person=person)
        why = reason_for(reason)
        policy = self._parts.policies.current()
        with in_a_hurry(), self._parts.database.transaction() as tx:
            run = runs.hold(tx, number)
            if run.state not in _BREAKABLE or run.expires is None:
                raise TooLate(f"run {number} is {run.state}: there is no glass to break")
            if len(digest) < 10 or not run.digest.startswith(digest):
                raise TooLate(f"run {number} has another plan now: look at it again")
            _refuse_needless(tx, policy, run, person)
            refusal = self._refusal(tx, policy, run, person)
            if not refusal:
                must_be_of(policy, run)
                run = self._break(tx, policy, run, person, session, why)
            else:
                _log_refusal(tx, run, person, refusal)
        if refusal:
            raise NotYours(refusal)
        return run

    def _break(
        self, tx: Transaction, policy: Policy, run: Run, person: str, session: str, why: str
    ) -> Run:
        factor = shown(tx, policy, person=person, session=session)
        if not factor:
            raise StepUpFirst("Breaking the glass takes your second factor, shown just before.")
        until = min(tx.now + OPEN_SECONDS * _SECOND, run.expires or tx.now)
        glass.want(tx, run=run.id, person=person, reason=why)
        glass.shatter(tx, run.id, until=until, factor=factor)
        changelog.append(
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
            run = runs.move(tx, run, State.READY)
        news.announce(tx, run.id)
        self._parts.dispatch.enqueue(tx, run.id, policy.inventory[run.host].site)
        return run

    def review(self, number: int, *, person: str, words: str) -> Glass:
        """Say as somebody else what one thinks of it, so that its asker may do it again."""
        require_view(self._parts, number, person=person)
        said = _clean(words)
        if len(said) < _LEAST_REVIEW:
            raise Unfit(f"say what you found, in {_LEAST_REVIEW} characters or more")
        policy = self._parts.policies.current()
        with self._parts.database.transaction() as tx:
            run = runs.hold(tx, number)
            broken = glass.of(tx, number)
            if broken is None or broken.broken is None:
                raise Unfit(f"no glass was broken for run {number}")
            if broken.reviewed is not None:
                who = policy.name_person(broken.reviewer)
                raise TooLate(f"run {number} was reviewed by {who} already")
            if not may_review(policy, run, person, now=tx.now):
                raise NotYours(
                    "somebody else who is an owner, or could have approved it, reviews this"
                )
            glass.review(tx, number, reviewer=person, words=said)
            _log(tx, "glass reviewed", run, person, said)
            news.announce(tx, number)
        return broken

    def _refusal(self, tx: Transaction, policy: Policy, run: Run, person: str) -> str:
        """Say why this person may not break the glass for this run; "" if they may."""
        why = why_not(policy, run, person, now=tx.now)
        if why:
            return why
        broken = glass.of(tx, run.id)
        if broken is not None and broken.broken is not None:
            return f"the glass of run {run.id} is broken already"
        overdue = glass.overdue(tx, person)
        # What the table says was reviewed has to be so by the signed log as well.
        number = overdue.run if overdue else testimony.unreviewed(tx, person)
        if number is None:
            return ""
        return (
            f"nobody has reviewed run {number}, for which you broke the glass more than a day "
            f"ago: have somebody else review it first, with “review {number}” and what they found"
        )


def _refuse_needless(tx: Transaction, policy: Policy, run: Run, person: str) -> None:
    """Raise TooLate or Unfit where the requester's glass would let nothing through."""
    broken = glass.of(tx, run.id)
    if run.asked_by != person or (broken and broken.broken is not None):
        return
    if run.state not in _BREAKABLE | {State.ASKED}:
        raise TooLate(f"run {run.id} is {run.state}: there is no glass to break")
    if run.kind != "change":
        raise Unfit(f"run {run.id} changes nothing and needs no approval: it starts by itself")
    hosts = [host for host in run.hosts or (run.host,) if host in policy.inventory.hosts]
    frozen = any(policy.frozen(host=host, runbook=run.words, now=tx.now) for host in hosts)
    counted = count(tx, policy, run)
    if counted.met and not frozen:
        raise Unfit(
            f"run {run.id} lacks no approval and no freeze holds it: it starts by itself, and "
            "there is no glass to break"
        )


def may_review(policy: Policy, run: Run, person: str, *, now: int) -> bool:
    """Say whether this person may review what another did."""
    if person == run.asked_by or policy.person(person) is None:
        return False
    request = request_of(run, now=now)
    able = policy.may_approve(person, request, policy.may_ask(request)).allowed
    return able or is_owner(policy, person)


def reason_for(text: str) -> str:
    """Return the reason, or raise Unfit: whoever reviews it must learn something from it."""
    said = _clean(text)
    if len(said) < LEAST_REASON:
        raise Unfit(
            f"say why it cannot wait, in {LEAST_REASON} characters or more: “because …”; "
            f"these are {len(said)}"
        )
    return said


def _clean(text: str) -> str:
    try:
        said = fold_text(text)
    except UncleanText as unclean:
        raise Unfit(f"what you say {unclean}") from None
    if len(said) > _LONGEST:
        raise Unfit(f"that has {len(said)} characters: say it in {_LONGEST}")
    return said


def _log_refusal(tx: Transaction, run: Run, person: str, why: str) -> None:
    refusals.note_of(tx, "glass refused", person=person, run=run, why=why, digest=run.digest)


def _log(tx: Transaction, what: str, run: Run, person: str, why: str) -> None:
    changelog.append(
        tx, what, run=run.id, person=person, host=run.host, why=why, digest=run.digest
    )
