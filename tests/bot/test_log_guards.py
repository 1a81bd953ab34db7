"""The guards of the change log, and what happens without each of them."""

import os
from pathlib import Path

import pytest
from sqlalchemy import text

from bot.audit import change_log, verification
from bot.audit.change_log import Entry
from bot.audit.checkpoints import name_log
from bot.audit.event_type import UnknownEvent
from bot.auth import secret_box
from bot.db.database import Database, StoreRefused, StoreUnavailable, Transaction
from bot.model import keyfile
from bot.model.merkle import Tree
from bot.model.run import Run
from tests.bot.harness import Harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
WHY = "a customer's address is in it"


class TestUnwritableLog:
    """A role without the right to insert, or a table that is broken."""

    def _approved_then_broken(self, harness: Harness) -> Run:
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        with harness.database.transaction() as tx:
            tx.sql.execute(
                text(
                    "CREATE TRIGGER full BEFORE INSERT ON entry "
                    "BEGIN SELECT RAISE(ABORT, 'it takes nothing'); END"
                )
            )
        return run

    def test_no_command_is_sent_when_the_change_log_cannot_be_written(self, harness: Harness):
        self._approved_then_broken(harness)
        harness.run_queued_work()
        assert harness.fleet.sent == []
        with pytest.raises((StoreUnavailable, StoreRefused)):
            harness.request(LAMP_ON)

    def test_without_the_log_entry_a_change_is_sent_unrecorded(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        run = self._approved_then_broken(harness)
        monkeypatch.setattr(change_log, "append_entry", _append_nothing)
        harness.run_queued_work()
        assert harness.fleet.sent == [("lb1", "set lamp on")]
        assert "step sending" not in harness.list_entry_kinds(run)


def _append_nothing(tx: Transaction, kind: str, **_facts: object) -> Entry:
    """Write nothing, and say nothing of it."""
    tx.logged = True
    return Entry(1, tx.now, kind, None, "", "", "{}", "")


def test_writer_with_an_outdated_head_cannot_fork_the_change_log(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """Were writers not in line, the key of the table would still let one entry through."""
    with database.transaction() as tx:
        verification.open_log(tx)
    old = database.seen_head.tree
    _append(database, 1)
    monkeypatch.setattr(change_log, "lock_log", lambda tx: _take_head(tx, old))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(StoreRefused):
        _append(database, 2)


def test_without_the_head_lock_and_primary_key_the_change_log_forks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin: two entries have the same number, and whoever verifies sees it."""
    database = harness.database
    with database.transaction() as tx:
        verification.open_log(tx)
    old = database.seen_head.tree
    _append(database, 1)
    with database.transaction() as tx:
        for words in (
            "CREATE TABLE bare AS SELECT * FROM entry",
            "DROP TABLE entry",
            "ALTER TABLE bare RENAME TO entry",
        ):
            tx.sql.execute(text(words))
    monkeypatch.setattr(change_log, "lock_log", lambda tx: _take_head(tx, old))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    _append(database, 2)
    with database.reading() as tx:
        numbers = [entry.seq for entry in change_log.list_entries_after(tx, old.size)]
        assert numbers == [old.size + 1] * 2
        assert verification.verify_log(tx).broken == old.size + 2


def _append(database: Database, step: int) -> None:
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"step": step}))


def _take_head(tx: Transaction, tree: Tree) -> Tree:
    """Begin at this tree, wherever the log ends."""
    tx.log_head, tx.log_origin = tree, name_log(tx.signing_key.public_key)
    return tree


class TestKeyFiles:
    """Key files that another user could create beforehand, or read."""

    def test_existing_key_file_is_never_replaced(self, tmp_path: Path):
        file = tmp_path / "a.key"
        made = keyfile.load_or_create_key(file, lambda: b"one")
        assert (made, keyfile.load_or_create_key(file, lambda: b"two")) == (b"one", b"one")

    def test_start_is_refused_when_others_can_read_the_key(self, tmp_path: Path):
        file = tmp_path / "a.key"
        keyfile.load_or_create_key(file, lambda: os.urandom(32))
        file.chmod(0o644)
        with pytest.raises(keyfile.KeyFileError, match="chmod 600"):
            secret_box.load_secret_box(file)

    def test_without_exclusive_creation_a_key_file_is_readable_by_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def carelessly(file: Path, content: bytes) -> None:
            file.write_bytes(content)

        monkeypatch.setattr(keyfile, "_write_new_file", carelessly)
        file = tmp_path / "a.key"
        before = os.umask(0o022)
        try:
            with pytest.raises(keyfile.KeyFileError):
                secret_box.load_secret_box(file)
        finally:
            os.umask(before)
        assert file.stat().st_mode & 0o044
