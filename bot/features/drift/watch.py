"""Watch what runs gave a lasting value, and log when it is as set again."""

from bot.audit import change_log, events
from bot.db import outbox
from bot.db.database import Transaction
from bot.features.drift import rows
from bot.features.drift.rows import DriftKey
from bot.features.drift.state import FIRST_DELAY
from bot.model.drift_state import DriftState
from bot.model.lasting_values import get_key_name, join_values
from bot.model.run import Run, State
from bot.model.times import SECOND
from bot.workflow.context import WorkflowContext

SLOT_PREFIX = "drift "


def watch_run(context: WorkflowContext, tx: Transaction, run: Run) -> None:
    """Watch what a run that has just succeeded gave a lasting value."""
    name = get_key_name(context.runbooks, run) if run.state is State.SUCCEEDED else ""
    if not name:
        return
    key = rows.find_key(tx, run.host, name)
    if key is not None:
        log_end(tx, key)
    if run.undo_of is not None:
        # The value before was not one of Keyturn's.
        if key is not None:
            rows.delete_key(tx, key.id)
        return
    set_value = join_values([step.after for step in run.plan.steps]) if run.plan else ""
    rows.set_key(tx, run.host, name, run=run.id, set_value=set_value, next_at=tx.now + FIRST_DELAY)


def format_slot(announced_at: int) -> str:
    """Return the name of the message to chat about values that were announced then."""
    return f"{SLOT_PREFIX}{announced_at}"


def log_end(tx: Transaction, key: DriftKey) -> None:
    """Log that a value is as set again, or that its drift was answered; nothing if it was not."""
    if key.state is DriftState.AS_SET:
        return
    if key.announced_at is not None:
        # Its buttons are for what is over now.
        outbox.announce_message(tx, format_slot(key.announced_at))
    change_log.append_entry(
        tx,
        events.DriftEnded(
            key=key.name, state=key.state.value, seconds=(tx.now - key.since_at) // SECOND
        ),
        run=key.run,
        host=key.host,
    )
