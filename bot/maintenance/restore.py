"""Restore a backup so that no step since the backup is repeated.

The restored database lacks what happened after the backup. So runs that had not ended do not start
again, everyone has to sign in again, everything is stopped until a person resumes it, new runs get
numbers that no run had before, and the log records where it differs from its witnesses.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from sqlalchemy import delete, func, select, update

from bot.audit import change_log, events, verification
from bot.audit.checkpoints import Checkpoint
from bot.db import locks, migrations, outbox, runs, stops, tables
from bot.db.database import Database, Transaction
from bot.maintenance import backup, copy_database
from bot.maintenance.backup import BackupLabel, InvalidBackupError
from bot.maintenance.copy_database import CopyError
from bot.maintenance.durable import sync_to_disk
from bot.model.progress import BeginStage, begin_silent_stage
from bot.model.run import STATES_BEFORE_INTENT, Run, State
from bot.model.schedule import FireOutcome, ScheduleState, ScheduleTiming
from bot.model.times import format_timestamp


def list_unstarted_runs(tx: Transaction) -> list[Run]:
    """Return the runs without a sent step, according to the backup."""
    states = [state.value for state in STATES_BEFORE_INTENT]
    query = select(tables.run.c.id).where(tables.run.c.state.in_(states))
    return [
        runs.get_run(tx, number)
        for number in tx.sql.execute(query.order_by(tables.run.c.id)).scalars()
    ]


def list_active_runs(tx: Transaction) -> list[Run]:
    """Return the runs on one host with a sent step whose result is not in the backup."""
    query = select(tables.run.c.id).where(
        tables.run.c.state == State.RUNNING.value, tables.run.c.hosts == "[]"
    )
    return [
        runs.get_run(tx, number)
        for number in tx.sql.execute(query.order_by(tables.run.c.id)).scalars()
    ]


def get_highest_run(tx: Transaction) -> int:
    return tx.sql.execute(select(func.max(tables.run.c.id))).scalar() or 0


def end_sessions_of_everyone(tx: Transaction) -> None:
    """End all sessions: sessions that ended since the backup would be active again."""
    tx.sql.execute(delete(tables.session))
    tx.sql.execute(delete(tables.sign_in_link))


def skip_past_fires(tx: Transaction, reason: str) -> None:
    """Reset the due times of all schedules to times after now."""
    schedule = tables.schedule.c
    active = select(schedule.id, schedule.timing).where(
        schedule.state == ScheduleState.ACTIVE.value
    )
    for number, timing in tx.sql.execute(active).all():
        due_times = ScheduleTiming.from_json(timing).cron_expression.list_due_times(tx.now)
        tx.sql.execute(
            update(tables.schedule)
            .where(schedule.id == number)
            .values(decided_until=tx.now, due_at=next(iter(due_times), None))
        )
    later = tables.fire.c.outcome == FireOutcome.LATER.value
    missed = {"outcome": FireOutcome.MISSED.value, "reason": reason, "recorded_at": tx.now}
    tx.sql.execute(update(tables.fire).where(later).values(missed))


# Runs after the backup have higher numbers; skipping this many avoids using one again.
_SKIPPED_NUMBERS = 1000


@dataclass(frozen=True)
class RestoreResult:
    """The result of a restore."""

    label: BackupLabel
    ended: Sequence[int]
    """Runs that will not start any more."""
    later: Sequence[Checkpoint]
    """Checkpoints of witnesses after the backup, whose entries are lost."""
    first: int
    """The number of the next run."""


def restore_backup(
    file: Path,
    target: Database,
    *,
    working: Path,
    seen: Sequence[Checkpoint] = (),
    stages: BeginStage = begin_silent_stage,
) -> RestoreResult:
    """Restore a backup completely or not at all. No other process may use the database.

    Args:
        file: The backup, which is not changed.
        target: An empty database; for SQLite, one whose file does not exist.
        working: A directory for a copy of the file, such as the directory of *target*.
        seen: The checkpoints of the witnesses.
        stages: Reports the progress.

    Raises:
        InvalidBackupError: The file is not a valid backup.
        CopyError: The target is not empty.
        KeyFileError: The signing key does not match the backup.
        StoreUnavailable: The database does not answer.
    """
    place = Path(target.engine.url.database or "")
    if target.embedded and place.exists():
        raise CopyError(f"the database {place} exists already: move it away first")
    part = working / f"{file.name}.restoring"
    part.unlink(missing_ok=True)
    try:
        shutil.copyfile(file, part)
        part.chmod(0o600)
        copy = target.open_copy(f"sqlite:///{part.absolute()}")
        try:
            restored = _prepare_copy(copy, seen, stages)
            if not target.embedded:
                _copy_to_target(copy, target, restored.first, stages)
            backup.close_journal(copy)
        finally:
            copy.close()
        if target.embedded:
            _publish_file(part, place)
    finally:
        for left in working.glob(f"{part.name}*"):
            left.unlink()
    return restored


def _prepare_copy(copy: Database, seen: Sequence[Checkpoint], stages: BeginStage) -> RestoreResult:
    """Verify the copy and adjust it, so that the service can start with it."""
    label = backup.read_label(copy)
    migrations.upgrade_schema(copy)
    with copy.reading() as tx:
        verdict = verification.verify_log(tx, stages=stages)
    if verdict.broken is not None:
        raise InvalidBackupError(f"contains a broken change log: {verdict.why}")
    if (verdict.entries, verdict.root) != (label.point.size, label.point.root):
        raise InvalidBackupError("contains another change log than its label describes")
    later = [one for one in seen if one.size > label.point.size]
    with copy.transaction() as tx:
        verification.open_log(tx)
        backup.remove_label(tx)
        return _adjust_database(tx, label, later)


def _copy_to_target(copy: Database, target: Database, first: int, stages: BeginStage) -> None:
    migrations.upgrade_schema(target)
    with target.transaction(seconds=copy_database.SECONDS) as tx:
        with stages("copying", lambda: copy_database.count_rows(copy)) as report:
            copy_database.copy_rows(copy, tx, report)
        copy_database.set_next_number(tx, "run", first)


def _publish_file(part: Path, place: Path) -> None:
    sync_to_disk(part)
    part.rename(place)


def _adjust_database(
    tx: Transaction, label: BackupLabel, later: Sequence[Checkpoint]
) -> RestoreResult:
    made = format_timestamp(label.made)
    last = max(later, key=lambda one: one.size, default=None)
    change_log.append_entry(
        tx,
        events.Restored(
            login=getuser(),
            created_at=label.made,
            entries=label.point.size,
            head=label.point.root,
            witnessed=last.size if last else label.point.size,
            runs=tuple(sorted({one.run for one in later if one.run})),
        ),
    )
    end_sessions_of_everyone(tx)
    reason = f"The database was restored from a backup of {made}"
    ended = _stop_unstarted_runs(
        tx,
        f"{reason}. It is unknown whether this run was executed since. Check the host, and "
        "request it again if it is still needed.",
    )
    _mark_active_runs_unknown(
        tx,
        f"{reason} that was made while this run was active. It is unknown how far it came. The "
        "host stays locked until an owner resolves this run.",
    )
    skip_past_fires(tx, reason)
    if stops.add_stop(tx, stops.EVERYTHING, person="", why=reason):
        change_log.append_entry(tx, events.EverythingStopped(reason=reason))
    highest = max([get_highest_run(tx), *(one.run for one in later if one.run)])
    first = highest + _SKIPPED_NUMBERS + 1
    copy_database.set_next_number(tx, "run", first)
    return RestoreResult(label, ended, later, first)


def _stop_unstarted_runs(tx: Transaction, summary: str) -> list[int]:
    """Stop all runs without a sent step: they may have been executed after the backup."""
    ended: list[int] = []
    for run in list_unstarted_runs(tx):
        _end_run(tx, run, State.STOPPED, summary)
        locks.release_locks(tx, run.id)
        ended.append(run.id)
    return ended


def _mark_active_runs_unknown(tx: Transaction, summary: str) -> None:
    """Mark active runs as unknown: more steps may have been sent after the backup."""
    for run in list_active_runs(tx):
        _end_run(tx, run, State.UNKNOWN, summary)


def _end_run(tx: Transaction, run: Run, state: State, summary: str) -> None:
    """End a run in tables and log, without waking workers: none is running."""
    runs.move_run(tx, run, state, ended_at=tx.now, summary=summary)
    change_log.append_entry(tx, events.RUN_ENDS[state](summary=summary), run=run)
    outbox.announce_run(tx, run.id if run.parent is None else run.parent)
