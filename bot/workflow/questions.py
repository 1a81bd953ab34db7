"""Questions about a pending run, their answers, and its assignment to another approver.

The run stays pending, and none of them changes who may decide it.
"""

from bot.audit import change_log, events
from bot.audit.event_type import Event
from bot.db import outbox, runs
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.plain_text import check_line
from bot.model.run import Run
from bot.queries.questions import (
    get_answerer,
    get_discussion,
    list_possible_assignees,
)
from bot.workflow.approvals import check_is_pending, get_decision_refusal
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import SENSITIVE_REQUEST_MESSAGE
from connectors.visible_text import quote_text

_MAX_LENGTH = 1000


def ask_question(context: WorkflowContext, number: int, *, person: str, text: str) -> Run:
    """Ask the requester a question about a pending run.

    Raises:
        NotAllowed: This person may not decide the run.
        TooLate: The run is not pending.
        InvalidRequestError: The text is empty, too long, or has an invisible character or a
            secret.
    """
    question = _check_text(context, text, name="the question")
    with context.database.transaction() as tx:
        run = _lock_run_to_decide(context, tx, number, person)
        return _record(tx, run, events.QuestionAsked(digest=run.digest, text=question), person)


def answer_question(context: WorkflowContext, number: int, *, person: str, text: str) -> Run:
    """Answer the open questions about the person's own request. Raises as ask_question()."""
    answer = _check_text(context, text, name="the answer")
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        check_is_pending(context, tx, run)
        if not run.is_requested_for(person):
            name = context.policies.get_policy().get_person_name(get_answerer(run))
            raise NotAllowed(f"only {name}, who answers for run {number}, can answer")
        if not get_discussion(tx, number).has_open_question:
            raise TooLate(f"run {number} has no open question")
        return _record(tx, run, events.QuestionAnswered(digest=run.digest, text=answer), person)


def reassign_run(
    context: WorkflowContext, number: int, *, person: str, assignee: str, reason: str = ""
) -> Run:
    """Ask another approver to decide a pending run. Others who may decide it still can.

    Raises:
        NotAllowed: This person may not decide the run.
        TooLate: The run is not pending, or is assigned to that approver.
        InvalidRequestError: The assignee may not view or approve the run, or has approved it;
            or the reason has an invisible character or a secret.
    """
    why = _check_text(context, reason, name="the reason") if reason.strip() else ""
    policy = context.policies.get_policy()
    with context.database.transaction() as tx:
        run = _lock_run_to_decide(context, tx, number, person)
        able = list_possible_assignees(tx, policy, run)
        if assignee not in {one.id for one in able}:
            names = ", ".join(f"{one.name} ({one.id})" for one in able) or "no one"
            raise InvalidRequestError(
                f"run {number} cannot be assigned to {quote_text(assignee)}. Those who can still "
                f"approve it: {names}"
            )
        if get_discussion(tx, number).assignee == assignee:
            name = policy.get_person_name(assignee)
            raise TooLate(f"run {number} is assigned to {name} already")
        reassigned = events.Reassigned(digest=run.digest, assignee=assignee, reason=why)
        return _record(tx, run, reassigned, person)


def _lock_run_to_decide(
    context: WorkflowContext, tx: Transaction, number: int, person: str
) -> Run:
    run = runs.lock_run(tx, number)
    check_is_pending(context, tx, run)
    if no := get_decision_refusal(tx, context.policies.get_policy(), run, person):
        raise NotAllowed(no)
    return run


def _record(tx: Transaction, run: Run, event: Event, person: str) -> Run:
    # The new version makes pages and cards show the entry.
    amended = runs.amend_run(tx, run)
    change_log.append_entry(tx, event, run=run, person=person)
    outbox.announce_run(tx, run.id)
    return amended


def _check_text(context: WorkflowContext, text: str, *, name: str) -> str:
    """Return a text on one line. Raises InvalidRequestError."""
    line = check_line(text, name=name, max_length=_MAX_LENGTH)
    if not line:
        raise InvalidRequestError(f"{name} is empty: enter it")
    # Everyone who may view the run reads it, and the log keeps it.
    if context.database.redactor.has_secret(line):
        raise InvalidRequestError(SENSITIVE_REQUEST_MESSAGE)
    return line
