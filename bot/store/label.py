"""The label of a backup: a table beside ours that says when it was made, and of how much."""

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import inspect, text

from bot.digest import canonical
from bot.store.database import Database, StoreUnavailable, Transaction
from bot.store.witness import Checkpoint

TABLE = "backup_label"


@dataclass(frozen=True)
class Label:
    """made: microseconds. rows: how many the backup holds. version: of the Keyturn that made it.

    point: how far the change log was, signed.
    """

    made: int
    version: str
    rows: int
    point: Checkpoint


_LABEL = TypeAdapter(Label)


class NoBackup(Exception):
    """A file is no backup that can be put back. The message says why."""


def stick(tx: Transaction, label: Label) -> None:
    says = canonical(_LABEL.dump_python(label))
    tx.sql.execute(text("CREATE TABLE backup_label (says TEXT NOT NULL)"))
    tx.sql.execute(text("INSERT INTO backup_label VALUES (:says)"), {"says": says})


def read(database: Database) -> Label:
    """Return the label of a backup, which is not damaged. Raises NoBackup."""
    try:
        with database.reading() as tx:
            fault = tx.sql.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if TABLE not in inspect(tx.sql).get_table_names():
                raise NoBackup("is a database, and not a backup that keyturn backup has made")
            says = tx.sql.execute(text("SELECT says FROM backup_label")).scalar_one_or_none()
    except StoreUnavailable as trouble:
        raise NoBackup(f"is no backup that can be read: {trouble}") from trouble
    if fault != "ok":
        raise NoBackup(f"is damaged: {fault}")
    try:
        return _LABEL.validate_json(says or "")
    except ValidationError:
        raise NoBackup("has a label that nobody can read") from None


def take_off(tx: Transaction) -> None:
    tx.sql.execute(text("DROP TABLE backup_label"))


def close_journal(database: Database) -> None:
    """Leave one file, which can be read from where nothing can be written."""
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE")
