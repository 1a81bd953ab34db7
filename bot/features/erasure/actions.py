"""Erase the output of a run for good: one person requests it, another confirms it."""

from bot.audit import change_log, events, refusals
from bot.db import outbox, outputs, runs
from bot.db.database import Transaction
from bot.features.erasure.readings import (
    ErasurePreview,
    get_confirmation_refusal,
    preview_erasure,
)
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import Run
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import shorten_reason
from bot.workflow.visibility import require_view

_MIN_REASON_LENGTH = 10


class ErasureActions:
    """What people may do about erasure.

    Methods raise NotAllowed, TooLate and NoSuchRun; those with a reason InvalidRequestError, too.
    """

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def request_erasure(
        self, number: int, *, person: str, reason: str, source: str, login: str = ""
    ) -> None:
        """Request the erasure; nothing is erased yet. login: the system's user, if known."""
        require_view(self._context, number, person=person)
        reason = _check_reason(reason)
        if self._context.policies.get_policy().find_person(person) is None:
            raise NotAllowed(f"{person} is not in the policy")
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if not run.is_ended:
                raise InvalidRequestError(
                    f"run {number} {run.state.phrase}: its output is still needed"
                )
            found = preview_erasure(tx, run)
            if not found.outputs:
                raise TooLate(f"run {number} has no stored output any more")
            if found.request is not None and found.request.person == person:
                raise TooLate("you have already requested it: another person has to confirm it")
            change_log.append_entry(
                tx,
                events.ErasureRequested(reason=reason, source=source, login=login),
                run=run,
                person=person,
            )

    def confirm_erasure(self, number: int, *, person: str, digest: str) -> int:
        """Erase the output whose erasure another person requested; return how many were erased.

        The change log keeps their hashes. digest: of the ErasurePreview that the person saw.
        """
        require_view(self._context, number, person=person)
        policy = self._context.policies.get_policy()
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            found = preview_erasure(tx, run)
            if found.request is None:
                raise TooLate(f"run {number} has no open request to erase its output")
            refusal = get_confirmation_refusal(policy, run, found.request, person)
            if refusal:
                refusals.log_person_refusal(
                    tx, events.ErasureRefused(reason=refusal, source="web"), person=person, run=run
                )
            elif digest != found.digest:
                raise TooLate(
                    "the request or the output has changed: reload the page and review it"
                )
            else:
                _erase_outputs(tx, run, found, person)
        if refusal:
            raise NotAllowed(refusal)
        return len(found.outputs)

    def decline_erasure(self, number: int, *, person: str, reason: str) -> None:
        """Decline the erasure with a reason. Requires the same rights as confirming it.

        The requester is notified, and can request it again.
        """
        require_view(self._context, number, person=person)
        policy, reason = self._context.policies.get_policy(), _check_reason(reason)
        with self._context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            request = preview_erasure(tx, run).request
            if request is None:
                raise TooLate(f"run {number} has no open request to erase its output")
            refusal = get_confirmation_refusal(policy, run, request, person)
            if refusal:
                refused = events.ErasureRefused(
                    reason=refusal, requested_by=request.person, source="web"
                )
                refusals.log_person_refusal(tx, refused, person=person, run=run)
            else:
                declined = events.ErasureDeclined(
                    reason=reason, requested_by=request.person, source="web"
                )
                change_log.append_entry(tx, declined, run=run, person=person)
                outbox.announce_run(tx, number)
        if refusal:
            raise NotAllowed(refusal)


def _check_reason(reason: str) -> str:
    if len(reason.strip()) < _MIN_REASON_LENGTH:
        raise InvalidRequestError("enter a reason of at least ten characters")
    return shorten_reason(reason)


def _erase_outputs(tx: Transaction, run: Run, erasure: ErasurePreview, person: str) -> None:
    request = erasure.request
    asked = request.event if request else None
    for each in sorted({kept.run_id for kept in erasure.outputs}):
        entries = outputs.erase_output(tx, each)
        change_log.append_entry(
            tx,
            events.OutputErased(
                requested_by=request.person if request else "",
                reason=asked.reason if isinstance(asked, events.ErasureRequested) else "",
                entries=tuple(entries),
                source="web",
            ),
            run=each,
            person=person,
            host=run.host,
        )
