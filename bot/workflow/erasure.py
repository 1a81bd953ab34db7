"""Erasing: what hosts answered in a run is erased for good, by two persons."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.audit import change_log, output, refusals
from bot.audit.change_log import Entry
from bot.audit.output import StoredOutput
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.canonical import hash_canonical
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import Run
from bot.policy import Policy
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import shorten_reason
from bot.workflow.visibility import require_view

ASKED, REFUSED, DECLINED = "erasure requested", "erasure refused", "erasure declined"
_MIN_REASON_LENGTH = 10


@dataclass(frozen=True)
class ErasurePreview:
    """What would be erased. asked: the entry by which somebody asks for it, None if nobody does.

    answers: of the run and of its parts, in the order of the log. declined: the entry by which the
    last request was, if nobody has asked since.
    """

    request: Entry | None
    outputs: Sequence[StoredOutput]
    declined: Entry | None = None

    @property
    def digest(self) -> str:
        """What a confirmation is of: this request and these answers, and nothing else."""
        seq = self.request.seq if self.request else 0
        return hash_canonical({"asked": seq, "answers": [kept.entry_seq for kept in self.outputs]})


class ErasureActions:
    """What doors may do about it."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def request_erasure(
        self, number: int, *, person: str, reason: str, source: str, login: str = ""
    ) -> None:
        """Raises Unfit, NotYours, TooLate and NoSuchRun."""
        require_view(self._context, number, person=person)
        request_erasure(
            self._context, number, person=person, why=reason, source=source, login=login
        )

    def confirm_erasure(self, number: int, *, person: str, digest: str) -> int:
        """Raises NotYours, TooLate and NoSuchRun."""
        require_view(self._context, number, person=person)
        return confirm_erasure(self._context, number, person=person, digest=digest)

    def decline_erasure(self, number: int, *, person: str, reason: str) -> None:
        """Raises Unfit, NotYours, TooLate and NoSuchRun."""
        require_view(self._context, number, person=person)
        decline_erasure(self._context, number, person=person, why=reason)


def preview_erasure(tx: Transaction, run: Run) -> ErasurePreview:
    """Return what would be erased of a run now."""
    family = [run.id, *(child.id for child in runs.list_children(tx, run.id))]
    answers = [kept for number in family for kept in output.list_stored_output(tx, number)]
    last = _get_last_erasure_entry(tx, run.id) if answers else None
    return ErasurePreview(
        last if last and last.kind == ASKED else None,
        sorted(answers, key=lambda kept: kept.entry_seq),
        last if last and last.kind == DECLINED else None,
    )


def get_declined_erasure(tx: Transaction, number: int) -> Entry | None:
    """Return the entry by which the last request to erase was declined; None if it was not."""
    last = _get_last_erasure_entry(tx, number)
    return last if last and last.kind == DECLINED else None


def _get_last_erasure_entry(tx: Transaction, number: int) -> Entry | None:
    told = change_log.list_entries_of_run(tx, number, [ASKED, DECLINED, output.ERASED_KIND])
    return told[-1] if told else None


def get_confirmation_refusal(policy: Policy, run: Run, request: Entry, person: str) -> str:
    """Say why this person cannot confirm it; "" if they can."""
    if person == request.person:
        return "you asked for it: another person has to confirm it"
    known = policy.organisation.areas
    gone = [name for name in run.areas if name not in known]
    if gone:
        return f"the policy has no area {gone[0]} any more: nobody owns it"
    if any(person not in known[name].owners for name in run.areas):
        return f"only an owner of {policy.join_area_titles(run.areas)} can confirm it"
    return ""


def request_erasure(
    context: WorkflowContext, number: int, *, person: str, why: str, source: str, login: str = ""
) -> None:
    """Ask for it; nothing is erased yet. login: who typed it, as the machine knows them."""
    reason = _check_reason(why)
    if context.policies.get_policy().find_person(person) is None:
        raise NotAllowed(f"{person} is not among the people of the policy")
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if not run.is_ended:
            raise InvalidRequestError(
                f"run {number} is {run.state.phrase}: what it is told is still needed"
            )
        found = preview_erasure(tx, run)
        if not found.outputs:
            raise TooLate(f"nothing is kept any more of what the host answered in run {number}")
        if found.request is not None and found.request.person == person:
            raise TooLate("you have asked for it already: another person has to confirm it")
        change_log.append_entry(
            tx,
            ASKED,
            run=number,
            person=person,
            host=run.host,
            reason=reason,
            source=source,
            login=login,
        )


def confirm_erasure(context: WorkflowContext, number: int, *, person: str, digest: str) -> int:
    """Erase what another person asked to; return how many answers are gone.

    person: somebody signed in. digest: of the Erasure that they saw. The chain keeps the hashes.
    Raises NotYours unless this is another person, and an owner; TooLate if it is not so any more.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        found = preview_erasure(tx, run)
        if found.request is None:
            raise TooLate(f"nobody has asked to erase what the host answered in run {number}")
        refusal = get_confirmation_refusal(policy, run, found.request, person)
        if refusal:
            refusals.log_person_refusal(
                tx, REFUSED, person=person, run=run, reason=refusal, source="web"
            )
        elif digest != found.digest:
            raise TooLate("it is not what you saw any more: look at it again")
        else:
            _erase_outputs(tx, run, found, person)
    if refusal:
        raise NotAllowed(refusal)
    return len(found.outputs)


def decline_erasure(context: WorkflowContext, number: int, *, person: str, why: str) -> None:
    """Say no to it, and why; who asked is told. Whoever could confirm it may; they can ask again.

    person: somebody signed in.
    """
    policy, reason = context.policies.get_policy(), _check_reason(why)
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        asked = preview_erasure(tx, run).request
        if asked is None:
            raise TooLate(f"nobody has asked to erase what the host answered in run {number}")
        refusal = get_confirmation_refusal(policy, run, asked, person)
        about = {"requested_by": asked.person, "source": "web"}
        if refusal:
            refusals.log_person_refusal(
                tx, REFUSED, person=person, run=run, reason=refusal, **about
            )
        else:
            change_log.append_entry(
                tx, DECLINED, run=number, person=person, host=run.host, reason=reason, **about
            )
            outbox.announce_run(tx, number)
    if refusal:
        raise NotAllowed(refusal)


def _check_reason(reason: str) -> str:
    if len(reason.strip()) < _MIN_REASON_LENGTH:
        raise InvalidRequestError("say why, in ten characters or more")
    return shorten_reason(reason)


def _erase_outputs(tx: Transaction, run: Run, erasure: ErasurePreview, person: str) -> None:
    asked = erasure.request
    for each in sorted({kept.run_id for kept in erasure.outputs}):
        entries = output.erase_output(tx, each)
        change_log.append_entry(
            tx,
            output.ERASED_KIND,
            run=each,
            person=person,
            host=run.host,
            requested_by=asked.person if asked else "",
            reason=asked.facts.get("reason", "") if asked else "",
            entries=entries,
            source="web",
        )
