"""Refusals are logged, and nobody can flood the log by them."""

import pytest

from bot.store import changelog, refusals
from bot.store.database import Database


def _count(database: Database, kind: str) -> int:
    with database.reading() as tx:
        return sum(entry.kind == kind for entry in changelog.after(tx, 0))


def test_a_thousand_refusals_within_a_minute_are_one_entry_of_each_kind(database: Database):
    for _ in range(1000):
        refusals.note_apart(database, refusals.TOKEN, why="not known")
    refusals.note_apart(database, refusals.STRANGER, why="not known")
    assert _count(database, refusals.TOKEN) == 1
    assert _count(database, refusals.STRANGER) == 1


def test_without_the_brake_each_is_an_entry(database: Database, monkeypatch: pytest.MonkeyPatch):
    """The twin, which is also what happens a minute later."""
    monkeypatch.setattr(refusals, "_APART", -1)
    for _ in range(5):
        refusals.note_apart(database, refusals.TOKEN, why="not known")
    assert _count(database, refusals.TOKEN) == 5
