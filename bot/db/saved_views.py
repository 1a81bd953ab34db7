"""Saved views: filters of the history under a name, shared by link."""

from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model.errors import InvalidRequestError
from connectors.errors import DomainError

# More views than this cannot be searched by eye.
MOST = 50
LONGEST_NAME = 64
# What the history is filtered by, in the order in which it stands in an address. zone: the one in
# which times are meant that name none; without it, UTC.
FILTERS = ("host", "area", "person", "runbook", "state", "search", "since", "until", "zone")
_VIEW = tables.saved_view.c


class NoSuchView(DomainError):
    """There is no view with this number."""

    code, status = "not-found", 404


@dataclass(frozen=True)
class SavedView:
    """query: the filters as in the URL, in a fixed order. created_at: microseconds."""

    id: int
    person: str
    name: str
    query: str
    created_at: int


def list_views(tx: Transaction, person: str) -> list[SavedView]:
    """Return the views of a person, by name."""
    query = select(tables.saved_view).where(_VIEW.person == person).order_by(_VIEW.name)
    return [SavedView(*row) for row in tx.sql.execute(query)]


def get_view(tx: Transaction, number: int) -> SavedView:
    row = tx.sql.execute(select(tables.saved_view).where(_VIEW.id == number)).one_or_none()
    if row is None:
        raise NoSuchView(f"there is no view {number}: its owner may have deleted it")
    return SavedView(*row)


def store_view(tx: Transaction, *, person: str, name: str, query: str) -> SavedView:
    """Store a view, or replace the filters of the view with that name.

    Raises InvalidRequestError if the person has too many views.
    """
    same = (_VIEW.person == person) & (_VIEW.name == name)
    known = tx.sql.execute(select(_VIEW.id).where(same)).scalar()
    if known is not None:
        tx.sql.execute(update(tables.saved_view).where(_VIEW.id == known).values(query=query))
        return get_view(tx, known)
    if len(list_views(tx, person)) >= MOST:
        raise InvalidRequestError(f"you already have {MOST} saved views: delete one first")
    values = {"person": person, "name": name, "query": query, "created_at": tx.now}
    row = tx.sql.execute(
        insert(tables.saved_view).values(values).returning(tables.saved_view)
    ).one()
    return SavedView(*row)


def delete_view(tx: Transaction, number: int, *, person: str) -> bool:
    """Delete a view of a person; False if it is not theirs."""
    mine = (_VIEW.id == number) & (_VIEW.person == person)
    gone = tx.sql.execute(delete(tables.saved_view).where(mine).returning(_VIEW.id))
    return gone.one_or_none() is not None
