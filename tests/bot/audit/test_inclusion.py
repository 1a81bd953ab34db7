"""Only entries under the signed root count, in a log of several tiles."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from bot.audit import change_log, inclusion, verification
from bot.audit.change_log import Entry, EntryDraft, LogAlteredError
from bot.audit.event_type import UnknownEvent
from bot.db import tables
from bot.db.database import Database
from tests.bot.rewritten_log import drop_triggers, entries_of

_ENTRIES = 700


@pytest.fixture
def log(database: Database) -> Database:
    with database.transaction() as tx:
        verification.open_log(tx)
        drafts = [EntryDraft(UnknownEvent(kind="noted", facts={"n": n})) for n in range(_ENTRIES)]
        change_log.append_entries(tx, drafts[1:])
    return database


def _list_vouched(database: Database, entries: list[Entry]) -> list[int]:
    with database.transaction() as tx:
        return [entry.seq for entry in inclusion.list_vouched_entries(tx, entries)]


def test_every_entry_of_the_log_is_included(log: Database):
    assert _list_vouched(log, entries_of(log)) == list(range(1, _ENTRIES + 1))
    # From what this process knows now.
    assert _list_vouched(log, entries_of(log)) == list(range(1, _ENTRIES + 1))


@pytest.mark.parametrize("seq", [1, 256, 257, 600, _ENTRIES])
def test_altered_entry_with_a_fitting_hash_is_not_included(log: Database, seq: int):
    altered = replace(entries_of(log)[seq - 1], person="adam")
    altered = replace(altered, hash=change_log.hash_entry([*vars(altered).values()]))
    assert _list_vouched(log, [altered]) == []


@pytest.mark.parametrize(
    ("seq", "names"), [(3, "entries 1 to 256"), (300, "entries 257 to 512"), (699, "entry up to")]
)
def test_stored_hash_that_was_altered_is_found_by_a_new_process(
    log: Database, seq: int, names: str
):
    entry = entries_of(log)[seq - 1]
    drop_triggers(log)
    with log.engine.connect() as connection:
        of_entry = tables.entry.c.seq == seq
        connection.execute(update(tables.entry).where(of_entry).values(hash="00" * 32))
        connection.commit()
    fresh = Database(log.url, log._signing_key)  # pyright: ignore[reportPrivateUsage] - another process
    with pytest.raises(LogAlteredError, match=names), fresh.transaction() as tx:
        inclusion.list_vouched_entries(tx, [entry])
    fresh.close()


def test_altered_tile_is_found(log: Database):
    entry = entries_of(log)[2]
    drop_triggers(log)
    with log.engine.connect() as connection:
        connection.execute(update(tables.tile).values(hash="00" * 32))
        connection.commit()
    with pytest.raises(LogAlteredError, match="are not those"), log.transaction() as tx:
        inclusion.list_vouched_entries(tx, [entry])


def test_tree_from_tiles_is_that_of_the_entries(log: Database):
    entries = entries_of(log)
    with log.reading() as tx:
        for size in (0, 1, 255, 256, 257, 511, 512, 699, 700):
            leaves = [bytes.fromhex(entry.hash) for entry in entries[:size]]
            whole = change_log.Tree().add_leaves(leaves)
            assert change_log.build_tree(tx, size) == whole
