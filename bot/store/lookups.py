"""The tables of what pages look up: how hosts were last met, and views that people have named."""

from sqlalchemy import BigInteger, Column, Integer, String, Table, Text, UniqueConstraint

from bot.store.tables import metadata

# How a host was met last. answered: when it did; met: the last time that it was tried; kind: what
# stood in the way then, "" if it answered; since: when that was first so.
contact = Table(
    "contact",
    metadata,
    Column("host", String(64), primary_key=True),
    Column("met", BigInteger, nullable=False),
    Column("answered", BigInteger),
    Column("since", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("trouble", Text, nullable=False),
)

# Filters of the history under a name. query: as in the address, in one order.
view = Table(
    "view",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("person", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("query", Text, nullable=False),
    Column("made", BigInteger, nullable=False),
    UniqueConstraint("person", "name"),
)
