"""Wait for the witnesses of the change log, after the intent of a run and before its first step.

A checkpoint that holds the approvals and the intent is shown to them. So a history that was
rewritten or forked runs nothing, also if its signatures are valid.
"""

import threading
import time
from collections.abc import Sequence

from bot.audit import change_log, events
from bot.db import runs
from bot.db.lease_keeper import HeldLease
from bot.execution import gate
from bot.execution.intent import StepIntent
from bot.integrations.witnesses import Witnessing
from bot.model.text import format_count
from bot.model.waiting import Waiting, WaitingFor
from bot.policy import NoPolicyError
from bot.queries import break_glass_rules
from bot.workflow.context import WorkflowContext

# They answered a short time before, so they restart, or the network is interrupted.
PATIENCE_SECONDS = 30.0
RETRY_SECONDS = 1.0


def wait_for_witnesses(
    context: WorkflowContext, intent: StepIntent, held_lease: HeldLease, closing: threading.Event
) -> str:
    """Return why the first step is not sent; "" if it may be sent."""
    if not intent.required_witnesses:
        return ""
    until = time.monotonic() + PATIENCE_SECONDS
    has_waited = False
    while True:
        found = _ask_witnesses(context, intent)
        if found.contradiction:
            return f"{found.contradiction}. Nothing was sent"
        if found.is_enough or _start_without(context, intent, found):
            break
        if closing.is_set() or time.monotonic() > until:
            return _describe_lack(intent.required_witnesses, found.away)
        has_waited = has_waited or _record_waiting(context, intent, found)
        closing.wait(RETRY_SECONDS)
    if has_waited and not _end_waiting(context, intent, held_lease):
        return "while it waited for witnesses, the run lost its authority. Nothing was sent"
    return ""


def _describe_lack(required: int, away: Sequence[str]) -> str:
    count = format_count(required, "witness", plural="witnesses")
    signed = f"the cosignature of {count} is" if required == 1 else f"cosignatures of {count} are"
    named = f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} away"
    return f"{signed} required, and {named if away else 'fewer are configured'}. Nothing was sent"


def _ask_witnesses(context: WorkflowContext, intent: StepIntent) -> Witnessing:
    if context.witnesses is None:
        return Witnessing(is_enough=False, away=(), contradiction="")
    return context.witnesses.collect_cosignatures(
        intent.checkpoint.size, intent.required_witnesses
    )


def _start_without(context: WorkflowContext, intent: StepIntent, found: Witnessing) -> bool:
    """Return whether break-glass lets the run start without witnesses, and log it."""
    try:
        policy = context.policies.get_policy()
    except NoPolicyError:
        return False
    with context.database.shared_transaction() as tx:
        run = runs.lock_run(tx, intent.run.id)
        if not break_glass_rules.is_break_glass_active(tx, policy, run):
            return False
        event = events.NotWitnessed(required=intent.required_witnesses, away=tuple(found.away))
        change_log.append_entry(tx, event, run=run)
        return True


def _record_waiting(context: WorkflowContext, intent: StepIntent, found: Witnessing) -> bool:
    with context.database.shared_transaction() as tx:
        run = runs.lock_run(tx, intent.run.id)
        gate.record_waiting(tx, run, Waiting(WaitingFor.WITNESSES, ", ".join(found.away)))
    return True


def _end_waiting(context: WorkflowContext, intent: StepIntent, held_lease: HeldLease) -> bool:
    """Return whether the run may still send its first step."""
    with context.database.shared_transaction() as tx:
        runs.amend_run(tx, runs.lock_run(tx, intent.run.id), waiting=None)
    return gate.may_send_again(context, intent.run, held_lease)
