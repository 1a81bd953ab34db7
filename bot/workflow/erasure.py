"""Erase the output of a run for good: one person requests it, another confirms it."""

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
    """What an erasure would remove, and whether it is requested."""

    request: Entry | None
    """The log entry of the open request; None if there is none."""
    outputs: Sequence[StoredOutput]
    """Outputs of the run and its child runs, in the order of the log."""
    declined: Entry | None = None
    """The log entry that declined the last request, unless there is a newer request."""

    @property
    def digest(self) -> str:
        """The digest that a confirmation names: it covers the request and these outputs."""
        seq = self.request.seq if self.request else 0
        return hash_canonical({"asked": seq, "answers": [kept.entry_seq for kept in self.outputs]})


class ErasureActions:
    """What people may do about erasure. All methods raise NotAllowed, TooLate and NoSuchRun."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def request_erasure(
        self, number: int, *, person: str, reason: str, source: str, login: str = ""
    ) -> None:
        """Request the erasure. Raises InvalidRequestError, too."""
        require_view(self._context, number, person=person)
        request_erasure(
            self._context, number, person=person, why=reason, source=source, login=login
        )

    def confirm_erasure(self, number: int, *, person: str, digest: str) -> int:
        """Erase the output; return how many outputs were erased."""
        require_view(self._context, number, person=person)
        return confirm_erasure(self._context, number, person=person, digest=digest)

    def decline_erasure(self, number: int, *, person: str, reason: str) -> None:
        """Decline the erasure. Raises InvalidRequestError, too."""
        require_view(self._context, number, person=person)
        decline_erasure(self._context, number, person=person, why=reason)


def preview_erasure(tx: Transaction, run: Run) -> ErasurePreview:
    """Return what would be erased of a run now."""
    run_ids = [run.id, *(child.id for child in runs.list_children(tx, run.id))]
    outputs = [kept for number in run_ids for kept in output.list_stored_output(tx, number)]
    last = _get_last_erasure_entry(tx, run.id) if outputs else None
    return ErasurePreview(
        last if last and last.kind == ASKED else None,
        sorted(outputs, key=lambda kept: kept.entry_seq),
        last if last and last.kind == DECLINED else None,
    )


def get_declined_erasure(tx: Transaction, number: int) -> Entry | None:
    """Return the log entry that declined the last request; None if it was not declined."""
    last = _get_last_erasure_entry(tx, number)
    return last if last and last.kind == DECLINED else None


def _get_last_erasure_entry(tx: Transaction, number: int) -> Entry | None:
    entries = change_log.list_entries_of_run(tx, number, [ASKED, DECLINED, output.ERASED_KIND])
    return entries[-1] if entries else None


def get_confirmation_refusal(policy: Policy, run: Run, request: Entry, person: str) -> str:
    """Return why this person cannot confirm the erasure; "" if they can."""
    if person == request.person:
        return "you requested it: another person has to confirm it"
    known = policy.organisation.areas
    missing = [name for name in run.areas if name not in known]
    if missing:
        return (
            f"the policy has no area {missing[0]} any more, so it has no owner who could confirm"
        )
    if any(person not in known[name].owners for name in run.areas):
        return f"only an owner of {policy.join_area_titles(run.areas)} can confirm it"
    return ""


def request_erasure(
    context: WorkflowContext, number: int, *, person: str, why: str, source: str, login: str = ""
) -> None:
    """Request the erasure; nothing is erased yet. login: the operating-system user, if known."""
    reason = _check_reason(why)
    if context.policies.get_policy().find_person(person) is None:
        raise NotAllowed(f"{person} is not in the policy")
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if not run.is_ended:
            raise InvalidRequestError(
                f"run {number} is {run.state.phrase}: its output is still needed"
            )
        found = preview_erasure(tx, run)
        if not found.outputs:
            raise TooLate(f"run {number} has no stored output any more")
        if found.request is not None and found.request.person == person:
            raise TooLate("you have already requested it: another person has to confirm it")
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
    """Erase the output whose erasure another person requested; return how many were erased.

    The change log keeps their hashes. digest: of the ErasurePreview that the person saw.

    Raises:
        NotAllowed: The person requested it themselves, or is not an owner.
        TooLate: The request or the outputs have changed.
    """
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        found = preview_erasure(tx, run)
        if found.request is None:
            raise TooLate(f"run {number} has no open request to erase its output")
        refusal = get_confirmation_refusal(policy, run, found.request, person)
        if refusal:
            refusals.log_person_refusal(
                tx, REFUSED, person=person, run=run, reason=refusal, source="web"
            )
        elif digest != found.digest:
            raise TooLate("the request or the output has changed: reload the page and review it")
        else:
            _erase_outputs(tx, run, found, person)
    if refusal:
        raise NotAllowed(refusal)
    return len(found.outputs)


def decline_erasure(context: WorkflowContext, number: int, *, person: str, why: str) -> None:
    """Decline the erasure with a reason. Requires the same rights as confirming it.

    The requester is notified, and can request it again.
    """
    policy, reason = context.policies.get_policy(), _check_reason(why)
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        request = preview_erasure(tx, run).request
        if request is None:
            raise TooLate(f"run {number} has no open request to erase its output")
        refusal = get_confirmation_refusal(policy, run, request, person)
        about = {"requested_by": request.person, "source": "web"}
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
        raise InvalidRequestError("enter a reason of at least ten characters")
    return shorten_reason(reason)


def _erase_outputs(tx: Transaction, run: Run, erasure: ErasurePreview, person: str) -> None:
    request = erasure.request
    for each in sorted({kept.run_id for kept in erasure.outputs}):
        entries = output.erase_output(tx, each)
        change_log.append_entry(
            tx,
            output.ERASED_KIND,
            run=each,
            person=person,
            host=run.host,
            requested_by=request.person if request else "",
            reason=request.facts.get("reason", "") if request else "",
            entries=entries,
            source="web",
        )
