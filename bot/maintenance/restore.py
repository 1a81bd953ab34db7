"""Putting a backup back: nothing that was done since is done twice, and nobody forgets that.

What came after the backup is not in it. So nothing of what was under way begins again, everybody
signs in anew, everything is stopped until somebody has looked, new runs have numbers that no run
had before, and the log says from where on it tells another story than its witnesses.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from sqlalchemy import delete, func, select, update

from bot.audit import change_log, verification
from bot.audit.checkpoints import WitnessedCheckpoint
from bot.db import locks, migrations, outbox, runs, schedules, stops, tables
from bot.db.database import Database, Transaction
from bot.db.schedules import FireOutcome, ScheduleState
from bot.maintenance import backup, copy_database
from bot.maintenance.backup import BackupLabel, InvalidBackupError
from bot.maintenance.copy_database import CopyError
from bot.maintenance.durable import sync_to_disk
from bot.model.progress import BeginStage, begin_silent_stage
from bot.model.run import STATES_BEFORE_INTENT, Run, State
from bot.model.times import format_timestamp


def list_unstarted_runs(tx: Transaction) -> list[Run]:
    """Return the runs that nothing was sent for, as far as the tables know."""
    states = [state.value for state in STATES_BEFORE_INTENT]
    query = select(tables.run.c.id).where(tables.run.c.state.in_(states))
    return [
        runs.get_run(tx, number)
        for number in tx.sql.execute(query.order_by(tables.run.c.id)).scalars()
    ]


def list_active_runs(tx: Transaction) -> list[Run]:
    """Return the runs on one host that something was sent for, and whose end is not in here."""
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
    """Have everybody sign in anew: who was signed out since would be signed in again."""
    tx.sql.execute(delete(tables.session))
    tx.sql.execute(delete(tables.sign_in_link))


def skip_past_fires(tx: Transaction, why: str) -> None:
    """Let every schedule fire from now on, and never for a moment that is over."""
    for schedule in schedules.list_schedules(tx):
        if schedule.state is ScheduleState.ACTIVE:
            schedules.set_schedule_state(tx, schedule, schedule.state, schedule.reason)
    later = tables.fire.c.outcome == FireOutcome.LATER.value
    missed = {"outcome": FireOutcome.MISSED.value, "reason": why, "recorded_at": tx.now}
    tx.sql.execute(update(tables.fire).where(later).values(missed))


# Runs that came after the backup have numbers above its own: so far above, none is given again.
_NUMBERS_LEFT_OUT = 1000


@dataclass(frozen=True)
class RestoreResult:
    """label: of the backup. ended: the runs that will not begin any more.

    later: what witnesses saw after the backup was made; that is not here. first: the number of the
    next run.
    """

    label: BackupLabel
    ended: Sequence[int]
    later: Sequence[WitnessedCheckpoint]
    first: int


def restore_backup(
    file: Path,
    target: Database,
    *,
    working: Path,
    seen: Sequence[WitnessedCheckpoint] = (),
    stages: BeginStage = begin_silent_stage,
) -> RestoreResult:
    """Put the backup *file* into *target*, as a whole or not at all. Nobody else may be at work.

    target: an empty database, or for SQLite one that is not there yet. working: where a copy of
    the file finds room; it may be *target*'s own directory. seen: what witnesses saw. The file
    itself stays as it is. Raises InvalidBackupError, CopyError, BadKey and StoreUnavailable.
    """
    place = Path(target.engine.url.database or "")
    if target.embedded and place.exists():
        raise CopyError(f"there is a database already: move {place} away first")
    part = working / f"{file.name}.restoring"
    part.unlink(missing_ok=True)
    try:
        shutil.copyfile(file, part)
        part.chmod(0o600)
        copy = target.beside(f"sqlite:///{part.absolute()}")
        try:
            restored = _made_ready(copy, seen, stages)
            if not target.embedded:
                _handed_over(copy, target, restored.first, stages)
            backup.close_journal(copy)
        finally:
            copy.close()
        if target.embedded:
            _put_in_place(part, place)
    finally:
        for left in working.glob(f"{part.name}*"):
            left.unlink()
    return restored


def _made_ready(
    copy: Database, seen: Sequence[WitnessedCheckpoint], stages: BeginStage
) -> RestoreResult:
    """Let the copy be what the service may begin with."""
    found = backup.read_label(copy)
    migrations.upgrade_schema(copy)
    with copy.reading() as tx:
        verdict = verification.verify_log(tx, stages=stages)
    if verdict.broken is not None:
        raise InvalidBackupError(f"holds a change log that is broken: {verdict.why}")
    if (verdict.entries, verdict.head) != (found.point.seq, found.point.hash):
        raise InvalidBackupError("does not hold the change log that its label tells of")
    later = [one for one in seen if one.checkpoint.seq > found.point.seq]
    with copy.transaction() as tx:
        verification.open_log(tx)
        backup.remove_label(tx)
        return _begun_anew(tx, found, later)


def _handed_over(copy: Database, target: Database, first: int, stages: BeginStage) -> None:
    migrations.upgrade_schema(target)
    with target.transaction(seconds=copy_database.SECONDS) as tx:
        with stages("copying", lambda: copy_database.count_rows(copy)) as told:
            copy_database.copy_rows(copy, tx, told)
        copy_database.set_next_number(tx, "run", first)


def _put_in_place(part: Path, place: Path) -> None:
    sync_to_disk(part)
    part.rename(place)


def _begun_anew(
    tx: Transaction, found: BackupLabel, later: Sequence[WitnessedCheckpoint]
) -> RestoreResult:
    made = format_timestamp(found.made)
    last = max(later, key=lambda one: one.checkpoint.seq, default=None)
    change_log.append_entry(
        tx,
        verification.RESTORED_KIND,
        login=getuser(),
        created_at=found.made,
        entries=found.point.seq,
        head=found.point.hash,
        witnessed=last.checkpoint.seq if last else found.point.seq,
        runs=sorted({one.run for one in later if one.run}),
    )
    end_sessions_of_everyone(tx)
    why = f"the database was put back from a backup of {made}"
    ended = _put_down(
        tx,
        f"{why[0].upper()}{why[1:]}: whether this was done since is not known "
        "here. Look at the host, and ask again if it is still needed.",
    )
    _leave_open(
        tx,
        f"{why[0].upper()}{why[1:]}, and this was under way then: how far it came since is not "
        "known here. Its host stays locked until an owner resolves this run.",
    )
    skip_past_fires(tx, why)
    if stops.add_stop(tx, stops.EVERYTHING, person="", why=why):
        change_log.append_entry(tx, "everything stopped", reason=why)
    highest = max([get_highest_run(tx), *(one.run for one in later if one.run)])
    first = highest + _NUMBERS_LEFT_OUT + 1
    copy_database.set_next_number(tx, "run", first)
    return RestoreResult(found, ended, later, first)


def _put_down(tx: Transaction, summary: str) -> list[int]:
    """End every run that nothing was sent for yet: by the time of the loss, that may have been."""
    ended: list[int] = []
    for run in list_unstarted_runs(tx):
        _end(tx, run, State.STOPPED, summary)
        locks.release_locks(tx, run.id)
        ended.append(run.id)
    return ended


def _leave_open(tx: Transaction, summary: str) -> None:
    """Call unknown what was under way: by the time of the loss, more of it may have been sent."""
    for run in list_active_runs(tx):
        _end(tx, run, State.UNKNOWN, summary)


def _end(tx: Transaction, run: Run, state: State, summary: str) -> None:
    """End a run as tables and log tell it: nobody is at work whom it would have to wake."""
    runs.move_run(tx, run, state, ended_at=tx.now, summary=summary)
    change_log.append_entry(tx, state.value, run=run.id, host=run.host, summary=summary)
    outbox.announce_run(tx, run.id if run.parent is None else run.parent)
