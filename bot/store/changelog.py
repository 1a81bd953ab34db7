"""The change log: every event of every run, append-only, each entry bound to the one before."""

import hashlib
import json
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from sqlalchemy import Row, select

from bot.digest import Canonical, canonical, sha256
from bot.store import tables
from bot.store.database import Transaction

GENESIS = "0" * 64
# The kind of the entries that name the key by which the log is sealed from then on.
KEY = "key"

# As the driver takes it, with nothing to be put together for each entry of a wave.
_LAST = "SELECT seq, hash FROM entry ORDER BY seq DESC LIMIT 1"
_HEAD = {"sqlite": _LAST, "postgresql": _LAST}
# SQLite has one writer; of PostgreSQL, a function of the schema takes a lock, then looks.
_LOCKED_HEAD = {"sqlite": _LAST, "postgresql": "SELECT seq, hash FROM log_head()"}
_COLUMNS = ", ".join(column.name for column in tables.entry.columns)
_INSERT = {
    dialect: f"INSERT INTO entry ({_COLUMNS}) VALUES ({', '.join([mark] * 10)})"  # noqa: S608 - ours
    for dialect, mark in (("sqlite", "?"), ("postgresql", "%s"))
}


@dataclass(frozen=True)
class Entry:
    """One event. at: microseconds. body: canonical JSON. prev, hash: 64 hex digits of SHA-256.

    hash = SHA-256 of the canonical JSON of the members before it.
    signature = Ed25519 over the 32 bytes of the hash, 128 hex digits.
    """

    seq: int
    at: int
    kind: str
    run: int | None
    person: str
    host: str
    body: str
    prev: str
    hash: str
    signature: str

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads(self.body)


def append(
    tx: Transaction,
    kind: str,
    *,
    run: int | None = None,
    person: str = "",
    host: str = "",
    **facts: Canonical,
) -> Entry:
    """Add an entry in the caller's transaction: what it tells of and the telling are one."""
    seq, prev = tx.log_head or _last_and_locked(tx)
    tx.logged = True
    values: dict[str, Any] = {
        "seq": seq + 1,
        "at": tx.now,
        "kind": kind,
        "run": run,
        "person": person,
        "host": host,
        "body": _body(tx, facts),
        "prev": prev,
    }
    digest = sha256(values)
    entry = Entry(**values, hash=digest, signature=tx.seal.sign(digest))
    tx.at_once(_INSERT, tuple(vars(entry).values()))
    # Nobody else appends before this transaction ends.
    tx.log_head = (entry.seq, digest)
    return entry


def keep_others_out(tx: Transaction) -> None:
    """Keep others from appending until this transaction ends: what it reads of the log holds."""
    tx.log_head = _last_and_locked(tx)


def _last_and_locked(tx: Transaction) -> tuple[int, str]:
    """Return where the log ends, and keep others from appending until this transaction ends."""
    row = tx.at_once(_LOCKED_HEAD)
    return (row[0], row[1]) if row else (0, GENESIS)


def _body(tx: Transaction, facts: Mapping[str, Canonical]) -> str:
    body = canonical(facts)
    return canonical(tx.redactor.thing(facts)) if tx.redactor.holds(body) else body


def head(tx: Transaction) -> tuple[int, str]:
    """Return the newest entry's sequence number and hash; (0, GENESIS) of an empty log."""
    row = tx.at_once(_HEAD)
    return (row[0], row[1]) if row else (0, GENESIS)


def digest_of(row: Sequence[Any]) -> str:
    """Return the hash that an entry must have: what bot.digest says, written down at once.

    row: the members of an Entry, in their order.

    The chain is as long as all that was ever done; sorting the names of the same eight members
    again for each entry would take most of the time.
    """
    quoted = encode_basestring
    seq, at, kind, run, person, host, body, prev, _, _ = row
    content = (
        f'{{"at":{at},"body":{quoted(body)},"host":{quoted(host)},"kind":{quoted(kind)},'
        f'"person":{quoted(person)},"prev":{quoted(prev)},'
        f'"run":{"null" if run is None else run},"seq":{seq}}}'
    )
    return hashlib.sha256(content.encode()).hexdigest()


def of_run(tx: Transaction, run: int, kinds: Collection[str] = ()) -> list[Entry]:
    """Return the entries about a run. kinds: only of these; () for all."""
    query = select(tables.entry).where(tables.entry.c.run == run).order_by(tables.entry.c.seq)
    if kinds:
        query = query.where(tables.entry.c.kind.in_(kinds))
    return [_entry(row) for row in tx.sql.execute(query)]


def last_of_run(tx: Transaction, run: int) -> Entry | None:
    query = select(tables.entry).where(tables.entry.c.run == run)
    row = tx.sql.execute(query.order_by(tables.entry.c.seq.desc()).limit(1)).one_or_none()
    return _entry(row) if row else None


def last_of_kind(tx: Transaction, kind: str) -> Entry | None:
    query = select(tables.entry).where(tables.entry.c.kind == kind)
    row = tx.sql.execute(query.order_by(tables.entry.c.seq.desc()).limit(1)).one_or_none()
    return _entry(row) if row else None


def latest(tx: Transaction, kind: str, *, person: str, most: int) -> list[Entry]:
    """Return the newest entries of a kind about one person, the newest first."""
    query = select(tables.entry).where(tables.entry.c.kind == kind)
    query = query.where(tables.entry.c.person == person)
    rows = tx.sql.execute(query.order_by(tables.entry.c.seq.desc()).limit(most))
    return [_entry(row) for row in rows]


def speaking_of(tx: Transaction, kind: str, name: str, number: int) -> list[Entry]:
    """Return the entries of a kind in whose facts this number stands by that name."""
    query = select(tables.entry).where(
        tables.entry.c.kind == kind, tables.entry.c.body.contains(f'"{name}":{number}')
    )
    return [_entry(row) for row in tx.sql.execute(query.order_by(tables.entry.c.seq))]


def speaking_of_run(tx: Transaction, kind: str, run: int, name: str, number: int) -> list[Entry]:
    """Return those of them that are about one run."""
    query = select(tables.entry).where(
        tables.entry.c.run == run,
        tables.entry.c.kind == kind,
        tables.entry.c.body.contains(f'"{name}":{number}'),
    )
    found = [_entry(row) for row in tx.sql.execute(query.order_by(tables.entry.c.seq))]
    return [entry for entry in found if entry.facts.get(name) == number]


def since(tx: Transaction, kind: str, at: int) -> Generator[Entry]:
    """Yield the entries of a kind that are newer than *at*, the newest first."""
    query = select(tables.entry).where(tables.entry.c.kind == kind)
    query = query.order_by(tables.entry.c.seq.desc()).execution_options(yield_per=100)
    with tx.sql.execute(query) as rows:
        for row in rows:
            if row.at <= at:
                return
            yield _entry(row)


def newest(tx: Transaction, *, before: int | None = None, most: int = 50) -> list[Entry]:
    query = select(tables.entry).order_by(tables.entry.c.seq.desc()).limit(most)
    if before is not None:
        query = query.where(tables.entry.c.seq < before)
    return [_entry(row) for row in tx.sql.execute(query)]


def after(tx: Transaction, seq: int, *, most: int = 1000) -> list[Entry]:
    query = (
        select(tables.entry)
        .where(tables.entry.c.seq > seq)
        .order_by(tables.entry.c.seq)
        .limit(most)
    )
    return [_entry(row) for row in tx.sql.execute(query)]


def everything(tx: Transaction) -> Generator[Entry]:
    """Yield the whole log from its beginning, a thousand entries in memory at a time."""
    for row in rows(tx):
        yield _entry(row)


def between(tx: Transaction, first: int, end: int) -> Generator[Row[Any]]:
    """Yield the rows from one number up to another, which is left out."""
    query = select(tables.entry).where(tables.entry.c.seq >= first, tables.entry.c.seq < end)
    query = query.order_by(tables.entry.c.seq).execution_options(yield_per=1000)
    with tx.sql.execute(query) as found:
        yield from found


def rows(tx: Transaction) -> Generator[Row[Any]]:
    """Yield it as it is in the table: each row has the members of an Entry, in their order."""
    query = select(tables.entry).order_by(tables.entry.c.seq).execution_options(yield_per=1000)
    with tx.sql.execute(query) as found:
        yield from found


def _entry(row: Row[Any]) -> Entry:
    return Entry(
        row.seq,
        row.at,
        row.kind,
        row.run,
        row.person,
        row.host,
        row.body,
        row.prev,
        row.hash,
        row.signature,
    )
