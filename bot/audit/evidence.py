"""Evidence checks: compare the rows of a run with the signed change log before execution.

An attacker with write access to the database can add a decision or reset a run, but cannot sign
the entry that belongs to it. Entries that permit something must be signed by our key; entries that
forbid something count with any signature.

The `find_mismatch_…` functions return what the log does not confirm, as the end of the sentence
"The change log does not confirm …"; "" if the log confirms everything.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam, or_, select

from bot.audit import change_log, events
from bot.audit.change_log import Entry
from bot.audit.followed_log import (
    check_revocations,
    find_missing_child_start,
    find_missing_entry_of_run,
    follow_log,
)
from bot.audit.inclusion import list_vouched_entries
from bot.auth.sessions import Session
from bot.db import break_glass, runs, tables
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.model.run import Decision, Run, State

_STATES_BEFORE_START = frozenset({State.PLANNING, State.PENDING, State.QUEUED, State.STARTING})
_RUN_KINDS = (
    events.Requested.kind,
    events.Proposed.kind,
    events.Accepted.kind,
    events.Planned.kind,
    events.Escalated.kind,
    events.Approved.kind,
    events.Held.kind,
    events.Started.kind,
    events.StopRequested.kind,
    *sorted(events.FINAL_KINDS),
)
# Entries that ban a person or stop everything, and those that lift this.
_BLOCKING_KINDS = frozenset({events.Banned.kind, events.EverythingStopped.kind})
_UNBLOCKING_KINDS = frozenset({events.BanLifted.kind, events.EverythingResumed.kind})
_STARTS_AND_ENDS_SINCE = (
    select(*tables.ENTRY_MEMBERS)
    .where(
        tables.entry.c.host == bindparam("host"),
        tables.entry.c.seq > bindparam("first"),
        or_(
            *(
                tables.entry.c.kind == kind
                for kind in sorted({events.Started.kind, *events.FINAL_KINDS})
            )
        ),
    )
    .order_by(tables.entry.c.seq)
)
_BLOCKING_ENTRIES = (
    select(*tables.ENTRY_MEMBERS)
    .where(
        or_(*(tables.entry.c.kind == kind for kind in sorted(_BLOCKING_KINDS | _UNBLOCKING_KINDS)))
    )
    .order_by(tables.entry.c.seq)
)
# What list_banned() returns among the people if everything is stopped.
EVERYONE = ""
# How many entries of one person are read: more than one person writes in a day.
_MAX_ENTRIES = 50


def find_mismatch_of_run(tx: Transaction, run: Run) -> str:
    """Return what the log does not confirm of a run that is about to start."""
    known = follow_log(tx)
    read = change_log.list_entries_of_run(tx, run.id)
    logged = [entry for entry in read if entry.kind in _RUN_KINDS]
    entries = list_vouched_entries(tx, logged)
    return (
        find_missing_entry_of_run(known, run.id, read)
        or _find_mismatch_of_request(run, entries)
        or _find_mismatch_of_plan(run, entries)
        or _find_mismatch_of_decisions(runs.list_decisions(tx, run.id), entries, logged)
        or _find_mismatch_of_state(run, entries, logged)
    )


def find_mismatch_of_child(tx: Transaction, child: Run, parent: Run) -> str:
    """Return what the log does not confirm of a child run that is about to start or is running.

    Each host has one child run, and each change of a sequence, which starts once.
    """
    known = follow_log(tx)
    opened = list_vouched_entries(
        tx, change_log.list_entries_of_run(tx, parent.id, [events.Started.kind])
    )
    if not opened:
        return f"that run {parent.id} was started"
    missing = find_missing_entry_of_run(
        known, child.id, change_log.list_entries_of_run(tx, child.id)
    )
    if missing:
        return missing
    logged = [
        Entry(*row)
        for row in tx.sql.execute(
            _STARTS_AND_ENDS_SINCE, {"host": child.host, "first": opened[0].seq}
        ).all()
    ]
    siblings = [
        one
        for one in logged
        if one.run != child.id
        and isinstance(started := one.event, events.Started)
        and started.parent_run == parent.id
        and (not parent.is_sequence or started.part == child.title)
    ]
    if siblings:
        return f"that the child run on {child.host} starts only once"
    own = [one for one in logged if one.run == child.id]
    return find_missing_child_start(
        known, parent.id, child.host, logged
    ) or _find_mismatch_of_state(child, list_vouched_entries(tx, own), own)


def find_mismatch_of_steps(tx: Transaction, run: Run) -> str:
    """Return what the log does not confirm of a run that is between two steps.

    Every step that was sent has to be done, from the first on, in the log and in its row.
    """
    known = follow_log(tx)
    read = change_log.list_entries_of_run(tx, run.id)
    if missing := find_missing_entry_of_run(known, run.id, read):
        return missing
    succeeded = [entry for entry in read if entry.kind == events.StepSucceeded.kind]
    done = [_get_step(one) for one in list_vouched_entries(tx, succeeded)]
    sent = [_get_step(entry) for entry in read if entry.kind == events.StepSending.kind]
    numbers = [record.step_number for record in runs.list_steps(tx, run.id)]
    is_logged = all(n in done for n in numbers) and all(n in numbers for n in sent)
    is_in_order = numbers == list(range(1, len(numbers) + 1))
    return "" if is_logged and is_in_order else "which of its steps were done"


def _get_step(entry: Entry) -> int | None:
    event = entry.event
    return event.step if isinstance(event, events.StepSending | events.StepSucceeded) else None


def list_banned(tx: Transaction) -> frozenset[str]:
    """Return who is banned by the log, with EVERYONE if everything is stopped.

    An entry that lifts a ban or a stop counts only if our key vouches for it.
    """
    known = follow_log(tx)
    logged = [Entry(*row) for row in tx.sql.execute(_BLOCKING_ENTRIES).all()]
    check_revocations(known, _BLOCKING_KINDS, logged)
    # A ban is read as it is: one that this version does not know counts as well.
    last = {str(one.event.get_fact("banned_person") or EVERYONE): one for one in logged}
    lifted = [one for one in last.values() if one.kind in _UNBLOCKING_KINDS]
    ours = {one.seq for one in list_vouched_entries(tx, lifted)}
    return frozenset(who for who, one in last.items() if one.seq not in ours)


def find_mismatch_of_break_glass(tx: Transaction, run: Run, break_glass_record: BreakGlass) -> str:
    """Return what the log does not confirm of the use of break-glass."""
    activated = change_log.list_entries_of_run(tx, run.id, [events.BreakGlassActivated.kind])
    stored = break_glass_record.person, break_glass_record.factor, run.digest
    until = break_glass_record.active_until
    for entry in list_vouched_entries(tx, activated):
        event = entry.event
        if (
            isinstance(event, events.BreakGlassActivated)
            and (entry.person, event.factor, event.digest) == stored
            and until is not None
            and until <= event.until
        ):
            return ""
    return f"that {break_glass_record.person} activated break-glass for run {run.id}"


def is_stepped_up(tx: Transaction, session: Session) -> bool:
    """Return whether the log confirms the step-up of a session with its stored factor."""
    logged = change_log.list_newest_entries_of_kind(
        tx, events.SteppedUp.kind, person=session.person, limit=_MAX_ENTRIES
    )
    shown = [
        entry
        for entry in logged
        if isinstance(event := entry.event, events.SteppedUp)
        and event.factor == session.factor_digest
        and entry.at >= (session.stepped_up_at or 0)
    ]
    return bool(list_vouched_entries(tx, shown))


def get_unreviewed_run(tx: Transaction, person: str) -> int | None:
    """Return the oldest run of a person that is overdue for review; None if none is.

    That is a run with break-glass, or one under a rule with @review. The log has to hold a review
    by another person within a day.
    """
    late = tx.now - break_glass.REVIEW_TIME
    known = follow_log(tx)
    entries: list[Entry] = []
    for kind in (events.BreakGlassActivated.kind, events.ReviewRequired.kind):
        found = change_log.list_newest_entries_of_kind(tx, kind, person=person, limit=_MAX_ENTRIES)
        if len(found) < _MAX_ENTRIES:
            check_revocations(known, {kind}, found, subject=person)
        entries += found
    for entry in sorted(entries, key=lambda one: one.seq):
        if entry.run is None or entry.at >= late:
            continue
        reviewed = [events.BreakGlassReviewed.kind]
        reviews = list_vouched_entries(tx, change_log.list_entries_of_run(tx, entry.run, reviewed))
        if not any(review.person != person for review in reviews):
            return entry.run
    return None


def _find_mismatch_of_request(run: Run, entries: Sequence[Entry]) -> str:
    """Check who requested the run, or accepted the counter-proposal that it comes from."""
    mismatch = f"that {run.requested_by} requested this"
    first = next((entry for entry in entries if entry.kind == events.Requested.kind), None)
    if first is None:
        return mismatch if not _is_proposal_accepted(run, entries) else ""
    event = first.event
    if not isinstance(event, events.Requested):
        return mismatch
    logged = first.person, first.host, event.runbook, event.undo_of, event.source, event.schedule
    origin = run.origin.source, run.origin.schedule_id or None
    stored = run.requested_by, run.host, run.runbook, run.undo_of, *origin
    logged_lists = event.hosts, event.editors
    stored_lists = tuple(run.hosts), tuple(run.editors)
    agent = run.origin.agent
    logged_agent = event.behalf, event.agent_owner
    stored_agent = (agent.behalf, agent.owner) if agent else ("", "")
    is_logged = (logged, logged_lists, logged_agent) == (stored, stored_lists, stored_agent)
    return "" if is_logged else mismatch


def _is_proposal_accepted(run: Run, entries: Sequence[Entry]) -> bool:
    is_proposed = is_accepted = False
    for entry in entries:
        event = entry.event
        if isinstance(event, events.Proposed):
            logged = event.requested_by, entry.host, event.editors, event.original_run
            stored = run.requested_by, run.host, tuple(run.editors), run.proposal_for
            is_proposed = is_proposed or logged == stored
        elif isinstance(event, events.Accepted):
            logged = entry.person, event.digest
            is_accepted = is_accepted or logged == (run.requested_by, run.digest)
    return is_proposed and is_accepted


def _find_mismatch_of_plan(run: Run, entries: Sequence[Entry]) -> str:
    """Check that the plan was shown, and that it is for this request and these values."""
    planned = [entry for entry in entries if entry.kind == events.Planned.kind]
    event = planned[-1].event if planned else None
    if not isinstance(event, events.Planned) or event.digest != run.digest:
        return "that this plan was shown"
    plan = run.plan
    if plan is None or not plan.has_digest(run.digest):
        return "that this plan was shown"
    planned_request = (
        *(plan.requested_by, plan.runbook, dict(plan.values)),
        *(plan.undo_of, plan.timing),
    )
    request = (run.requested_by, run.runbook, dict(run.values), run.undo_of, run.timing)
    return "" if planned_request == request else "that the plan is for this request"


def _find_mismatch_of_decisions(
    decisions: Sequence[Decision], entries: Sequence[Entry], all_entries: Sequence[Entry]
) -> str:
    if any(entry.kind == events.Denied.kind for entry in all_entries):
        return "that no one denied it"
    held = max((entry.seq for entry in all_entries if entry.kind == events.Held.kind), default=0)
    approved = {
        _list_approved_facts(entry.person, event)
        for entry in entries
        if isinstance(event := entry.event, events.Approved) and entry.seq > held
    }
    for decision in decisions:
        if decision.approves and _list_approved_facts(decision.person, decision) not in approved:
            return f"that {decision.person} approved it"
    return ""


def _list_approved_facts(person: str, given: events.Approved | Decision) -> tuple[object, ...]:
    facts = given.digest, given.factor, given.on_behalf_of, given.signature, given.start_at
    return person, *facts


def _find_mismatch_of_state(
    run: Run, entries: Sequence[Entry], all_entries: Sequence[Entry]
) -> str:
    """Check that a run starts only once, and does not continue after it was stopped or ended."""
    kinds, ours = {entry.kind for entry in all_entries}, {entry.kind for entry in entries}
    if run.escalated_at is not None and events.Escalated.kind not in ours:
        return "that no one decided in time"
    if run.state in _STATES_BEFORE_START and events.Started.kind in kinds:
        return "that it has not been started before"
    if run.state is State.RUNNING and events.Started.kind not in ours:
        return "that it was started"
    if events.StopRequested.kind in kinds:
        return "that no one stopped it"
    return "" if run.is_ended or not kinds & events.FINAL_KINDS else "that it has not ended before"
