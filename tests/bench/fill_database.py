"""Fills a database quickly: runs, search words, and a change log that verifies.

Everything follows from a run's number, so that what a filter must find is known without looking.
A run leaves three entries, as a check does; two runs of nineteen are changes, which have a plan
and an approval. One is asked for each half minute: ten million entries are those of three years.
Each thousandth entry has a checkpoint, and the last.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Table

from bot.audit import change_log, events
from bot.audit.checkpoints import name_log, sign_checkpoint
from bot.db import tables
from bot.db.database import Database
from bot.model.canonical import encode_canonical
from bot.model.merkle import Tile, Tree
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import State
from bot.model.signing import SigningKey
from connectors.command import Shell

# Counted up whenever what is filled in changes.
EDITION = 3
TABLES = (tables.run, tables.decision, tables.search_word, tables.entry)
_CHECKPOINT_EVERY = 1000
HOSTS = [f"{kind}{n}" for kind in ("web", "lb", "nfs", "mail", "db") for n in range(1, 201)]
AREAS = ["edge", "stores", "mail", "web", "network", "office", "lab", "backup"]
PEOPLE = [f"person{n}" for n in range(60)]
STATES = [State.SUCCEEDED] * 16 + [State.FAILED, State.DENIED, State.EXPIRED, State.NO_CHANGES]
CHANGES = ("abusers clear", "nfs scheduler set")
RUNBOOKS = (
    *CHANGES,
    *("abusers tables", "allocator check", "bond check", "bots top", "cert check", "csf find"),
    *(
        "conntrack check",
        "disk io",
        "host changes",
        "hsrp check",
        "mail queue check",
        "raid check",
    ),
    *("ratelimit check", "service status", "uptime check", "zfs io", "zfs pools"),
)
DISKS = [f"sd{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
# One request in so many is for several hosts, and its parts are the runs after it.
_EVERY, _PARTS = 1000, 20
_KINDS = ("requested", "started", "succeeded")
_ADDRESSES = 65_521
_RARE = 9_973
_SECOND = 1_000_000
APART = 30 * _SECOND
_BATCH = 5_000


def runs_of(entries: int) -> int:
    """Return how many runs leave so many entries; the first entry names the key."""
    return (entries - 1) // len(_KINDS)


def fill(database: Database, entries: int, seal: SigningKey) -> int:
    """Add so many entries and the runs that left them, the newest of them of this moment.

    Returns when it begins, in microseconds: the first run is asked for half a minute later.
    """
    count = runs_of(entries)
    began = round(time.time() * _SECOND) - count * APART
    indexes = [index for table in TABLES for index in table.indexes]
    with database.engine.connect() as connection:
        for index in indexes:
            index.drop(connection)
        connection.commit()
    raw = database.engine.raw_connection()
    put = _insert if database.embedded else _copy
    try:
        put(raw.driver_connection, tables.run, _runs(count, began))
        put(raw.driver_connection, tables.decision, _votes(count, began))
        put(raw.driver_connection, tables.search_word, _words(count))
        log = _Log(entries, began, seal)
        put(raw.driver_connection, tables.entry, log.list_entries())
        tiles = ((tile.level, tile.number, tile.hash.hex()) for tile in log.tiles)
        put(raw.driver_connection, tables.tile, tiles)
    finally:
        raw.invalidate()
    with database.engine.connect() as connection:
        for index in indexes:
            index.create(connection)
        connection.commit()
        if not database.embedded:
            # As autovacuum does in a database that has grown slowly. SQLite has no statistics.
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql("VACUUM ANALYZE")
    return began


def _insert(driver: Any, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    for pragma in ("synchronous=OFF", "cache_size=-1500000", "foreign_keys=OFF"):
        driver.execute(f"PRAGMA {pragma}")
    marks = ", ".join("?" * len(table.columns))
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    statement = f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})'  # noqa: S608 - our own names
    rest = iter(rows)
    while batch := list(islice(rest, _BATCH)):
        driver.execute("BEGIN")
        driver.executemany(statement, batch)
        driver.execute("COMMIT")


def _copy(driver: Any, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    statement = f'COPY "{table.name}" ({names}) FROM STDIN'
    with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for row in rows:
            copy.write_row(row)
    if table is tables.run:
        driver.execute("SELECT setval('run_id_seq', (SELECT max(id) FROM run))")
    driver.commit()


def place_of(number: int) -> int:
    """Say where a run stands: alone 0, for several hosts 1, part of such a one 2."""
    after = number % _EVERY
    return 1 if after == 0 else 2 if after <= _PARTS and number > _EVERY else 0


def host_of(number: int) -> str:
    return HOSTS[number * 7 % len(HOSTS)]


def _runs(count: int, began: int) -> Iterator[tuple[Any, ...]]:
    names = [column.name for column in tables.run.columns]
    proposal, digest = _proposal()
    same = dict.fromkeys(names) | {
        "version": 7,
        "origin": '{"source":"slack","channel":"C1","user":"U1","schedule_id":0}',
        "approver_groups": "[]",
        "policy_notes": "[]",
        "requirements": "{}",
        "hosts": "[]",
        "editors": "[]",
        "guard_override": "",
        "ticket": "",
        "summary": "It is as it was asked for: read again and nothing is left to do",
        "needs_attention": False,
    }
    row = [same[name] for name in names]
    at = {name: place for place, name in enumerate(names)}
    for number in range(1, count + 1):
        host, asked, place = host_of(number), began + number * APART, place_of(number)
        words, disk, changes = (
            RUNBOOKS[number % len(RUNBOOKS)],
            DISKS[number % 26],
            _changes(number),
        )
        row[at["id"]], row[at["host"]], row[at["fan_out_role"]] = number, host, place
        row[at["requested_at"]], row[at["pending_since"]] = (
            asked,
            asked + _SECOND if changes else None,
        )
        row[at["started_at"]], row[at["ended_at"]] = asked + 40 * _SECOND, asked + 41 * _SECOND
        row[at["runbook"]], row[at["request"]] = words, f"{words} {host} {disk}"
        row[at["kind"]], row[at["required_approvals"]] = ("change", 1) if changes else ("check", 0)
        row[at["plan"]], row[at["digest"]] = (proposal, digest) if changes else (None, "")
        row[at["reason"]] = "the export is slow since the morning" if changes else ""
        row[at["state"]] = STATES[number * 13 // 7 % len(STATES)].value
        row[at["area"]] = AREAS[number * 7 % len(HOSTS) % len(AREAS)]
        row[at["requested_by"]] = PEOPLE[number * 11 % len(PEOPLE)]
        row[at["field_values"]] = f'{{"device":"{disk}","host":"{host}"}}'
        row[at["hosts"]] = '["web1","web2","web3"]' if place == 1 else "[]"
        row[at["parent"]] = number - number % _EVERY if place == 2 else None
        yield tuple(row)


def _changes(number: int) -> bool:
    return RUNBOOKS[number % len(RUNBOOKS)] in CHANGES


def _votes(count: int, began: int) -> Iterator[tuple[Any, ...]]:
    _, digest = _proposal()
    for number in filter(_changes, range(1, count + 1)):
        person = PEOPLE[(number * 11 + 1) % len(PEOPLE)]
        at = began + number * APART + 39 * _SECOND
        yield number, person, True, digest, at, "", "", "", "", None


def _proposal() -> tuple[str, str]:
    step = PlannedStep(
        "Use mq-deadline on sdb",
        "nfs1",
        "SHA256:…",
        Shell(("sudo", "tee", "/sys/block/sdb/queue/scheduler")),
        Shell(("sudo", "tee", "/sys/block/sdb/queue/scheduler")),
        before="none",
        after="mq-deadline",
    )
    fields = {"host": "nfs1", "device": "sdb"}
    proposal = ResolvedPlan("nfs scheduler set", "1", fields, "person1", 0, "p", "it is", [step])
    return proposal.to_json(), proposal.digest


def _words(count: int) -> Iterator[tuple[str, int]]:
    """Yield rows in the order of their key: a word that all have, some common, many rare."""
    words = {f"device={disk}": (n, 26) for n, disk in enumerate(DISKS)}
    words |= {f"address=203.0.{n // 256}.{n % 256}": (n, _ADDRESSES) for n in range(_ADDRESSES)}
    words |= {"as": (0, 1), "overheated": (17, _RARE)}
    for word in sorted(words, key=str.encode):
        first, step = words[word]
        for number in range(first or step, count + 1, step):
            yield word, number


class _Log:
    """The entries with their checkpoints, and the tiles that they leave."""

    def __init__(self, count: int, began: int, key: SigningKey) -> None:
        self._count, self._began, self._key = count, began, key
        self.tiles: list[Tile] = []

    def list_entries(self) -> Iterator[tuple[Any, ...]]:
        origin, tree, leaves = name_log(self._key.public_key), Tree(), list[bytes]()
        for row in self._list_contents():
            digest = change_log.hash_entry((*row, ""))
            leaves.append(bytes.fromhex(digest))
            note = None
            if row[0] % _CHECKPOINT_EVERY == 0 or row[0] == self._count:
                tree = tree.add_leaves(leaves, self.tiles)
                leaves.clear()
                note = sign_checkpoint(origin, tree, row[1], [self._key]).note
            yield (*row, digest, note)

    def _list_contents(self) -> Iterator[tuple[Any, ...]]:
        body = encode_canonical({"public": self._key.public_key})
        yield 1, self._began + APART, events.KeyAdded.kind, None, "", "", body
        for seq in range(2, self._count + 1):
            run, n = divmod(seq + 1, len(_KINDS))
            at = self._began + run * APART + n * 20 * _SECOND
            person = PEOPLE[run * 11 % len(PEOPLE)]
            body = f'{{"reason":"it is slow","source":"slack","step":{seq}}}'
            yield seq, at, _KINDS[n], run, person, host_of(run), body
