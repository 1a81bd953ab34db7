"""An idempotency key is held by one request at a time."""

from typing import Any

from sqlalchemy import event

from bot.db import idempotency
from bot.db.database import Database
from bot.db.idempotency import Claim
from tests.bot.databases import on_postgresql


# SQLite has one writer: nobody gives a key back between two of its statements.
@on_postgresql
def test_idempotency_key_released_during_a_claim_is_claimed(database: Database):
    with database.transaction() as tx:
        first = idempotency.claim_key(tx, "k", request="r")
    assert isinstance(first, Claim)
    given_back: list[str] = []

    def give_back(_connection: object, _cursor: object, text: str, *_more: Any) -> None:
        if "FOR UPDATE" in text and "stored_response" in text and not given_back:
            given_back.append(text)
            with database.transaction() as other:
                idempotency.release_key(other, first)

    event.listen(database.engine, "before_cursor_execute", give_back)
    with database.transaction() as tx:
        second = idempotency.claim_key(tx, "k", request="r")
        assert isinstance(second, Claim)
        idempotency.store_response(tx, second, idempotency.StoredResponse(200, {}, "done"))
    assert given_back
    with database.transaction() as tx:
        third = idempotency.claim_key(tx, "k", request="r")
    assert isinstance(third, idempotency.EarlierRequest)
    assert third.answer == idempotency.StoredResponse(200, {}, "done")


def test_released_idempotency_key_can_be_claimed_again(database: Database):
    with database.transaction() as tx:
        first = idempotency.claim_key(tx, "k", request="r")
        assert isinstance(first, Claim)
        assert isinstance(idempotency.claim_key(tx, "k", request="r"), idempotency.EarlierRequest)
        idempotency.release_key(tx, first)
        assert isinstance(idempotency.claim_key(tx, "k", request="other"), Claim)
