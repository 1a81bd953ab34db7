"""Rows that someone inserted into the change log are set aside, and nothing else is."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert

from bot.audit import change_log, events, verification
from bot.audit.change_log import EntryDraft, LogAlteredError
from bot.audit.checkpoints import Checkpoint
from bot.audit.event_type import UnknownEvent
from bot.db import tables
from bot.db.database import Database, StoreUnavailable
from bot.maintenance.set_aside import find_foreign_rows, set_rows_aside
from bot.model.errors import InvalidRequestError
from tests.bot.bogus_entry import add_bogus_entry
from tests.bot.rewritten_log import drop_triggers, entries_of, forge_entries, rehash, rewrite

_ENTRIES = 300


@pytest.fixture
def log(database: Database) -> Database:
    with database.transaction() as tx:
        verification.open_log(tx)
        drafts = [EntryDraft(UnknownEvent(kind="noted", facts={"n": n})) for n in range(_ENTRIES)]
        change_log.append_entries(tx, drafts[1:])
    return database


def _append(database: Database) -> None:
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))


def _set_aside(
    database: Database, directory: Path, count: int, witnesses: tuple[Checkpoint, ...] = ()
) -> Path:
    return set_rows_aside(
        database,
        directory,
        count=count,
        person="olga",
        reason="psql",
        login="root",
        witnesses=witnesses,
    )


def test_inserted_entry_is_set_aside_and_the_log_continues(log: Database, tmp_path: Path):
    add_bogus_entry(log)
    with pytest.raises(LogAlteredError):
        _append(log)
    file = _set_aside(log, tmp_path, 1)
    assert file.stat().st_mode & 0o777 == 0o600
    assert '"kind": "approved"' in file.read_text()
    _append(log)
    with log.reading() as tx:
        assert verification.verify_log(tx).broken is None
    moved = entries_of(log)[_ENTRIES].event
    assert moved == events.RowsSetAside(
        after=_ENTRIES,
        rows=1,
        file=file.name,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        reason="psql",
        login="root",
    )


def test_inserted_checkpoint_tile_and_entries_are_set_aside_together(
    log: Database, tmp_path: Path
):
    with log.transaction() as tx:
        approved = UnknownEvent(kind="approved")
        forge_entries(tx, EntryDraft(approved, 1, "olga"), EntryDraft(approved, 2, "olga"))
        tx.sql.execute(insert(tables.tile).values(level=1, number=1, hash="00" * 32))
        tx.sql.execute(insert(tables.tile).values(level=7, number=0, hash="00" * 32))
    with log.transaction() as tx:
        assert len(find_foreign_rows(tx).rows) == 4
    _set_aside(log, tmp_path, 4)
    _append(log)
    with log.reading() as tx:
        assert verification.verify_log(tx).broken is None


def test_rows_are_append_only_again_afterwards(log: Database, tmp_path: Path):
    add_bogus_entry(log)
    _set_aside(log, tmp_path, 1)
    for statement in ("DELETE FROM entry", "UPDATE entry SET note = NULL", "DELETE FROM tile"):
        with pytest.raises(StoreUnavailable, match="append-only"), log.transaction() as tx:
            tx.sql.exec_driver_sql(statement)


def test_nothing_is_set_aside_from_an_intact_log(log: Database, tmp_path: Path):
    with pytest.raises(InvalidRequestError, match="nothing was done"):
        _set_aside(log, tmp_path, 1)


def test_another_number_of_rows_than_the_person_saw_changes_nothing(log: Database, tmp_path: Path):
    add_bogus_entry(log)
    with pytest.raises(InvalidRequestError, match="add --rows 1"):
        _set_aside(log, tmp_path, 2)
    assert len(entries_of(log)) == _ENTRIES + 1
    assert list(tmp_path.glob("set-aside*")) == []


def test_altered_entry_under_the_signed_root_is_not_set_aside(log: Database, tmp_path: Path):
    entries = entries_of(log)
    drop_triggers(log)
    entries[100] = replace(entries[100], person="adam")
    rewrite(log, rehash(entries))
    with pytest.raises(LogAlteredError, match="restore a backup"):
        _set_aside(log, tmp_path, 1)


def test_removed_entries_are_not_taken_for_inserted_ones(log: Database, tmp_path: Path):
    _append(log)
    with log.transaction() as tx:
        seen = verification.create_checkpoint(tx)
    rewrite(log, entries_of(log)[:_ENTRIES])
    fresh = Database(log.url, log._signing_key)  # pyright: ignore[reportPrivateUsage] - another process
    add_bogus_entry(fresh)
    with pytest.raises(LogAlteredError, match="entries were removed"):
        _set_aside(fresh, tmp_path, 1, (seen,))
    fresh.close()
