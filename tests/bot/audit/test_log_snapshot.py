"""A process starts at the snapshot of the log, which nobody can use to hide what the log holds.

Somebody here writes to the database and has no signing key.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from bot.audit import change_log, events, evidence, followed_log, log_snapshot, verification
from bot.audit.change_log import LogAlteredError
from bot.audit.log_state import LogState
from bot.audit.spool import Spool
from bot.auth import row_mac
from bot.db import tables
from bot.db.database import Database
from bot.maintenance.copy_database import copy_database
from bot.maintenance.housekeeping import Housekeeping
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model import signing
from bot.model.run import State
from bot.model.signing import SigningKey
from bot.service import KeyturnService
from tests.bot.databases import create_sqlite_database
from tests.bot.db.test_grants import grant
from tests.bot.harness import Harness
from tests.bot.rewritten_log import append_entries, drop_triggers, entries_of, rewrite
from tests.toy import SetSwitch

# With so many entries after it, an entry is in a complete tile: a start does not read its hash.
_TILE = 256
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def harness(db_harness: Harness) -> Harness:
    with db_harness.database.transaction() as tx:
        verification.open_log(tx)
    return db_harness


@contextmanager
def start_process(database: Database) -> Generator[Database]:
    """Open the database as another process does, which has read nothing."""
    with database.transaction() as tx:
        key = tx.signing_key
    started = Database(database.url, key)
    yield started
    started.close()


def _follow(database: Database) -> LogState:
    with database.transaction() as tx:
        state = followed_log.follow_log(tx)
    assert state is not None
    return replace(state, copied_runs=set())


def _keep_snapshot(database: Database) -> None:
    with database.transaction() as tx:
        followed_log.keep_snapshot(tx, after=1)


def _read_all(database: Database) -> LogState:
    """Return what a process knows that reads the whole log."""
    with start_process(database) as started, started.transaction() as tx:
        log_snapshot.delete_snapshots(tx)
        state = followed_log.follow_log(tx)
    assert state is not None
    return replace(state, copied_runs=set())


def _get_stored(database: Database) -> dict[str, Any]:
    with database.reading() as tx:
        return dict(tx.sql.execute(select(tables.log_snapshot)).mappings().one())


def _put_stored(database: Database, row: dict[str, Any]) -> None:
    with database.transaction() as tx:
        tx.sql.execute(delete(tables.log_snapshot))
        tx.sql.execute(insert(tables.log_snapshot).values(row))


def _alter_entry(database: Database, seq: int) -> None:
    drop_triggers(database)
    with database.transaction() as tx:
        tx.sql.execute(update(tables.entry).where(tables.entry.c.seq == seq).values(body="{}"))


def _remove_entry(database: Database, kind: str) -> None:
    drop_triggers(database)
    with database.transaction() as tx:
        tx.sql.execute(delete(tables.entry).where(tables.entry.c.kind == kind))


def _do_everything(harness: Harness) -> None:
    """Leave open and ended runs, a ban, a revoked grant, and a grant that was used."""
    service = harness.service
    harness.request(LAMP_ON)
    denied = harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    service.deny_run(denied.id, person="olga", reason="not today")
    given = grant(harness)
    harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    service.grants.revoke_grant(given.id, person="olga", source="slack")
    service.ban_person("dora", banned_by="adam", reason="she left")


def test_process_knows_from_a_snapshot_what_the_whole_log_says(harness: Harness):
    _do_everything(harness)
    _keep_snapshot(harness.database)
    harness.service.stop_everything(person="adam", reason="smoke")
    with start_process(harness.database) as started:
        state = _follow(started)
    assert state == _read_all(harness.database)
    assert (len(state.revocations), len(state.grant_uses)) == (3, 1)
    assert state.open_runs


def test_process_reads_only_the_entries_after_the_snapshot(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    append_entries(harness.database, 300)
    _keep_snapshot(harness.database)
    size = len(entries_of(harness.database))
    append_entries(harness.database, 3)
    read: list[tuple[int, int]] = []
    list_rows_after = change_log.list_rows_after

    def record(tx: Any, seq: int, *, limit: int) -> Any:
        read.append((seq, limit))
        return list_rows_after(tx, seq, limit=limit)

    monkeypatch.setattr(change_log, "list_rows_after", record)
    with start_process(harness.database) as started:
        assert _follow(started).tree.size == size + 3
    assert read == [(size, 3)]


def _edit_content(harness: Harness) -> None:
    row = _get_stored(harness.database)
    content = LogState(highest_run=1)
    empty = log_snapshot.encode_content(content)
    _put_stored(harness.database, {**row, "content": empty})


def _sign_with_another_key(harness: Harness) -> None:
    row = {**_get_stored(harness.database), "content": log_snapshot.encode_content(LogState())}
    mac = SigningKey.create().create_mac(row_mac.encode_row(tables.log_snapshot, row))
    _put_stored(harness.database, {**row, "mac": mac})


def _cut_content(harness: Harness) -> None:
    row = _get_stored(harness.database)
    _put_stored(harness.database, {**row, "content": row["content"][:-10]})


def _lower_size(harness: Harness) -> None:
    _put_stored(harness.database, {**_get_stored(harness.database), "size": 1})


def _take_from_another_log(harness: Harness) -> None:
    """With the same key, and more entries than ours: it went on from the same beginning."""
    before = entries_of(harness.database)
    points = harness.database.seen_head.tree
    append_entries(harness.database, 3)
    _keep_snapshot(harness.database)
    row = _get_stored(harness.database)
    with harness.database.transaction() as tx:
        key = tx.signing_key
    rewrite(harness.database, before, key)
    harness.database.seen_head.tree = points
    with start_process(harness.database) as other:
        for _ in range(4):
            append_entries(other, 1)
    _put_stored(harness.database, row)


def _take_a_longer_one(harness: Harness) -> None:
    before = entries_of(harness.database)
    append_entries(harness.database, 3)
    _keep_snapshot(harness.database)
    rewrite(harness.database, before)


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (_edit_content, "Keyturn did not write it"),
        (_sign_with_another_key, "Keyturn did not write it"),
        (_cut_content, "Keyturn did not write it"),
        (_lower_size, "Keyturn did not write it"),
        (_take_from_another_log, "it is of another log"),
        (_take_a_longer_one, "and the log ends at entry"),
    ],
)
def test_snapshot_that_is_not_of_this_log_only_costs_time(
    harness: Harness,
    attack: Callable[[Harness], None],
    why: str,
    caplog: pytest.LogCaptureFixture,
):
    harness.request(LAMP_ON)
    harness.service.ban_person("dora", banned_by="adam", reason="she left")
    _keep_snapshot(harness.database)
    attack(harness)
    with caplog.at_level(logging.WARNING), start_process(harness.database) as started:
        state = _follow(started)
        assert why in caplog.text
        _keep_snapshot(started)
        assert _get_stored(started)["size"] == state.tree.size
    assert state == _read_all(harness.database)
    assert [kind for kind, *_ in state.revocations.values()] == ["banned"]


def test_snapshot_by_other_rules_does_not_count(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    """Of an older version, which does not know what a newer one has to remember."""
    _do_everything(harness)
    _keep_snapshot(harness.database)
    row = _get_stored(harness.database)
    other = {**row, "rules": "0" * 64, "content": log_snapshot.encode_content(LogState())}
    with harness.database.transaction() as tx:
        mac = tx.signing_key.create_mac(row_mac.encode_row(tables.log_snapshot, other))
    _put_stored(harness.database, {**other, "mac": mac})
    with start_process(harness.database) as started:
        state = _follow(started)
    assert state == _read_all(harness.database)
    # And what we wrote, under the name of those rules, is not the row that Keyturn wrote.
    _put_stored(harness.database, {**other, "mac": mac, "rules": row["rules"]})
    with start_process(harness.database) as started:
        assert _follow(started) == state


def test_ban_that_is_newer_than_the_snapshot_cannot_be_removed(harness: Harness):
    """Put the snapshot before the ban back, and take the ban out of the log."""
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    _keep_snapshot(harness.database)
    old = _get_stored(harness.database)
    harness.service.ban_person("dora", banned_by="adam", reason="she left")
    append_entries(harness.database, _TILE)
    _keep_snapshot(harness.database)
    _put_stored(harness.database, old)
    with start_process(harness.database) as started, started.transaction() as tx:
        assert evidence.list_banned(tx) == {"dora"}
    _remove_entry(harness.database, "banned")
    with (
        start_process(harness.database) as started,
        started.transaction() as tx,
        pytest.raises(LogAlteredError, match="is missing"),
    ):
        evidence.list_banned(tx)


def _remove_ban_before_the_snapshot(harness: Harness) -> None:
    harness.service.ban_person("dora", banned_by="adam", reason="she left")
    append_entries(harness.database, _TILE)
    _keep_snapshot(harness.database)
    _remove_entry(harness.database, "banned")


def test_ban_before_the_snapshot_cannot_be_removed(harness: Harness):
    _remove_ban_before_the_snapshot(harness)
    with (
        start_process(harness.database) as started,
        started.transaction() as tx,
        pytest.raises(LogAlteredError, match=r"\(banned\) was removed"),
    ):
        evidence.list_banned(tx)


def test_ban_cannot_be_removed_with_a_snapshot_without_it(harness: Harness):
    _remove_ban_before_the_snapshot(harness)
    _edit_content(harness)
    with (
        start_process(harness.database) as started,
        started.transaction() as tx,
        pytest.raises(LogAlteredError, match="is missing"),
    ):
        evidence.list_banned(tx)


def _accept_any_mac(*_given: object) -> bool:
    return True


def test_without_the_mac_a_snapshot_without_the_ban_hides_that_it_was_removed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(row_mac, "is_mac_valid", _accept_any_mac)
    _remove_ban_before_the_snapshot(harness)
    _edit_content(harness)
    with start_process(harness.database) as started, started.transaction() as tx:
        assert evidence.list_banned(tx) == frozenset()


def test_denied_run_does_not_start_after_a_restart_from_a_snapshot(harness: Harness):
    """Its row says that it is approved, and its denial is no longer in the log."""
    run = harness.request(LAMP_ON)
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    harness.service.deny_run(run.id, person="olga", reason="not today")
    append_entries(harness.database, _TILE)
    _keep_snapshot(harness.database)
    _remove_entry(harness.database, "denied")
    with harness.database.transaction() as tx:
        tx.sql.execute(
            update(tables.run).where(tables.run.c.id == run.id).values(state=State.QUEUED.value)
        )
        tx.sql.execute(update(tables.decision).values(approves=True))
    with start_process(harness.database) as started:
        service = KeyturnService(replace(harness.context, database=started))
        service.advancer.advance_run(run.id)
    assert harness.fleet.sent == []


def test_altered_entry_before_the_snapshot_is_found_by_who_reads_it(harness: Harness):
    """A start does not read it. Verification does, and each decision that needs it."""
    run = harness.request(LAMP_ON)
    _keep_snapshot(harness.database)
    with harness.database.reading() as tx:
        seq = change_log.list_entries_of_run(tx, run.id)[0].seq
    _alter_entry(harness.database, seq)
    with start_process(harness.database) as started:
        assert _follow(started).tree.size > seq
        with started.reading() as tx:
            assert verification.verify_log(tx).broken == seq
        with started.transaction() as tx:
            assert evidence.find_mismatch_of_run(tx, run) != ""


def test_forged_snapshot_is_recorded_in_the_change_log(harness: Harness, tmp_path: Path):
    _do_everything(harness)
    _keep_snapshot(harness.database)
    _edit_content(harness)
    with start_process(harness.database) as started:
        Housekeeping(started, spool=Spool(tmp_path / "changelog.spool")).run_periodic_tasks()
        Housekeeping(started, spool=Spool(tmp_path / "changelog.spool")).run_periodic_tasks()
    [refused] = [
        entry.facts
        for entry in entries_of(harness.database)
        if entry.kind == events.ForgeryRefused.kind
    ]
    assert (refused["what"], refused["owner"]) == ("log_snapshot", "Keyturn")


def test_housekeeping_keeps_a_snapshot_after_thousands_of_entries_and_at_a_stop(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    house = Housekeeping(harness.database, spool=Spool(tmp_path / "changelog.spool"))
    append_entries(harness.database, 10)
    house.run_periodic_tasks()
    with harness.database.reading() as tx:
        assert tx.sql.execute(select(tables.log_snapshot)).first() is None
    append_entries(harness.database, 5000)
    house.run_periodic_tasks()
    first = _get_stored(harness.database)["size"]
    append_entries(harness.database, 1)
    house.run_periodic_tasks()
    assert _get_stored(harness.database)["size"] == first
    house.publish_last_checkpoint()
    assert _get_stored(harness.database)["size"] == first + 1


def test_snapshot_of_a_copied_database_counts_there(harness: Harness, tmp_path: Path):
    _do_everything(harness)
    _keep_snapshot(harness.database)
    with harness.database.transaction() as tx:
        key = tx.signing_key
    new = create_sqlite_database(tmp_path / "copy.db", key)
    copy_database(harness.database, new)
    _alter_entry(new, 2)
    with start_process(new) as started:
        state = _follow(started)
    assert state.revocations == _follow(harness.database).revocations
    new.close()


def test_rotated_key_has_a_snapshot_of_the_whole_log(tmp_path: Path):
    """A thief of the old key can have made a snapshot without a ban: it does not count."""
    file = tmp_path / "changelog.key"
    database = create_sqlite_database(tmp_path / "keyturn.db", signing.load_signing_key(file))
    with database.transaction() as tx:
        verification.open_log(tx)
        banned = events.Banned(banned_person="dora", reason="she left")
        change_log.append_entry(tx, banned, person="adam")
    with database.transaction() as tx:
        state = followed_log.follow_log(tx)
        assert state is not None
        log_snapshot.store_snapshot(tx, LogState(tree=state.tree))
    with start_process(database) as started:
        assert not _follow(started).revocations
    rotate_signing_key(database, file)
    database.close()
    with_new_key = Database(database.url, signing.load_signing_key(file))
    assert [kind for kind, *_ in _follow(with_new_key).revocations.values()] == ["banned"]
    assert _get_stored(with_new_key)["size"] == 3
    with_new_key.close()
