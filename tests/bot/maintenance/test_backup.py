"""Backups: a restored one repeats no run and hides no entry."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.audit import change_log, verification
from bot.audit.checkpoints import Checkpoint
from bot.audit.event_type import UnknownEvent
from bot.auth import sessions
from bot.db import locks, migrations, runs, stops
from bot.db.database import Database, Transaction
from bot.integrations import witness_file
from bot.maintenance import backup, copy_database
from bot.maintenance.backup import InvalidBackupError
from bot.maintenance.copy_database import CopyError
from bot.maintenance.lost_entries import acknowledge_loss
from bot.maintenance.restore import RestoreResult, restore_backup
from bot.model.progress import BeginStage
from bot.model.run import State
from bot.model.signing import KeyFileError, SigningKey
from bot.queries.log_formats import iterate_export
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from tests.bot.audit.test_verification import VERIFIER
from tests.bot.databases import on_sqlite
from tests.bot.harness import Harness, ManualDispatcher, open_harness
from tests.playground.postgres import Postgres
from tests.toy import RUNBOOKS, SetAll, SetSwitch

LAMP = SetSwitch(host="lb1", name="lamp", value="on")
FAN = SetSwitch(host="lb1", name="fan", value="on")


@pytest.fixture
def busy(tmp_path: Path, database: Database) -> Generator[Harness]:
    """One run done, one approved and not begun, one that waits; somebody is signed in."""
    with open_harness(tmp_path, database=database) as harness:
        with database.transaction() as tx:
            verification.open_log(tx)
            sessions.begin_session(tx, "dora")
        harness.approve(harness.request(LAMP))
        approved = harness.request(FAN)
        harness.service.approve_run(approved.id, person="olga", digest=approved.digest)
        harness.dispatcher.enqueued.clear()
        harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
        yield harness


# On a database of the same kind, and of the other.
on_either = pytest.mark.parametrize("empty", ["same", "other"], indirect=True)


@pytest.fixture
def empty(request: pytest.FixtureRequest, busy: Harness, tmp_path: Path) -> Generator[Database]:
    """Where there is nothing yet, on a database of the same kind if a test does not say."""
    here = busy.database.engine.dialect.name == "postgresql"
    on_postgresql = here == (getattr(request, "param", "same") == "same")
    url = f"sqlite:///{tmp_path / 'elsewhere' / 'keyturn.db'}"
    if on_postgresql:
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
    (tmp_path / "elsewhere").mkdir()
    other = busy.database.open_copy(url)
    yield other
    other.close()


def restore_file(
    file: Path, target: Database, seen: list[Checkpoint] | None = None
) -> RestoreResult:
    return restore_backup(file, target, working=file.parent, seen=seen or [])


def restart_service(harness: Harness, database: Database) -> Harness:
    """The service begins on what was put back."""
    queue = ManualDispatcher()
    parts = WorkflowContext(database, harness.policies, harness.fleet, queue, runbooks=RUNBOOKS)
    service = KeyturnService(parts)
    begun = Harness(service, parts, harness.fleet, queue, harness.policies)
    service.advancer.recover_unfinished_runs()
    begun.run_queued_work()
    return begun


@on_either
def test_restored_backup_contains_the_runs_and_a_log_that_verifies(
    busy: Harness, empty: Database, tmp_path: Path
):
    label, verdict = backup.make_backup(busy.database, tmp_path / "today.backup")
    assert (verdict.broken, verdict.entries) == (None, label.point.size)
    assert (tmp_path / "today.backup").stat().st_mode & 0o777 == 0o600
    restored = restore_file(tmp_path / "today.backup", empty)
    assert restored.label == label
    with empty.reading() as tx:
        whole = verification.verify_log(tx)
        done = runs.get_run(tx, 1)
    assert whole.broken is None
    assert whole.entries > label.point.size
    assert done == busy.get_run(1)
    kinds = restart_service(busy, empty).list_entry_kinds()
    assert kinds[: label.point.size] == busy.list_entry_kinds()[: label.point.size]
    assert kinds[label.point.size] == "restored"


def test_restore_stops_runs_that_may_have_run_after_the_backup(
    busy: Harness, empty: Database, tmp_path: Path
):
    backup.make_backup(busy.database, tmp_path / "today.backup")
    # The service goes on: what was approved is done.
    busy.service.advancer.advance_run(2)
    assert busy.get_run(2).state is State.SUCCEEDED
    sent_before = list(busy.fleet.sent)
    restored = restore_file(tmp_path / "today.backup", empty)
    assert restored.ended == [2, 3]
    begun = restart_service(busy, empty)
    assert busy.fleet.sent == sent_before
    assert begun.get_run(2).state is State.STOPPED
    assert "unknown whether this run was executed since" in begun.get_run(2).summary
    with empty.reading() as tx:
        held = stops.get_stop_of_everything(tx)
    assert held is not None
    assert held.reason.startswith("The database was restored from a backup of")


@on_sqlite
def test_without_the_restore_command_a_run_is_executed_again(busy: Harness, tmp_path: Path):
    """The twin: a plain copy of the file is what others call a restore."""
    backup.make_backup(busy.database, tmp_path / "today.backup")
    busy.service.advancer.advance_run(2)
    sent_before = list(busy.fleet.sent)
    plain = busy.database.open_copy(f"sqlite:///{tmp_path / 'today.backup'}")
    # Some hosts keep no marker of what was done, and somebody may have taken it back meanwhile.
    busy.fleet.markers.clear()
    busy.fleet.hosts["lb1"]["fan"] = "off"
    restart_service(busy, plain)
    plain.close()
    assert busy.fleet.sent != sent_before


@pytest.mark.parametrize("moment", ["before step 2", "in step 1"])
def test_restored_running_run_is_unknown_outcome_and_keeps_its_host_lock(
    busy: Harness, empty: Database, tmp_path: Path, moment: str
):
    file = tmp_path / "today.backup"

    def saved(_host: str, _words: str) -> None:
        if moment == "in step 1":
            backup.make_backup(busy.database, file)
        busy.service.close()

    busy.fleet.hosts["lb2"] = {"lamp": "off", "fan": "off"}
    run = busy.request(SetAll(host="lb2", value="on"))
    busy.fleet.after_send = saved
    busy.approve(run)
    if moment == "before step 2":
        backup.make_backup(busy.database, file)
    restore_file(file, empty)
    begun = restart_service(busy, empty)
    begun.service.advancer.wake_stalled_runs()
    begun.run_queued_work()
    left = begun.get_run(run.id)
    assert left.state is State.UNKNOWN
    assert "unknown how far it came" in left.summary
    with empty.reading() as tx:
        lock = locks.get_lock(tx, "lb2")
    assert lock is not None
    assert lock.run == run.id


@on_sqlite
def test_restore_reports_the_entries_that_a_witness_saw_after_the_backup(
    busy: Harness, empty: Database, tmp_path: Path
):
    seen = tmp_path / "witness"
    label, _ = backup.make_backup(busy.database, tmp_path / "today.backup")
    with busy.database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
        point = verification.create_checkpoint(tx)
    seen.write_text(f"Nov 21 lb1 keyturn: run 2 step 1: {point.line}\n")
    restored = restore_file(tmp_path / "today.backup", empty, witness_file.read_checkpoints(seen))
    assert [(one.size, one.run) for one in restored.later] == [(point.size, 2)]
    assert point.size > label.point.size
    # Until a person acknowledges what was lost, the log counts as broken.
    verdict, alone = _verify_both_ways(empty, seen)
    lost = point.size - label.point.size
    assert (verdict.broken, verdict.lost, alone.returncode) == (label.point.size + 1, 1, 1)
    assert f"acknowledge {label.point.size + 1} --lost {lost}" in verdict.why
    assert "it was lost when a backup was restored" in alone.stderr
    points = witness_file.read_checkpoints(seen)
    with empty.transaction() as tx, pytest.raises(ValueError, match=f"lacks {lost} entries"):
        acknowledge_loss(
            tx, points, first=label.point.size + 1, lost_entries=lost + 1, person="adam"
        )
    with empty.transaction() as tx:
        acknowledge_loss(tx, points, first=label.point.size + 1, lost_entries=lost, person="adam")
    verdict, alone = _verify_both_ways(empty, seen)
    assert (verdict.broken, verdict.lost, alone.returncode) == (None, 1, 0)
    assert "witness checkpoints of entries acknowledged as lost: 1" in alone.stdout


def _verify_both_ways(
    database: Database, seen: Path
) -> tuple[verification.Verification, subprocess.CompletedProcess[str]]:
    with database.reading() as tx:
        verdict = verification.verify_log(tx, witnesses=witness_file.read_checkpoints(seen))
        export = "".join(f"{json.dumps(line)}\n" for line in iterate_export(tx))
    file = seen.with_name("export.jsonl")
    file.write_text(export)
    words = [sys.executable, str(VERIFIER), str(file), "--witness", str(seen)]
    return verdict, subprocess.run(words, capture_output=True, text=True, check=False)


@on_sqlite
def test_without_a_restored_entry_a_truncated_log_is_reported_as_cut_off(
    busy: Harness, tmp_path: Path
):
    """The twin: without the entry that says so, a witness's checkpoint does not fit."""
    backup.make_backup(busy.database, tmp_path / "today.backup")
    with busy.database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
        point = verification.create_checkpoint(tx)
    plain = busy.database.open_copy(f"sqlite:///{tmp_path / 'today.backup'}")
    with plain.reading() as tx:
        verdict = verification.verify_log(tx, witnesses=[point])
    plain.close()
    assert "cut off" in verdict.why


def test_restore_skips_run_numbers_that_may_be_in_use(
    busy: Harness, empty: Database, tmp_path: Path
):
    backup.make_backup(busy.database, tmp_path / "today.backup")
    restored = restore_file(tmp_path / "today.backup", empty)
    assert restored.first == 1004
    begun = restart_service(busy, empty)
    with empty.transaction() as tx:
        assert stops.remove_stop(tx, stops.EVERYTHING)
    assert begun.request(LAMP).id == 1004


@on_sqlite
def test_restore_ends_all_sessions(busy: Harness, empty: Database, tmp_path: Path):
    with busy.database.transaction() as tx:
        token = sessions.begin_session(tx, "dora")
    backup.make_backup(busy.database, tmp_path / "today.backup")
    restore_file(tmp_path / "today.backup", empty)
    with empty.transaction() as tx:
        assert sessions.find_session(tx, token) is None


def count_stages(on_page: Callable[[], None]) -> BeginStage:
    """Return stages that call this after each page that is saved."""

    @contextmanager
    def begin(name: str, _total: Callable[[], int]) -> Generator[Callable[[int], None]]:
        yield lambda _more: on_page() if name == "saving" else None

    return begin


@on_sqlite
def test_backup_is_of_one_point_in_time_while_others_write(
    busy: Harness, empty: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(copy_database, "PAGES", 1)
    before = changelog_head(busy.database)
    rows = copy_database.count_rows(busy.database)
    written: list[int] = []

    def write() -> None:
        if len(written) < 20:
            written.append(busy.request(LAMP).id)

    label, verdict = backup.make_backup(
        busy.database, tmp_path / "today.backup", count_stages(write)
    )
    assert len(written) == 20
    assert (verdict.broken, label.point.size, label.point.root) == (None, *before)
    assert label.rows - rows in {0, 1}  # the checkpoint that the label repeats
    assert restore_file(tmp_path / "today.backup", empty).label == label


@on_sqlite
def test_backup_that_breaks_off_leaves_nothing_that_looks_finished(
    busy: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(copy_database, "PAGES", 1)
    file, pages = tmp_path / "today.backup", iter(range(7))

    def break_off() -> None:
        if next(pages, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.make_backup(busy.database, file, count_stages(break_off))
    assert not file.exists()
    part = Database(f"sqlite:///{file}.part")
    with pytest.raises(InvalidBackupError):
        backup.read_label(part)
    part.close()
    # What is left is replaced by the next.
    assert backup.make_backup(busy.database, file)[1].broken is None
    assert [one.name for one in tmp_path.glob("today*")] == ["today.backup"]


@on_sqlite
def test_backup_never_overwrites_a_file(busy: Harness, tmp_path: Path):
    file = tmp_path / "today.backup"
    file.write_text("yesterday's")
    with pytest.raises(FileExistsError, match="never overwrites a file"):
        backup.make_backup(busy.database, file)
    assert file.read_text() == "yesterday's"


def test_restore_never_overwrites_a_database(busy: Harness, tmp_path: Path):
    backup.make_backup(busy.database, tmp_path / "today.backup")
    before = busy.list_entry_kinds()
    with pytest.raises(CopyError, match=r"exists already|it has rows in"):
        restore_file(tmp_path / "today.backup", busy.database)
    assert busy.list_entry_kinds() == before
    assert not list(tmp_path.glob("*.restoring*"))


@on_sqlite
@pytest.mark.parametrize("damage", ["no database", "another database", "cut", "altered"])
def test_incomplete_backup_is_not_restored(
    busy: Harness, tmp_path: Path, damage: str, empty: Database
):
    file = tmp_path / "today.backup"
    backup.make_backup(busy.database, file)
    if damage == "no database":
        file.write_text("this is a letter")
    elif damage == "another database":
        file.unlink()
        migrations.upgrade_schema(other := Database(f"sqlite:///{file}", SigningKey.create()))
        other.close()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        with sqlite3.connect(file) as connection:
            connection.execute("DROP TRIGGER IF EXISTS entry_no_update")
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type='trigger'"
            ):
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute("UPDATE entry SET person = 'mallory' WHERE seq = 2")
    with pytest.raises(InvalidBackupError):
        restore_file(file, empty)


@on_sqlite
def test_restore_is_refused_with_another_signing_key(busy: Harness, tmp_path: Path):
    backup.make_backup(busy.database, tmp_path / "today.backup")
    target = Database(f"sqlite:///{tmp_path / 'new.db'}", SigningKey.create())
    with pytest.raises(KeyFileError, match=r"restore the right changelog\.key"):
        restore_file(tmp_path / "today.backup", target)
    target.close()
    assert not (tmp_path / "new.db").exists()


@on_either
def test_copied_database_keeps_its_hash_chain_and_continues_its_runs(
    busy: Harness, empty: Database
):
    head = changelog_head(busy.database)
    moved = copy_database.copy_database(busy.database, empty)
    assert moved.entries == head[0] + 1
    assert changelog_head(busy.database) == head
    begun = restart_service(busy, empty)
    # Nothing is lost on the way: what was approved is done where it has moved to.
    assert begun.get_run(2).state is State.SUCCEEDED
    assert begun.get_run(3).state is State.PENDING
    assert begun.request(LAMP).id == 4
    with empty.reading() as tx:
        assert verification.verify_log(tx).broken is None


@on_sqlite
def test_database_with_a_broken_log_is_not_copied(
    busy: Harness, empty: Database, monkeypatch: pytest.MonkeyPatch
):
    def broken(_tx: Transaction, **_more: object) -> verification.Verification:
        return verification.Verification(3, "", broken=4, why="entry 4 is missing")

    monkeypatch.setattr(verification, "verify_log", broken)
    with pytest.raises(CopyError, match="broken at entry 4"):
        copy_database.copy_database(busy.database, empty)
    with empty.reading() as tx:
        assert change_log.get_head(tx)[0] == 0
    assert copy_database.count_rows(empty) == 0


def changelog_head(database: Database) -> tuple[int, str]:
    with database.reading() as tx:
        return change_log.get_head(tx)
