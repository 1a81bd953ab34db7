"""Follow up long-running work that a run has started, until it ends."""

import logging

from bot.audit import change_log, events
from bot.db import follow_ups, outputs, runs
from bot.db.database import Transaction
from bot.db.follow_ups import FollowUp
from bot.execution.planner import load_change
from bot.model.run import Run, State
from bot.model.times import DAY, MINUTE, SECOND
from bot.policy import NoPolicyError
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.finish import announce_run_change
from connectors.errors import HostError
from runbooks import Change, Refused, Report, read_report

log = logging.getLogger(__name__)

_FIRST_DELAY = 20 * SECOND
_MAX_DELAY = 10 * MINUTE
# Longer than any scrub takes.
_MAX_FOLLOW_UP_TIME = 21 * DAY


def begin_follow_up(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Follow up a run that has just succeeded, if its work continues on the host."""
    runbook = context.runbooks.get(run.runbook)
    if runbook is None or run.undo_of is not None or not issubclass(runbook, Change):
        return
    if runbook.report_progress is not Change.report_progress:
        follow_ups.add_follow_up(tx, run.id, next_at=tx.now + _FIRST_DELAY)


def run_due_follow_ups(context: WorkflowContext) -> None:
    """Check the progress of every follow-up that is due."""
    with context.database.reading() as tx:
        due = follow_ups.list_due_follow_ups(tx)
    for item in due:
        if not _is_at_own_site(context, item):
            continue
        with context.database.transaction() as tx:
            # A check that never returns must not be the last one.
            delay = min((tx.now - item.since) // 4 + _FIRST_DELAY, _MAX_DELAY)
            is_claimed = follow_ups.claim_follow_up(tx, item, next_at=tx.now + delay)
            run = runs.get_run(tx, item.run)
        if is_claimed:
            _follow_up_run(context, run, item)


def _is_at_own_site(context: WorkflowContext, follow_up: FollowUp) -> bool:
    if context.sites is None:
        return True
    with context.database.reading() as tx:
        return get_site(context, runs.get_run(tx, follow_up.run).host) in context.sites


def _follow_up_run(context: WorkflowContext, run: Run, follow_up: FollowUp) -> None:
    try:
        report = _read_progress(context, run)
    except (HostError, NoPolicyError) as error:
        log.warning("run %d: its progress cannot be read: %s", run.id, error)
        report = Report(f"{run.host} cannot be read: {error}", healthy=False, running=True)
    except Refused as refused:
        report = Report(str(refused), healthy=False)
    with context.database.transaction() as tx:
        too_long = tx.now - follow_up.since > _MAX_FOLLOW_UP_TIME
        if report.running and not too_long:
            return
        current = runs.lock_run(tx, run.id)
        if follow_ups.has_follow_up(tx, run.id) and current.state is State.SUCCEEDED:
            follow_ups.end_follow_up(tx, run.id)
            _record_result(tx, current, report)


def _read_progress(context: WorkflowContext, run: Run) -> Report:
    if run.host not in context.policies.get_policy().inventory.hosts:
        raise Refused(f"{run.host} is no longer in the inventory")
    runbook = load_change(context, run)
    ended = Report("it has ended")
    return read_report(
        runbook, context.fleet.run_query, lambda state: runbook.report_progress(state) or ended
    )


def _record_result(tx: Transaction, run: Run, report: Report) -> None:
    stored = outputs.prepare_report(tx, report)
    entry = change_log.append_entry(
        tx,
        events.FollowedUp(
            summary=tx.redactor.redact_text(report.summary),
            healthy=report.healthy,
            output_sha256=stored.sha256,
        ),
        run=run,
    )
    outputs.store_outputs(tx, 0, [(entry.seq, run.id, stored)])
    if not report.healthy:
        runs.amend_run(tx, run, needs_attention=True)
    announce_run_change(tx, run)
