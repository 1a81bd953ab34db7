"""Rows of answers to alerts: each is claimed once, and posted once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import delete, func, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.times import DAY, SECOND

_TABLE, _row = tables.alert_answer, tables.alert_answer.c
_KEEP = 30 * DAY


@dataclass(frozen=True)
class AnswerKey:
    """The alert, and who reads the answer."""

    channel: str
    ts: str
    """Timestamp of the message."""
    user: str = ""
    """U…, who alone reads it; "" for the thread of the message."""


@dataclass(frozen=True)
class Answer:
    """An answer to an alert. Times are microseconds since 1970, UTC."""

    key: AnswerKey
    thread: str
    """Timestamp of the message that begins the thread."""
    person: str
    """As whom the checks run: the id of a person or agent."""
    hosts: Sequence[str]
    subject: str
    """What the alert is about, to recognise another one about the same."""
    plans: Sequence[str] = ()
    """Filled-in requests of changes, as typed."""
    runs: Sequence[int] | None = None
    """The checks; None until all are requested, and if the process ended before that."""
    claimed_at: int = 0
    due_at: int = 0
    attempts: int = 0
    posted: str | None = None
    """Timestamp of the answer; "" if it was given up, None until then."""


def claim_answer(tx: Transaction, answer: Answer, *, seconds: float) -> bool:
    """Store a new answer; False if there is one. seconds: until another process goes on with it.

    One that only a person reads is given again once it is done, and so is one that was given up.
    """
    tx.sql.execute(delete(_TABLE).where(_row.claimed_at < tx.now - _KEEP))
    again = _row.posted.is_not(None) if answer.key.user else _row.posted == ""
    ended = tx.sql.execute(delete(_TABLE).where(*_match(answer.key), again))
    return tx.insert_once(
        _TABLE,
        channel=answer.key.channel,
        ts=answer.key.ts,
        user=answer.key.user,
        thread=answer.thread,
        person=answer.person,
        hosts=json.dumps([*answer.hosts]),
        subject=answer.subject,
        plans=json.dumps([*answer.plans]),
        runs=json.dumps(None),
        claimed_at=tx.now,
        due_at=tx.now + round(seconds * SECOND),
        # One that was given up may have been posted: it is searched for first.
        attempts=ended.rowcount,
        posted=None,
    )


def count_recent(tx: Transaction, channel: str, *, since: int, subject: str = "") -> int:
    """Count the answers in the threads of a channel since a time. subject: of these alone."""
    query = select(func.count()).where(
        _row.channel == channel, _row.user == "", _row.claimed_at >= since
    )
    return tx.sql.execute(query.where(_row.subject == subject) if subject else query).scalar_one()


def store_runs(tx: Transaction, key: AnswerKey, runs: Sequence[int]) -> None:
    """Record the checks of an answer, which any process may now post."""
    values = {"runs": json.dumps([*runs]), "due_at": tx.now}
    tx.sql.execute(update(_TABLE).where(*_match(key)).values(values))


def list_open(tx: Transaction) -> list[Answer]:
    """Return the answers that are to be posted, the oldest first."""
    query = select(_TABLE).where(_row.posted.is_(None)).order_by(_row.claimed_at).limit(100)
    return [_build(one) for one in tx.sql.execute(query)]


def lease_answer(tx: Transaction, answer: Answer, *, seconds: float) -> bool:
    """Keep other processes from an answer for a while; False if it is not due."""
    leased = tx.sql.execute(
        update(_TABLE)
        .where(*_match(answer.key), _row.posted.is_(None), _row.due_at <= tx.now)
        .values(due_at=tx.now + round(seconds * SECOND), attempts=_row.attempts + 1)
    )
    return leased.rowcount == 1


def postpone_answer(tx: Transaction, key: AnswerKey, *, seconds: float) -> None:
    """Post an answer later."""
    due = tx.now + round(seconds * SECOND)
    tx.sql.execute(update(_TABLE).where(*_match(key)).values(due_at=due))


def mark_posted(tx: Transaction, key: AnswerKey, ts: str) -> None:
    """Record that an answer was posted. ts: "" if it was given up."""
    tx.sql.execute(update(_TABLE).where(*_match(key)).values(posted=ts))


def _match(key: AnswerKey) -> Sequence[Any]:
    return _row.channel == key.channel, _row.ts == key.ts, _row.user == key.user


def _build(row: Any) -> Answer:
    return Answer(
        AnswerKey(row.channel, row.ts, row.user),
        row.thread,
        row.person,
        _parse_texts(row.hosts),
        row.subject,
        _parse_texts(row.plans),
        _parse_runs(row.runs),
        row.claimed_at,
        row.due_at,
        row.attempts,
        row.posted,
    )


def _parse_texts(text: str) -> list[str]:
    return [one for one in _parse_list(text) or [] if isinstance(one, str)]


def _parse_runs(text: str) -> list[int] | None:
    found = _parse_list(text)
    return None if found is None else [one for one in found if isinstance(one, int)]


def _parse_list(text: str) -> list[object] | None:
    """Return a stored list; None if there is none yet, or the row is damaged."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return cast("list[object]", found) if isinstance(found, list) else None
