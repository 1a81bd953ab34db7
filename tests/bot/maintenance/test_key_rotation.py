"""Rotation of the log's signing key: it is logged, and older entries still verify."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bot.audit import change_log, verification
from bot.audit.change_log import Entry, EntryDraft
from bot.audit.event_type import UnknownEvent
from bot.audit.verification import Verification
from bot.db.database import Database
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model import signing
from bot.model.signing import SigningKey
from bot.queries.log_formats import iterate_export
from tests.bot.audit.test_verification import VERIFIER
from tests.bot.databases import add_schema
from tests.bot.rewritten_log import entries_of, forge_entries, rehash, rewrite


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "changelog.key"


def _open_database(tmp_path: Path, key: Path) -> Database:
    database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", signing.load_signing_key(key))
    add_schema(database)
    with database.transaction() as tx:
        verification.open_log(tx)
        for n in range(3):
            change_log.append_entry(tx, UnknownEvent(kind="noted", facts={"step": n}))
    return database


@pytest.fixture
def turned(tmp_path: Path, key: Path):
    """A log whose key was changed in the middle; and the public halves of both."""
    first = _open_database(tmp_path, key)
    old = signing.load_signing_key(key).public_key
    new = rotate_signing_key(first, key).public
    first.close()
    second = _open_database(tmp_path, key)
    yield second, old, new
    second.close()


def _verify(database: Database, key: str = "") -> Verification:
    with database.reading() as tx:
        return verification.verify_log(tx, required_key=key)


def _verify_alone(database: Database, tmp_path: Path, *options: str) -> str:
    file = tmp_path / "export.jsonl"
    with database.reading() as tx:
        file.write_text("".join(f"{json.dumps(line)}\n" for line in iterate_export(tx)))
    ended = subprocess.run(
        [sys.executable, str(VERIFIER), str(file), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


def test_a_log_with_a_rotated_key_verifies_with_either_key(
    turned: tuple[Database, str, str], tmp_path: Path, key: Path
):
    database, old, new = turned
    assert signing.load_signing_key(key).public_key == new
    for known in (old, new):
        verdict = _verify(database, known)
        assert (verdict.broken, verdict.keys) == (None, (old, new))
        assert _verify_alone(database, tmp_path, "--key", known).startswith(
            "8 entries, log intact"
        )
    stranger = SigningKey.create().public_key
    assert _verify(database, stranger).broken == 8
    assert "not by the key given" in _verify_alone(database, tmp_path, "--key", stranger)


def test_entry_signed_with_the_old_key_after_a_rotation_is_found(
    turned: tuple[Database, str, str], tmp_path: Path
):
    database, _, _ = turned
    with database.transaction() as tx:
        forge_entries(tx, EntryDraft(UnknownEvent(kind="noted")))
    last = len(entries_of(database))
    assert _verify(database).broken == last
    assert f"BROKEN at entry {last}" in _verify_alone(database, tmp_path)


def test_forged_rotation_to_the_known_key_is_found(
    turned: tuple[Database, str, str], tmp_path: Path
):
    database, _, ours = turned
    thief = SigningKey.create()
    forged = entries_of(database)[:5]
    forged[0] = replace(forged[0], body=f'{{"public":"{thief.public_key}"}}')
    forged[4] = replace(forged[4], kind="key", body=f'{{"public":"{ours}"}}')
    rewrite(database, rehash(forged), thief)
    assert "owner did not sign" in _verify(database, ours).why
    assert "owner did not sign" in _verify_alone(database, tmp_path, "--key", ours)


def test_key_rotation_interrupted_after_its_log_entry_is_completed(tmp_path: Path, key: Path):
    database = _open_database(tmp_path, key)
    beside = key.with_name("changelog.key.new")
    new = signing.create_signing_key(beside)
    with database.transaction() as tx:
        verification.append_key_change(tx, new)
    assert (
        rotate_signing_key(database, key).public
        == new.public_key
        == signing.load_signing_key(key).public_key
    )
    database.close()


def test_key_rotation_interrupted_before_its_log_entry_starts_again(tmp_path: Path, key: Path):
    database = _open_database(tmp_path, key)
    left = signing.create_signing_key(key.with_name("changelog.key.new"))
    assert (
        rotate_signing_key(database, key).public
        == signing.load_signing_key(key).public_key
        != left.public_key
    )
    kinds: list[Entry] = [entry for entry in entries_of(database) if entry.kind == "key"]
    assert len(kinds) == 2
    database.close()
