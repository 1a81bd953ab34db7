"""Stop runs, or everything: nothing more is sent, whichever process works on it.

A stop is a row in the database that the gate checks before every step. A step that is under way
when the row is written is finished, and its outcome is recorded.
"""

from collections.abc import Mapping

from bot.audit import change_log, events, refusals
from bot.audit.event_type import Event
from bot.db import runs, stops
from bot.db.database import Transaction
from bot.db.stops import EVERYTHING
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.references import hide_references
from bot.model.run import STATES_BEFORE_INTENT, Run, State
from bot.policy import NoPolicyError, Policy
from bot.policy.policy import Order
from bot.queries import stop_reasons
from bot.queries.pending import can_stop
from bot.queries.second_factor import get_shown_factor
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_run_change, end_run
from bot.workflow.requests import refuse_child_run, shorten_reason

_MIN_REASON_LENGTH = 3
_REFUSALS: Mapping[Order, type[Event]] = {
    "stop": events.StopRefused,
    "resume": events.ResumeRefused,
    "ban": events.BanRefused,
}


def stop_run(context: WorkflowContext, number: int, *, person: str, reason: str = "") -> Run:
    """Stop one run. person: "" on the command line. Raises NotAllowed, TooLate and NoSuchRun."""
    policy, reason = _get_policy(context, person), shorten_reason(reason)
    with context.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        refuse_child_run(run, "stop")
        if run.hosts:
            # Child runs are locked before the log, in the same order as by their workers.
            runs.lock_children(tx, number)
        if run.is_ended or run.state is State.UNKNOWN:
            summary = hide_references(run.summary)
            raise TooLate(f"Run {number} {run.state.phrase} already. {summary}".strip())
        allowed = can_stop(policy, run, person)
        if not allowed:
            refusals.log_person_refusal(
                tx, events.StopRefused(reason=reason), person=person, run=run
            )
        else:
            if not stops.add_stop(tx, str(number), person=person, why=reason):
                raise TooLate(
                    f"Run {number} is already being stopped: it ends before its next step"
                )
            requested = events.StopRequested(reason=reason)
            change_log.append_entry(tx, requested, run=run, person=person)
            run = _apply_stop(context, tx, policy, run)
    if not allowed:
        owners = _describe_owners(policy, run)
        raise NotAllowed(f"You cannot stop run {number}. Its requester and {owners} can.")
    return run


def stop_everything(
    context: WorkflowContext, *, person: str, reason: str, session: str = ""
) -> int:
    """Stop everything until it is resumed; return how many runs that ends.

    Args:
        person: "" on the command line.
        session: The web session, in which a second factor may have been entered.

    Raises NotAllowed, StepUpRequired, TooLate and InvalidRequestError.
    """
    reason = check_stop_reason(reason)
    if person:
        check_order_allowed(context, person, "stop", session=session)
    with context.database.transaction() as tx:
        if not stops.add_stop(tx, EVERYTHING, person=person, why=reason):
            stop = stops.get_stop_of_everything(tx)
            raise TooLate(
                stop_reasons.describe_stop_of_everything(stop, _get_policy(context))
                if stop
                else "The stop could not be recorded. Try again."
            )
        change_log.append_entry(tx, events.EverythingStopped(reason=reason), person=person)
    return end_stopped_runs(context)


def resume_everything(
    context: WorkflowContext, *, person: str, reason: str, session: str = ""
) -> None:
    """End the stop of everything. Raises as stop_everything()."""
    reason = check_stop_reason(reason)
    with context.database.reading() as tx:
        stop = stops.get_stop_of_everything(tx)
    if stop is None:
        raise TooLate("Nothing is stopped")
    check_order_allowed(context, person, "resume", is_own=stop.person == person, session=session)
    with context.database.transaction() as tx:
        if not stops.remove_stop(tx, EVERYTHING):
            raise TooLate("Someone else has just resumed it")
        change_log.append_entry(
            tx,
            events.EverythingResumed(
                reason=reason, stopped_by=stop.person, stopped_at=stop.stopped_at
            ),
            person=person,
        )


def end_stopped_runs(context: WorkflowContext) -> int:
    """End runs that have not started while everything is stopped; return how many are affected."""
    with context.database.reading() as tx:
        if stops.get_stop_of_everything(tx) is None:
            return 0
        numbers = [run.id for run in runs.list_unfinished_briefly(tx) if run.parent is None]
    policy = _get_policy(context)
    # One transaction each: a locked run does not delay the stop of others.
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


def _apply_stop(context: WorkflowContext, tx: Transaction, policy: Policy | None, run: Run) -> Run:
    """End the run if no step is under way; otherwise it ends before its next step."""
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
    """Check that the policy allows this person an order such as stop or ban.

    Args:
        is_own: Whether the person would revert their own order.
        session: The web session, in which a second factor may have been entered.
        requires_factor: False where none can be entered, as on the command line.

    Raises:
        NotAllowed: The policy does not allow it.
        StepUpRequired: The policy requires a second factor that was not entered recently.
    """
    policy = context.policies.get_policy()
    ruling = policy.get_order_ruling(person, order, is_own=is_own)
    if ruling.allowed:
        if ruling.requires_second_factor and requires_factor:
            _check_shown_factor(context, policy, person, session)
        return
    able = sorted(policy.list_people_allowed(order, except_person=person))
    with context.database.transaction() as tx:
        refusals.log_person_refusal(tx, _REFUSALS[order](), person=person)
    why = "Another person has to revert what you ordered. " if is_own else ""
    who = f"Those who can: {', '.join(able)}." if able else "The policy allows no one."
    raise NotAllowed(f"You cannot do that. {why}{who}")


def _check_shown_factor(
    context: WorkflowContext, policy: Policy, person: str, session: str
) -> None:
    with context.database.reading() as tx:
        factor = get_shown_factor(tx, policy, person=person, session=session)
    if not factor:
        raise StepUpRequired(
            "This requires your second factor, which you cannot enter in chat: use the web page "
            "“Emergency stop”, which also links to banning a person. /keyturn web signs you in."
        )


def _get_policy(context: WorkflowContext, person: str = "") -> Policy | None:
    """Return the policy; None on the command line, which can stop runs without one."""
    try:
        return context.policies.get_policy()
    except NoPolicyError:
        if person:
            raise
        return None


def check_stop_reason(text: str) -> str:
    """Return the reason on one line, or raise InvalidRequestError if it is too short."""
    if len(text.strip()) < _MIN_REASON_LENGTH:
        raise InvalidRequestError(
            f"enter a reason of at least {_MIN_REASON_LENGTH} characters: everyone is shown it"
        )
    return shorten_reason(text)
