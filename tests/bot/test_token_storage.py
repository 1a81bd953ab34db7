"""No session, sign-in link or API token is stored in plain text."""

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from bot.auth import sessions, tokens
from bot.db import tables
from bot.db.database import Database, Transaction

_SECOND = 1_000_000


def _dump_tables(database: Database) -> str:
    """Return every value of every table."""
    with database.reading() as tx:
        rows = [
            row for table in tables.metadata.sorted_tables for row in tx.sql.execute(select(table))
        ]
    return "\n".join(str(value) for row in rows for value in row)


def _list_spellings(token: str) -> Sequence[str]:
    data = token.encode()
    # The last characters of base64 depend on what follows.
    return (token, data.hex(), base64.b64encode(data).decode()[:-4], token[-20:])


def _issue_credentials(tx: Transaction) -> list[str]:
    """Begin one of everything that somebody could come back with."""
    session = sessions.begin_session(tx, "olga")
    sessions.record_step_up(tx, session, factor_digest="d" * 32)
    _, api = tokens.add_token(
        tx, person="dora", scopes=["read"], name="a program", expires_at=tx.now + 3600 * _SECOND
    )
    return [session, sessions.create_sign_in_link(tx, "dora"), api]


def _find_tokens(database: Database, issued: Sequence[str]) -> list[str]:
    dump = _dump_tables(database)
    return [token for token in issued if any(spelt in dump for spelt in _list_spellings(token))]


def test_database_dump_contains_no_session_sign_in_link_or_api_token(
    database: Database, tmp_path: Path
):
    with database.transaction() as tx:
        issued = _issue_credentials(tx)
    assert _find_tokens(database, issued) == []
    if database.embedded:
        raw = b"".join(file.read_bytes() for file in tmp_path.glob("keyturn.db*"))
        assert [token for token in issued if token.encode() in raw] == []
    # They are good: what is looked for is what opens the door.
    with database.transaction() as tx:
        assert sessions.touch_session(tx, issued[0]) == "olga"
        assert sessions.use_sign_in_link(tx, issued[1]) == "dora"
        assert tokens.find_token(tx, issued[2])


@pytest.mark.parametrize("spelling", range(3))
def test_token_stored_in_plain_text_is_found_by_the_dump_search(database: Database, spelling: int):
    """The twin: who looks like this finds what is there."""
    with database.transaction() as tx:
        issued = _issue_credentials(tx)
        spelt = _list_spellings(issued[0])[spelling]
        tx.sql.execute(insert(tables.seen_request).values(key=f"x{spelt}", seen_at=tx.now))
    assert _find_tokens(database, issued) == issued[:1]


def test_tokens_have_256_bits_and_are_unique(database: Database):
    with database.transaction() as tx:
        several = [token for _ in range(50) for token in _issue_credentials(tx)]
    assert len(set(several)) == len(several)
    for token in several:
        # 256 bits are 43 characters of base64; an API token has its prefix before them.
        prefix = 12 if token.startswith(tokens.TOKEN_PREFIX) else 0
        assert len(token) - prefix >= 43
