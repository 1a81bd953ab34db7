"""`keyturn backup`, `keyturn restore` and `keyturn db copy`."""

import json
from pathlib import Path

import pytest

from bot.audit import change_log, events, verification
from bot.audit.event_type import UnknownEvent
from bot.db.database import Database, lock_data_directory
from bot.maintenance.housekeeping import log_setting_change
from bot.model.signing import load_signing_key
from tests.bot.installation import create_installation
from tests.cli_process import run_keyturn
from tests.playground.postgres import Postgres

KEY = Path("var/changelog.key")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with create_installation(tmp_path) as tx:
        log_setting_change(tx, events.SettingsChanged(settings={}, digest=""))
    return tmp_path


def test_backup_is_restored_and_verified_by_commands(place: Path):
    saved = run_keyturn(place, "backup", str(place / "today.backup"))
    assert saved.returncode == 0, saved.stderr
    assert "Saved 2 rows in" in saved.stdout
    refused = run_keyturn(place, "restore", str(place / "today.backup"))
    assert refused.returncode == 1
    assert "exists already: move" in refused.stderr
    (place / "var" / "keyturn.db").unlink()
    restored = run_keyturn(place, "restore", str(place / "today.backup"))
    assert restored.returncode == 0, restored.stderr
    assert "2 entries, log intact" in restored.stdout
    assert "Add --witness to see which" in restored.stdout
    assert "keyturn resume --as PERSON" in restored.stdout
    assert run_keyturn(place, "changelog", "verify").returncode == 0
    shown = run_keyturn(place, "changelog", "show", "--json").stdout
    kinds = [json.loads(line)["kind"] for line in shown.splitlines()]
    assert kinds == ["key", "settings changed", "restored", "everything stopped", "log verified"]


def test_backup_and_restore_print_json(place: Path):
    file = str(place / "today.backup")
    saved = json.loads(run_keyturn(place, "backup", file, "--json").stdout)
    assert (saved["entries"], saved["broken"]) == (2, None)
    (place / "var" / "keyturn.db").unlink()
    restored = json.loads(run_keyturn(place, "restore", file, "--json").stdout)
    assert restored["head"] == saved["head"]
    assert (restored["ended"], restored["next_run"]) == ([], 1001)


def test_restore_is_refused_while_the_service_runs_or_without_the_keys(place: Path):
    file = str(place / "today.backup")
    run_keyturn(place, "backup", file)
    (place / "var" / "keyturn.db").unlink()
    with lock_data_directory(place / "var"):
        busy = run_keyturn(place, "restore", file)
    assert busy.returncode == 1
    assert "stop that one first" in busy.stderr
    (place / "var" / "secrets.key").unlink()
    keyless = run_keyturn(place, "restore", file)
    assert keyless.returncode == 1
    assert "secrets.key is missing: restore it first" in keyless.stderr
    assert not (place / "var" / "keyturn.db").exists()


def test_restore_refuses_a_file_that_is_no_backup(place: Path):
    (place / "var" / "keyturn.db").rename(place / "old.db")
    refused = run_keyturn(place, "restore", str(place / "old.db"))
    assert refused.returncode == 2
    assert "is a database, but not a backup of keyturn backup" in refused.stderr
    assert not (place / "var" / "keyturn.db").exists()


def test_db_copy_refuses_a_password_in_the_address(place: Path):
    asked = run_keyturn(
        place, "db", "copy", "--to", "postgresql://keyturn:secret@localhost/keyturn"
    )
    assert asked.returncode == 2
    assert "set PGPASSWORD" in asked.stderr
    assert "secret" not in asked.stderr


def test_db_copy_refuses_an_invalid_database_address(place: Path):
    asked = run_keyturn(place, "db", "copy", "--to", "mysql://localhost/keyturn")
    assert asked.returncode == 2
    assert "sqlite:///FILE or postgresql://USER@HOST/NAME" in asked.stderr


@pytest.mark.real
def test_db_copy_moves_an_installation_to_postgresql(place: Path, postgres: Postgres):
    full = postgres.new_database().replace("postgresql+psycopg://", "")
    login, _, rest = full.partition("@")
    user, _, password = login.partition(":")
    address = f"postgresql://{user}@{rest}"
    moved = run_keyturn(place, "db", "copy", "--to", address, PGPASSWORD=password)
    assert moved.returncode == 0, moved.stderr
    assert "Copied 2 rows; 3 entries, log intact" in moved.stdout
    there = {"KEYTURN_DATABASE": f"postgresql+psycopg://{user}@{rest}", "PGPASSWORD": password}
    verified = run_keyturn(place, "changelog", "verify", **there)
    assert verified.returncode == 0, verified.stderr
    again = run_keyturn(place, "db", "copy", "--to", address, PGPASSWORD=password)
    assert again.returncode == 1
    assert "it has rows in entry" in again.stderr


def test_changelog_acknowledge_names_the_lost_entries_after_a_restore(place: Path):
    file, seen = str(place / "today.backup"), place / "witness"
    run_keyturn(place, "backup", file)
    database = Database(f"sqlite:///{place / 'var' / 'keyturn.db'}", load_signing_key(place / KEY))
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="noted"))
        seen.write_text(verification.create_checkpoint(tx).line)
    database.close()
    (place / "var" / "keyturn.db").unlink()
    run_keyturn(place, "restore", file, "--witness", str(seen))
    verify = ("changelog", "verify", "--witness", str(seen))
    broken = run_keyturn(place, *verify)
    assert broken.returncode == 1
    assert "run `keyturn changelog acknowledge 3 --lost 2`" in broken.stderr
    known = ("--as", "adam", "--reason", "the disk broke", "--witness", str(seen))
    wrong = run_keyturn(place, "changelog", "acknowledge", "3", "--lost", "1", *known)
    assert (wrong.returncode, "lacks 2 entries from 3 on" in wrong.stderr) == (1, True)
    stranger = ("--as", "dora", *known[2:])
    refused = run_keyturn(place, "changelog", "acknowledge", "3", "--lost", "2", *stranger)
    assert refused.returncode == 4
    assert "dora cannot acknowledge a loss; those who can: " in refused.stderr
    right = run_keyturn(place, "changelog", "acknowledge", "3", "--lost", "2", *known)
    assert right.returncode == 0, right.stderr
    verified = run_keyturn(place, *verify)
    assert verified.returncode == 0, verified.stderr
    assert "witness checkpoints of entries acknowledged as lost: 1" in verified.stdout
