"""Homes: whose Home tab in chat is to be drawn anew, whichever process hears of the reason."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select, update

from bot.db import tables
from bot.db.database import Transaction

_SECOND = 1_000_000
# Slack allows about a hundred Homes a minute; and nobody reads faster.
_BETWEEN = 5 * _SECOND
# Who has not looked for so long sees it drawn anew when they look again.
_LOOKED = 8 * 3600 * _SECOND
_HOME = tables.home.c


@dataclass(frozen=True)
class Home:
    """user: U…. digest: of what it shows. due: which drawing this is."""

    user: str
    person: str
    digest: str
    due: int


def open_home(tx: Transaction, user: str, person: str) -> None:
    """Have a Home drawn for somebody who looks at it now."""
    tx.after_commit(tx.tell_news)
    values = {"person": person, "opened": tx.now, "due": tx.now}
    if not tx.insert_once(tables.home, user=user, drawn=0, digest="", **values):
        tx.sql.execute(update(tables.home).where(_HOME.user == user).values(**values))


def mark_homes_due(tx: Transaction, users: Collection[str]) -> None:
    """Have the Homes of these users drawn anew soon, as far as they have looked lately."""
    if not users:
        return
    tx.sql.execute(
        update(tables.home)
        .where(_HOME.user.in_(users), _HOME.opened > tx.now - _LOOKED)
        .values(due=_HOME.drawn + _BETWEEN)
    )


def list_due_homes(tx: Transaction, *, most: int = 20) -> list[Home]:
    query = select(tables.home).where(_HOME.due <= tx.now).order_by(_HOME.due).limit(most)
    return [Home(row.user, row.person, row.digest, row.due) for row in tx.sql.execute(query)]


def claim_home(tx: Transaction, home: Home, *, seconds: float) -> Home | None:
    """Keep others from drawing it for so long; None if somebody else does."""
    until = tx.now + round(seconds * _SECOND)
    claimed = tx.sql.execute(
        update(tables.home).where(_HOME.user == home.user, _HOME.due == home.due).values(due=until)
    )
    return Home(home.user, home.person, home.digest, until) if claimed.rowcount == 1 else None


def mark_drawn(tx: Transaction, home: Home, digest: str) -> None:
    """Write down what it shows now; what came meanwhile is drawn later."""
    known = update(tables.home).where(_HOME.user == home.user)
    tx.sql.execute(known.values(drawn=tx.now, digest=digest))
    tx.sql.execute(known.where(_HOME.due == home.due).values(due=None))


def release_all(tx: Transaction) -> None:
    """Have drawn at once what others have claimed and will not draw: they are dead."""
    tx.sql.execute(update(tables.home).where(_HOME.due > tx.now).values(due=tx.now))


def forget_home(tx: Transaction, home: Home) -> None:
    """Leave it as it is until its owner looks again."""
    known = update(tables.home).where(_HOME.user == home.user, _HOME.due == home.due)
    tx.sql.execute(known.values(due=None, opened=0))


def postpone_home(tx: Transaction, home: Home, *, seconds: float) -> None:
    later = tx.now + round(seconds * _SECOND)
    known = update(tables.home).where(_HOME.user == home.user, _HOME.due == home.due)
    tx.sql.execute(known.values(due=later))
