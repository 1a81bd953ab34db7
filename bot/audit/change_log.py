"""The change log: every event of every run, append-only, under one signed root.

An entry is a leaf of a Merkle tree: RFC 6962's hash of its canonical JSON. Entries that are
appended together get one signed checkpoint, with the root of all entries so far: the row of the
last one holds it. The row of each holds the hash of its leaf, and complete tiles are stored: any
root follows from few rows.
"""

import hashlib
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from json.encoder import encode_basestring
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Row, Select, bindparam, insert, select, text

from bot.audit import events
from bot.audit.checkpoints import (
    Checkpoint,
    encode_root,
    is_signed_by,
    name_log,
    parse_note,
    sign_checkpoint,
)
from bot.audit.event_type import Event, UnknownEvent, is_known_kind, parse_event, parse_facts
from bot.db import cosignatures, idempotency, tables, view_conditions
from bot.db.database import StoreUnavailable, Transaction
from bot.model.agents import is_agent
from bot.model.canonical import Canonical, encode_canonical
from bot.model.errors import NotAllowed
from bot.model.merkle import TILE_HEIGHT, Tile, Tree, hash_leaf
from bot.model.references import has_references, hide_all_references
from bot.model.run import Run
from bot.model.signing import SigningKey
from bot.model.text import format_sentence

# The indexes of the body and of the hash in a row of the log.
_BODY, _HASH = 6, 7
# The longest leaf of https://c2sp.org/tlog-tiles: its length has two bytes.
MAX_CONTENT_BYTES = 0xFFFF

_COLUMN_NAMES = [column.name for column in tables.entry.columns]
_INSERT_ENTRIES = insert(tables.entry)
_INSERT_TILES = insert(tables.tile)
# The newest entry with the checkpoint that signs it.
_NEWEST_ENTRY = select(tables.entry).order_by(tables.entry.c.seq.desc()).limit(1)
# SQLite has one writer; on PostgreSQL a function of the schema takes a lock, and returns the
# newest entry. The commit releases the lock at once; Database waits for the disk after that.
_LOCK = text(
    "SELECT newest.* FROM lock_log() AS newest, set_config('synchronous_commit', 'off', true)"
)
_CHECKPOINTS = select(tables.entry.c.seq, tables.entry.c.at, tables.entry.c.note).where(
    tables.entry.c.note.is_not(None)
)
_NEWEST_CHECKPOINT = _CHECKPOINTS.order_by(tables.entry.c.seq.desc()).limit(1)
_LEAVES = (
    select(tables.entry.c.hash)
    .where(tables.entry.c.seq > bindparam("first"), tables.entry.c.seq <= bindparam("end"))
    .order_by(tables.entry.c.seq)
)
_TILES = (
    select(tables.tile.c.hash)
    .where(
        tables.tile.c.level == bindparam("of_level"),
        tables.tile.c.number >= bindparam("first"),
        tables.tile.c.number < bindparam("end"),
    )
    .order_by(tables.tile.c.number)
)
_Query = Select[tuple[Any, ...]]
_ENTRIES = select(*tables.ENTRY_MEMBERS)
_ROWS_AFTER = (
    _ENTRIES.where(tables.entry.c.seq > bindparam("after"))
    .order_by(tables.entry.c.seq)
    .limit(bindparam("most"))
)
_IS_OF_RUN = tables.entry.c.run == bindparam("of")
_ENTRIES_OF_RUN = _ENTRIES.where(_IS_OF_RUN).order_by(tables.entry.c.seq)
_FIRST_ENTRY = _ENTRIES.order_by(tables.entry.c.seq).limit(1)
_LAST_ENTRY = _ENTRIES.order_by(tables.entry.c.seq.desc()).limit(1)
_LAST_ENTRY_OF_KIND = _LAST_ENTRY.where(tables.entry.c.kind == bindparam("which"))
_LAST_ENTRY_OF_RUN = _LAST_ENTRY.where(_IS_OF_RUN)


class LogAlteredError(StoreUnavailable):
    """The change log differs from what Keyturn wrote. Nothing is added to it, so nothing runs."""

    code, retry_seconds = "change-log-altered", None

    def __init__(self, reason: str) -> None:
        self.reason = reason
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
    hash: str
    """RFC 6962's hash of a leaf, of the canonical JSON of the members above, 64 hex digits."""

    @property
    def event(self) -> Event:
        """What happened; an UnknownEvent if this version does not know it, or it is damaged."""
        return parse_event(self.kind, self.body)

    @property
    def is_damaged(self) -> bool:
        """Whether its kind is known, and its facts are none of this kind."""
        return isinstance(self.event, UnknownEvent) and is_known_kind(self.kind)

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
    return append_entries(tx, [EntryDraft(event, run, person, host)])[-1]


def append_entries(
    tx: Transaction, drafts: Sequence[EntryDraft], *others: SigningKey
) -> list[Entry]:
    """Append entries by one statement, under one checkpoint. others: more keys that sign it."""
    if not drafts:
        return []
    ahead = _take_announcement(tx, drafts)
    drafts = [*ahead, *drafts]
    first = lock_log(tx).size + 1
    bodies = _encode_all_facts(tx, drafts)
    rows = [
        _build_row(tx, draft, body, seq)
        for seq, (draft, body) in enumerate(zip(drafts, bodies, strict=True), start=first)
    ]
    return _store_rows(tx, rows, others)[len(ahead) :]


def _build_row(tx: Transaction, draft: EntryDraft, body: str, seq: int) -> tuple[Any, ...]:
    """Return the members of the entry. Raises NotAllowed for what agents may not do."""
    kind = draft.event.kind
    # Everything that people do writes an entry, so this holds for each way in.
    if is_agent(draft.person) and not draft.event.by_agent:
        raise NotAllowed(f"an agent never decides: “{kind}” needs a person")
    content = (seq, tx.now, kind, draft.run, draft.person, draft.host, body)
    return (*content, hash_entry((*content, "")))


def _store_rows(
    tx: Transaction, rows: Sequence[tuple[Any, ...]], others: Sequence[SigningKey]
) -> list[Entry]:
    # No other transaction appends before this one ends.
    tree = _grow_tree(tx, [bytes.fromhex(row[_HASH]) for row in rows])
    point = sign_checkpoint(tx.log_origin, tree, tx.now, (tx.signing_key, *others))
    notes = [*[None] * (len(rows) - 1), point.note]
    tx.sql.execute(
        _INSERT_ENTRIES,
        [
            dict(zip(_COLUMN_NAMES, (*row, note), strict=True))
            for row, note in zip(rows, notes, strict=True)
        ],
    )
    tx.logged = True
    idempotency.bind_entry(tx, rows[0][0])
    return [Entry(*row) for row in rows]


def _grow_tree(tx: Transaction, leaves: Sequence[bytes]) -> Tree:
    tiles: list[Tile] = []
    tx.log_head = lock_log(tx).add_leaves(leaves, tiles)
    if tiles:
        tx.sql.execute(
            _INSERT_TILES,
            [
                {"level": tile.level, "number": tile.number, "hash": tile.hash.hex()}
                for tile in tiles
            ],
        )
    return tx.log_head


def get_checkpoint_after(tx: Transaction, seq: int) -> Checkpoint | None:
    """Return the first checkpoint that covers an entry; None if there is none yet."""
    query = _CHECKPOINTS.where(tables.entry.c.seq >= seq).order_by(tables.entry.c.seq)
    return _get_checkpoint(tx, query.limit(1))


def get_newest_checkpoint(tx: Transaction) -> Checkpoint | None:
    """Return the newest checkpoint as it is stored."""
    return _get_checkpoint(tx, _NEWEST_CHECKPOINT)


def get_checkpoint(tx: Transaction, size: int) -> Checkpoint | None:
    """Return the checkpoint of this size; None if there is none."""
    return _get_checkpoint(tx, _CHECKPOINTS.where(tables.entry.c.seq == size))


def _get_checkpoint(tx: Transaction, query: Select[Any, Any, Any]) -> Checkpoint | None:
    row = tx.sql.execute(query).first()
    return parse_note(row.note, row.at) if row else None


def take_lock(tx: Transaction) -> Row[Any] | None:
    """Keep others from appending until this transaction ends, whatever the log holds.

    Returns the newest row, with the note of its checkpoint.
    """
    tx.commits_early = not tx.embedded
    return tx.sql.execute(_NEWEST_ENTRY if tx.embedded else _LOCK).first()


def lock_log(tx: Transaction) -> Tree:
    """Return the tree, and keep others from appending until this transaction ends.

    Raises LogAlteredError if the log does not end with what Keyturn wrote: another checkpoint
    would vouch for a history that Keyturn did not write.
    """
    if tx.log_head is None:
        row = take_lock(tx)
        # No one appends any more, so what is durable by now is there.
        tx.log_head, tx.log_origin = _verify_newest(tx, row, tx.seen_head.tree)
    return tx.log_head


# The newest tree that each transaction has verified, and the name of the log.
_VERIFIED: WeakKeyDictionary[Transaction, tuple[Tree, str]] = WeakKeyDictionary()


def get_verified_tree(tx: Transaction, *, covering: int | None = None) -> Tree:
    """Return the tree of all entries, with those of this transaction. Locks nothing.

    covering: an entry; an older tree with it will do. Raises LogAlteredError.
    """
    known = tx.log_head or _get_verified(tx)
    if covering is not None and covering <= known.size:
        return known
    return tx.log_head or _verify_head(tx)[0]


def _verify_head(tx: Transaction) -> tuple[Tree, str]:
    """Return the tree of the newest checkpoint and the name of the log. Raises LogAlteredError."""
    if tx.embedded and tx in _VERIFIED:
        # A transaction of SQLite sees no other one.
        return _VERIFIED[tx]
    return _verify_newest(tx, tx.sql.execute(_NEWEST_ENTRY).first(), tx.tree_at_begin)


def _verify_newest(tx: Transaction, row: Row[Any] | None, durable: Tree) -> tuple[Tree, str]:
    """Return the tree of the newest row's checkpoint and the name of the log.

    durable: what was before the row was read. Raises LogAlteredError unless the newest entry has
    its hash, our key signed the root with it, and what this process knows of the log is still in
    it.
    """
    known = max(_get_verified(tx), durable, key=lambda one: one.size)
    if row is None:
        if known.size:
            raise LogShortenedError(0, known.size)
        return Tree(), name_log(_get_key(tx).public_key)
    size = row[0]
    if not is_hash_valid(row[:-1]):
        raise LogAlteredError(f"entry {size} was altered: its content does not have its hash")
    if size < known.size:
        raise LogShortenedError(size, known.size)
    tree, origin = _verify_checkpoint(tx, known, size, row[-1])
    _VERIFIED[tx] = tree, origin
    tx.verified_tree = tree
    return tree, origin


def _verify_checkpoint(tx: Transaction, known: Tree, size: int, note: object) -> tuple[Tree, str]:
    """Return the tree that this note signs, and the name of the log. Raises LogAlteredError."""
    point = parse_note(note) if isinstance(note, str) else None
    if point is None or point.size != size:
        raise LogAlteredError(
            f"no checkpoint signs entry {size}, and `keyturn changelog set-aside` shows whether "
            "someone inserted it"
        )
    signed = tx.seen_head.signed
    if size == signed.size and point.root == encode_root(signed):
        return signed, point.origin
    if size > known.size and not is_signed_by(point, _get_key(tx).public_key):
        raise LogAlteredError(f"entry {size} is not signed by the key of the log")
    tree = _extend_tree(tx, known, size)
    if encode_root(tree) != point.root:
        raise LogAlteredError(f"an entry up to {size} is not the one that Keyturn wrote")
    return tree, point.origin


def _get_verified(tx: Transaction) -> Tree:
    return _VERIFIED[tx][0] if tx in _VERIFIED else Tree()


def _get_key(tx: Transaction) -> SigningKey:
    return tx.stamping or tx.signing_key


def _extend_tree(tx: Transaction, known: Tree, size: int) -> Tree:
    """Return the tree of this size: the known one with what follows, or all of it."""
    if not known.size:
        return build_tree(tx, size)
    return known if size == known.size else known.add_leaves(read_hashes(tx, 0, known.size, size))


def build_tree(tx: Transaction, size: int) -> Tree:
    """Return the tree of the first entries, from the stored hashes. Compare its root.

    Raises LogAlteredError if one is missing.
    """
    return _build_subtree(tx, 0, size)


def build_tree_of(tx: Transaction, point: Checkpoint) -> Tree:
    """Return the tree of a checkpoint. Its signature is not checked.

    Raises LogAlteredError if the stored hashes do not have its root.
    """
    tree = build_tree(tx, point.size)
    if encode_root(tree) != point.root:
        raise LogAlteredError(
            f"the entries do not lead to the root of the checkpoint of entry {point.size}"
        )
    return tree


def _build_subtree(tx: Transaction, first: int, end: int) -> Tree:
    """Return the tree of the leaves at these positions. first: where a perfect subtree begins."""
    edge, position, size = list[bytes](), first, end - first
    for height in reversed(range(size.bit_length())):
        if size >> height & 1:
            level, rest = divmod(height, TILE_HEIGHT)
            at = position >> level * TILE_HEIGHT
            hashes = read_hashes(tx, level, at, at + (1 << rest))
            edge.append(Tree().add_leaves(hashes).root)
            position += 1 << height
    return Tree(size, tuple(edge))


def prove_inclusion(tx: Transaction, seq: int, size: int) -> list[bytes]:
    """Return the audit path of an entry in the tree of this size (RFC 6962, section 2.1.1).

    Raises LogAlteredError if a hash is missing.
    """
    path: list[bytes] = []
    first, end = 0, size
    while end - first > 1:
        middle = first + (1 << (end - first - 1).bit_length() - 1)
        if seq <= middle:
            path.append(_build_subtree(tx, middle, end).root)
            end = middle
        else:
            path.append(_build_subtree(tx, first, middle).root)
            first = middle
    return path[::-1]


def prove_consistency(tx: Transaction, old_size: int, size: int) -> list[bytes]:
    """Return the proof that the tree continues that of an older size (RFC 6962, section 2.1.2).

    Raises LogAlteredError if a hash is missing.
    """
    proof: list[bytes] = []
    first, end = 0, size
    while 0 < old_size < end:
        middle = first + (1 << (end - first - 1).bit_length() - 1)
        if old_size <= middle:
            proof.append(_build_subtree(tx, middle, end).root)
            end = middle
        else:
            proof.append(_build_subtree(tx, first, middle).root)
            first = middle
    # A verifier knows the root of the old size, if all of it is one subtree.
    if first:
        proof.append(_build_subtree(tx, first, end).root)
    return proof[::-1]


def read_hashes(tx: Transaction, level: int, first: int, end: int) -> list[bytes]:
    """Return the hashes of a level from the position *first* up to, but without, *end*.

    They are as stored. Raises LogAlteredError if one is missing.
    """
    query, of_level = (_TILES, {"of_level": level}) if level else (_LEAVES, {})
    found = tx.sql.execute(query, {**of_level, "first": first, "end": end})
    try:
        hashes = [bytes.fromhex(one) for one in found.scalars()]
    except (TypeError, ValueError):
        raise LogAlteredError("the hash of an entry is none") from None
    if len(hashes) != end - first:
        raise LogAlteredError("an entry is missing")
    return hashes


def check_newest_entry(tx: Transaction) -> Tree:
    """Raise LogAlteredError unless Keyturn wrote the newest entry. Locks nothing.

    Returns the tree; an empty one if this process has no key.
    """
    if tx.stamping is not None:
        return _verify_head(tx)[0]
    row = tx.sql.execute(_NEWEST_ENTRY).first()
    if row is not None and not is_hash_valid(row[:-1]):
        raise LogAlteredError(f"entry {row.seq} was altered: its content does not have its hash")
    return Tree()


def _encode_all_facts(tx: Transaction, drafts: Sequence[EntryDraft]) -> list[str]:
    facts = [draft.event.encode() for draft in drafts]
    bodies = [_encode_for_everyone(each) for each in facts]
    # One search in all of them finds the same secrets, and is faster.
    if not tx.redactor.has_secret("\n".join(bodies)):
        return bodies
    return [_encode_for_everyone(tx.redactor.redact_value(each)) for each in facts]


def _encode_for_everyone(facts: Canonical) -> str:
    """Encode facts without references: people who may view a run read all of its entries."""
    body = encode_canonical(facts)
    return encode_canonical(hide_all_references(facts)) if has_references(body) else body


def get_head(tx: Transaction) -> tuple[int, str]:
    """Return the size of the log and its root, in base64, with what this transaction appended."""
    if tx.log_head is not None:
        return tx.log_head.size, encode_root(tx.log_head)
    point = get_newest_checkpoint(tx)
    return (point.size, point.root) if point else (0, encode_root(Tree()))


def hash_entry(row: Sequence[Any]) -> str:
    """Return the hash that an entry has to have. row: the members of an Entry, in their order."""
    return hash_leaf(encode_entry(row)).hex()


def encode_entry(row: Sequence[Any]) -> bytes:
    """Return the content of an entry as canonical JSON. row: as for hash_entry().

    Same as bot.model.canonical, but faster: verification of a long log would spend most of its
    time sorting the names of the same seven members. Of a body that is too long for a bundle of
    tiles, such as the plan for hundreds of hosts, it holds the hash.
    """
    body = row[_BODY]
    content = _encode_with_body(row, f'"body":{encode_basestring(body)}')
    if len(content) <= MAX_CONTENT_BYTES:
        return content
    digest = hashlib.sha256(body.encode()).hexdigest()
    return _encode_with_body(row, f'"body_sha256":"{digest}"')


def _encode_with_body(row: Sequence[Any], body: str) -> bytes:
    quoted = encode_basestring
    seq, at, kind, run, person, host, _, _ = row
    content = (
        f'{{"at":{at},{body},"host":{quoted(host)},"kind":{quoted(kind)},'
        f'"person":{quoted(person)},"run":{"null" if run is None else run},"seq":{seq}}}'
    )
    return content.encode()


def is_hash_valid(row: Sequence[Any]) -> bool:
    """Return whether the content of an entry has its hash. row: as for hash_entry()."""
    try:
        return hash_entry(row) == row[_HASH]
    except (TypeError, UnicodeEncodeError):
        # SQLite stores any type in any column; Keyturn did not write such a row.
        return False


def get_added_key(entry: Entry) -> str:
    """Return the key that an entry adds; "" if it adds none."""
    event = entry.event
    return event.public if isinstance(event, events.KeyAdded) else ""


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
    query = select(*tables.ENTRY_MEMBERS).where(column.run.in_(viewable), column.kind.in_(kinds))
    for row in tx.sql.execute(query.order_by(column.seq)) if viewable else ():
        found.setdefault(row.run, []).append(Entry(*row))
    return found


def get_entry(tx: Transaction, seq: int) -> Entry | None:
    """Return the entry of this number; None if there is none that may be viewed."""
    viewable = view_conditions.entries_condition(tx).clause()
    return _get_entry(tx, _ENTRIES.where(tables.entry.c.seq == seq, viewable))


def get_last_entry_of_run(tx: Transaction, run: int) -> Entry | None:
    if not view_conditions.list_viewable(tx, [run]):
        return None
    return _get_entry(tx, _LAST_ENTRY_OF_RUN, of=run)


def get_last_entry_of_kind(tx: Transaction, kind: str) -> Entry | None:
    return _get_entry(tx, _LAST_ENTRY_OF_KIND, which=kind)


def get_first_entry(tx: Transaction) -> Entry | None:
    """Return the first entry of the log."""
    return _get_entry(tx, _FIRST_ENTRY)


def get_last_entry_before(tx: Transaction, at: int) -> Entry | None:
    """Return the newest entry that is not newer than this time."""
    column = tables.entry.c
    query = _ENTRIES.where(column.at <= at).order_by(column.at.desc(), column.seq.desc())
    return _get_entry(tx, query.limit(1))


def _get_entry(tx: Transaction, query: _Query, **given: object) -> Entry | None:
    row = tx.sql.execute(query, given).first()
    return Entry(*row) if row else None


def _list_entries(tx: Transaction, query: _Query) -> list[Entry]:
    return [Entry(*row) for row in tx.sql.execute(query)]


def list_newest_entries_of_kind(
    tx: Transaction, kind: str, *, person: str, limit: int
) -> list[Entry]:
    """Return the newest entries of a kind about one person, the newest first."""
    column = tables.entry.c
    query = _ENTRIES.where(column.kind == kind, column.person == person)
    return _list_entries(tx, query.order_by(column.seq.desc()).limit(limit))


def list_entries_naming(
    tx: Transaction, kind: str, name: str, number: int, *, run: int | None = None
) -> list[Entry]:
    """Return the entries of a kind whose fact *name* is this number. run: only those about it."""
    column = tables.entry.c
    query = _ENTRIES.where(column.kind == kind, column.body.contains(f'"{name}":{number}'))
    if run is not None:
        query = query.where(column.run == run)
    found = _list_entries(tx, query.order_by(column.seq))
    # Another number can begin like this one.
    return [entry for entry in found if entry.event.get_fact(name) == number]


def list_entries_since(tx: Transaction, kind: str, at: int) -> Generator[Entry]:
    """Yield the entries of a kind that are newer than *at*, the newest first."""
    query = _ENTRIES.where(tables.entry.c.kind == kind).order_by(tables.entry.c.seq.desc())
    query = query.execution_options(yield_per=100)
    with tx.sql.execute(query) as rows:
        for row in rows:
            if row.at <= at:
                return
            yield Entry(*row)


def list_newest_entries(tx: Transaction, *, limit: int = 50) -> list[Entry]:
    return _list_entries(tx, _ENTRIES.order_by(tables.entry.c.seq.desc()).limit(limit))


def list_entries_after(tx: Transaction, seq: int, *, limit: int = 1000) -> list[Entry]:
    return [Entry(*row) for row in list_rows_after(tx, seq, limit=limit)]


def list_rows_after(tx: Transaction, seq: int, *, limit: int) -> Sequence[Sequence[Any]]:
    """Return the rows after this number: the members of an Entry, in their order."""
    return tx.sql.execute(_ROWS_AFTER, {"after": seq, "most": limit}).all()


def read_rows(tx: Transaction) -> AbstractContextManager[Iterable[Sequence[Any]]]:
    """Return an iterable of all rows: the members of an Entry in their order, and the note."""
    query = select(tables.entry).order_by(tables.entry.c.seq)
    return tx.sql.execute(query.execution_options(yield_per=2000))


def add_cosignatures(tx: Transaction, point: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the cosignatures of witnesses."""
    return replace(point, cosignatures=cosignatures.list_cosignatures(tx, point.size))


def get_checkpoint_to_prove(tx: Transaction, seq: int) -> Checkpoint | None:
    """Return the newest checkpoint that witnesses cosigned, if it covers an entry; or the newest.

    None if no checkpoint covers it.
    """
    size = cosignatures.get_newest_size(tx)
    point = get_checkpoint(tx, size) if size >= seq else None
    if point is not None:
        return add_cosignatures(tx, point)
    newest = get_newest_checkpoint(tx)
    return newest if newest is not None and newest.size >= seq else None
