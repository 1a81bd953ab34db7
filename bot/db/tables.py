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


def _build_large_key(name: str, *references: ForeignKey) -> Column[int]:
    """Return a part of a primary key that the database does not number itself."""
    number = BigInteger().with_variant(Integer, "sqlite")
    return Column(name, number, *references, primary_key=True, autoincrement=False)


# A run's role in a fan-out: on one host, the parent of child runs, or such a child run.
SINGLE, PARENT, CHILD = 0, 1, 2
# Added to the role while only a plan is wanted: lists of runs leave such runs out.
PLAN_ONLY = 3
# Each index of runs continues with these after its own column.
_FILTER_COLUMNS = ("id", "fan_out_role", "requested_at", "state", "needs_attention")
# The few runs whose values someone other than the requester changed.
_EDITED = text("editors != '[]'")
# With the other runs in it, SQLite would use the index to find all that have no parent.
_IS_CHILD = text("parent IS NOT NULL")

run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("version", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("runbook", String(80), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("field_values", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("host", String(64), nullable=False),
    Column("area", String(MAX_AREAS_LENGTH), nullable=False),
    Column("requested_by", String(64), nullable=False),
    Column("origin", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("plan", Text),
    Column("digest", String(64), nullable=False),
    Column("required_approvals", Integer, nullable=False),
    Column("approver_groups", Text, nullable=False),
    Column("policy_notes", Text, nullable=False),
    Column("requirements", Text, nullable=False),
    Column("pending_since", BigInteger),
    Column("reminded_at", BigInteger),
    Column("escalated_at", BigInteger),
    Column("undo_of", Integer, ForeignKey("run.id")),
    Column("parent", Integer, ForeignKey("run.id")),
    Column("hosts", Text, nullable=False),
    Column("timing", Text),
    Column("editors", Text, nullable=False),
    Column("proposal_for", Integer, ForeignKey("run.id")),
    Column("grant_id", Integer, ForeignKey("standing_grant.id")),
    Column("guard_override", String(400), nullable=False),
    Column("ticket", String(64), nullable=False),
    Column("replan_of", Integer, ForeignKey("run.id")),
    Column("summary", Text, nullable=False),
    Column("refused_by", String(16)),
    # What it waits for, as JSON.
    Column("waiting", Text),
    # SINGLE, PARENT or CHILD, with PLAN_ONLY added or not.
    Column("fan_out_role", Integer, nullable=False),
    # Whether it succeeded with a report that has findings.
    Column("needs_attention", Boolean, nullable=False),
    # Keyset paging, newest first, by the index of the first filter that is given. The columns of
    # the other filters are in the index too, so that rows they exclude are not read.
    Index("ix_run_host", "host", *_FILTER_COLUMNS, "runbook", "requested_by", "area"),
    Index("ix_run_person", "requested_by", *_FILTER_COLUMNS, "runbook", "area", "host"),
    Index("ix_run_runbook", "runbook", *_FILTER_COLUMNS, "area", "host"),
    Index("ix_run_area", "area", *_FILTER_COLUMNS, "host"),
    Index(
        "ix_run_state", "state", "id", "fan_out_role", "requested_at", "needs_attention", "host"
    ),
    Index("ix_run_newest", *_FILTER_COLUMNS, "host"),
    # The migration makes these partial on PostgreSQL too. `postgresql_where` here would import
    # that dialect into each process, also with SQLite.
    Index("ix_run_edited", "id", sqlite_where=_EDITED),
    Index(None, "parent", "id", sqlite_where=_IS_CHILD),
    # Whether this runbook has succeeded for a person before.
    Index(None, "requested_by", "runbook"),
    # From times to run numbers, and the runs that were active at a time.
    Index(None, "requested_at", "id"),
    Index(None, "ended_at", "id"),
    # Run numbers are never reused, even when a row is deleted.
    sqlite_autoincrement=True,
)

decision = Table(
    "decision",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("approves", Boolean, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("on_behalf_of", String(64), nullable=False),
    Column("factor", String(32), nullable=False),
    Column("signature", Text, nullable=False),
    Column("start_at", BigInteger),
)

# Who decides on behalf of whom. area: "" means every area that the delegator owns.
delegation = Table(
    "delegation",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("delegator", String(64), nullable=False),
    Column("delegate", String(64), nullable=False),
    Column("area", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("reason", Text, nullable=False),
    Index(None, "delegate", "ends_at"),
)

# Changes that are approved in advance. value_patterns: JSON, by field.
standing_grant = Table(
    "standing_grant",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("person", String(64), nullable=False),
    Column("runbook", String(80), nullable=False),
    Column("hosts", String(100), nullable=False),
    Column("value_patterns", Text, nullable=False),
    Column("per_hour", Integer, nullable=False),
    Column("granted_by", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("reason", Text, nullable=False),
    Index(None, "person", "runbook"),
)

# Each run that a grant approved.
grant_use = Table(
    "grant_use",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("grant_id", Integer, ForeignKey("standing_grant.id"), nullable=False),
    Column("used_at", BigInteger, nullable=False),
    Index(None, "grant_id", "used_at"),
)

step = Table(
    "step",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("step_number", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("sent_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("exit_status", Integer),
    Column("error", Text, nullable=False),
)

host_lock = Table(
    "host_lock",
    metadata,
    Column("host", String(64), primary_key=True),
    Column("run", Integer, ForeignKey("run.id"), nullable=False),
    Column("since", BigInteger, nullable=False),
)

# The change log: entries, checkpoints and tiles. Append-only: triggers (SQLite) and privileges
# (PostgreSQL) refuse everything but INSERT and SELECT.
entry = Table(
    "entry",
    metadata,
    # Dense, so that two entries cannot follow the same one.
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("run", Integer),
    Column("person", String(64), nullable=False),
    Column("host", String(64), nullable=False),
    Column("body", Text, nullable=False),
    # Of the leaf of the tree: see bot.audit.change_log.
    Column("hash", String(64), nullable=False),
    # The signed checkpoint of the tree up to this entry: of the last one that was added at once.
    Column("note", Text),
    Index(None, "run", "seq"),
    Index(None, "kind", "seq"),
    Index(None, "host", "seq"),
    Index(None, "person", "seq"),
    Index(None, "at", "seq"),
)

# What an entry says and its hash, without the checkpoint.
ENTRY_MEMBERS = tuple(column for column in entry.columns if column.name != "note")

# The signatures of witnesses under checkpoints. line: of the signed note.
cosignature = Table(
    "cosignature",
    metadata,
    _build_large_key("size"),
    Column("witness", String(200), primary_key=True),
    Column("line", Text, nullable=False),
)

# The time stamps of an authority (RFC 3161) over checkpoints. response: in base64.
time_stamp = Table(
    "time_stamp",
    metadata,
    _build_large_key("size"),
    Column("at", BigInteger, nullable=False),
    Column("response", Text, nullable=False),
)

# The roots of complete tiles: of 256 entries, or of 256 tiles of the level below.
tile = Table(
    "tile",
    metadata,
    Column("level", Integer, primary_key=True, autoincrement=False),
    _build_large_key("number"),
    Column("hash", String(64), nullable=False),
)

# What is remembered of the entries of the log, so that a start does not read all of them: see
# bot.audit.log_snapshot. rules: a digest of what is remembered. root: of the tree of this size.
# mac: covers the whole row.
log_snapshot = Table(
    "log_snapshot",
    metadata,
    Column("rules", String(64), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("root", String(44), nullable=False),
    Column("content", Text, nullable=False),
    Column("mac", String(64), nullable=False),
)

# run: the request that was approved as a schedule. decided_until: every due time up to then has a
# row in `fire`. due_at: the next due time. reason: why it has its state.
schedule = Table(
    "schedule",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", Integer, ForeignKey("run.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("owner", String(64), nullable=False),
    Column("timing", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("lapses_at", BigInteger, nullable=False),
    Column("decided_until", BigInteger, nullable=False),
    Column("due_at", BigInteger),
    Column("reason", Text, nullable=False),
    UniqueConstraint("run"),
    Index(None, "state", "due_at"),
)

# The outcome of each due time of a schedule. The worker that inserts the row fires the schedule.
# due_at: the due time; starts_at: when the run on this host starts, later where hosts are spread.
fire = Table(
    "fire",
    metadata,
    Column("schedule", Integer, ForeignKey("schedule.id"), primary_key=True),
    Column("due_at", BigInteger, primary_key=True),
    Column("host", String(64), primary_key=True),
    Column("outcome", String(16), nullable=False),
    Column("starts_at", BigInteger, nullable=False),
    Column("recorded_at", BigInteger, nullable=False),
    Column("run", Integer, ForeignKey("run.id")),
    Column("reason", Text, nullable=False),
    Index(None, "run"),
    Index(None, "outcome", "starts_at"),
)

# What commands printed. The change log holds only the hash, so that output can be erased. text,
# salt: NULL after erasure. step_number: 0 for a report. entry: the entry with the hash.
output = Table(
    "output",
    metadata,
    _build_large_key("entry", ForeignKey("entry.seq")),
    Column("run", Integer, nullable=False),
    Column("step_number", Integer, nullable=False),
    Column("salt", String(32)),
    Column("text", Text),
    Index(None, "run", "step_number"),
)

# The search index of runs: the words of their values, reasons, summaries and output. Words of
# output are erased with it.
search_word = Table(
    "search_word",
    metadata,
    Column("word", String(64), primary_key=True),
    Column("run", Integer, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# Work on a host that continues after its run, checked at next_at until it is finished.
follow_up = Table(
    "follow_up",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("since", BigInteger, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Index(None, "next_at"),
)

# Runs whose notifications are not delivered yet. A row holds no text: the sender renders the
# run as it is then. revision: when the run was announced, and one more each time after. sender:
# the process that is delivering it until next_attempt_at, or "".
outbox = Table(
    "outbox",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", BigInteger, nullable=False),
    Column("sender", String(36), nullable=False),
    Column("error", Text, nullable=False),
    Index(None, "revision"),
)

# The Slack messages of a run: where each was posted, and the digest of its content.
slack_message = Table(
    "slack_message",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("slot", String(96), primary_key=True),
    Column("channel", String(32), nullable=False),
    Column("ts", String(32), nullable=False),
    Column("digest", String(64), nullable=False),
    # A message in the thread of a card is about its run.
    Index(None, "ts"),
)

# The Home tabs that people have opened in Slack. digest: of the content. due_at: when the tab is
# to be rendered again, NULL while it is up to date.
slack_home = Table(
    "slack_home",
    metadata,
    Column("user", String(32), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("rendered_at", BigInteger, nullable=False),
    Column("due_at", BigInteger),
    Column("digest", String(64), nullable=False),
    Index(None, "due_at"),
)

# Keys of requests that were received already, so that each takes effect once.
seen_request = Table(
    "seen_request",
    metadata,
    Column("key", String(160), primary_key=True),
    Column("seen_at", BigInteger, nullable=False),
    Index(None, "seen_at"),
)

# what: "all", until someone else resumes, or the number of a run.
stop = Table(
    "stop",
    metadata,
    Column("what", String(16), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("stopped_at", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)

# People who are banned, whatever the policy allows.
ban = Table(
    "ban",
    metadata,
    Column("person", String(64), primary_key=True),
    Column("banned_by", String(64), nullable=False),
    Column("banned_at", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
)

# Only the SHA-256 of a token is stored. mac: covers the whole row; see bot.auth.row_mac.
sign_in_link = Table(
    "sign_in_link",
    metadata,
    Column("token", String(64), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("used_at", BigInteger),
    Column("mac", String(64), nullable=False),
)

session = Table(
    "session",
    metadata,
    Column("token", String(64), primary_key=True),
    Column("person", String(64), nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("last_seen_at", BigInteger, nullable=False),
    Column("stepped_up_at", BigInteger),
    Column("factor_digest", String(32), nullable=False),
    Column("challenge", String(64), nullable=False),
    Column("challenged_at", BigInteger),
    Column("signed_in_by", String(16), nullable=False),
    Column("user_agent", String(200), nullable=False),
    Column("mac", String(64), nullable=False),
)

# sealed: the secret of the factor, encrypted with a key that is not in the database.
# last_counter: the highest time step or use count that was accepted.
second_factor = Table(
    "second_factor",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("person", String(64), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("digest", String(32), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("verified_at", BigInteger),
    Column("last_counter", BigInteger, nullable=False),
    Column("confirmed_by", String(64), nullable=False),
    Column("sealed", Text, nullable=False),
    Index(None, "person"),
)

# Encrypted values by name, with a key that is not in the database.
secret = Table(
    "secret",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("content", Text, nullable=False),
)

# Break-glass access of a run, and its review.
break_glass = Table(
    "break_glass",
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

# The last contact with each host. tried_at: the last attempt; answered_at: the last success; kind:
# the kind of the error of the last attempt, or ""; since: how long the kind has been the same.
host_contact = Table(
    "host_contact",
    metadata,
    Column("host", String(64), primary_key=True),
    Column("tried_at", BigInteger, nullable=False),
    Column("answered_at", BigInteger),
    Column("since", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("error", Text, nullable=False),
    Column("failed_at", BigInteger),
)

# Filters of the history, saved under a name. query: as in the URL, in a fixed order.
saved_view = Table(
    "saved_view",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("person", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("query", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("person", "name"),
)

# Programs that make requests, from the second person's confirmation until ends_at. Names are never
# reused. mac: covers the whole row; see bot.auth.row_mac.
agent = Table(
    "agent",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("purpose", String(200), nullable=False),
    Column("added_by", String(64), nullable=False),
    Column("added_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("confirmed_by", String(64)),
    Column("confirmed_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("paused_at", BigInteger),
    Column("paused_by", String(64)),
    Column("pause_reason", Text),
    Column("resumed_at", BigInteger),
    Column("mac", String(64), nullable=False),
)

# prefix: finds the token; hash: the SHA-256 of the whole token. person: the owner, or an agent;
# behalf: the person that the agent acts for. mac: covers the whole row; see bot.auth.row_mac.
api_token = Table(
    "api_token",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("prefix", String(16), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    Column("last_used_at", BigInteger),
    Column("behalf", String(64)),
    Column("confirmed_at", BigInteger),
    Column("mac", String(64), nullable=False),
    UniqueConstraint("prefix"),
    Index(None, "person"),
)

# Responses to requests with an idempotency key, for retries. response: NULL while the request is
# being processed; first_entry: the first entry of the change log that it wrote.
stored_response = Table(
    "stored_response",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("claimed_at", BigInteger, nullable=False),
    Column("response", Text),
    Column("first_entry", BigInteger),
    Index(None, "claimed_at"),
)

# worker: "" if no worker holds the run; expires_at: when another worker may take it.
lease = Table(
    "lease",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("fence", Integer, nullable=False),
    Column("worker", String(96), nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index(None, "expires_at"),
)

# The newest lines of a running command. received_at: time of the last line; total_lines: how many
# lines there were; text: the newest of them.
live_output = Table(
    "live_output",
    metadata,
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("step_number", Integer, primary_key=True),
    Column("received_at", BigInteger, nullable=False),
    Column("total_lines", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "run", "received_at"),
)

# Events from outside that were recorded already.
inbound_event = Table(
    "inbound_event",
    metadata,
    Column("source", String(64), primary_key=True),
    Column("key", String(64), primary_key=True),
    Column("received_at", BigInteger, nullable=False),
    Index(None, "received_at"),
)

# seq: how far a subscription has read the change log.
subscription = Table(
    "subscription",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    # Of the collector: when the next attempt may be made, and why the last one failed.
    Column("next_attempt_at", BigInteger, nullable=False, default=0),
    Column("error", String(300), nullable=False, default=""),
)

# Entries that are still to be sent to a subscription. failed_at: when the last retry failed.
delivery = Table(
    "delivery",
    metadata,
    Column("subscription", String(64), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("occurred_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", BigInteger, nullable=False),
    Column("failed_at", BigInteger),
    Column("error", Text, nullable=False),
    Index(None, "subscription", "run", "seq"),
    Index(None, "failed_at"),
)

# Whose transaction decides on a fault tree's claims: it writes the row, and others wait.
tree_lock = Table(
    "tree_lock",
    metadata,
    Column("tree", String(64), primary_key=True),
    Column("version", BigInteger, nullable=False),
)

# How each event of a fault tree was when its check last ran, or its host was contacted. state:
# stands, failed, finding or unknown.
event_reading = Table(
    "event_reading",
    metadata,
    Column("tree", String(64), primary_key=True),
    Column("event", String(64), primary_key=True),
    Column("state", String(8), nullable=False),
    Column("since_at", BigInteger, nullable=False),
    Column("read_at", BigInteger, nullable=False),
    Column("run", Integer),
    Column("detail", Text, nullable=False),
)

# Events that runs may bring about, until the event's check is well again.
leg_claim = Table(
    "leg_claim",
    metadata,
    Column("tree", String(64), primary_key=True),
    Column("event", String(64), primary_key=True),
    Column("run", Integer, ForeignKey("run.id"), primary_key=True),
    Column("claimed_at", BigInteger, nullable=False),
)

# What runs gave a lasting value, and how it was at its last reading. run: set the value. good_at:
# the last reading that was accepted; since_at: when it came into its state; next_at: when it is
# read next. digest: of the value on the host, "" if it is as the run set it; adopted: the digest
# that a person adopted. candidates: JSON. announced_at: when the message to chat
# was requested. expected_until, expected_range: until when and where another value is expected.
drift_key = Table(
    "drift_key",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("host", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("run", Integer, ForeignKey("run.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("since_at", BigInteger, nullable=False),
    Column("good_at", BigInteger, nullable=False),
    Column("read_at", BigInteger, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("requested_at", BigInteger),
    Column("digest", String(64), nullable=False),
    Column("value", Text, nullable=False),
    Column("set_value", Text, nullable=False),
    Column("adopted", String(64), nullable=False),
    Column("candidates", Text, nullable=False),
    Column("announced_at", BigInteger),
    Column("expected_until", BigInteger),
    Column("expected_range", String(80), nullable=False),
    UniqueConstraint("host", "name"),
    Index(None, "next_at"),
    Index(None, "run"),
    Index(None, "state"),
)

# Freezes that people ordered. hosts and areas: separated by commas; "" for all. ended_at: when a
# person ended it before its time.
ordered_freeze = Table(
    "ordered_freeze",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("hosts", Text, nullable=False),
    Column("areas", Text, nullable=False),
    Column("person", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("begins_at", BigInteger, nullable=False),
    Column("ends_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Index(None, "ends_at"),
)

# What was read from the calendars of people on duty. source: a digest of where; shifts: JSON;
# error: why it could not be read since, or "". mac: covers the whole row; see bot.auth.row_mac.
oncall_reading = Table(
    "oncall_reading",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("source", String(64), nullable=False),
    Column("fetched_at", BigInteger, nullable=False),
    Column("next_fetch_at", BigInteger, nullable=False),
    Column("shifts", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("mac", String(64), nullable=False),
)

# Answers to alerts in chat. channel, ts: of the alert's message; user: who alone reads the answer,
# "" for all in its thread. person: as whom the checks run; hosts, plans: names and typed requests,
# as JSON; runs: the numbers of the checks, as JSON. subject: the same for alerts about the same.
# due_at: from when a process may go on with it; posted: the timestamp of the answer, "" if it was
# given up, NULL until then.
alert_answer = Table(
    "alert_answer",
    metadata,
    Column("channel", String(64), primary_key=True),
    Column("ts", String(32), primary_key=True),
    Column("user", String(32), primary_key=True),
    Column("thread", String(32), nullable=False),
    Column("person", String(64), nullable=False),
    Column("hosts", Text, nullable=False),
    Column("subject", String(32), nullable=False),
    Column("plans", Text, nullable=False),
    Column("runs", Text, nullable=False),
    Column("claimed_at", BigInteger, nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("posted", String(32)),
    Index(None, "claimed_at"),
)

# Accounts of the identity provider. user_key: the user name as it is compared, None once the
# account is deleted; stay: names the time since it was activated; document: what else the provider
# sent, as JSON. mac: covers the whole row, here and below; see bot.auth.row_mac.
provisioned_user = Table(
    "provisioned_user",
    metadata,
    Column("user_id", String(36), primary_key=True),
    Column("person", String(64), nullable=False, unique=True),
    Column("user_name", String(255), nullable=False),
    Column("user_key", String(255), unique=True),
    Column("external_id", String(255), nullable=False),
    Column("email", String(254), nullable=False),
    Column("name", String(120), nullable=False),
    Column("document", Text, nullable=False),
    Column("is_active", Boolean, nullable=False),
    Column("stay", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    Column("mac", String(64), nullable=False),
    Index(None, "external_id"),
    Index(None, "created_at", "user_id"),
)

# Groups of the identity provider. group_key: the name as it is compared.
provisioned_group = Table(
    "provisioned_group",
    metadata,
    Column("group_id", String(36), primary_key=True),
    Column("name", String(255), nullable=False),
    Column("group_key", String(255), nullable=False, unique=True),
    Column("external_id", String(255), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("mac", String(64), nullable=False),
    Index(None, "external_id"),
)

provisioned_member = Table(
    "provisioned_member",
    metadata,
    Column("group_id", String(36), primary_key=True),
    Column("user_id", String(36), primary_key=True),
    Column("mac", String(64), nullable=False),
    Index(None, "user_id"),
)

# The groups that the token of a person's last sign-in named, as JSON.
claimed_groups = Table(
    "claimed_groups",
    metadata,
    Column("person", String(64), primary_key=True),
    Column("issuer", String(255), nullable=False),
    Column("group_names", Text, nullable=False),
    Column("read_at", BigInteger, nullable=False),
    Column("mac", String(64), nullable=False),
)

# One row: how often any of the four above has changed. A change locks it first.
provisioning_revision = Table(
    "provisioning_revision",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
)
