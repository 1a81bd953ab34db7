"""Evidence checks: compare the rows of a run with the signed change log before execution.

An attacker with write access to the database can add a decision or reset a run, but cannot sign
the entry that belongs to it. Entries that permit something must be signed by our key; entries that
forbid something count with any signature.

The `find_mismatch_…` functions return what the log does not confirm, as the end of the sentence
"The change log does not confirm …"; "" if the log confirms everything.
"""

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import bindparam, or_, select

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.audit.followed_log import (
    check_revocations,
    find_missing_child_start,
    find_missing_entry_of_run,
    follow_log,
)
from bot.audit.key_history import list_vouched_entries
from bot.auth.sessions import Session
from bot.db import break_glass, runs, tables
from bot.db.break_glass import BreakGlass
from bot.db.database import Transaction
from bot.db.schedules import Schedule
from bot.model.canonical import encode_canonical
from bot.model.run import ENDED_STATES, Decision, Run, State

_END_KINDS = frozenset(state.value for state in ENDED_STATES)
_STATES_BEFORE_START = frozenset({State.PLANNING, State.PENDING, State.QUEUED, State.STARTING})
_STOP_KIND = "stop requested"
_RUN_KINDS = (
    *(
        "requested",
        "proposed",
        "accepted",
        "planned",
        "escalated",
        "approved",
        "started",
        _STOP_KIND,
    ),
    *sorted(_END_KINDS),
)
_ACTIVE_SCHEDULE_KINDS = frozenset({"scheduled", "schedule resumed"})
_SCHEDULE_KINDS = (
    *sorted(_ACTIVE_SCHEDULE_KINDS),
    "schedule suspended",
    "schedule lapsed",
    "schedule ended",
)
_SENDING, _DONE = "step sending", "step succeeded"
# The facts that the entry of a request holds, apart from its person and host.
_REQUEST_FACTS = "runbook", "undo_of", "source", "schedule", "hosts"
_ACTIVATED, _REVIEWED = "break-glass activated", "break-glass reviewed"
# The start of a run under a rule with @review.
STARTED_FOR_REVIEW = "review required"
# Entries that ban a person or stop everything, and those that lift this.
_BLOCKING_KINDS = frozenset({"banned", "everything stopped"})
_UNBLOCKING_KINDS = frozenset({"ban lifted", "everything resumed"})
_STARTS_AND_ENDS_SINCE = (
    select(tables.entry)
    .where(
        tables.entry.c.host == bindparam("host"),
        tables.entry.c.seq > bindparam("first"),
        or_(*(tables.entry.c.kind == kind for kind in sorted({"started", *_END_KINDS}))),
    )
    .order_by(tables.entry.c.seq)
)
_BLOCKING_ENTRIES = (
    select(tables.entry)
    .where(
        or_(*(tables.entry.c.kind == kind for kind in sorted(_BLOCKING_KINDS | _UNBLOCKING_KINDS)))
    )
    .order_by(tables.entry.c.seq)
)
# What list_banned() returns among the people if everything is stopped.
EVERYONE = ""
STEPPED_UP_KIND = "stepped up"
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
    opened = list_vouched_entries(tx, change_log.list_entries_of_run(tx, parent.id, ["started"]))
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
        and one.facts.get("parent_run") == parent.id
        and (not parent.is_sequence or one.facts.get("part") == child.title)
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
    logged = [entry for entry in read if entry.kind in {_SENDING, _DONE}]
    done = [one.facts.get("step") for one in list_vouched_entries(tx, logged) if one.kind == _DONE]
    sent = [one.facts.get("step") for one in logged if one.kind == _SENDING]
    numbers = [record.step_number for record in runs.list_steps(tx, run.id)]
    is_logged = all(n in done for n in numbers) and all(n in numbers for n in sent)
    is_in_order = numbers == list(range(1, len(numbers) + 1))
    return "" if is_logged and is_in_order else "which of its steps were done"


def list_banned(tx: Transaction) -> frozenset[str]:
    """Return who is banned by the log, with EVERYONE if everything is stopped.

    An entry that lifts a ban or a stop counts only if our key vouches for it, or if it is older
    than the key.
    """
    known = follow_log(tx)
    logged = [Entry(*row) for row in tx.sql.execute(_BLOCKING_ENTRIES).all()]
    check_revocations(known, _BLOCKING_KINDS, logged)
    last = {str(one.facts.get("banned_person", EVERYONE)): one for one in logged}
    lifted = [one for one in last.values() if one.kind in _UNBLOCKING_KINDS]
    named = change_log.get_last_entry_of_kind(tx, change_log.KEY_KIND) if lifted else None
    ours = {one.seq for one in list_vouched_entries(tx, lifted)}
    old = {one.seq for one in lifted if named is not None and one.seq < named.seq}
    return frozenset(who for who, one in last.items() if one.seq not in ours | old)


def find_mismatch_of_fire(tx: Transaction, schedule: Schedule, run: Run) -> str:
    """Return what the log does not confirm of a schedule and of a run that it fired."""
    known = follow_log(tx)
    read = change_log.list_entries_of_run(tx, schedule.run)
    if missing := find_missing_entry_of_run(known, schedule.run, read):
        return missing
    logged = [
        entry
        for entry in read
        if entry.kind in _SCHEDULE_KINDS and entry.facts.get("schedule") == schedule.id
    ]
    entries = list_vouched_entries(tx, logged)
    scheduled = [entry for entry in entries if entry.kind == "scheduled"]
    if not scheduled:
        return f"that schedule {schedule.id} was approved"
    facts = scheduled[-1].facts
    logged_schedule = (
        scheduled[-1].person,
        facts.get("lapses_at"),
        encode_canonical(facts.get("timing")),
    )
    stored_schedule = (
        schedule.owner,
        schedule.lapses_at,
        encode_canonical(tx.redactor.redact_value(schedule.timing.document)),
    )
    if logged_schedule != stored_schedule:
        return f"that schedule {schedule.id} is the one that was approved"
    if logged[-1].kind not in _ACTIVE_SCHEDULE_KINDS or logged[-1] not in entries:
        return f"that schedule {schedule.id} is active"
    fired = list_vouched_entries(
        tx, change_log.list_run_entries_naming(tx, "fired", schedule.run, "fired_run", run.id)
    )
    if not any(entry.facts.get("schedule") == schedule.id for entry in fired):
        return f"that schedule {schedule.id} fired run {run.id}"
    return ""


def find_mismatch_of_break_glass(tx: Transaction, run: Run, break_glass_record: BreakGlass) -> str:
    """Return what the log does not confirm of the use of break-glass."""
    entries = list_vouched_entries(tx, change_log.list_entries_of_run(tx, run.id, [_ACTIVATED]))
    stored = break_glass_record.person, break_glass_record.factor, run.digest
    for entry in entries:
        facts = entry.facts
        logged = entry.person, facts.get("factor"), facts.get("digest")
        if (
            logged == stored
            and break_glass_record.active_until is not None
            and break_glass_record.active_until <= facts.get("until", 0)
        ):
            return ""
    return f"that {break_glass_record.person} activated break-glass for run {run.id}"


def is_stepped_up(tx: Transaction, session: Session) -> bool:
    """Return whether the log confirms the step-up of a session with its stored factor."""
    logged = change_log.list_newest_entries_of_kind(
        tx, STEPPED_UP_KIND, person=session.person, limit=_MAX_ENTRIES
    )
    shown = [
        entry
        for entry in logged
        if entry.facts.get("factor") == session.factor_digest
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
    for kind in (_ACTIVATED, STARTED_FOR_REVIEW):
        found = change_log.list_newest_entries_of_kind(tx, kind, person=person, limit=_MAX_ENTRIES)
        if len(found) < _MAX_ENTRIES:
            check_revocations(known, {kind}, found, subject=person)
        entries += found
    for entry in sorted(entries, key=lambda one: one.seq):
        if entry.run is None or entry.at >= late:
            continue
        reviews = list_vouched_entries(
            tx, change_log.list_entries_of_run(tx, entry.run, [_REVIEWED])
        )
        if not any(review.person != person for review in reviews):
            return entry.run
    return None


def _find_mismatch_of_request(run: Run, entries: Sequence[Entry]) -> str:
    """Check who requested the run, or accepted the counter-proposal that it comes from."""
    mismatch = f"that {run.requested_by} requested this"
    requested = [entry for entry in entries if entry.kind == "requested"]
    if not requested:
        return mismatch if not _is_proposal_accepted(run, entries) else ""
    first = requested[0]
    logged = (
        first.person,
        first.host,
        *(first.facts.get(name, mismatch) for name in _REQUEST_FACTS),
        first.facts.get("editors"),
    )
    origin = run.origin.source, run.origin.schedule_id or None, list(run.hosts)
    editors = list(run.editors) or None
    stored = run.requested_by, run.host, run.runbook, run.undo_of, *origin, editors
    agent = run.origin.agent
    logged_agent = first.facts.get("behalf", ""), first.facts.get("agent_owner", "")
    stored_agent = (agent.behalf, agent.owner) if agent else ("", "")
    return "" if (logged, logged_agent) == (stored, stored_agent) else mismatch


def _is_proposal_accepted(run: Run, entries: Sequence[Entry]) -> bool:
    proposed = [entry for entry in entries if entry.kind == "proposed"]
    return any(
        entry.facts.get("requested_by") == run.requested_by
        and entry.host == run.host
        and entry.facts.get("editors") == list(run.editors)
        and entry.facts.get("original_run") == run.proposal_for
        for entry in proposed
    ) and any(
        entry.kind == "accepted"
        and entry.person == run.requested_by
        and entry.facts.get("digest") == run.digest
        for entry in entries
    )


def _find_mismatch_of_plan(run: Run, entries: Sequence[Entry]) -> str:
    """Check that the plan was shown, and that it is for this request and these values."""
    planned = [entry for entry in entries if entry.kind == "planned"]
    if not planned or _get_planned_digest(planned[-1]) != run.digest:
        return "that this plan was shown"
    plan = run.plan
    if plan is None or plan.digest != run.digest:
        return "that this plan was shown"
    planned_request = (
        *(plan.requested_by, plan.runbook, dict(plan.values)),
        *(plan.undo_of, plan.timing),
    )
    request = (run.requested_by, run.runbook, dict(run.values), run.undo_of, run.timing)
    return "" if planned_request == request else "that the plan is for this request"


@lru_cache(32)
def _get_planned_digest(plan_entry: Entry) -> object:
    """Return the digest of a plan that was shown. Cached: the entry holds the whole plan too."""
    return plan_entry.facts.get("digest")


def _find_mismatch_of_decisions(
    decisions: Sequence[Decision], entries: Sequence[Entry], all_entries: Sequence[Entry]
) -> str:
    if any(entry.kind == State.DENIED.value for entry in all_entries):
        return "that no one denied it"
    approved = {
        (entry.person, entry.facts.get("digest"), *_get_factor_and_delegator(entry))
        for entry in entries
        if entry.kind == "approved"
    }
    for decision in decisions:
        stored = (decision.person, decision.digest, decision.factor, decision.on_behalf_of)
        if decision.approves and stored not in approved:
            return f"that {decision.person} approved it"
    return ""


def _get_factor_and_delegator(entry: Entry) -> tuple[str, str]:
    return entry.facts.get("factor") or "", entry.facts.get("on_behalf_of") or ""


def _find_mismatch_of_state(
    run: Run, entries: Sequence[Entry], all_entries: Sequence[Entry]
) -> str:
    """Check that a run starts only once, and does not continue after it was stopped or ended."""
    kinds, ours = {entry.kind for entry in all_entries}, {entry.kind for entry in entries}
    if run.escalated_at is not None and "escalated" not in ours:
        return "that no one decided in time"
    if run.state in _STATES_BEFORE_START and "started" in kinds:
        return "that it has not been started before"
    if run.state is State.RUNNING and "started" not in ours:
        return "that it was started"
    if _STOP_KIND in kinds:
        return "that no one stopped it"
    return "" if run.is_ended or not kinds & _END_KINDS else "that it has not ended before"
