"""How a run ends: its state, its lock, the log and whoever waits for the host, in one go."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot import observability
from bot.audit import change_log, output
from bot.audit.change_log import Draft
from bot.db import locks, outbox, runs
from bot.db.database import Transaction
from bot.model.canonical import Canonical
from bot.model.run import AT_WORK, BEFORE_INTENT, Run, State
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
    parts: WorkflowContext,
    tx: Transaction,
    run: Run,
    state: State,
    summary: str,
    *,
    person: str = "",
) -> Run:
    """Bring *run* to its end. An unknown one keeps its lock: nobody knows what still runs."""
    return end_runs(parts, tx, [RunEnd(run, state, summary, person)])[0]


def end_runs(parts: WorkflowContext, tx: Transaction, endings: Sequence[RunEnd]) -> list[Run]:
    """Bring several to their ends, by as few statements as one takes."""
    # Its parts are held before the log is: who ends a part holds that first, and then the log.
    wholes = [ending.run.id for ending in endings if ending.run.hosts]
    left = {number: runs.lock_children_in(tx, number, BEFORE_INTENT) for number in wholes}
    ended = runs.move_runs(tx, [(one.run, _ended(tx, one)) for one in endings])
    _log(tx, endings)
    for ending, run in zip(endings, ended, strict=True):
        # Who only looks has never held a host.
        if ending.state is not State.UNKNOWN and run.kind != "check":
            release_host_lock(parts, tx, run)
        announce_end(tx, run)
        for child in left.get(run.id, ()):
            end_run(parts, tx, child, State.WITHDRAWN, f"The whole request is {ending.state}")
    last = {run.parent: run for run in ended}
    for whole, run in last.items():
        if whole is not None:
            _wake(parts, tx, whole, run)
    return ended


def _wake(parts: WorkflowContext, tx: Transaction, whole: int, part: Run) -> None:
    """Have the whole request looked at where this was its last part that was at work.

    Of two that end at the same moment, the one that writes into the log later sees the other's
    end: the log is held from an entry to the commit.
    """
    if not runs.has_child_in(tx, whole, AT_WORK) and tx.first(("advance", whole)):
        parts.dispatch.enqueue(tx, whole, get_site(parts, part.host))


def _ended(tx: Transaction, ending: RunEnd) -> Run:
    run, report = ending.run, ending.report
    started = run.asked if report else run.started
    return runs.changed_copy(
        run,
        state=ending.state,
        started=started,
        ended=tx.now,
        summary=ending.summary,
        unwell=not report.healthy if report else run.unwell,
        report=report or run.report,
    )


def _log(tx: Transaction, endings: Sequence[RunEnd]) -> None:
    """Write down how they ended, and keep what their hosts said if that is told now."""
    telling = {one.run.id: one.report for one in endings if one.report}
    said = dict(zip(telling, output.prepare_reports(tx, [*telling.values()]), strict=True))
    drafts: list[Draft] = []
    for one in endings:
        facts: dict[str, Canonical] = {"summary": one.summary}
        if one.report:
            facts["healthy"] = one.report.healthy
            facts["output_sha256"] = said[one.run.id].sha256
        drafts.append(Draft(one.state.value, one.run.id, one.person, one.run.host, facts))
    entries = change_log.append_entries(tx, drafts)
    bound = [(one, said[one.run]) for one in entries if one.run in said]
    output.store_outputs(tx, 0, bound)


def announce_end(tx: Transaction, run: Run) -> None:
    """Say that there is news: of several hosts, the whole request is what people look at."""
    whole = run.id if run.parent is None else run.parent
    observability.add_context(run=whole)
    # The card of a request names the proposals for it.
    for number in (whole, run.counters):
        if number is not None and tx.first(("news", number)):
            outbox.announce_run(tx, number)


def release_host_lock(parts: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Give up the run's lock and wake the next run that waits for the host."""
    locks.release_locks(tx, run.id)
    waiting = locks.next_run_for(tx, run.host)
    if waiting is not None and waiting.id != run.id:
        parts.dispatch.enqueue(tx, waiting.id, get_site(parts, waiting.host))
