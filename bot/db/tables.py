"""All tables of the database."""

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
    text,
)

from bot.model.run import MAX_AREAS_LENGTH

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

# A run's place: for one host, for several as a whole, or the part of such a one.
ALONE, WHOLE, PART = 0, 1, 2
# What each index of runs begins with behind its own column.
_LOOKED_AT = ("id", "place", "asked", "state", "unwell")
# Of the few runs whose values somebody else chose.
_EDITED = text("editors != '[]'")

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
    Column("area", String(MAX_AREAS_LENGTH), nullable=False),
    Column("requested_by", String(64), nullable=False),
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
    Column("terms", Text, nullable=False),
    Column("shown", BigInteger),
    Column("reminded", BigInteger),
    Column("escalated", BigInteger),
    Column("undo_of", Integer, ForeignKey("run.id")),
    Column("parent", Integer, ForeignKey("run.id")),
    Column("hosts", Text, nullable=False),
    Column("timing", Text),
    Column("editors", Text, nullable=False),
    Column("counters", Integer, ForeignKey("run.id")),
    Column("grant_id", Integer, ForeignKey("standing_grant.id")),
    Column("summary", Text, nullable=False),
    # 0: for one host; 1: for several, as a whole; 2: the part of such a one for one host.
    Column("place", Integer, nullable=False),
    # Whether its report tells of something wrong.
    Column("unwell", Boolean, nullable=False),
    # Keyset paging, newest first, behind the first filter that is given. What other filters look
    # at is in the index too: what they leave out costs no look into the table.
    Index("ix_run_host", "host", *_LOOKED_AT, "words", "requested_by", "area"),
    Index("ix_run_person", "requested_by", *_LOOKED_AT, "words", "area", "host"),
    Index("ix_run_words", "words", *_LOOKED_AT, "area", "host"),
    Index("ix_run_area", "area", *_LOOKED_AT, "host"),
    Index("ix_run_state", "state", "id", "place", "asked", "unwell", "host"),
    Index("ix_run_newest", *_LOOKED_AT, "host"),
    Index("ix_run_edited", "id", sqlite_where=_EDITED, postgresql_where=_EDITED),
    # Whether somebody has had this runbook succeed before.
    Index(None, "requested_by", "words"),
    # From times to numbers, and what was under way at a time.
    Index(None, "asked", "id"),
    Index(None, "ended", "id"),
    Index(None, "parent", "id"),
    # The number of a run is never given again, whatever becomes of its row.
    sqlite_autoincrement=True,
)

vote = Table(
    "vote",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("approves", Boolean, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("on_behalf_of", String(64), nullable=False),
    Column("factor", String(32), nullable=False),
)

# Who decides in whose stead. area: "" means in every area of the delegator's.
delegation = Table(
    "delegation",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("delegator", String(64), nullable=False),
    Column("delegate", String(64), nullable=False),
    Column("area", String(64), nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("reason", Text, nullable=False),
    Index(None, "delegate", "ends"),
)

# What somebody may have done without being approved each time. patterns: of values, by field.
standing_grant = Table(
    "standing_grant",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("person", String(64), nullable=False),
    Column("words", String(80), nullable=False),
    Column("hosts", String(100), nullable=False),
    Column("patterns", Text, nullable=False),
    Column("per_hour", Integer, nullable=False),
    Column("giver", String(64), nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("reason", Text, nullable=False),
    Index(None, "person", "words"),
)

# Each time that a grant let a run through the gate.
grant_use = Table(
    "grant_use",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("grant_id", Integer, ForeignKey("standing_grant.id"), nullable=False),
    Column("at", BigInteger, nullable=False),
    Index(None, "grant_id", "at"),
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
    # Dense: two that follow the same one would have the same number.
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
    Index(None, "run", "seq"),
    Index(None, "kind", "seq"),
    Index(None, "host", "seq"),
    Index(None, "person", "seq"),
    Index(None, "at", "seq"),
)

# What fires by the clock. run: the request that was approved for it. due: when it fires next.
schedule = Table(
    "schedule",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", Integer, ForeignKey("run.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("timing", Text, nullable=False),
    Column("began", BigInteger, nullable=False),
    Column("lapses", BigInteger, nullable=False),
    Column("decided", BigInteger, nullable=False),
    Column("due", BigInteger),
    Column("why", Text, nullable=False),
    UniqueConstraint("run"),
    Index(None, "state", "due"),
)

# What became of each moment that a schedule was due at: its key decides who fires it.
fire = Table(
    "fire",
    metadata,
    Column("schedule", Integer, ForeignKey("schedule.id"), primary_key=True),
    Column("due", BigInteger, primary_key=True),
    Column("host", String(64), primary_key=True),
    Column("outcome", String(16), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("run", Integer, ForeignKey("run.id")),
    Column("why", Text, nullable=False),
    Index(None, "run"),
    Index(None, "outcome", "start"),
)

# What hosts answered, apart from the chain, which holds its hash: so it can be erased. text, salt:
# NULL once it was. n: the step; 0 for a report. entry: the one that binds it.
output = Table(
    "output",
    metadata,
    Column(
        "entry",
        BigInteger().with_variant(Integer, "sqlite"),
        ForeignKey("entry.seq"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("run", Integer, nullable=False),
    Column("n", Integer, nullable=False),
    Column("salt", String(32)),
    Column("text", Text),
    Index(None, "run", "n"),
)

# What a run is found by: the words of its values, its reason, its end and of what hosts answered.
# Erased along with that.
word = Table(
    "word",
    metadata,
    Column("word", String(64), primary_key=True),
    Column("run", Integer, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# Work that a run has started and that goes on after it: looked at until it is over.
vigil = Table(
    "vigil",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("next", BigInteger, nullable=False),
    Column("looks", Integer, nullable=False),
    Index(None, "next"),
)

# What doors have still to tell of a run: only that there is news, never the news itself. sender:
# who tells it now, until not_before; "" if nobody does.
news = Table(
    "news",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("told", Integer, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("sender", String(36), nullable=False),
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

# Who has looked at their Home tab in chat, and whether it is to be drawn anew. digest: of what it
# shows; due: when it is drawn next, NULL while it is as it should be.
home = Table(
    "home",
    metadata,
    Column("user", String(32), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("opened", BigInteger, nullable=False),
    Column("drawn", BigInteger, nullable=False),
    Column("due", BigInteger),
    Column("digest", String(64), nullable=False),
    Index(None, "due"),
)

# Requests that were seen already, by signature or by meaning.
seen = Table(
    "seen",
    metadata,
    Column("key", String(160), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Index(None, "at"),
)

# What somebody stopped: "all", until somebody else resumes, or a run by its number.
stop = Table(
    "stop",
    metadata,
    Column("what", String(16), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
)

# Who is shut out, whatever the policy lets them do.
ban = Table(
    "ban",
    metadata,
    Column("person", String(64), primary_key=True),
    Column("by", String(64), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
)

# Tokens are kept as their SHA-256 only. stamp: over all that a row says; see bot.auth.row_mac.
sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("token", String(64), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("used", BigInteger),
    Column("stamp", String(64), nullable=False),
)

session = Table(
    "session",
    metadata,
    Column("token", String(64), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("began", BigInteger, nullable=False),
    Column("last_seen", BigInteger, nullable=False),
    Column("stepped_up", BigInteger),
    Column("factor", String(32), nullable=False),
    Column("challenge", String(64), nullable=False),
    Column("challenged", BigInteger),
    Column("by", String(16), nullable=False),
    Column("agent", String(200), nullable=False),
    Column("stamp", String(64), nullable=False),
)

# What must be kept and must not be read: sealed by a key that is not here.
factor = Table(
    "factor",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("person", String(64), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("digest", String(32), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("verified_at", BigInteger),
    Column("used", BigInteger, nullable=False),
    Column("confirmed_by", String(64), nullable=False),
    Column("sealed", Text, nullable=False),
    Index(None, "person"),
)

sealed = Table(
    "sealed",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("content", Text, nullable=False),
)

# Who broke the glass for which run, and who looked at it afterwards.
glass = Table(
    "glass",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("activated_at", BigInteger),
    Column("active_until", BigInteger),
    Column("factor", String(32), nullable=False),
    Column("reviewed_at", BigInteger),
    Column("reviewer", String(64), nullable=False),
    Column("review", Text, nullable=False),
    Index(None, "person", "activated_at"),
)


# How a host was met last. answered: when it did; met: the last time that it was tried; kind: what
# stood in the way then, "" if it answered; since: when that was first so.
contact = Table(
    "contact",
    metadata,
    Column("host", String(64), primary_key=True),
    Column("tried_at", BigInteger, nullable=False),
    Column("answered_at", BigInteger),
    Column("since", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("error", Text, nullable=False),
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


# What programs come with. prefix: what it is found by; hash: the SHA-256 of all of it. stamp: over
# all that a row says; see bot.auth.row_mac.
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

# worker: who has it, "" if nobody; until: when others may take it from them.
lease = Table(
    "lease",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("fence", Integer, nullable=False),
    Column("worker", String(96), nullable=False),
    Column("until", BigInteger, nullable=False),
    Index(None, "until"),
)

# at: when a line was heard last. lines: how many there were in all; text holds the newest.
heard = Table(
    "heard",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "run", "at"),
)

# Events that were told already, by their source and their own key.
outside_event = Table(
    "outside_event",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("key", String(64), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Index(None, "at"),
)

# How far each subscription has read the change log, and what it is still to be told of. dead: when
# it was given up.
subscription = Table(
    "subscription",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

delivery = Table(
    "delivery",
    metadata,
    Column("subscription", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("dead", BigInteger),
    Column("trouble", Text, nullable=False),
    Index(None, "subscription", "run", "seq"),
    Index(None, "dead"),
)
