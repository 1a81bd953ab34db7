"""Erasing: what hosts answered in a run is erased for good, by two persons."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.audit import change_log, output, refusals
from bot.audit.change_log import Entry
from bot.audit.output import StoredOutput
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.canonical import hash_canonical
from bot.model.run import Run
from bot.policy import Policy
from bot.workflow.approvals import NotAllowed, TooLate
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import InvalidRequest, fold_reason
from bot.workflow.visibility import require_view

ASKED, REFUSED, DECLINED = "erasure asked", "erasure refused", "erasure declined"
_SHORTEST_REASON = 10


@dataclass(frozen=True)
class Erasure:
    """What would be erased. asked: the entry by which somebody asks for it, None if nobody does.

    answers: of the run and of its parts, in the order of the log. declined: the entry by which the
    last request was, if nobody has asked since.
    """

    asked: Entry | None
    answers: Sequence[StoredOutput]
    declined: Entry | None = None

    @property
    def digest(self) -> str:
        """What a confirmation is of: this request and these answers, and nothing else."""
        seq = self.asked.seq if self.asked else 0
        return hash_canonical({"asked": seq, "answers": [kept.entry for kept in self.answers]})


class ErasureActions:
    """What doors may do about it."""

    def __init__(self, parts: WorkflowContext) -> None:
        self._parts = parts

    def ask(self, number: int, *, person: str, why: str, door: str, login: str = "") -> None:
        """Raises Unfit, NotYours, TooLate and NoSuchRun."""
        require_view(self._parts, number, person=person)
        ask_to_erase(self._parts, number, person=person, why=why, door=door, login=login)

    def confirm(self, number: int, *, person: str, digest: str) -> int:
        """Raises NotYours, TooLate and NoSuchRun."""
        require_view(self._parts, number, person=person)
        return confirm_erasure(self._parts, number, person=person, digest=digest)

    def decline(self, number: int, *, person: str, why: str) -> None:
        """Raises Unfit, NotYours, TooLate and NoSuchRun."""
        require_view(self._parts, number, person=person)
        decline_erasure(self._parts, number, person=person, why=why)


def preview_erasure(tx: Transaction, run: Run) -> Erasure:
    """Return what would be erased of a run now."""
    family = [run.id, *(child.id for child in runs.list_children(tx, run.id))]
    answers = [kept for number in family for kept in output.list_stored_output(tx, number)]
    last = _last(tx, run.id) if answers else None
    return Erasure(
        last if last and last.kind == ASKED else None,
        sorted(answers, key=lambda kept: kept.entry),
        last if last and last.kind == DECLINED else None,
    )


def get_declined_erasure(tx: Transaction, number: int) -> Entry | None:
    """Return the entry by which the last request to erase was declined; None if it was not."""
    last = _last(tx, number)
    return last if last and last.kind == DECLINED else None


def _last(tx: Transaction, number: int) -> Entry | None:
    told = change_log.list_entries_of_run(tx, number, [ASKED, DECLINED, output.ERASED])
    return told[-1] if told else None


def why_not_confirm(policy: Policy, run: Run, asked: Entry, person: str) -> str:
    """Say why this person cannot confirm it; "" if they can."""
    if person == asked.person:
        return "you asked for it: another person has to confirm it"
    known = policy.household.areas
    gone = [name for name in run.areas if name not in known]
    if gone:
        return f"the policy has no area {gone[0]} any more: nobody owns it"
    if any(person not in known[name].owners for name in run.areas):
        return f"only an owner of {policy.titles(run.areas)} can confirm it"
    return ""


def ask_to_erase(
    parts: WorkflowContext, number: int, *, person: str, why: str, door: str, login: str = ""
) -> None:
    """Ask for it; nothing is erased yet. login: who typed it, as the machine knows them."""
    reason = _reason(why)
    if parts.policies.current().person(person) is None:
        raise NotAllowed(f"{person} is not among the people of the policy")
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if not run.over:
            raise InvalidRequest(f"run {number} is {run.state}: what it is told is still needed")
        found = preview_erasure(tx, run)
        if not found.answers:
            raise TooLate(f"nothing is kept any more of what the host answered in run {number}")
        if found.asked is not None and found.asked.person == person:
            raise TooLate("you have asked for it already: another person has to confirm it")
        change_log.append_entry(
            tx,
            ASKED,
            run=number,
            person=person,
            host=run.host,
            why=reason,
            door=door,
            login=login,
        )


def confirm_erasure(parts: WorkflowContext, number: int, *, person: str, digest: str) -> int:
    """Erase what another person asked to; return how many answers are gone.

    person: somebody signed in. digest: of the Erasure that they saw. The chain keeps the hashes.
    Raises NotYours unless this is another person, and an owner; TooLate if it is not so any more.
    """
    policy = parts.policies.current()
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        found = preview_erasure(tx, run)
        if found.asked is None:
            raise TooLate(f"nobody has asked to erase what the host answered in run {number}")
        refusal = why_not_confirm(policy, run, found.asked, person)
        if refusal:
            refusals.log_person_refusal(
                tx, REFUSED, person=person, run=run, why=refusal, door="web"
            )
        elif digest != found.digest:
            raise TooLate("it is not what you saw any more: look at it again")
        else:
            _erase(tx, run, found, person)
    if refusal:
        raise NotAllowed(refusal)
    return len(found.answers)


def decline_erasure(parts: WorkflowContext, number: int, *, person: str, why: str) -> None:
    """Say no to it, and why; who asked is told. Whoever could confirm it may; they can ask again.

    person: somebody signed in.
    """
    policy, reason = parts.policies.current(), _reason(why)
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        asked = preview_erasure(tx, run).asked
        if asked is None:
            raise TooLate(f"nobody has asked to erase what the host answered in run {number}")
        refusal = why_not_confirm(policy, run, asked, person)
        about = {"asked_by": asked.person, "door": "web"}
        if refusal:
            refusals.log_person_refusal(tx, REFUSED, person=person, run=run, why=refusal, **about)
        else:
            change_log.append_entry(
                tx, DECLINED, run=number, person=person, host=run.host, why=reason, **about
            )
            outbox.announce_run(tx, number)
    if refusal:
        raise NotAllowed(refusal)


def _reason(why: str) -> str:
    if len(why.strip()) < _SHORTEST_REASON:
        raise InvalidRequest("say why, in ten characters or more")
    return fold_reason(why)


def _erase(tx: Transaction, run: Run, found: Erasure, person: str) -> None:
    asked = found.asked
    for each in sorted({kept.run for kept in found.answers}):
        entries = output.erase_output(tx, each)
        change_log.append_entry(
            tx,
            output.ERASED,
            run=each,
            person=person,
            host=run.host,
            asked_by=asked.person if asked else "",
            why=asked.facts.get("why", "") if asked else "",
            entries=entries,
            door="web",
        )
