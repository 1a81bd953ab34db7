"""The Home tabs in Slack that must be rendered again."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.times import HOUR, SECOND

# Slack allows about a hundred Home updates a minute.
_PAUSE = 5 * SECOND
# A Home that was not opened for so long is rendered only when it is opened again.
_MAX_UNOPENED = 8 * HOUR
_HOME = tables.slack_home.c


@dataclass(frozen=True)
class Home:
    """user: the Slack user ID. digest: of the content. due: identifies this rendering."""

    user: str
    person: str
    digest: str
    due: int


def open_home(tx: Transaction, user: str, person: str) -> bool:
    """Record that a person opened the app, and have their Home tab rendered.

    Return whether it is the first time.
    """
    tx.after_commit(tx.wake_outbox)
    values = {"person": person, "opened_at": tx.now, "due_at": tx.now}
    is_first = tx.insert_once(tables.slack_home, user=user, rendered_at=0, digest="", **values)
    if not is_first:
        tx.sql.execute(update(tables.slack_home).where(_HOME.user == user).values(**values))
    return is_first


def mark_homes_due(tx: Transaction, users: Collection[str]) -> None:
    """Have the recently opened Homes of these users rendered again soon."""
    if not users:
        return
    tx.sql.execute(
        update(tables.slack_home)
        .where(_HOME.user.in_(users), _HOME.opened_at > tx.now - _MAX_UNOPENED)
        .values(due_at=_HOME.rendered_at + _PAUSE)
    )


def list_due_homes(tx: Transaction, *, most: int = 20) -> list[Home]:
    query = (
        select(tables.slack_home).where(_HOME.due_at <= tx.now).order_by(_HOME.due_at).limit(most)
    )
    return [Home(row.user, row.person, row.digest, row.due_at) for row in tx.sql.execute(query)]


def claim_home(tx: Transaction, home: Home, *, seconds: float) -> Home | None:
    """Claim a Home for so long; None if another process has claimed it."""
    until = tx.now + round(seconds * SECOND)
    claimed = tx.sql.execute(
        update(tables.slack_home)
        .where(_HOME.user == home.user, _HOME.due_at == home.due)
        .values(due_at=until)
    )
    return Home(home.user, home.person, home.digest, until) if claimed.rowcount == 1 else None


def mark_rendered(tx: Transaction, home: Home, digest: str) -> None:
    """Store the digest of the content. A change made meanwhile stays due."""
    known = update(tables.slack_home).where(_HOME.user == home.user)
    tx.sql.execute(known.values(rendered_at=tx.now, digest=digest))
    tx.sql.execute(known.where(_HOME.due_at == home.due).values(due_at=None))


def release_all_claims(tx: Transaction) -> None:
    """Release the claims of processes that have died, so that their Homes are rendered."""
    tx.sql.execute(update(tables.slack_home).where(_HOME.due_at > tx.now).values(due_at=tx.now))


def forget_home(tx: Transaction, home: Home) -> None:
    """Stop rendering a Home until its owner opens it again."""
    known = update(tables.slack_home).where(_HOME.user == home.user, _HOME.due_at == home.due)
    tx.sql.execute(known.values(due_at=None, opened_at=0))


def postpone_home(tx: Transaction, home: Home, *, seconds: float) -> None:
    later = tx.now + round(seconds * SECOND)
    known = update(tables.slack_home).where(_HOME.user == home.user, _HOME.due_at == home.due)
    tx.sql.execute(known.values(due_at=later))
