"""End a run: set its state, release its lock, log it and wake the next run for the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bot import observability
from bot.audit import change_log, events
from bot.audit.change_log import EntryDraft
from bot.db import leases, locks, outbox, outputs, runs
from bot.db.database import Transaction
from bot.model.run import ACTIVE_STATES, STATES_BEFORE_INTENT, RefusedBy, Run, State
from bot.policy import Policy
from bot.queries import stop_reasons
from bot.queries.open_probation import find_open_probation
from bot.workflow.context import WorkflowContext, get_site
from runbooks import Report


@dataclass(frozen=True)
class RunEnd:
    """How a run ends."""

    run: Run
    state: State
    summary: str
    person: str = ""
    """Who ended it; empty if no person did."""
    report: Report | None = None
    """The report of a check."""
    reason: str = ""
    """What the person gave as the reason."""
    refused_by: RefusedBy | None = None
    """What refuses the run; of a refused run only, and of each one."""

    def __post_init__(self) -> None:
        if (self.state is State.REFUSED) != (self.refused_by is not None):
            raise ValueError(f"a run that is {self.state} has refused_by={self.refused_by}")


def end_run(
    context: WorkflowContext,
    tx: Transaction,
    run: Run,
    state: State,
    summary: str,
    *,
    person: str = "",
    refused_by: RefusedBy | None = None,
) -> Run:
    """End a run. With an unknown outcome it keeps its lock, because a step may still run."""
    return end_runs(context, tx, [RunEnd(run, state, summary, person, refused_by=refused_by)])[0]


def end_if_stopped(
    context: WorkflowContext, tx: Transaction, run: Run, policy: Policy | None
) -> Run | None:
    """End the run if a person stopped it, or everything; return None if no one did."""
    stop = stop_reasons.describe_stop(tx, run, policy)
    if not stop:
        return None
    summary = stop_reasons.describe_stopped_run(tx, run, stop)
    return end_run(context, tx, run, State.STOPPED, summary)


def _explain_withdrawal(parent: RunEnd) -> str:
    """Return why child runs do not start. Only an approved schedule succeeds before they did."""
    if parent.state is State.SUCCEEDED:
        return "The schedule starts a new run at each due time"
    return f"The parent run {parent.state.phrase}"


def end_runs(context: WorkflowContext, tx: Transaction, run_ends: Sequence[RunEnd]) -> list[Run]:
    """End several runs with as few statements as one takes."""
    run_ends = [_await_restore(tx, one) for one in run_ends]
    # Child runs are locked before the log, in the same order as when a child run ends.
    parents = [ending.run.id for ending in run_ends if ending.run.hosts]
    left = {number: runs.lock_children_in(tx, number, STATES_BEFORE_INTENT) for number in parents}
    ended = runs.move_runs(tx, [(one.run, _build_ended_run(tx, one)) for one in run_ends])
    _log_run_ends(tx, run_ends)
    # The lease of a run with an unknown outcome says which worker its host has to refuse.
    leases.delete_leases(tx, [run.id for run in ended if run.state is not State.UNKNOWN])
    for ending, run in zip(run_ends, ended, strict=True):
        # Checks hold no host lock.
        if ending.state is not State.UNKNOWN and run.kind != "check":
            release_host_lock(context, tx, run)
        for take_part in context.hooks.on_run_end:
            take_part(context, tx, run)
        announce_run_change(tx, run)
        tx.after_commit(_describe_end_in_trace(run))
        for child in left.get(run.id, ()):
            end_run(context, tx, child, State.WITHDRAWN, _explain_withdrawal(ending))
    last = {run.parent: run for run in ended}
    for parent, run in last.items():
        if parent is not None:
            _wake_parent(context, tx, parent, run)
    return ended


def _describe_end_in_trace(run: Run) -> Callable[[], None]:
    """Return what adds the end of a run to its span, once it is committed."""
    if not run.is_ended:
        return lambda: None
    facts = {"runbook": run.runbook, "state": run.state.value}
    of_check = {} if run.report is None else {"healthy": run.report.healthy}
    return partial(observability.get_run_span(run.id), facts | of_check)


def _await_restore(tx: Transaction, run_end: RunEnd) -> RunEnd:
    """Let a run whose change is on probation end when its host has restored what was."""
    run = run_end.run
    if run.state is not State.RUNNING or run_end.state not in {State.FAILED, State.STOPPED}:
        return run_end
    opened = find_open_probation(tx, run)
    if opened is None:
        return run_end
    summary = (
        f"{run_end.summary} {opened} is on probation: the host restores what was, and then this "
        "run ends."
    )
    return replace(run_end, state=State.UNKNOWN, summary=summary)


def _wake_parent(context: WorkflowContext, tx: Transaction, parent: int, child: Run) -> None:
    """Advance the parent run if no other child run is active.

    Of two children that end at the same time, the one that logs later sees the end of the other:
    the log is locked from an entry to the commit.
    """
    if not runs.has_child_in(tx, parent, ACTIVE_STATES) and tx.is_first_call(("advance", parent)):
        context.dispatcher.enqueue_run(tx, parent, get_site(context, child.host))


def _build_ended_run(tx: Transaction, run_end: RunEnd) -> Run:
    run, report = run_end.run, run_end.report
    started = run.requested_at if report else run.started_at
    return runs.changed_copy(
        run,
        state=run_end.state,
        started_at=started,
        ended_at=tx.now,
        summary=run_end.summary,
        refused_by=run_end.refused_by,
        waiting=None,
        needs_attention=not report.healthy if report else run.needs_attention,
        report=report or run.report,
    )


def _log_run_ends(tx: Transaction, run_ends: Sequence[RunEnd]) -> None:
    """Log how runs ended, and store the output of those with a report."""
    reports = {one.run.id: one.report for one in run_ends if one.report}
    prepared = dict(zip(reports, outputs.prepare_reports(tx, [*reports.values()]), strict=True))
    drafts: list[EntryDraft] = []
    for one in run_ends:
        ended = events.RUN_ENDS[one.state](
            summary=one.summary,
            reason=one.reason,
            refused_by=one.refused_by,
            healthy=one.report.healthy if one.report else None,
            output_sha256=prepared[one.run.id].sha256 if one.report else "",
        )
        drafts.append(EntryDraft(ended, one.run.id, one.person, one.run.host))
    entries = change_log.append_entries(tx, drafts)
    stored = [(one.seq, run, prepared[run]) for one in entries if (run := one.run) in prepared]
    outputs.store_outputs(tx, 0, stored)


def announce_run_change(tx: Transaction, run: Run) -> None:
    """Announce a change of a run, or of its parent, which is what people are shown."""
    shown = run.id if run.parent is None else run.parent
    observability.add_context(run=shown)
    # The message of the original run lists its counter-proposals.
    for number in (shown, run.proposal_for):
        if number is not None and tx.is_first_call(("news", number)):
            outbox.announce_run(tx, number)


def release_host_lock(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Release the run's host lock and wake the next run for the host."""
    locks.release_locks(tx, run.id)
    waiting = locks.get_next_run(tx, run.host)
    if waiting is not None and waiting.id != run.id:
        context.dispatcher.enqueue_run(tx, waiting.id, get_site(context, waiting.host))
