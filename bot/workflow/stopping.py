"""Stopping: what a person stops is sent nothing more, whichever process works on it.

A stop is a row in the database that the gate looks for before every step. What is on its way to a
host when the row is written is finished as a step; its outcome is recorded as ever.
"""

from bot.audit import change_log, refusals
from bot.db import runs, stops
from bot.db.database import Transaction
from bot.db.stops import EVERYTHING
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.run import STATES_BEFORE_INTENT, Run, State
from bot.policy import NoPolicyError, Policy
from bot.policy.policy import Order
from bot.workflow import stop_reasons
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run
from bot.workflow.requests import shorten_reason
from bot.workflow.second_factor import get_shown_factor

_MIN_REASON_LENGTH = 3


def stop_run(context: WorkflowContext, number: int, *, person: str, reason: str = "") -> Run:
    """Stop one run. person: "" on the command line. Raises NotYours, TooLate and NoSuchRun."""
    policy, reason = _get_policy(context, person), shorten_reason(reason)
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.parent is not None:
            raise InvalidRequestError(f"run {number} is a part of run {run.parent}: stop that")
        if run.hosts:
            # Held before the log is: who works on a part holds that first, and then the log.
            runs.lock_children(tx, number)
        if run.is_ended or run.state is State.UNKNOWN:
            raise TooLate(f"Run {number} is {run.state.phrase} already. {run.summary}".strip())
        allowed = can_stop(policy, run, person)
        if not allowed:
            refusals.log_person_refusal(tx, "stop refused", person=person, run=run, reason=reason)
        else:
            if not stops.add_stop(tx, str(number), person=person, why=reason):
                raise TooLate(
                    f"Run {number} is being stopped already: it ends before its next step"
                )
            _log_stop(tx, "stop requested", run, person, reason)
            run = _apply_stop(context, tx, policy, run)
    if not allowed:
        owners = _describe_owners(policy, run)
        raise NotAllowed(f"You cannot stop run {number}. Its asker can, and {owners}.")
    return run


def stop_everything(
    context: WorkflowContext, *, person: str, reason: str, session: str = ""
) -> int:
    """Stop everything until somebody resumes it; return how many runs that ended or will end.

    person: "" on the command line. session: of the web, where a second factor may have been shown
    just before. Raises NotYours, StepUpFirst, TooLate and Unfit.
    """
    reason = check_stop_reason(reason)
    if person:
        check_order_allowed(context, person, "stop", session=session)
    with context.database.transaction() as tx:
        if not stops.add_stop(tx, EVERYTHING, person=person, why=reason):
            held = stops.get_stop_of_everything(tx)
            raise TooLate(
                stop_reasons.describe_stop_of_everything(held, _get_policy(context))
                if held
                else "Try that again"
            )
        change_log.append_entry(tx, "everything stopped", person=person, reason=reason)
    return end_stopped_runs(context)


def resume_everything(
    context: WorkflowContext, *, person: str, reason: str, session: str = ""
) -> None:
    """Let everything go on. Raises NotYours, StepUpFirst, TooLate and Unfit."""
    reason = check_stop_reason(reason)
    with context.database.reading() as tx:
        held = stops.get_stop_of_everything(tx)
    if held is None:
        raise TooLate("Nothing is stopped: everything may go on")
    check_order_allowed(context, person, "resume", is_own=held.person == person, session=session)
    with context.database.transaction() as tx:
        if not stops.remove_stop(tx, EVERYTHING):
            raise TooLate("Somebody else has resumed it just now")
        change_log.append_entry(
            tx,
            "everything resumed",
            person=person,
            reason=reason,
            stopped_by=held.person,
            stopped_at=held.at,
        )


def end_stopped_runs(context: WorkflowContext) -> int:
    """End what is to start while everything is stopped; return how many runs are concerned."""
    with context.database.reading() as tx:
        if stops.get_stop_of_everything(tx) is None:
            return 0
        numbers = [run.id for run in runs.list_unfinished_briefly(tx) if run.parent is None]
    policy = _get_policy(context)
    # One transaction each: a run that somebody holds keeps no other from being stopped.
    for number in numbers:
        with context.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if (
                not run.is_ended
                and run.state is not State.UNKNOWN
                and stops.get_stop_of_run(tx, run)
            ):
                _apply_stop(context, tx, policy, run)
    return len(numbers)


def can_stop(policy: Policy | None, run: Run, person: str) -> bool:
    """Say whether this person may stop the run. The command line may: it could do anything."""
    if not person:
        return True
    if policy is None or policy.find_person(person) is None:
        return False
    known = run.host in policy.inventory.hosts
    owns = known and person in policy.get_area(run.host).owners
    return person == run.requested_by or owns or policy.get_order_ruling(person, "stop").allowed


def _apply_stop(context: WorkflowContext, tx: Transaction, policy: Policy | None, run: Run) -> Run:
    """End the run if nothing is on its way; otherwise it ends by itself before its next step."""
    by = stop_reasons.describe_stop(tx, run, policy)
    if run.state in STATES_BEFORE_INTENT:
        return end_run(context, tx, run, State.STOPPED, f"{by}. Nothing was sent.")
    children = runs.lock_children(tx, run.id) if run.hosts else []
    for child in children:
        if child.state in STATES_BEFORE_INTENT:
            end_run(context, tx, child, State.STOPPED, f"{by}. Nothing was sent.")
    announce_run_change(tx, run)
    return run


def _describe_owners(policy: Policy | None, run: Run) -> str:
    if policy is None or run.host not in policy.inventory.hosts:
        return "administrators"
    return f"the owners of {policy.get_area(run.host).title}"


def check_order_allowed(
    context: WorkflowContext,
    person: str,
    order: Order,
    *,
    is_own: bool = False,
    session: str = "",
    requires_factor: bool = True,
) -> None:
    """Raise NotYours unless the policy lets this person do that, and StepUpFirst if it wants a
    second factor for it that was not shown just before in this session.

    factor: False where nobody can show one and it must be possible all the same.
    """
    policy = context.policies.get_policy()
    ruling = policy.get_order_ruling(person, order, is_own=is_own)
    if ruling.allowed:
        if ruling.requires_second_factor and requires_factor:
            _check_shown_factor(context, policy, person, session)
        return
    able = sorted(policy.list_people_allowed(order, except_person=person))
    with context.database.transaction() as tx:
        refusals.log_person_refusal(tx, f"{order} refused", person=person)
    why = "What somebody began, somebody else takes back. " if is_own else ""
    who = f"Those who can: {', '.join(able)}." if able else "The policy lets nobody."
    raise NotAllowed(f"You cannot do that. {why}{who}")


def _check_shown_factor(
    context: WorkflowContext, policy: Policy, person: str, session: str
) -> None:
    with context.database.reading() as tx:
        factor = get_shown_factor(tx, policy, person=person, session=session)
    if not factor:
        raise StepUpRequired(
            "This takes your second factor, which chat does not have: do it on the web page "
            "“Stop everything”, which leads to “Shut out” for one person. /keyturn web signs you "
            "in."
        )


def _get_policy(context: WorkflowContext, person: str = "") -> Policy | None:
    """Return the policy. The command line stops without one too: then there are but no names."""
    try:
        return context.policies.get_policy()
    except NoPolicyError:
        if person:
            raise
        return None


def _log_stop(tx: Transaction, kind: str, run: Run, person: str, reason: str) -> None:
    change_log.append_entry(tx, kind, run=run.id, person=person, host=run.host, reason=reason)


def check_stop_reason(text: str) -> str:
    if len(text.strip()) < _MIN_REASON_LENGTH:
        raise InvalidRequestError(
            f"say why, in {_MIN_REASON_LENGTH} characters or more, so that everybody knows what "
            "has "
            "happened"
        )
    return shorten_reason(text)
