"""Following: what a run has started and goes on after it is looked at until it is over."""

import logging

from bot.audit import change_log, output
from bot.db import follow_ups, runs
from bot.db.database import Transaction
from bot.db.follow_ups import FollowUp
from bot.execution.planner import load_runbook
from bot.model.run import Run, State
from bot.policy import NoPolicy
from bot.workflow.context import WorkflowContext, get_site
from bot.workflow.finish import announce_end
from connectors.errors import HostError
from runbooks import Change, Refused, Report

log = logging.getLogger(__name__)

_SECOND = 1_000_000
_FIRST_LOOK = 20 * _SECOND
_SELDOM = 600 * _SECOND
# Longer than any scrub; whoever wants to know more asks then.
_LONGEST = 21 * 86400 * _SECOND


def begin_follow_up(parts: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Keep watch over a run that has just succeeded, if its work goes on."""
    runbook = parts.runbooks.get(run.words)
    if runbook is None or run.undo_of is not None or not issubclass(runbook, Change):
        return
    if runbook.report_progress is not Change.report_progress:
        follow_ups.add_follow_up(tx, run.id, next_look=tx.now + _FIRST_LOOK)


def look_at_due(parts: WorkflowContext) -> None:
    """Look at everything that is due."""
    with parts.database.reading() as tx:
        due = follow_ups.list_due_follow_ups(tx)
    for vigil in due:
        if not _reaches(parts, vigil):
            continue
        with parts.database.transaction() as tx:
            # A look that never comes back must not be the last one.
            wait = min((tx.now - vigil.since) // 4 + _FIRST_LOOK, _SELDOM)
            mine = follow_ups.claim_follow_up(tx, vigil, next_look=tx.now + wait)
            run = runs.get_run(tx, vigil.run)
        if mine:
            _look(parts, run, vigil)


def _reaches(parts: WorkflowContext, vigil: FollowUp) -> bool:
    if parts.sites is None:
        return True
    with parts.database.reading() as tx:
        return get_site(parts, runs.get_run(tx, vigil.run).host) in parts.sites


def _look(parts: WorkflowContext, run: Run, vigil: FollowUp) -> None:
    try:
        found = _found(parts, run)
    except (HostError, NoPolicy) as trouble:
        log.warning("run %d: how it goes on cannot be read: %s", run.id, trouble)
        found = Report(f"{run.host} cannot be read: {trouble}", healthy=False, running=True)
    except Refused as refused:
        found = Report(str(refused), healthy=False)
    with parts.database.transaction() as tx:
        too_long = tx.now - vigil.since > _LONGEST
        if found.running and not too_long:
            return
        held = runs.lock_run(tx, run.id)
        if follow_ups.has_follow_up(tx, run.id) and held.state is State.SUCCEEDED:
            follow_ups.end_follow_up(tx, run.id)
            _tell(tx, held, found)


def _found(parts: WorkflowContext, run: Run) -> Report:
    if run.host not in parts.policies.current().inventory.hosts:
        raise Refused(f"{run.host} is no longer in the inventory")
    runbook = load_runbook(parts, run)
    if not isinstance(runbook, Change):
        raise Refused(f"{run.words} is not a change")
    found = runbook.report_progress(runbook.read(parts.fleet.run_query))
    return found or Report("it is over")


def _tell(tx: Transaction, run: Run, found: Report) -> None:
    said = output.prepare_report(tx, found)
    entry = change_log.append_entry(
        tx,
        "followed up",
        run=run.id,
        host=run.host,
        summary=tx.redactor.text(found.summary),
        healthy=found.healthy,
        output_sha256=said.sha256,
    )
    output.store_output(tx, entry, 0, said)
    if not found.healthy:
        runs.amend_run(tx, run, unwell=True)
    announce_end(tx, run)
