"""Stopping: what a person stops is sent nothing more, whichever process works on it.

A stop is a row in the database that the gate looks for before every step. What is on its way to a
host when the row is written is finished as a step; its outcome is recorded as ever.
"""

from bot.audit import change_log, refusals
from bot.db import runs, stops
from bot.db.database import Transaction
from bot.db.stops import EVERYTHING
from bot.model.run import BEFORE_INTENT, Run, State
from bot.policy import NoPolicy, Policy
from bot.policy.policy import Order
from bot.workflow import stop_reasons
from bot.workflow.approvals import NotAllowed, StepUpRequired, TooLate
from bot.workflow.context import WorkflowContext
from bot.workflow.finish import announce_end, end_run
from bot.workflow.requests import InvalidRequest, fold_reason
from bot.workflow.second_factor import get_shown_factor

_SHORTEST_WHY = 3


def stop_run(parts: WorkflowContext, number: int, *, person: str, why: str = "") -> Run:
    """Stop one run. person: "" on the command line. Raises NotYours, TooLate and NoSuchRun."""
    policy, why = _policy(parts, person), fold_reason(why)
    with parts.database.transaction() as tx:
        run = runs.lock_run(tx, number)
        if run.parent is not None:
            raise InvalidRequest(f"run {number} is a part of run {run.parent}: stop that")
        if run.hosts:
            # Held before the log is: who works on a part holds that first, and then the log.
            runs.lock_children(tx, number)
        if run.over or run.state is State.UNKNOWN:
            raise TooLate(f"Run {number} is {run.state} already. {run.summary}".strip())
        allowed = can_stop(policy, run, person)
        if not allowed:
            refusals.log_person_refusal(tx, "stop refused", person=person, run=run, why=why)
        else:
            if not stops.add_stop(tx, str(number), person=person, why=why):
                raise TooLate(
                    f"Run {number} is being stopped already: it ends before its next step"
                )
            _log(tx, "stop asked", run, person, why)
            run = _obey(parts, tx, policy, run)
    if not allowed:
        owners = _owners(policy, run)
        raise NotAllowed(f"You cannot stop run {number}. Its asker can, and {owners}.")
    return run


def stop_everything(parts: WorkflowContext, *, person: str, why: str, session: str = "") -> int:
    """Stop everything until somebody resumes it; return how many runs that ended or will end.

    person: "" on the command line. session: of the web, where a second factor may have been shown
    just before. Raises NotYours, StepUpFirst, TooLate and Unfit.
    """
    why = check_reason(why)
    if person:
        check_order(parts, person, "stop", session=session)
    with parts.database.transaction() as tx:
        if not stops.add_stop(tx, EVERYTHING, person=person, why=why):
            held = stops.get_stop_of_everything(tx)
            raise TooLate(
                stop_reasons.describe_stop_of_everything(held, _policy(parts))
                if held
                else "Try that again"
            )
        change_log.append_entry(tx, "everything stopped", person=person, why=why)
    return end_stopped_runs(parts)


def resume_everything(parts: WorkflowContext, *, person: str, why: str, session: str = "") -> None:
    """Let everything go on. Raises NotYours, StepUpFirst, TooLate and Unfit."""
    why = check_reason(why)
    with parts.database.reading() as tx:
        held = stops.get_stop_of_everything(tx)
    if held is None:
        raise TooLate("Nothing is stopped: everything may go on")
    check_order(parts, person, "resume", own=held.person == person, session=session)
    with parts.database.transaction() as tx:
        if not stops.remove_stop(tx, EVERYTHING):
            raise TooLate("Somebody else has resumed it just now")
        change_log.append_entry(
            tx, "everything resumed", person=person, why=why, stopped_by=held.person, at=held.at
        )


def end_stopped_runs(parts: WorkflowContext) -> int:
    """End what is to start while everything is stopped; return how many runs are concerned."""
    with parts.database.reading() as tx:
        if stops.get_stop_of_everything(tx) is None:
            return 0
        numbers = [run.id for run in runs.list_unfinished_briefly(tx) if run.parent is None]
    policy = _policy(parts)
    # One transaction each: a run that somebody holds keeps no other from being stopped.
    for number in numbers:
        with parts.database.transaction() as tx:
            run = runs.lock_run(tx, number)
            if not run.over and run.state is not State.UNKNOWN and stops.get_stop_of_run(tx, run):
                _obey(parts, tx, policy, run)
    return len(numbers)


def can_stop(policy: Policy | None, run: Run, person: str) -> bool:
    """Say whether this person may stop the run. The command line may: it could do anything."""
    if not person:
        return True
    if policy is None or policy.person(person) is None:
        return False
    known = run.host in policy.inventory.hosts
    owns = known and person in policy.area_of(run.host).owners
    return person == run.asked_by or owns or policy.may_order(person, "stop").allowed


def _obey(parts: WorkflowContext, tx: Transaction, policy: Policy | None, run: Run) -> Run:
    """End the run if nothing is on its way; otherwise it ends by itself before its next step."""
    by = stop_reasons.describe_stop(tx, run, policy)
    if run.state in BEFORE_INTENT:
        return end_run(parts, tx, run, State.STOPPED, f"{by}. Nothing was sent.")
    children = runs.lock_children(tx, run.id) if run.hosts else []
    for child in children:
        if child.state in BEFORE_INTENT:
            end_run(parts, tx, child, State.STOPPED, f"{by}. Nothing was sent.")
    announce_end(tx, run)
    return run


def _owners(policy: Policy | None, run: Run) -> str:
    if policy is None or run.host not in policy.inventory.hosts:
        return "administrators"
    return f"the owners of {policy.area_of(run.host).title}"


def check_order(
    parts: WorkflowContext,
    person: str,
    order: Order,
    *,
    own: bool = False,
    session: str = "",
    factor: bool = True,
) -> None:
    """Raise NotYours unless the policy lets this person do that, and StepUpFirst if it wants a
    second factor for it that was not shown just before in this session.

    factor: False where nobody can show one and it must be possible all the same.
    """
    policy = parts.policies.current()
    ruling = policy.may_order(person, order, own=own)
    if ruling.allowed:
        if ruling.step_up and factor:
            _must_have_shown(parts, policy, person, session)
        return
    able = sorted(policy.able_to(order, besides=person))
    with parts.database.transaction() as tx:
        refusals.log_person_refusal(tx, f"{order} refused", person=person)
    why = "What somebody began, somebody else takes back. " if own else ""
    who = f"Those who can: {', '.join(able)}." if able else "The policy lets nobody."
    raise NotAllowed(f"You cannot do that. {why}{who}")


def _must_have_shown(parts: WorkflowContext, policy: Policy, person: str, session: str) -> None:
    with parts.database.reading() as tx:
        factor = get_shown_factor(tx, policy, person=person, session=session)
    if not factor:
        raise StepUpRequired(
            "This takes your second factor, which chat does not have: do it on the web page "
            "“Stop everything”, which leads to “Shut out” for one person. /keyturn web signs you "
            "in."
        )


def _policy(parts: WorkflowContext, person: str = "") -> Policy | None:
    """Return the policy. The command line stops without one too: then there are but no names."""
    try:
        return parts.policies.current()
    except NoPolicy:
        if person:
            raise
        return None


def _log(tx: Transaction, what: str, run: Run, person: str, why: str) -> None:
    change_log.append_entry(tx, what, run=run.id, person=person, host=run.host, why=why)


def check_reason(text: str) -> str:
    if len(text.strip()) < _SHORTEST_WHY:
        raise InvalidRequest(
            f"say why, in {_SHORTEST_WHY} characters or more, so that everybody knows what has "
            "happened"
        )
    return fold_reason(text)
