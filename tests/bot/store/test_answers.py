"""A key of a request is had by one at a time, whoever lets go of it and when."""

from typing import Any

from sqlalchemy import event

from bot.store import answers
from bot.store.answers import Claim
from bot.store.database import Database
from tests.bot.empty import on_postgresql


# SQLite has one writer: nobody gives a key back between two of its statements.
@on_postgresql
def test_a_key_that_is_given_back_while_it_is_asked_for_is_taken(database: Database):
    with database.transaction() as tx:
        first = answers.claim(tx, "k", request="r")
    assert isinstance(first, Claim)
    given_back: list[str] = []

    def give_back(_connection: object, _cursor: object, text: str, *_more: Any) -> None:
        if "FOR UPDATE" in text and "answered" in text and not given_back:
            given_back.append(text)
            with database.transaction() as other:
                answers.release(other, first)

    event.listen(database.engine, "before_cursor_execute", give_back)
    with database.transaction() as tx:
        second = answers.claim(tx, "k", request="r")
        assert isinstance(second, Claim)
        answers.keep(tx, second, answers.Answer(200, {}, "done"))
    assert given_back
    with database.transaction() as tx:
        third = answers.claim(tx, "k", request="r")
    assert isinstance(third, answers.Earlier)
    assert third.answer == answers.Answer(200, {}, "done")


def test_a_key_that_was_given_back_is_free(database: Database):
    with database.transaction() as tx:
        first = answers.claim(tx, "k", request="r")
        assert isinstance(first, Claim)
        assert isinstance(answers.claim(tx, "k", request="r"), answers.Earlier)
        answers.release(tx, first)
        assert isinstance(answers.claim(tx, "k", request="other"), Claim)
