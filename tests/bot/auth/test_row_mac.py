"""Rows that grant access have a MAC: who writes to the database gains no access by them.

mallory is who can write to the database and has not the key of the log. He has a browser, an API
client and a chat account of his own.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, delete, insert, select, update

from bot.audit import change_log, events, verification
from bot.audit.event_type import Event, UnknownEvent
from bot.audit.spool import Spool
from bot.auth import row_mac, sessions, tokens
from bot.db import tables
from bot.db.database import Database, Transaction
from bot.maintenance.housekeeping import Housekeeping
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model import signing
from bot.model.signing import SigningKey
from tests.bot.databases import create_sqlite_database, on_sqlite

SESSION, LINK, TOKEN = tables.session, tables.sign_in_link, tables.api_token
HOUR = 3600 * 1_000_000
YEAR = 366 * 24 * HOUR
SECRET = "x" * 43


def _hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _alter_row(tx: Transaction, table: Table, **values: object) -> None:
    tx.sql.execute(update(table).values(values))


def _write(tx: Transaction, table: Table, **values: object) -> None:
    """Write a row of his own, with a stamp by a key of his own."""
    text = row_mac.encode_row(table, values)
    tx.sql.execute(insert(table).values(**values, mac=SigningKey.create().create_mac(text)))


def _write_row_with_copied_mac(tx: Transaction, table: Table, **values: object) -> None:
    """Write a row with the stamp of another that is good."""
    row = dict(tx.sql.execute(select(table)).mappings().one()) | values
    row.pop("id", None)
    tx.sql.execute(insert(table).values(row))


def _get_person_and_scopes(tx: Transaction, whole: str) -> tuple[str, str]:
    record = tokens.find_token(tx, whole)
    good = record is not None and record.is_active(tx.now)
    return (record.person, " ".join(record.scopes)) if record and good else ("", "")


# Each does something and returns who he is by it: anybody but himself is a break-in.


def _forge_session(tx: Transaction) -> str:
    columns = {
        "started_at": tx.now,
        "last_seen_at": tx.now,
        "factor_digest": "",
        "challenge": "",
        "signed_in_by": "link",
    }
    _write(tx, SESSION, token=_hash_token(SECRET), person="olga", user_agent="", **columns)
    return sessions.touch_session(tx, SECRET) or ""


def _forge_session_with_copied_mac(tx: Transaction) -> str:
    sessions.begin_session(tx, "olga")
    _write_row_with_copied_mac(tx, SESSION, token=_hash_token(SECRET))
    return sessions.touch_session(tx, SECRET) or ""


def _change_person_of_session(tx: Transaction) -> str:
    mine = sessions.begin_session(tx, "mallory")
    _alter_row(tx, SESSION, person="olga")
    return sessions.touch_session(tx, mine) or ""


def _extend_session(tx: Transaction) -> str:
    stolen = sessions.begin_session(tx, "olga")
    _alter_row(tx, SESSION, started_at=tx.now + YEAR, last_seen_at=tx.now + YEAR)
    return sessions.touch_session(tx, stolen) or ""


def _forge_link(tx: Transaction) -> str:
    _write(tx, LINK, token=_hash_token(SECRET), person="olga", expires_at=tx.now + HOUR)
    return sessions.use_sign_in_link(tx, SECRET) or ""


def _change_person_of_link(tx: Transaction) -> str:
    mine = sessions.create_sign_in_link(tx, "mallory")
    _alter_row(tx, LINK, person="olga")
    return sessions.use_sign_in_link(tx, mine) or ""


def _revive_expired_link(tx: Transaction) -> str:
    link = sessions.create_sign_in_link(tx, "olga", seconds=-1)
    _alter_row(tx, LINK, expires_at=tx.now + HOUR)
    return sessions.use_sign_in_link(tx, link) or ""


def _revive_used_link(tx: Transaction) -> str:
    link = sessions.create_sign_in_link(tx, "olga")
    sessions.use_sign_in_link(tx, link)
    _alter_row(tx, LINK, used_at=None)
    return sessions.use_sign_in_link(tx, link) or ""


def _create_token(tx: Transaction, person: str) -> str:
    return tokens.add_token(tx, person=person, scopes=["read"], name="", expires_at=tx.now + HOUR)[
        1
    ]


def _forge_token(tx: Transaction) -> str:
    whole = f"kt_0123abcd_{SECRET}"
    columns = {"scopes": "approve", "name": "", "created_at": tx.now, "expires_at": tx.now + YEAR}
    _write(tx, TOKEN, prefix=whole[:11], hash=_hash_token(whole), person="olga", **columns)
    return _get_person_and_scopes(tx, whole)[0]


def _forge_token_with_copied_mac(tx: Transaction) -> str:
    _create_token(tx, "olga")
    whole = f"kt_0123abcd_{SECRET}"
    _write_row_with_copied_mac(tx, TOKEN, prefix=whole[:11], hash=_hash_token(whole))
    return _get_person_and_scopes(tx, whole)[0]


def _change_person_of_token(tx: Transaction) -> str:
    mine = _create_token(tx, "mallory")
    _alter_row(tx, TOKEN, person="olga")
    return _get_person_and_scopes(tx, mine)[0]


def _add_scopes_to_token(tx: Transaction) -> str:
    mine = _create_token(tx, "mallory")
    _alter_row(tx, TOKEN, scopes="read request approve")
    return _get_person_and_scopes(tx, mine)[1].removeprefix("read").strip()


def _revive_expired_token(tx: Transaction) -> str:
    stolen = tokens.add_token(
        tx, person="olga", scopes=["request"], name="", expires_at=tx.now - 1
    )[1]
    _alter_row(tx, TOKEN, expires_at=tx.now + YEAR)
    return _get_person_and_scopes(tx, stolen)[0]


def _revive_revoked_token(tx: Transaction) -> str:
    stolen = _create_token(tx, "olga")
    tokens.revoke_all_tokens(tx, "olga")
    _alter_row(tx, TOKEN, revoked_at=None)
    return _get_person_and_scopes(tx, stolen)[0]


def _forge_step_up(tx: Transaction) -> str:
    """Olga has shown hers a moment ago, in her own session: the log tells of it."""
    mine = sessions.begin_session(tx, "olga")
    _alter_row(tx, SESSION, stepped_up_at=tx.now, factor_digest="d" * 32)
    session = sessions.find_session(tx, mine)
    return session.person if session and session.is_step_up_recent(tx.now) else ""


def _forge_challenge(tx: Transaction) -> str:
    mine = sessions.begin_session(tx, "olga")
    _alter_row(tx, SESSION, challenge="00" * 32, challenged_at=tx.now)
    return "olga" if sessions.take_challenge(tx, mine) else ""


BREAK_INS: tuple[Callable[[Transaction], str], ...] = (
    _forge_session,
    _forge_session_with_copied_mac,
    _change_person_of_session,
    _extend_session,
    _forge_link,
    _change_person_of_link,
    _revive_expired_link,
    _revive_used_link,
    _forge_token,
    _forge_token_with_copied_mac,
    _change_person_of_token,
    _add_scopes_to_token,
    _revive_expired_token,
    _revive_revoked_token,
    _forge_step_up,
    _forge_challenge,
)


@pytest.mark.parametrize("break_in", BREAK_INS)
class TestForgedRows:
    def test_forged_session_link_or_token_grants_no_access(
        self, database: Database, break_in: Callable[[Transaction], str]
    ):
        with database.transaction() as tx:
            assert break_in(tx) == ""

    def test_without_the_row_mac_a_forged_session_link_or_token_grants_access(
        self,
        database: Database,
        break_in: Callable[[Transaction], str],
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setattr(row_mac, "is_mac_valid", _accept)
        with database.transaction() as tx:
            assert break_in(tx) != ""


def _accept(*_: object) -> bool:
    return True


@pytest.mark.parametrize("table", [SESSION, LINK, TOKEN], ids=lambda table: table.name)
def test_row_mac_covers_every_column_except_the_id(database: Database, table: Table):
    """A column that is added later is stamped, too, or this fails."""
    with database.transaction() as tx:
        sessions.begin_session(tx, "dora")
        sessions.create_sign_in_link(tx, "dora")
        _create_token(tx, "dora")
        good = dict(tx.sql.execute(select(table)).mappings().one())
        assert row_mac.is_mac_valid(tx, table, tx.sql.execute(select(table)).one())
        altered: dict[str, bool] = {}
        for column in table.columns:
            text = column.type.python_type is str
            tx.sql.execute(update(table).values({column: "a" * 8 if text else 12345}))
            altered[column.name] = row_mac.is_mac_valid(
                tx, table, tx.sql.execute(select(table)).one()
            )
            tx.sql.execute(update(table).values(good))
    assert [name for name, holds in altered.items() if holds] == ["id"] * ("id" in altered)


# PostgreSQL keeps in a column only what is of its type.
@on_sqlite
def test_session_row_with_a_value_of_another_type_is_ignored(database: Database):
    with database.transaction() as tx:
        mine = sessions.begin_session(tx, "dora")
        for strange in (b"olga", 1.5, float("inf")):
            tx.sql.exec_driver_sql("UPDATE session SET person = ?", (strange,))
            assert sessions.find_session(tx, mine) is None


def test_forged_row_stays_invalid_after_it_is_used_or_revoked(database: Database):
    """Not by being used, nor by the mark that it was revoked."""
    with database.transaction() as tx:
        mine, token = sessions.begin_session(tx, "mallory"), _create_token(tx, "mallory")
        _alter_row(tx, SESSION, person="olga")
        _alter_row(tx, TOKEN, person="olga")
        sessions.record_step_up(tx, mine, factor_digest="d" * 32)
        number = tx.sql.execute(select(TOKEN.c.id)).scalar_one()
        tokens.revoke_token(tx, number)
        assert sessions.find_session(tx, mine) is None
        assert tokens.find_token(tx, token) is None
        assert tokens.list_tokens(tx) == []
        assert sessions.list_sessions(tx, "olga") == []
        with pytest.raises(tokens.NoSuchTokenError):
            tokens.lock_token(tx, number)


class TestRestoredRows:
    """The row of a token with its valid MAC is restored after the token was revoked."""

    def _put_back(self, tx: Transaction, event_type: type[Event], who: str = "olga") -> str:
        whole = _create_token(tx, "olga")
        row = dict(tx.sql.execute(select(TOKEN)).mappings().one())
        subject = row["prefix"] if event_type is events.TokenRevoked else who
        # All that an entry needs in order to revoke something is its subject.
        event = UnknownEvent(kind=event_type.kind, facts={event_type.revokes: subject})
        change_log.append_entry(tx, event, person="adam")
        tokens.revoke_all_tokens(tx, "olga")
        tx.sql.execute(delete(TOKEN))
        tx.sql.execute(insert(TOKEN).values(row))
        return _get_person_and_scopes(tx, whole)[0]

    @pytest.mark.parametrize("event_type", [events.TokenRevoked, events.Banned])
    def test_restored_row_of_a_revoked_token_grants_no_access(
        self, database: Database, event_type: type[Event]
    ):
        with database.transaction() as tx:
            assert self._put_back(tx, event_type) == ""

    def test_restored_token_row_is_valid_when_the_log_revokes_another_token(
        self, database: Database
    ):
        """The twin: it is good again where the log tells of somebody else, or of nothing."""
        with database.transaction() as tx:
            assert self._put_back(tx, events.Banned, who="o_ga") == "olga"


class TestForgedRowReports:
    def _house(self, database: Database, tmp_path: Path) -> Housekeeping:
        house = Housekeeping(database, spool=Spool(tmp_path / "spool"))
        house.open_log()
        return house

    def _list_forgeries(self, database: Database) -> list[dict[str, Any]]:
        with database.reading() as tx:
            return [
                e.facts
                for e in change_log.list_entries_after(tx, 0)
                if e.kind == events.ForgeryRefused.kind
            ]

    def test_forged_row_is_logged_once_and_at_once_by_the_service(
        self, database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        house = self._house(database, tmp_path)
        with database.transaction() as tx:
            mine = sessions.begin_session(tx, "mallory")
            _alter_row(tx, SESSION, person="olga")
        for _ in range(3):
            with database.reading() as tx, caplog.at_level(logging.CRITICAL):
                assert sessions.find_session(tx, mine) is None
            house.run_periodic_tasks()
        name = _hash_token(mine)[:16]
        assert self._list_forgeries(database) == [
            {"what": "session", "name": name, "owner": "olga"}
        ]
        assert [record.levelname for record in caplog.records] == ["CRITICAL"]
        assert f"the session {name} of olga was not written by Keyturn" in caplog.text

    def test_valid_row_is_not_reported_as_forged(self, database: Database, tmp_path: Path):
        house = self._house(database, tmp_path)
        with database.transaction() as tx:
            mine, token = sessions.begin_session(tx, "dora"), _create_token(tx, "dora")
            sessions.record_step_up(tx, mine, factor_digest="d" * 32)
            sessions.create_challenge(tx, mine)
        with database.transaction() as tx:
            assert sessions.take_challenge(tx, mine)
            assert (
                sessions.use_sign_in_link(tx, sessions.create_sign_in_link(tx, "dora")) == "dora"
            )
            record = tokens.find_token(tx, token)
            assert record
            tokens.record_token_use(tx, record)
            assert tokens.find_token(tx, token)
            assert sessions.touch_session(tx, mine) == "dora"
        house.run_periodic_tasks()
        assert self._list_forgeries(database) == []

    def test_forged_rows_beyond_a_limit_are_not_logged(self, database: Database, tmp_path: Path):
        house = self._house(database, tmp_path)
        with database.transaction() as tx:
            columns = {
                "started_at": 1,
                "last_seen_at": 1,
                "factor_digest": "",
                "challenge": "",
                "signed_in_by": "",
            }
            rows = [
                {"token": f"{n:05}{59 * '0'}", "person": "olga", **columns} for n in range(1100)
            ]
            tx.sql.execute(insert(SESSION), [{**row, "user_agent": "", "mac": ""} for row in rows])
            assert sessions.list_sessions(tx, "olga") == []
        house.run_periodic_tasks()
        assert len(self._list_forgeries(database)) == 20


class TestKeyRotation:
    """After a key rotation, logged tokens stay valid and people sign in again."""

    def _turned(self, tmp_path: Path, *, is_logged: bool) -> tuple[str, str, Database, int]:
        file = tmp_path / "changelog.key"
        database = create_sqlite_database(tmp_path / "keyturn.db", signing.load_signing_key(file))
        with database.transaction() as tx:
            verification.open_log(tx)
            session = sessions.begin_session(tx, "dora")
            made, token = tokens.add_token(
                tx, person="dora", scopes=["read"], name="", expires_at=tx.now + HOUR
            )
            if is_logged:
                change_log.append_entry(
                    tx,
                    events.TokenCreated(
                        owner="dora", token=made.prefix, scopes=("read",), source="cli", name=""
                    ),
                    person="dora",
                )
        ended = len(rotate_signing_key(database, file).ended)
        database.close()
        return session, token, Database(database.url, signing.load_signing_key(file)), ended

    def test_key_rotation_keeps_api_tokens_and_ends_sessions(self, tmp_path: Path):
        session, token, database, ended = self._turned(tmp_path, is_logged=True)
        with database.reading() as tx:
            assert _get_person_and_scopes(tx, token) == ("dora", "read")
            assert sessions.find_session(tx, session) is None
            assert tx.stamping
            assert tx.stamping.forged_rows == {}
        assert ended == 0
        database.close()

    def test_key_rotation_drops_an_api_token_that_the_log_does_not_confirm(self, tmp_path: Path):
        _, token, database, ended = self._turned(tmp_path, is_logged=False)
        with database.reading() as tx:
            assert tokens.find_token(tx, token) is None
        assert ended == 1
        database.close()

    def test_without_new_row_macs_a_key_rotation_ends_every_api_token(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(tokens, "remac_tokens", _list_nothing)
        _, token, database, _ = self._turned(tmp_path, is_logged=True)
        with database.reading() as tx:
            assert tokens.find_token(tx, token) is None
        database.close()


def _list_nothing(*_: object) -> list[object]:
    return []
