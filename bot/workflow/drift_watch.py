"""Watch what runs gave a lasting value, and log when it is as set again."""

from bot.audit import change_log, events
from bot.db import drift
from bot.db.database import Transaction
from bot.db.drift import DriftKey
from bot.model.drift import FIRST_DELAY, DriftState, get_key_name, join_values
from bot.model.run import Run, State
from bot.model.times import SECOND
from bot.workflow.context import WorkflowContext


def watch_run(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Watch what a run that has just succeeded gave a lasting value."""
    name = get_key_name(context.runbooks, run) if run.state is State.SUCCEEDED else ""
    if not name:
        return
    key = drift.find_key(tx, run.host, name)
    if key is not None:
        log_end(tx, key)
    if run.undo_of is not None:
        # The value before was not one of Keyturn's.
        if key is not None:
            drift.delete_key(tx, key.id)
        return
    set_value = join_values([step.after for step in run.plan.steps]) if run.plan else ""
    drift.set_key(
        tx, run.host, name, run=run.id, set_value=set_value, next_at=tx.now + FIRST_DELAY
    )


def log_end(tx: Transaction, key: DriftKey) -> None:
    """Log that a value is as set again, or that its drift was answered; nothing if it was not."""
    if key.state is DriftState.AS_SET:
        return
    change_log.append_entry(
        tx,
        events.DriftEnded(
            key=key.name, state=key.state.value, seconds=(tx.now - key.since_at) // SECOND
        ),
        run=key.run,
        host=key.host,
    )
