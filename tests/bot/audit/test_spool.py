"""What could not be logged is kept in a spool beside the database, and merged once."""

from pathlib import Path

import pytest

from bot.audit import change_log, events
from bot.audit.spool import Spool
from bot.db.database import Database, StoreUnavailable


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


def _merge_spool(database: Database, spool: Spool) -> list[tuple[int | None, str]]:
    with database.transaction() as tx:
        spool.merge_into_log(tx)
        entries = [
            entry
            for entry in change_log.list_entries_after(tx, 0)
            if entry.kind == events.LoggingFailed.kind
        ]
    return [(entry.run, entry.facts["outcome"]) for entry in entries]


def test_spooled_facts_are_merged_into_the_log_once(database: Database, spool: Spool):
    spool.add_facts(7, {"step": 1, "outcome": "succeeded"})
    spool.add_facts(8, {"step": 2, "outcome": "failed"})
    assert not spool.is_empty
    assert _merge_spool(database, spool) == [(7, "succeeded"), (8, "failed")]
    assert spool.is_empty
    assert len(_merge_spool(database, spool)) == 2


def test_spool_keeps_its_facts_when_the_merge_is_rolled_back(database: Database, spool: Spool):
    spool.add_facts(7, {"step": 1, "outcome": "succeeded"})

    def merge() -> None:
        with database.transaction() as tx:
            spool.merge_into_log(tx)
            raise StoreUnavailable("the database went away")

    with pytest.raises(StoreUnavailable):
        merge()
    spool.add_facts(8, {"step": 1, "outcome": "failed"})
    assert _merge_spool(database, spool) == [(7, "succeeded")]
    assert _merge_spool(database, spool) == [(7, "succeeded"), (8, "failed")]


def test_spool_left_after_a_merge_is_not_merged_twice(
    database: Database, spool: Spool, tmp_path: Path
):
    spool.add_facts(7, {"step": 1, "outcome": "succeeded"})
    kept = (tmp_path / "spool").read_text()
    _merge_spool(database, spool)
    (tmp_path / "spool").write_text(kept)
    assert _merge_spool(database, spool) == [(7, "succeeded")]


def test_spool_line_cut_short_by_a_crash_does_not_hide_the_next_line(
    database: Database, spool: Spool, tmp_path: Path
):
    (tmp_path / "spool").write_text('{"run":6,"fa')
    spool.add_facts(7, {"outcome": "succeeded"})
    assert _merge_spool(database, spool) == [(7, "succeeded")]
