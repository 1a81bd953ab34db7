"""Backups: one SQLite file with all that the database holds, and a label that says what it is.

The same for both databases, so that what was saved from one can be put back into the other. It
holds no keys: whoever has the file can read what was done, and can sign nothing.
"""

import os
from dataclasses import dataclass
from getpass import getuser
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import inspect, text

from bot.audit import change_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.audit.verification import Verification
from bot.db import migrations
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.maintenance import copy_database
from bot.maintenance.durable import sync_to_disk
from bot.model.canonical import encode_canonical
from bot.model.progress import BeginStage, begin_silent_stage

TABLE = "backup_label"


@dataclass(frozen=True)
class BackupLabel:
    """made: microseconds. rows: how many the backup holds. version: of the Keyturn that made it.

    point: how far the change log was, signed.
    """

    made: int
    version: str
    rows: int
    point: Checkpoint


_LABEL = TypeAdapter(BackupLabel)


class InvalidBackupError(Exception):
    """A file is no backup that can be put back. The message says why."""


def write_label(tx: Transaction, label: BackupLabel) -> None:
    says = encode_canonical(_LABEL.dump_python(label))
    tx.sql.execute(text("CREATE TABLE backup_label (says TEXT NOT NULL)"))
    tx.sql.execute(text("INSERT INTO backup_label VALUES (:says)"), {"says": says})


def read_label(database: Database) -> BackupLabel:
    """Return the label of a backup, which is not damaged. Raises InvalidBackupError."""
    try:
        with database.reading() as tx:
            fault = tx.sql.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if TABLE not in inspect(tx.sql).get_table_names():
                raise InvalidBackupError(
                    "is a database, and not a backup that keyturn backup has made"
                )
            says = tx.sql.execute(text("SELECT says FROM backup_label")).scalar_one_or_none()
    except StoreUnavailable as trouble:
        raise InvalidBackupError(f"is no backup that can be read: {trouble}") from trouble
    if fault != "ok":
        raise InvalidBackupError(f"is damaged: {fault}")
    try:
        return _LABEL.validate_json(says or "")
    except ValidationError:
        raise InvalidBackupError("has a label that nobody can read") from None


def remove_label(tx: Transaction) -> None:
    tx.sql.execute(text("DROP TABLE backup_label"))


def close_journal(database: Database) -> None:
    """Leave one file, which can be read from where nothing can be written."""
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE")


BACKED_UP = "backed up"


def make_backup(
    database: Database, file: Path, stages: BeginStage = begin_silent_stage
) -> tuple[BackupLabel, Verification]:
    """Save everything in *file*, which must not be there yet, while the service goes on.

    The file appears under its name once it is whole, and the log tells of it. The copy is
    verified: the verdict says whether the log was whole. Raises FileExistsError, CopyError and
    StoreUnavailable.
    """
    if file.exists():
        raise FileExistsError(f"{file} is there already: a backup is never written over another")
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    copy = database.beside(f"sqlite:///{part.absolute()}")
    try:
        migrations.upgrade_schema(copy)
        with copy.transaction(seconds=copy_database.SECONDS) as tx:
            with stages("saving", lambda: copy_database.count_rows(database)) as told:
                rows = copy_database.copy_rows(database, tx, told)
            made = BackupLabel(
                tx.now, version("keyturn"), rows, verification.create_checkpoint(tx)
            )
            write_label(tx, made)
        with copy.reading() as tx:
            verdict = verification.verify_log(tx, stages=stages)
        close_journal(copy)
    finally:
        copy.close()
    _put_in_place(part, file)
    with database.transaction() as tx:
        change_log.append_entry(
            tx,
            BACKED_UP,
            login=getuser(),
            file=file.name,
            rows=rows,
            entries=made.point.seq,
            head=made.point.hash,
        )
    return made, verdict


def _put_in_place(part: Path, file: Path) -> None:
    sync_to_disk(part)
    # Unlike a rename, a link is never put over what somebody else has put there meanwhile.
    os.link(part, file)
    part.unlink()
    sync_to_disk(file.parent)
