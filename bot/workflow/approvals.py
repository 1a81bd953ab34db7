"""Deciding: approvals and denials of a digest, withdrawal, expiry, and the end of an unknown."""

from dataclasses import replace

from bot.audit import change_log, refusals
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.execution.outdated_plans import is_outdated
from bot.model.run import BEFORE_INTENT, Run, State, StepState, Vote
from bot.policy import Policy, Request, Ruling
from bot.workflow.approval_count import count_approvals, get_ruling
from bot.workflow.context import WorkflowContext
from bot.workflow.delegation_rules import find_delegator
from bot.workflow.finish import end_run
from bot.workflow.pending import get_settling_area
from bot.workflow.requests import InvalidRequest, fold_reason
from bot.workflow.second_factor import get_shown_factor, is_vote_proven

# What the rules look at, and what they say of it.
_Weighed = tuple[Request, Ruling]


class NotAllowed(Exception):
    """This person may not decide that. The message says who may."""


class StepUpRequired(NotAllowed):
    """This takes a second factor, shown just before on the web. The message says so."""


class TooLate(Exception):
    """It was decided already, or has ended. The message says how."""


def approve_run(
    parts: WorkflowContext,
    number: int,
    *,
    person: str,
    digest: str,
    reason: str = "",
    session: str = "",
) -> Run:
    """Turn a key for the plan with this digest (all of it, or the first ten digits shown).

    session: of the web, where a second factor may have been shown just before.
    """
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        _must_wait(parts, tx, run)
        if len(digest) < 10 or not run.digest.startswith(digest):
            raise TooLate(f"run {number} has another plan now: look at it again")
        factor = get_shown_factor(tx, policy, person=person, session=session)
        weighed = get_ruling(tx, policy, run)
        no = _refusal(tx, policy, run, person, weighed)
        lacking = "" if no or factor else _lacking(run, weighed)
        vote = _vote(tx, policy, run, person, reason, weighed, yes=True)
        if not no:
            check_policy_version(policy, run)
            _must_say_why(run, reason, weighed)
        if no or lacking:
            _log_refusal(tx, "approval refused", run, person, no or lacking)
        elif not _cast(tx, policy, run, replace(vote, factor=factor)):
            raise TooLate(f"You have approved run {number} before")
        else:
            _log(tx, "approved", run, person, reason, factor=factor, instead_of=vote.instead_of)
            run = _count(parts, tx, policy, run)
            outbox.announce_run(tx, number)
    if lacking:
        raise StepUpRequired(lacking)
    if no:
        raise NotAllowed(no)
    return run


def deny_run(parts: WorkflowContext, number: int, *, person: str, reason: str = "") -> Run:
    """End a run that has not been sent anything yet: one no is final."""
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state not in BEFORE_INTENT:
            raise TooLate(_how_it_is(parts, tx, run))
        if run.parent is not None:
            raise InvalidRequest(f"run {number} is a part of run {run.parent}: deny that")
        # Who edited it may not approve it, but an owner's no is an owner's no.
        no = why_not_decide(tx, policy, replace(run, editors=()), person)
        if not no:
            weighed = get_ruling(tx, policy, run)
            vote = _vote(tx, policy, run, person, reason, weighed, yes=False)
            runs.add_vote(tx, vote)
            name = policy.name_person(person)
            if vote.instead_of:
                name += f" for {policy.name_person(vote.instead_of)}"
            why = f": {fold_reason(reason)}" if reason.strip() else ""
            run = end_run(parts, tx, run, State.DENIED, f"Denied by {name}{why}", person=person)
        else:
            _log_refusal(tx, "denial refused", run, person, no)
    if no:
        raise NotAllowed(no)
    return run


def withdraw_run(parts: WorkflowContext, number: int, *, person: str) -> Run:
    """Take one's own request back before anything was sent."""
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.parent is not None:
            raise InvalidRequest(f"run {number} is a part of run {run.parent}: withdraw that")
        if run.asked_by != person:
            name = parts.policies.current().name_person(run.asked_by)
            raise NotAllowed(f"only {name} can withdraw run {number}; an owner can deny it")
        if run.state not in BEFORE_INTENT:
            raise TooLate(_how_it_is(parts, tx, run))
        # What is declined is what an approver proposed: the original request stays pending.
        verb = "Declined" if run.state is State.OFFERED else "Withdrawn"
        return end_run(parts, tx, run, State.WITHDRAWN, f"{verb} by its asker", person=person)


def expire_due_runs(parts: WorkflowContext) -> list[Run]:
    """End every request that nobody decided or started in time."""
    with parts.database.reading() as tx:
        due = [run.id for run in runs.list_due_to_expire(tx)]
    expired: list[Run] = []
    # One transaction each: who holds the log while waiting for a run can block who holds the run.
    for number in due:
        with parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if run.state in {State.OFFERED, State.WAITING, State.READY}:
                why = "Nobody decided or started it in time"
                expired.append(end_run(parts, tx, run, State.EXPIRED, why))
    return expired


def settle_run(
    parts: WorkflowContext, number: int, *, person: str, succeeded: bool, why: str
) -> Run:
    """Let an owner say how an unknown run ended, after looking at the host."""
    policy = parts.policies.current()
    if len(why.strip()) < 10:
        raise InvalidRequest("say how you know, in ten characters or more")
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.state is not State.UNKNOWN:
            raise TooLate(f"run {number} is {run.state}: only an unknown one needs settling")
        area = get_settling_area(policy, run)
        if area is None or person not in area.owners:
            raise NotAllowed(
                f"only an owner of {area.title if area else run.area} can settle this run"
            )
        state = State.SUCCEEDED if succeeded else State.FAILED
        if run.hosts:
            raise InvalidRequest("settle the runs of its hosts: this one follows from them")
        summary = f"Settled as {state} by {policy.name_person(person)}: {fold_reason(why)}"
        for record in runs.list_steps(tx, number):
            # Its end is awaited no more.
            if record.state is StepState.INTENT:
                runs.record_outcome(tx, replace(record, state=StepState.UNKNOWN, ended=tx.now))
        return end_run(parts, tx, run, state, summary, person=person)


def _vote(
    tx: Transaction,
    policy: Policy,
    run: Run,
    person: str,
    reason: str,
    weighed: _Weighed,
    *,
    yes: bool,
) -> Vote:
    """Return the vote; whoever has a key of their own turns that one."""
    request, ruling = weighed
    instead_of = ""
    if not policy.may_approve(person, request, ruling).allowed:
        turned = {vote.instead_of or vote.person for vote in runs.list_votes(tx, run.id)}
        instead_of = find_delegator(tx, policy, request, ruling, person, turned=turned)
    said = fold_reason(reason)
    return Vote(run.id, person, yes, run.digest, tx.now, said, instead_of=instead_of)


def _cast(tx: Transaction, policy: Policy, run: Run, vote: Vote) -> bool:
    """Record a yes; False if this person has said it before, and nothing is to be added to it."""
    if runs.add_vote(tx, vote):
        return True
    before = next(one for one in runs.list_votes(tx, run.id) if one.person == vote.person)
    if is_vote_complete(tx, policy, run, before):
        return False
    runs.replace_vote(tx, vote)
    return True


def is_vote_complete(tx: Transaction, policy: Policy, run: Run, vote: Vote) -> bool:
    """Say whether a vote is complete: a yes is not where the rules by now want a second factor
    that it does not have, or that does not count any more."""
    if not vote.yes or is_vote_proven(tx, policy, vote):
        return True
    return not get_ruling(tx, policy, run)[1].step_up


def _count(parts: WorkflowContext, tx: Transaction, policy: Policy, run: Run) -> Run:
    """Let the run go on once enough people who may approve it have done so."""
    counted = count_approvals(tx, policy, run)
    terms = counted.ruling.terms
    if not counted.met:
        return runs.amend_run(
            tx, run, terms=terms, needed=terms.approvals, groups=counted.ruling.groups
        )
    ready = runs.move_run(
        tx,
        run,
        State.READY,
        terms=terms,
        expires=min(tx.now + parts.unused, run.proposal.expires if run.proposal else tx.now),
    )
    parts.dispatch.enqueue(tx, run.id, policy.inventory[run.host].site)
    return ready


def why_not_decide(tx: Transaction, policy: Policy, run: Run, person: str) -> str:
    """Say why this person may not decide; "" if they may."""
    return _refusal(tx, policy, run, person, get_ruling(tx, policy, run))


def _refusal(tx: Transaction, policy: Policy, run: Run, person: str, weighed: _Weighed) -> str:
    request, ruling = weighed
    answer = policy.may_approve(person, request, ruling)
    if answer.allowed or find_delegator(tx, policy, request, ruling, person):
        return ""
    able = ", ".join(other.name for other in policy.approvers(request, ruling)) or "nobody"
    why = "it is your own request" if person == run.asked_by else "; ".join(answer.says)
    return f"You cannot decide run {run.id}{f': {why}' if why else ''}. Those who can: {able}."


def check_policy_version(policy: Policy, run: Run) -> None:
    """Raise TooLate if the plan was made under another policy: the gate would turn it away."""
    if is_outdated(policy, run):
        raise TooLate(
            f"Run {run.id} was shown under another policy than holds now, so it would not start "
            "whatever is decided: ask again to see it anew"
        )


def _must_say_why(run: Run, reason: str, weighed: _Weighed) -> None:
    if not reason.strip() and weighed[1].reason:
        raise InvalidRequest(
            f"say why you approve run {run.id}: the rules want to know. On its page, or "
            f"approve {run.id} {run.short_digest} because REASON"
        )


def _lacking(run: Run, weighed: _Weighed) -> str:
    """Say that this approval takes a second factor; "" if it does not."""
    if not weighed[1].step_up:
        return ""
    return (
        f"Run {run.id} takes your second factor, which chat does not have: approve it on its web "
        "page. /keyturn web signs you in."
    )


def _must_wait(parts: WorkflowContext, tx: Transaction, run: Run) -> None:
    if run.parent is not None:
        raise InvalidRequest(f"run {run.id} is a part of run {run.parent}: decide that")
    if run.state is not State.WAITING:
        raise TooLate(_how_it_is(parts, tx, run))
    if run.expires is not None and tx.now >= run.expires:
        raise TooLate(f"Run {run.id} expired before this approval: ask again")


def _how_it_is(parts: WorkflowContext, tx: Transaction, run: Run) -> str:
    """Say who settled it, and when, for someone who came second."""
    votes = runs.list_votes(tx, run.id)
    last = votes[-1] if votes else None
    if last is None:
        return f"Run {run.id} is {run.state} already. {run.summary}".strip()
    seconds = (tx.now - last.at) // 1_000_000
    verb = "approved" if last.yes else "denied"
    name = parts.policies.current().name_person(last.person)
    return f"Run {run.id} was {verb} by {name} {seconds} s ago; it is {run.state} now."


def _log_refusal(tx: Transaction, what: str, run: Run, person: str, why: str) -> None:
    refusals.log_person_refusal(
        tx, what, person=person, run=run, digest=run.digest, why=fold_reason(why)
    )


def _log(
    tx: Transaction,
    what: str,
    run: Run,
    person: str,
    why: str,
    *,
    factor: str = "",
    instead_of: str = "",
) -> None:
    change_log.append_entry(
        tx,
        what,
        run=run.id,
        person=person,
        host=run.host,
        digest=run.digest,
        why=fold_reason(why),
        factor=factor or None,
        instead_of=instead_of or None,
    )
