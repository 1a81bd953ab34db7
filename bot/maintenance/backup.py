"""Backups: one SQLite file with the content of the database and a label that describes it.

The format is the same for SQLite and PostgreSQL, so a backup of one can be restored to the other.
A backup contains no keys: a person who has it can read the change log, but cannot sign entries.
"""

import os
from dataclasses import dataclass
from getpass import getuser
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import inspect, text

from bot.audit import change_log, events, verification
from bot.audit.checkpoints import Checkpoint
from bot.audit.verification import Verification
from bot.db import migrations
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.maintenance import copy_database
from bot.maintenance.durable import sync_to_disk
from bot.model.canonical import encode_canonical
from bot.model.progress import BeginStage, begin_silent_stage
from connectors.errors import DomainError

TABLE = "backup_label"


@dataclass(frozen=True)
class BackupLabel:
    """The description of a backup."""

    made: int
    """Microseconds since 1970, UTC."""
    version: str
    """Of the Keyturn that made it."""
    rows: int
    point: Checkpoint
    """The signed checkpoint of the change log."""


_LABEL = TypeAdapter(BackupLabel)


class InvalidBackupError(DomainError):
    """The file is not a valid backup. The message says why."""

    code = "invalid-backup"


def write_label(tx: Transaction, label: BackupLabel) -> None:
    content = encode_canonical(_LABEL.dump_python(label))
    tx.sql.execute(text("CREATE TABLE backup_label (says TEXT NOT NULL)"))
    tx.sql.execute(text("INSERT INTO backup_label VALUES (:says)"), {"says": content})


def read_label(database: Database) -> BackupLabel:
    """Return the label of a backup, after a check for damage. Raises InvalidBackupError."""
    try:
        with database.reading() as tx:
            check = tx.sql.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if TABLE not in inspect(tx.sql).get_table_names():
                raise InvalidBackupError("is a database, but not a backup of keyturn backup")
            content = tx.sql.execute(text("SELECT says FROM backup_label")).scalar_one_or_none()
    except StoreUnavailable as error:
        raise InvalidBackupError(f"cannot be read: {error}") from error
    if check != "ok":
        raise InvalidBackupError(f"is damaged: {check}")
    try:
        return _LABEL.validate_json(content or "")
    except ValidationError:
        raise InvalidBackupError("has a label that is not valid") from None


def remove_label(tx: Transaction) -> None:
    tx.sql.execute(text("DROP TABLE backup_label"))


def close_journal(database: Database) -> None:
    """Merge the journal into the file, so that read-only media can hold it."""
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE")


def make_backup(
    database: Database, file: Path, stages: BeginStage = begin_silent_stage
) -> tuple[BackupLabel, Verification]:
    """Write a backup to *file*, which must not exist; the service may run.

    The file appears under its name once it is complete, and the backup is logged. The copied log
    is verified; the result contains the verdict. Raises FileExistsError, CopyError and
    StoreUnavailable.
    """
    if file.exists():
        raise FileExistsError(f"{file} exists already: a backup never overwrites a file")
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    if database.embedded:
        with stages("saving", lambda: copy_database.count_pages(database)) as report:
            copy_database.copy_pages(database, part, report)
    copy = database.open_copy(f"sqlite:///{part.absolute()}")
    try:
        migrations.upgrade_schema(copy)
        with copy.transaction(seconds=copy_database.SECONDS) as tx:
            if not database.embedded:
                with stages("saving", lambda: copy_database.count_rows(database)) as report:
                    copy_database.copy_rows(database, tx, report)
            rows = copy_database.count_rows_in(tx)
            label = BackupLabel(
                tx.now, version("keyturn"), rows, verification.create_checkpoint(tx)
            )
            write_label(tx, label)
        with copy.reading() as tx:
            verdict = verification.verify_log(tx, stages=stages)
        close_journal(copy)
    finally:
        copy.close()
    _publish_file(part, file)
    with database.transaction() as tx:
        change_log.append_entry(
            tx,
            events.BackedUp(
                login=getuser(),
                file=file.name,
                rows=rows,
                entries=label.point.size,
                head=label.point.root,
            ),
        )
    return label, verdict


def _publish_file(part: Path, file: Path) -> None:
    sync_to_disk(part)
    # Unlike a rename, a link never replaces a file that another process created meanwhile.
    os.link(part, file)
    part.unlink()
    sync_to_disk(file.parent)
