"""Encrypted secrets cannot be read, moved or altered in the database."""

import base64
import stat
from pathlib import Path

import pytest
from sqlalchemy import select, update

from bot import app
from bot.auth import second_factors, secret_box
from bot.auth.secret_box import CannotOpenError, SecretBox
from bot.db import tables
from bot.db.database import Database
from bot.model.keyfile import KeyFileError
from bot.settings import Settings
from tests.policies import write_policy

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


def _add_second_factor(
    database: Database, vault: SecretBox, person: str, secret: str = SECRET
) -> second_factors.SecondFactor:
    with database.transaction() as tx:
        return second_factors.add_factor(
            tx, vault, person=person, kind="totp", digest="d" * 32, secret=secret
        )


def test_factor_secret_is_encrypted_in_the_database_and_decrypted_again(
    database: Database,
) -> None:
    vault = SecretBox.create()
    kept = _add_second_factor(database, vault, "olga")
    with database.reading() as tx:
        rows = repr(tx.sql.execute(select(tables.second_factor)).all())
    assert SECRET not in rows
    assert SECRET.encode() not in base64.b64decode(kept.sealed)
    assert second_factors.open_factor_secret(vault, kept) == SECRET


def test_factor_secret_moved_to_another_person_cannot_be_decrypted(database: Database) -> None:
    vault = SecretBox.create()
    doras, olgas = (
        _add_second_factor(database, vault, "dora"),
        _add_second_factor(database, vault, "olga", "other"),
    )
    with database.transaction() as tx:
        here = tables.second_factor.c.id == olgas.id
        tx.sql.execute(update(tables.second_factor).where(here).values(sealed=doras.sealed))
        moved = second_factors.find_factor(tx, olgas.id)
    assert moved
    with pytest.raises(CannotOpenError):
        second_factors.open_factor_secret(vault, moved)
    # The twin: sealed without saying whose it is, it would open for anybody.
    bare = vault.seal_secret(SECRET, context="")
    assert vault.open_secret(bare, context="") == SECRET


def test_factor_secret_cannot_be_decrypted_when_its_confirmer_was_forged(
    database: Database,
) -> None:
    vault = SecretBox.create()
    kept = _add_second_factor(database, vault, "dora")
    with database.transaction() as tx:
        tx.sql.execute(update(tables.second_factor).values(confirmed_by="olga"))
        forged = second_factors.find_factor(tx, kept.id)
    assert forged
    with pytest.raises(CannotOpenError):
        second_factors.open_factor_secret(vault, forged)
    with database.transaction() as tx:
        tx.sql.execute(update(tables.second_factor).values(confirmed_by=""))
        second_factors.confirm_factor(tx, vault, kept, confirmed_by="olga")
        confirmed = second_factors.find_factor(tx, kept.id)
    assert confirmed
    assert second_factors.open_factor_secret(vault, confirmed) == SECRET


def test_without_the_sealed_context_a_moved_factor_secret_is_decrypted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of both: a secret that is sealed alone, and not with what it is about."""
    monkeypatch.setattr(second_factors.SecondFactor, "sealed_context", "")
    vault = SecretBox.create()
    doras, olgas = (
        _add_second_factor(database, vault, "dora"),
        _add_second_factor(database, vault, "olga", "other"),
    )
    with database.transaction() as tx:
        here = tables.second_factor.c.id == olgas.id
        forged = {"sealed": doras.sealed, "confirmed_by": "adam"}
        tx.sql.execute(update(tables.second_factor).where(here).values(forged))
        moved = second_factors.find_factor(tx, olgas.id)
    assert moved
    assert second_factors.open_factor_secret(vault, moved) == SECRET


def test_altered_ciphertext_cannot_be_decrypted() -> None:
    vault = SecretBox.create()
    sealed = base64.b64decode(vault.seal_secret(SECRET, context="x"))
    for n in range(len(sealed)):
        broken = bytearray(sealed)
        broken[n] ^= 1
        with pytest.raises(CannotOpenError):
            vault.open_secret(base64.b64encode(broken).decode(), context="x")
    for garbage in ("", "é", "AAAA", "%%%"):
        with pytest.raises(CannotOpenError):
            vault.open_secret(garbage, context="x")


def test_keyturn_does_not_start_with_another_secrets_key(tmp_path: Path) -> None:
    write_policy(tmp_path / "policy")
    settings = Settings(data=tmp_path / "var", policy=tmp_path / "policy")
    app.build_service(settings).database.close()
    app.build_service(settings).database.close()
    key = settings.data / "secrets.key"
    right = key.read_bytes()
    key.unlink()
    with pytest.raises(KeyFileError, match=r"restore the right secrets\.key"):
        app.build_service(settings)
    key.write_bytes(right)
    app.build_service(settings).database.close()


def test_invalid_or_readable_secrets_key_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    file.write_bytes(b"short")
    file.chmod(0o600)
    with pytest.raises(KeyFileError, match="not a key for secrets"):
        secret_box.load_secret_box(file)
    file.write_bytes(b"0" * 32)
    file.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        secret_box.load_secret_box(file)


def test_each_installation_creates_its_own_secrets_key(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "one.key", tmp_path / "other.key"
    sealed = secret_box.load_secret_box(one).seal_secret(SECRET, context="x")
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert secret_box.load_secret_box(one).open_secret(sealed, context="x") == SECRET
    with pytest.raises(CannotOpenError):
        secret_box.load_secret_box(other).open_secret(sealed, context="x")


class Careless(SecretBox):
    """A safe that forgot how to encrypt: it writes what it is given."""

    def seal_secret(self, secret: str, *, context: object) -> str:  # noqa: ARG002 - it does not care
        return base64.b64encode(secret.encode()).decode()

    def open_secret(self, sealed: str, *, context: object) -> str:  # noqa: ARG002 - it does not care
        return base64.b64decode(sealed).decode()


def test_start_is_refused_when_the_secret_box_does_not_encrypt(database: Database) -> None:
    with pytest.raises(KeyFileError, match="without encryption"), database.transaction() as tx:
        secret_box.check_secret_key(tx, Careless(b"0" * 32))
    # The twin: the same words, by a safe that does.
    vault = SecretBox.create()
    for _ in range(2):
        with database.transaction() as tx:
            secret_box.check_secret_key(tx, vault)
