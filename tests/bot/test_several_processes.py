"""Several processes on one database: what must be done once is done once."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.__main__ import main
from bot.app import build_foundation, lock_shared_directory
from bot.audit import events
from bot.db import outbox, runs
from bot.db.database import AlreadyRunning, Database
from bot.db.process_lock import lock_exclusive, lock_shared
from bot.execution.procrastinate_dispatch import ProcrastinateDispatcher
from bot.model import signing
from bot.model.keyfile import KeyFileError
from bot.model.redaction import Redactor
from bot.service import KeyturnService
from bot.settings import Settings
from bot.workflow.policy_changes import PolicyRecorder
from tests.bot.databases import on_postgresql
from tests.bot.harness import Harness
from tests.playground import sample_company
from tests.playground.postgres import Postgres
from tests.playground.replicas import Replicas
from tests.policies import INVENTORY
from tests.toy import SetSwitch


def _run_together(*actions: Callable[[], object]) -> None:
    barrier = threading.Barrier(len(actions))

    def go(action: Callable[[], object]) -> None:
        barrier.wait()
        action()

    threads = [threading.Thread(target=go, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_new_policy_is_logged_once_by_several_processes(db_harness: Harness):
    harness = db_harness
    _run_together(*[PolicyRecorder(harness.context).record_policy_change for _ in range(4)])
    assert harness.list_entry_kinds().count(events.PolicyChanged.kind) == 1


def test_process_with_the_old_policy_does_not_log_a_policy_change_again(
    db_harness: Harness, tmp_path: Path
):
    """Processes read a new policy one after the other; each says what it sees once."""
    harness = db_harness
    first, second = PolicyRecorder(harness.context), PolicyRecorder(harness.context)
    first.record_policy_change()
    second.record_policy_change()
    (tmp_path / "policy" / "inventory.yaml").write_text("nothing that fits")
    for _ in range(3):
        second.record_policy_change()
    assert harness.list_entry_kinds().count(events.PolicyInvalid.kind) == 1
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    for _ in range(3):
        first.record_policy_change()
        second.record_policy_change()
    assert harness.list_entry_kinds().count(events.PolicyChanged.kind) == 2


# SQLite has one writer.
@on_postgresql
def test_pending_delivery_locked_by_one_process_is_skipped_by_another(db_harness: Harness):
    """Drawn from what was read before the other had told it, it would be told twice."""
    harness = db_harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    with harness.database.transaction() as first:
        assert [item.run for item in outbox.lock_pending_updates(first)] == [run.id]
        with harness.database.transaction() as second:
            assert outbox.lock_pending_updates(second) == []
            # Its twin: reading alone would see it.
            assert outbox.list_pending_updates(second)


def test_expired_run_is_expired_once_by_two_processes(db_harness: Harness):
    harness = db_harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    with harness.database.transaction() as tx:
        held = runs.lock_run(tx, run.id)
        runs.amend_run(tx, held, expires_at=tx.now - 1)
    other = KeyturnService(replace(harness.context))
    _run_together(
        harness.service.advancer.expire_runs,
        other.advancer.expire_runs,
        harness.service.advancer.wake_stalled_runs,
        other.advancer.wake_stalled_runs,
    )
    assert harness.list_entry_kinds(run).count("expired") == 1


@pytest.mark.real
def test_embedded_and_distributed_engines_cannot_share_a_database(postgres: Postgres):
    url = postgres.new_database()
    first, second, third = (Database(url) for _ in range(3))
    refused = pytest.raises(AlreadyRunning, match="KEYTURN_ENGINE=distributed")
    with lock_shared(first), lock_shared(second), refused, lock_exclusive(third):
        pass
    with (
        lock_exclusive(third),
        pytest.raises(AlreadyRunning, match="embedded"),
        lock_shared(first),
    ):
        pass
    for database in (first, second, third):
        database.close()


@pytest.mark.real
def test_process_with_another_signing_key_does_not_start(postgres: Postgres, tmp_path: Path):
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    with Replicas(tmp_path, postgres.new_database()) as replicas:
        replicas.foundation().database.close()
        key = tmp_path / "var" / "changelog.key"
        right = key.rename(tmp_path / "right.key")
        with pytest.raises(KeyFileError, match="all processes need the same one"):
            replicas.foundation()
        signing.load_signing_key(key)
        with pytest.raises(KeyFileError, match=r"restore the right changelog\.key"):
            replicas.foundation()
        key.unlink()
        right.rename(key)
        replicas.foundation().database.close()


@pytest.mark.real
def test_db_upgrade_creates_schema_and_keys_for_distributed_mode(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYTURN_DATABASE", postgres.new_database())
    monkeypatch.setenv("KEYTURN_ENGINE", "distributed")
    monkeypatch.setenv("KEYTURN_KEYS", str(tmp_path / "keys"))

    def typed(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, words)
        return done.exit_code, done.output

    assert typed("db", "check") == (1, "Outdated schema. Run: keyturn db upgrade\n")
    assert typed("db", "upgrade") == (0, "The database was empty. Created the schema.\n")
    assert {each.name for each in (tmp_path / "keys").iterdir()} == {
        "changelog.key",
        "secrets.key",
    }
    foundation = build_foundation(Settings(), ProcrastinateDispatcher(), Redactor())
    foundation.housekeeping.start({})
    foundation.database.close()
    status, output = typed("db", "check", "--json")
    assert status == 0
    data = json.loads(output)
    assert (data["current"], data["distributed"], data["keys"]) == (True, True, "")
    (tmp_path / "keys" / "secrets.key").unlink()
    status, output = typed("db", "check")
    assert status == 1
    assert "secrets.key is missing" in output
    # There is a log already: new keys would not belong to it.
    assert typed("db", "upgrade") == (0, "The schema is up to date.\n")
    assert not (tmp_path / "keys" / "secrets.key").exists()


def test_distributed_engine_needs_postgresql():
    with pytest.raises(ValueError, match="SQLite supports only one process"):
        Settings(engine="distributed", database="")


def test_processes_on_one_machine_use_separate_directories(tmp_path: Path):
    with lock_shared_directory(tmp_path) as first, lock_shared_directory(tmp_path) as second:
        assert first != second
    # What one has left is found by the next.
    with lock_shared_directory(tmp_path) as third:
        assert third == first
