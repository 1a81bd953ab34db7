"""The change log: every event of every run, append-only, each entry linked to the one before."""

import hashlib
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from sqlalchemy import Row, Select, bindparam, insert, select, text

from bot.audit import events
from bot.audit.event_type import Event, parse_event, parse_facts
from bot.db import idempotency, tables, view_conditions
from bot.db.database import StoreUnavailable, Transaction
from bot.model import signing
from bot.model.agents import is_agent
from bot.model.canonical import Canonical, encode_canonical, hash_canonical
from bot.model.errors import NotAllowed
from bot.model.references import has_references, hide_all_references
from bot.model.run import Run
from bot.model.signing import SigningKey
from bot.model.text import format_sentence

GENESIS = "0" * 64
# The indexes of hash and signature in a row of the log.
_HASH, _SIGNATURE = 8, 9

_COLUMN_NAMES = [column.name for column in tables.entry.columns]
_INSERT_QUERIES = insert(tables.entry)
_NEWEST_ENTRY = select(tables.entry).order_by(tables.entry.c.seq.desc()).limit(1)
# SQLite has one writer; on PostgreSQL a function of the schema takes a lock, then reads.
_LOCKED_NEWEST_ENTRY = text("SELECT * FROM log_head()").columns(*tables.entry.columns)
_HASH_QUERIES = select(tables.entry.c.hash).where(tables.entry.c.seq == bindparam("number"))
_ROWS_FROM_QUERIES = (
    select(tables.entry)
    .where(tables.entry.c.seq >= bindparam("first"))
    .order_by(tables.entry.c.seq)
    .limit(bindparam("most"))
)
_IS_OF_RUN = tables.entry.c.run == bindparam("of")
_ENTRIES_OF_RUN = select(tables.entry).where(_IS_OF_RUN).order_by(tables.entry.c.seq)
_LAST_ENTRY_OF_KIND = (
    select(tables.entry)
    .where(tables.entry.c.kind == bindparam("which"))
    .order_by(tables.entry.c.seq.desc())
    .limit(1)
)
_FIRST_ENTRY = select(tables.entry).order_by(tables.entry.c.seq).limit(1)
_LAST_ENTRY_OF_RUN = (
    select(tables.entry).where(_IS_OF_RUN).order_by(tables.entry.c.seq.desc()).limit(1)
)


class LogAlteredError(StoreUnavailable):
    """The change log differs from what Keyturn wrote. Nothing is added to it, so nothing runs."""

    code, retry_seconds = "change-log-altered", None

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the change log was altered: {reason}. Nothing is added to it, and nothing runs. "
            "Keep a copy of the database, then run `keyturn changelog verify`"
        )

    @property
    def public_message(self) -> str:
        return format_sentence(str(self))


class LogShortenedError(LogAlteredError):
    """The log lacks entries at its end: a failover or a restore lost them, or someone cut it."""

    def __init__(self, last_entry: int, last_written: int) -> None:
        lost = last_written - last_entry
        super().__init__(
            f"it ends at entry {last_entry}, but Keyturn wrote entry {last_written}. If a "
            "failover lost them, stop Keyturn, run `keyturn changelog acknowledge "
            f"{last_entry + 1} --lost {lost} --as PERSON --reason TEXT`, and start it again"
        )


@dataclass(frozen=True)
class Entry:
    """One event."""

    seq: int
    """Its number: 1, 2, 3, … without gaps."""
    at: int
    """Microseconds since 1970, UTC."""
    kind: str
    run: int | None
    person: str
    host: str
    body: str
    """The facts as canonical JSON."""
    prev: str
    """The hash of the entry before."""
    hash: str
    """SHA-256 of the canonical JSON of the members above, 64 hex digits."""
    signature: str
    """Ed25519 over the 32 bytes of the hash, 128 hex digits."""

    @property
    def event(self) -> Event:
        """What happened; an UnknownEvent if this version does not know it, or it is damaged."""
        return parse_event(self.kind, self.body)

    @property
    def facts(self) -> dict[str, Any]:
        """The members of the body as they are, for exports; see parse_facts()."""
        return parse_facts(self.body)


@dataclass(frozen=True)
class EntryDraft:
    """An entry that is not appended yet."""

    event: Event
    run: int | None = None
    person: str = ""
    host: str = ""


_ANNOUNCEMENT: ContextVar[EntryDraft | None] = ContextVar("announcement", default=None)


@contextmanager
def announce_with_next_entry(announcement: EntryDraft) -> Generator[None]:
    """Append the announcement before the next entry of the same person, once per transaction.

    So it is logged together with what the person does in the block, and not if they do nothing.
    """
    before = _ANNOUNCEMENT.set(announcement)
    try:
        yield
    finally:
        _ANNOUNCEMENT.reset(before)


def _take_announcement(tx: Transaction, drafts: Sequence[EntryDraft]) -> list[EntryDraft]:
    """Return the announcement that comes before these entries, if there is one."""
    announcement = _ANNOUNCEMENT.get()
    if announcement is None or all(draft.person != announcement.person for draft in drafts):
        return []
    return [announcement] if tx.is_first_call(("announced", announcement.event.kind)) else []


def append_entry(
    tx: Transaction,
    event: Event,
    *,
    run: Run | int | None = None,
    person: str = "",
    host: str = "",
) -> Entry:
    """Append an entry in the transaction that makes the change.

    run: a Run, which also gives its host, or its number.
    """
    if isinstance(run, Run):
        run, host = run.id, host or run.host
    draft = EntryDraft(event, run, person, host)
    ahead = _take_announcement(tx, [draft])
    if ahead:
        return append_entries(tx, [*ahead, draft])[-1]
    row = _build_row(tx, draft, _encode_facts(tx, event.encode()), tx.log_head or _lock_head(tx))
    return _store_rows(tx, [row])[0]


def append_entries(tx: Transaction, drafts: Sequence[EntryDraft]) -> list[Entry]:
    """Append entries by one statement, each linked and signed like a single one."""
    if not drafts:
        return []
    ahead = _take_announcement(tx, drafts)
    drafts = [*ahead, *drafts]
    head = tx.log_head or _lock_head(tx)
    rows: list[tuple[Any, ...]] = []
    for draft, body in zip(drafts, _encode_all_facts(tx, drafts), strict=True):
        rows.append(_build_row(tx, draft, body, head))
        head = rows[-1][0], rows[-1][-2]
    return _store_rows(tx, rows)[len(ahead) :]


def _build_row(
    tx: Transaction, draft: EntryDraft, body: str, head: tuple[int, str]
) -> tuple[Any, ...]:
    """Return the row that follows the head. Raises NotAllowed for what agents may not do."""
    kind = draft.event.kind
    # Everything that people do writes an entry, so this holds for each way in.
    if is_agent(draft.person) and not draft.event.by_agent:
        raise NotAllowed(f"an agent never decides: “{kind}” needs a person")
    seq, prev = head
    unsigned = (seq + 1, tx.now, kind, draft.run, draft.person, draft.host, body, prev)
    digest = hash_entry((*unsigned, "", ""))
    return (*unsigned, digest, tx.signing_key.sign_hash(digest))


def _store_rows(tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> list[Entry]:
    tx.sql.execute(_INSERT_QUERIES, [dict(zip(_COLUMN_NAMES, row, strict=True)) for row in rows])
    # No other transaction appends before this one ends.
    tx.log_head = rows[-1][0], rows[-1][-2]
    tx.logged = True
    idempotency.bind_entry(tx, rows[0][0])
    return [Entry(*row) for row in rows]


def lock_log(tx: Transaction) -> None:
    """Lock the log, so that no other transaction appends to it until this one ends."""
    tx.log_head = _lock_head(tx)


def _lock_head(tx: Transaction) -> tuple[int, str]:
    """Return the head, and keep others from appending until this transaction ends.

    Raises LogAlteredError if the log does not end with what Keyturn wrote: another signed entry
    would vouch for a history that Keyturn did not write.
    """
    row = _read_locked_head(tx)
    check_head(tx, row)
    return (row[0], row[_HASH]) if row else (0, GENESIS)


def _read_locked_head(tx: Transaction) -> Sequence[Any] | None:
    return tx.sql.execute(_NEWEST_ENTRY if tx.embedded else _LOCKED_NEWEST_ENTRY).first()


def lock_and_get_head(tx: Transaction) -> Entry | None:
    """Return the newest entry, checked as for an append; None from an empty log."""
    row = _read_locked_head(tx)
    if tx.log_head is None:
        check_head(tx, row)
    return Entry(*row) if row else None


def check_head(tx: Transaction, row: Sequence[Any] | None) -> None:
    """Raise LogAlteredError unless the newest row continues what this process knows of the log."""
    seq, digest = (row[0], row[_HASH]) if row else (0, GENESIS)
    known, known_hash = tx.seen_head.head
    if row is not None and not is_hash_valid(row):
        raise LogAlteredError(f"entry {seq} was altered: its content does not have its hash")
    if (seq, digest) == (known, known_hash):
        return
    if seq < known:
        raise LogShortenedError(seq, known)
    if row is not None:
        check_row_signature(tx, row)
    if known:
        stored_hash = tx.sql.execute(_HASH_QUERIES, {"number": known}).scalar()
        if stored_hash != known_hash:
            raise LogAlteredError(f"entry {known} is not the one that Keyturn wrote")


def check_newest_entry(tx: Transaction) -> None:
    """Raise LogAlteredError unless Keyturn wrote the newest entry. Locks nothing."""
    row = tx.sql.execute(_NEWEST_ENTRY).first()
    if row is None:
        return
    if not is_hash_valid(row):
        raise LogAlteredError(f"entry {row.seq} was altered: its content does not have its hash")
    if tx.stamping is not None:
        _check_signature(tx.stamping, row)


def check_row_signature(tx: Transaction, row: Sequence[Any]) -> None:
    """Raise LogAlteredError unless our key signed this entry. Its hash has to be valid."""
    _check_signature(tx.signing_key, row)


def _check_signature(key: SigningKey, row: Sequence[Any]) -> None:
    if not signing.is_signature_valid(key.public_key, row[_HASH], row[_SIGNATURE]):
        raise LogAlteredError(f"entry {row[0]} is not signed by the key of the log")


def _encode_facts(tx: Transaction, facts: Mapping[str, Canonical]) -> str:
    body = _encode_for_everyone(facts)
    return (
        _encode_for_everyone(tx.redactor.redact_value(facts))
        if tx.redactor.has_secret(body)
        else body
    )


def _encode_all_facts(tx: Transaction, drafts: Sequence[EntryDraft]) -> list[str]:
    facts = [draft.event.encode() for draft in drafts]
    bodies = [_encode_for_everyone(each) for each in facts]
    # One search in all of them finds the same secrets, and is faster.
    if not tx.redactor.has_secret("\n".join(bodies)):
        return bodies
    return [_encode_facts(tx, each) for each in facts]


def _encode_for_everyone(facts: Canonical) -> str:
    """Encode facts without references: people who may view a run read all of its entries."""
    body = encode_canonical(facts)
    return encode_canonical(hide_all_references(facts)) if has_references(body) else body


def get_head(tx: Transaction) -> tuple[int, str]:
    """Return the newest entry's sequence number and hash; (0, GENESIS) of an empty log."""
    row = tx.sql.execute(_NEWEST_ENTRY).first()
    return (row.seq, row.hash) if row else (0, GENESIS)


def hash_entry(row: Sequence[Any]) -> str:
    """Return the hash that an entry has to have. row: the members of an Entry, in their order.

    Same as the hash of bot.model.canonical, but faster: verification of a long log would spend
    most of its time sorting the names of the same eight members.
    """
    quoted = encode_basestring
    seq, at, kind, run, person, host, body, prev, _, _ = row
    content = (
        f'{{"at":{at},"body":{quoted(body)},"host":{quoted(host)},"kind":{quoted(kind)},'
        f'"person":{quoted(person)},"prev":{quoted(prev)},'
        f'"run":{"null" if run is None else run},"seq":{seq}}}'
    )
    return hashlib.sha256(content.encode()).hexdigest()


def is_hash_valid(row: Sequence[Any]) -> bool:
    """Return whether the content of an entry has its hash. row: as for hash_entry()."""
    try:
        return hash_entry(row) == row[_HASH]
    except TypeError:
        # SQLite stores any type in any column; Keyturn did not write such a row.
        return False


def hash_succession(seq: int, prev: str, public_key: str) -> str:
    """Return the hash that the owner of a new key signs to prove that they have it.

    It covers the entry that adds the key, the entry before, and the key before. It is never the
    hash of an entry, so no signature of an entry can serve as this proof.
    """
    return hash_canonical({"after": prev, "key": public_key, "seq": seq})


def is_succession_signed(entry: Entry, public_key: str) -> bool:
    """Return whether the new key of this entry signed that it follows *public_key*."""
    event = entry.event
    signed = hash_succession(entry.seq, entry.prev, public_key)
    return isinstance(event, events.KeyAdded) and signing.is_signature_valid(
        event.public, signed, event.proof
    )


def get_added_key(entry: Entry) -> str:
    """Return the key that an entry adds; "" if it adds none."""
    event = entry.event
    return event.public if isinstance(event, events.KeyAdded) else ""


def list_keys(tx: Transaction) -> list[tuple[int, str]]:
    """Return the keys of the log, each with the number of its entry, the oldest first.

    Each key proves that it follows the one before, which signed its entry. Keys before a missing
    proof are left out.
    """
    is_key = tables.entry.c.kind == events.KeyAdded.kind
    query = select(tables.entry).where(is_key).order_by(tables.entry.c.seq)
    entries = [Entry(*row) for row in tx.sql.execute(query)]
    keys = [(entry.seq, get_added_key(entry)) for entry in entries]
    for n in range(len(entries) - 1, 0, -1):
        entry, before = entries[n], keys[n - 1][1]
        intact = is_hash_valid([*vars(entry).values()])
        if not (intact and is_succession_signed(entry, before)) or not signing.is_signature_valid(
            before, entry.hash, entry.signature
        ):
            return keys[n:]
    return keys


def find_key_of_entry(keys_by_entry: Sequence[tuple[int, str]], seq: int) -> str:
    """Return the key that signed the entry with this number; "" if none is known.

    An entry that adds a key is signed by the key before; the first entry by its own key.
    """
    if keys_by_entry and seq == keys_by_entry[0][0] == 1:
        return keys_by_entry[0][1]
    return next((key for since, key in reversed(keys_by_entry) if since < seq), "")


def is_entry_signed(entry: Entry, keys_by_entry: Sequence[tuple[int, str]]) -> bool:
    """Return whether the key that was in use then signed this entry."""
    return signing.is_signature_valid(
        find_key_of_entry(keys_by_entry, entry.seq), entry.hash, entry.signature
    )


def list_entries_of_run(tx: Transaction, run: int, kinds: Collection[str] = ()) -> list[Entry]:
    """Return the entries about a run. kinds: only of these kinds; () for all."""
    if not view_conditions.list_viewable(tx, [run]):
        return []
    found = [Entry(*row) for row in tx.sql.execute(_ENTRIES_OF_RUN, {"of": run}).all()]
    return [entry for entry in found if not kinds or entry.kind in kinds]


def list_entries_of_runs(
    tx: Transaction, numbers: Collection[int], kinds: Collection[str]
) -> dict[int, list[Entry]]:
    """Return the entries of these kinds by run, oldest first."""
    found: dict[int, list[Entry]] = {}
    viewable = view_conditions.list_viewable(tx, [*numbers])
    column = tables.entry.c
    query = select(tables.entry).where(column.run.in_(viewable), column.kind.in_(kinds))
    for row in tx.sql.execute(query.order_by(column.seq)) if viewable else ():
        found.setdefault(row.run, []).append(Entry(*row))
    return found


def get_last_entry_of_run(tx: Transaction, run: int) -> Entry | None:
    row = (
        tx.sql.execute(_LAST_ENTRY_OF_RUN, {"of": run}).first()
        if view_conditions.list_viewable(tx, [run])
        else None
    )
    return Entry(*row) if row else None


def get_last_entry_of_kind(tx: Transaction, kind: str) -> Entry | None:
    row = tx.sql.execute(_LAST_ENTRY_OF_KIND, {"which": kind}).first()
    return Entry(*row) if row else None


def get_first_entry(tx: Transaction) -> Entry | None:
    """Return the first entry of the log."""
    row = tx.sql.execute(_FIRST_ENTRY).first()
    return Entry(*row) if row else None


def list_newest_entries_of_kind(
    tx: Transaction, kind: str, *, person: str, limit: int
) -> list[Entry]:
    """Return the newest entries of a kind about one person, the newest first."""
    query = select(tables.entry).where(tables.entry.c.kind == kind)
    query = query.where(tables.entry.c.person == person)
    rows = tx.sql.execute(query.order_by(tables.entry.c.seq.desc()).limit(limit))
    return [Entry(*row) for row in rows]


def list_entries_naming(tx: Transaction, kind: str, name: str, number: int) -> list[Entry]:
    """Return the entries of a kind whose fact *name* is this number."""
    query = select(tables.entry).where(
        tables.entry.c.kind == kind, tables.entry.c.body.contains(f'"{name}":{number}')
    )
    return _list_naming(tx, query, name, number)


def list_run_entries_naming(
    tx: Transaction, kind: str, run: int, name: str, number: int
) -> list[Entry]:
    """Return the entries of a kind about one run whose fact *name* is this number."""
    query = select(tables.entry).where(
        tables.entry.c.run == run,
        tables.entry.c.kind == kind,
        tables.entry.c.body.contains(f'"{name}":{number}'),
    )
    return _list_naming(tx, query, name, number)


def _list_naming(
    tx: Transaction, query: Select[tuple[Any, ...]], name: str, number: int
) -> list[Entry]:
    """Return the entries found whose fact is this number, and not another that begins like it."""
    found = [Entry(*row) for row in tx.sql.execute(query.order_by(tables.entry.c.seq))]
    return [entry for entry in found if entry.event.get_fact(name) == number]


def list_entries_since(tx: Transaction, kind: str, at: int) -> Generator[Entry]:
    """Yield the entries of a kind that are newer than *at*, the newest first."""
    query = select(tables.entry).where(tables.entry.c.kind == kind)
    query = query.order_by(tables.entry.c.seq.desc()).execution_options(yield_per=100)
    with tx.sql.execute(query) as rows:
        for row in rows:
            if row.at <= at:
                return
            yield Entry(*row)


def list_newest_entries(
    tx: Transaction, *, before: int | None = None, limit: int = 50
) -> list[Entry]:
    query = select(tables.entry).order_by(tables.entry.c.seq.desc()).limit(limit)
    if before is not None:
        query = query.where(tables.entry.c.seq < before)
    return [Entry(*row) for row in tx.sql.execute(query)]


def list_entries_after(tx: Transaction, seq: int, *, limit: int = 1000) -> list[Entry]:
    query = (
        select(tables.entry)
        .where(tables.entry.c.seq > seq)
        .order_by(tables.entry.c.seq)
        .limit(limit)
    )
    return [Entry(*row) for row in tx.sql.execute(query)]


def list_rows_from(tx: Transaction, seq: int, *, limit: int) -> Sequence[Sequence[Any]]:
    """Return the rows from this number on: the members of an Entry, in their order."""
    return tx.sql.execute(_ROWS_FROM_QUERIES, {"first": seq, "most": limit}).all()


def read_whole_log(tx: Transaction) -> Generator[Entry]:
    """Yield the whole log from its beginning, with few entries in memory at a time."""
    with read_rows(tx) as found:
        for row in found:
            yield Entry(*row)


def read_rows_between(tx: Transaction, first: int, end: int) -> Generator[Row[Any]]:
    """Yield the rows from number *first* up to, but without, *end*."""
    query = select(tables.entry).where(tables.entry.c.seq >= first, tables.entry.c.seq < end)
    query = query.order_by(tables.entry.c.seq).execution_options(yield_per=1000)
    with tx.sql.execute(query) as found:
        yield from found


def read_rows(tx: Transaction) -> AbstractContextManager[Iterable[Sequence[Any]]]:
    """Return an iterable of all rows: the members of an Entry, in their order."""
    query = select(tables.entry).order_by(tables.entry.c.seq)
    return tx.sql.execute(query.execution_options(yield_per=2000))
