"""The safe: what is in it cannot be read, moved or altered in the database."""

import base64
import stat
from pathlib import Path

import pytest
from sqlalchemy import select, update

from bot import app
from bot.settings import Settings
from bot.store import factors, safe, tables
from bot.store.database import Database
from bot.store.keyfile import BadKey
from bot.store.safe import DoesNotOpen, Safe
from tests.policies import a_policy

SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


def _add(database: Database, vault: Safe, person: str, secret: str = SECRET) -> factors.Factor:
    with database.transaction() as tx:
        return factors.add(tx, vault, person=person, kind="totp", digest="d" * 32, secret=secret)


def test_a_secret_comes_back_and_is_not_to_be_read_meanwhile(database: Database) -> None:
    vault = Safe.new()
    kept = _add(database, vault, "olga")
    with database.reading() as tx:
        rows = repr(tx.sql.execute(select(tables.factor)).all())
    assert SECRET not in rows
    assert SECRET.encode() not in base64.b64decode(kept.sealed)
    assert factors.secret(vault, kept) == SECRET


def test_t_x3_a_secret_that_was_moved_to_another_person_does_not_open(database: Database) -> None:
    vault = Safe.new()
    doras, olgas = _add(database, vault, "dora"), _add(database, vault, "olga", "other")
    with database.transaction() as tx:
        here = tables.factor.c.id == olgas.id
        tx.sql.execute(update(tables.factor).where(here).values(sealed=doras.sealed))
        moved = factors.get(tx, olgas.id)
    assert moved
    with pytest.raises(DoesNotOpen):
        factors.secret(vault, moved)
    # The twin: sealed without saying whose it is, it would open for anybody.
    bare = vault.seal(SECRET, about="")
    assert vault.open(bare, about="") == SECRET


def test_t_x3_who_confirmed_a_factor_cannot_be_written_in(database: Database) -> None:
    vault = Safe.new()
    kept = _add(database, vault, "dora")
    with database.transaction() as tx:
        tx.sql.execute(update(tables.factor).values(confirmed_by="olga"))
        forged = factors.get(tx, kept.id)
    assert forged
    with pytest.raises(DoesNotOpen):
        factors.secret(vault, forged)
    with database.transaction() as tx:
        tx.sql.execute(update(tables.factor).values(confirmed_by=""))
        factors.confirm(tx, vault, kept, by="olga")
        confirmed = factors.get(tx, kept.id)
    assert confirmed
    assert factors.secret(vault, confirmed) == SECRET


def test_t_x3_without_the_guard_it_would_open_for_anybody_and_count(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of both: a secret that is sealed alone, and not with what it is about."""
    monkeypatch.setattr(factors.Factor, "about", "")
    vault = Safe.new()
    doras, olgas = _add(database, vault, "dora"), _add(database, vault, "olga", "other")
    with database.transaction() as tx:
        here = tables.factor.c.id == olgas.id
        forged = {"sealed": doras.sealed, "confirmed_by": "adam"}
        tx.sql.execute(update(tables.factor).where(here).values(forged))
        moved = factors.get(tx, olgas.id)
    assert moved
    assert factors.secret(vault, moved) == SECRET


def test_what_was_altered_does_not_open() -> None:
    vault = Safe.new()
    sealed = base64.b64decode(vault.seal(SECRET, about="x"))
    for n in range(len(sealed)):
        broken = bytearray(sealed)
        broken[n] ^= 1
        with pytest.raises(DoesNotOpen):
            vault.open(base64.b64encode(broken).decode(), about="x")
    for garbage in ("", "é", "AAAA", "%%%"):
        with pytest.raises(DoesNotOpen):
            vault.open(garbage, about="x")


def test_t_x3_with_another_key_keyturn_does_not_start(tmp_path: Path) -> None:
    a_policy(tmp_path / "policy")
    settings = Settings(data=tmp_path / "var", policy=tmp_path / "policy")
    app.build(settings).database.close()
    app.build(settings).database.close()
    key = settings.data / "secrets.key"
    right = key.read_bytes()
    key.unlink()
    with pytest.raises(BadKey, match=r"put the right secrets\.key back"):
        app.build(settings)
    key.write_bytes(right)
    app.build(settings).database.close()


def test_t_x3_a_key_that_is_none_or_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    file.write_bytes(b"short")
    file.chmod(0o600)
    with pytest.raises(BadKey, match="no key of a safe"):
        safe.kept_in(file)
    file.write_bytes(b"0" * 32)
    file.chmod(0o640)
    with pytest.raises(BadKey, match="chmod 600"):
        safe.kept_in(file)


def test_t_x4_each_installation_makes_its_own_key_that_nobody_else_can_read(
    tmp_path: Path,
) -> None:
    one, other = tmp_path / "one.key", tmp_path / "other.key"
    sealed = safe.kept_in(one).seal(SECRET, about="x")
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert safe.kept_in(one).open(sealed, about="x") == SECRET
    with pytest.raises(DoesNotOpen):
        safe.kept_in(other).open(sealed, about="x")


class Careless(Safe):
    """A safe that forgot how to encrypt: it writes what it is given."""

    def seal(self, secret: str, *, about: object) -> str:  # noqa: ARG002 - it does not care
        return base64.b64encode(secret.encode()).decode()

    def open(self, sealed: str, *, about: object) -> str:  # noqa: ARG002 - it does not care
        return base64.b64decode(sealed).decode()


def test_t_x5_a_safe_that_does_not_encrypt_is_found_at_the_start(database: Database) -> None:
    with pytest.raises(BadKey, match="written as they are"), database.transaction() as tx:
        safe.try_out(tx, Careless(b"0" * 32))
    # The twin: the same words, by a safe that does.
    vault = Safe.new()
    for _ in range(2):
        with database.transaction() as tx:
            safe.try_out(tx, vault)
