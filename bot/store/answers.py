"""Answers: what was answered to a request with a key of its own, for when it comes again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, select, update

from bot.store import programs
from bot.store.database import Transaction

KEEP_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Answer:
    """status: of HTTP. headers: those that belong to the answer itself. body: its text."""

    status: int
    headers: Mapping[str, str]
    body: str


@dataclass(frozen=True)
class Earlier:
    """A request with the same key. request: its digest. answer: None while it is worked on."""

    request: str
    answer: Answer | None


def claim(tx: Transaction, key: str, *, request: str) -> Earlier | None:
    """Take the key for this request and return None, or return the request that has taken it."""
    old = tx.now - KEEP_SECONDS * 1_000_000
    tx.sql.execute(delete(programs.answered).where(programs.answered.c.at < old))
    if tx.insert_once(programs.answered, key=key, request=request, at=tx.now):
        return None
    row = tx.sql.execute(select(programs.answered).where(programs.answered.c.key == key)).one()
    return Earlier(row.request, Answer(**json.loads(row.answer)) if row.answer else None)


def keep(tx: Transaction, key: str, answer: Answer) -> None:
    """Keep what was answered."""
    told = json.dumps(vars(answer), ensure_ascii=False)
    tx.sql.execute(
        update(programs.answered).where(programs.answered.c.key == key).values(answer=told)
    )


def release(tx: Transaction, key: str) -> None:
    """Give the key back: nothing was done, so the same request may be made anew."""
    tx.sql.execute(delete(programs.answered).where(programs.answered.c.key == key))
