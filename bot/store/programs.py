"""The tables of programs that come by the API: their tokens, and what they were answered."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text, UniqueConstraint

from bot.store.tables import metadata

# What programs come with. prefix: what it is found by; hash: the SHA-256 of all of it. stamp: over
# all that a row says; see bot.store.stamp.
api_token = Table(
    "api_token",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("prefix", String(16), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("used", BigInteger),
    Column("stamp", String(64), nullable=False),
    UniqueConstraint("prefix"),
    Index(None, "person"),
)

# What was answered to a request that carried a key of its own, for when it comes again. request:
# its digest; answer: NULL while it is being worked on; entry: the first of the change log that it
# wrote.
answered = Table(
    "answered",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("answer", Text),
    Column("entry", BigInteger),
    Index(None, "at"),
)
