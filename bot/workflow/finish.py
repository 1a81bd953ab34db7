"""How a run ends: its state, its lock, the log and whoever waits for the host, in one go."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot import observability
from bot.audit import change_log, output
from bot.audit.change_log import EntryDraft
from bot.db import locks, outbox, runs
from bot.db.database import Transaction
from bot.model.canonical import Canonical
from bot.model.run import ACTIVE_STATES, STATES_BEFORE_INTENT, Run, State
from bot.workflow.context import WorkflowContext, get_site
from runbooks import Report


@dataclass(frozen=True)
class RunEnd:
    """A run, and what it comes to. person: whose doing that is. report: of a check."""

    run: Run
    state: State
    summary: str
    person: str = ""
    report: Report | None = None


def end_run(
    context: WorkflowContext,
    tx: Transaction,
    run: Run,
    state: State,
    summary: str,
    *,
    person: str = "",
) -> Run:
    """Bring *run* to its end. An unknown one keeps its lock: nobody knows what still runs."""
    return end_runs(context, tx, [RunEnd(run, state, summary, person)])[0]


def end_runs(context: WorkflowContext, tx: Transaction, run_ends: Sequence[RunEnd]) -> list[Run]:
    """Bring several to their ends, by as few statements as one takes."""
    # Its parts are held before the log is: who ends a part holds that first, and then the log.
    wholes = [ending.run.id for ending in run_ends if ending.run.hosts]
    left = {number: runs.lock_children_in(tx, number, STATES_BEFORE_INTENT) for number in wholes}
    ended = runs.move_runs(tx, [(one.run, _build_ended_run(tx, one)) for one in run_ends])
    _log_run_ends(tx, run_ends)
    for ending, run in zip(run_ends, ended, strict=True):
        # Who only looks has never held a host.
        if ending.state is not State.UNKNOWN and run.kind != "check":
            release_host_lock(context, tx, run)
        announce_run_change(tx, run)
        for child in left.get(run.id, ()):
            end_run(
                context, tx, child, State.WITHDRAWN, f"The whole request is {ending.state.phrase}"
            )
    last = {run.parent: run for run in ended}
    for whole, run in last.items():
        if whole is not None:
            _wake_parent(context, tx, whole, run)
    return ended


def _wake_parent(context: WorkflowContext, tx: Transaction, parent: int, child: Run) -> None:
    """Have the whole request looked at where this was its last part that was at work.

    Of two that end at the same moment, the one that writes into the log later sees the other's
    end: the log is held from an entry to the commit.
    """
    if not runs.has_child_in(tx, parent, ACTIVE_STATES) and tx.first(("advance", parent)):
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
        needs_attention=not report.healthy if report else run.needs_attention,
        report=report or run.report,
    )


def _log_run_ends(tx: Transaction, run_ends: Sequence[RunEnd]) -> None:
    """Write down how they ended, and keep what their hosts said if that is told now."""
    telling = {one.run.id: one.report for one in run_ends if one.report}
    said = dict(zip(telling, output.prepare_reports(tx, [*telling.values()]), strict=True))
    drafts: list[EntryDraft] = []
    for one in run_ends:
        facts: dict[str, Canonical] = {"summary": one.summary}
        if one.report:
            facts["healthy"] = one.report.healthy
            facts["output_sha256"] = said[one.run.id].sha256
        drafts.append(EntryDraft(one.state.value, one.run.id, one.person, one.run.host, facts))
    entries = change_log.append_entries(tx, drafts)
    bound = [(one, said[one.run]) for one in entries if one.run in said]
    output.store_outputs(tx, 0, bound)


def announce_run_change(tx: Transaction, run: Run) -> None:
    """Say that there is news: of several hosts, the whole request is what people look at."""
    whole = run.id if run.parent is None else run.parent
    observability.add_context(run=whole)
    # The card of a request names the proposals for it.
    for number in (whole, run.proposal_for):
        if number is not None and tx.first(("news", number)):
            outbox.announce_run(tx, number)


def release_host_lock(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Give up the run's lock and wake the next run that waits for the host."""
    locks.release_locks(tx, run.id)
    waiting = locks.next_run_for(tx, run.host)
    if waiting is not None and waiting.id != run.id:
        context.dispatcher.enqueue_run(tx, waiting.id, get_site(context, waiting.host))
