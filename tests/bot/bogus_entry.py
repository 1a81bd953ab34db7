"""A row in the change log that Keyturn did not write, for tests."""

from contextlib import suppress
from dataclasses import replace

from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.db import tables
from bot.db.database import Database


def add_bogus_entry(database: Database) -> str:
    """Add an entry that no checkpoint signs; return what Keyturn has to say of it."""
    seq = _insert_after_newest(database)
    return (
        f"The change log was altered: no checkpoint signs entry {seq}, and "
        "`keyturn changelog set-aside` shows whether someone inserted it. "
        "Nothing is added to it, and nothing runs. Keep a copy of the database, then run "
        "`keyturn changelog verify`"
    )


def _insert_after_newest(database: Database) -> int:
    """Insert the row, where no other process has added one in the meantime."""
    while True:
        with database.reading() as tx:
            seq, _ = change_log.get_head(tx)
        row = Entry(seq + 1, 1, "approved", None, "olga", "", "{}", "")
        row = replace(row, hash=change_log.hash_entry([*vars(row).values()]))
        with suppress(IntegrityError), database.engine.begin() as connection:
            connection.execute(insert(tables.entry).values(**vars(row)))
            return row.seq
