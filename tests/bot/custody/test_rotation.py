"""The key that seals the log can be changed; the log tells of it, and old keys are still known."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bot.custody.rotation import rotate
from bot.store import changelog, schema, seal, verification
from bot.store.changelog import Entry
from bot.store.database import Database
from bot.store.export import exported
from bot.store.seal import Seal
from bot.store.verification import Verdict
from tests.bot.store.test_verification import VERIFIER, entries_of, resealed, rewrite


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "changelog.key"


def _opened(tmp_path: Path, key: Path) -> Database:
    database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", seal.kept_in(key))
    schema.upgrade(database)
    with database.transaction() as tx:
        verification.open_log(tx)
        for n in range(3):
            changelog.append(tx, "noted", n=n)
    return database


@pytest.fixture
def turned(tmp_path: Path, key: Path):
    """A log whose key was changed in the middle; and the public halves of both."""
    first = _opened(tmp_path, key)
    old = seal.kept_in(key).public
    new = rotate(first, key).public
    first.close()
    second = _opened(tmp_path, key)
    yield second, old, new
    second.close()


def _verdict(database: Database, key: str = "") -> Verdict:
    with database.reading() as tx:
        return verification.verify(tx, key=key)


def _alone(database: Database, tmp_path: Path, *options: str) -> str:
    file = tmp_path / "export.jsonl"
    with database.reading() as tx:
        file.write_text("".join(f"{json.dumps(line)}\n" for line in exported(tx)))
    ended = subprocess.run(
        [sys.executable, str(VERIFIER), str(file), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


def test_t_l7_a_log_whose_key_was_changed_is_whole_for_who_knows_either(
    turned: tuple[Database, str, str], tmp_path: Path, key: Path
):
    database, old, new = turned
    assert seal.kept_in(key).public == new
    for known in (old, new):
        verdict = _verdict(database, known)
        assert (verdict.broken, verdict.keys) == (None, (old, new))
        assert _alone(database, tmp_path, "--key", known).startswith("9 entries, unbroken")
    stranger = Seal.new().public
    assert _verdict(database, stranger).broken == 9
    assert "not by the key given" in _alone(database, tmp_path, "--key", stranger)


def test_t_l7_the_old_key_seals_nothing_any_more(
    turned: tuple[Database, str, str], tmp_path: Path
):
    database, _, _ = turned
    entries = entries_of(database)
    thief = Seal.new()
    entries[-1] = replace(entries[-1], signature=thief.sign(entries[-1].hash))
    rewrite(database, entries)
    assert _verdict(database).broken == 9
    assert "BROKEN at entry 9" in _alone(database, tmp_path)


def test_t_l7_who_has_no_key_cannot_end_a_forged_log_with_ours(
    turned: tuple[Database, str, str], tmp_path: Path
):
    database, _, ours = turned
    thief = Seal.new()
    forged = entries_of(database)[:5]
    forged[0] = replace(forged[0], body=f'{{"public":"{thief.public}"}}')
    forged[4] = replace(forged[4], body=f'{{"proof":"{"00" * 64}","public":"{ours}"}}')
    rewrite(database, resealed(forged, thief))
    assert "owner did not sign" in _verdict(database, ours).why
    assert "owner did not sign" in _alone(database, tmp_path, "--key", ours)


def test_a_change_that_was_interrupted_after_the_log_told_of_it_is_completed(
    tmp_path: Path, key: Path
):
    database = _opened(tmp_path, key)
    beside = key.with_name("changelog.key.new")
    new = seal.fresh(beside)
    with database.transaction() as tx:
        verification.rotate(tx, new)
    assert rotate(database, key).public == new.public == seal.kept_in(key).public
    database.close()


def test_a_change_that_was_interrupted_before_is_begun_anew(tmp_path: Path, key: Path):
    database = _opened(tmp_path, key)
    left = seal.fresh(key.with_name("changelog.key.new"))
    assert rotate(database, key).public == seal.kept_in(key).public != left.public
    kinds: list[Entry] = [entry for entry in entries_of(database) if entry.kind == "key"]
    assert len(kinds) == 2
    database.close()
