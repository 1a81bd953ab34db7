"""The tables, in SQL that is the same on SQLite and PostgreSQL.

Times are microseconds since 1970, UTC. JSON is kept as text, since it is hashed as text.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("version", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("words", String(80), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("fields", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("host", String(64), nullable=False),
    Column("area", String(64), nullable=False),
    Column("asked_by", String(64), nullable=False),
    Column("origin", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("proposal", Text),
    Column("digest", String(64), nullable=False),
    Column("needed", Integer, nullable=False),
    Column("groups", Text, nullable=False),
    Column("says", Text, nullable=False),
    Column("undo_of", Integer, ForeignKey("run.id")),
    Column("parent", Integer, ForeignKey("run.id")),
    Column("hosts", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("report", Text),
    # Keyset paging, newest first, alone or behind one filter.
    Index(None, "host", "id"),
    Index(None, "asked_by", "id"),
    Index(None, "words", "id"),
    Index(None, "state", "id"),
    Index(None, "asked"),
    Index(None, "parent", "id"),
)

vote = Table(
    "vote",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("yes", Boolean, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)

step = Table(
    "step",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("status", Integer),
    Column("output", Text, nullable=False),
    Column("trouble", Text, nullable=False),
)

target_lock = Table(
    "target_lock",
    metadata,
    Column("target", String(64), primary_key=True),
    Column("run", Integer, ForeignKey("run.id"), nullable=False),
    Column("since", BigInteger, nullable=False),
)

# Append-only: triggers (SQLite) and rights (PostgreSQL) refuse all but INSERT and SELECT.
entry = Table(
    "entry",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("run", Integer),
    Column("person", String(64), nullable=False),
    Column("host", String(64), nullable=False),
    Column("body", Text, nullable=False),
    Column("prev", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
    UniqueConstraint("prev"),
    Index(None, "run", "seq"),
    Index(None, "kind", "seq"),
)

# What doors have still to tell of a run: only that there is news, never the news itself.
news = Table(
    "news",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("told", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("trouble", Text, nullable=False),
)

# Where a door has told it: one row for each message that it keeps up to date.
notice = Table(
    "notice",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("slot", String(96), primary_key=True),
    Column("channel", String(32), nullable=False),
    Column("ts", String(32), nullable=False),
    Column("digest", String(64), nullable=False),
)

# Requests that were seen already, by signature or by meaning.
seen = Table(
    "seen",
    metadata,
    Column("key", String(160), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Index(None, "at"),
)

# Tokens are kept as their SHA-256 only.
sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("token", String(64), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("used", BigInteger),
)

session = Table(
    "session",
    metadata,
    Column("token", String(64), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("began", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
)
