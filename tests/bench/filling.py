"""A database filled quickly: runs, the words that they are found by, and a chain that verifies.

Everything follows from a run's number, so that what a filter must find is known without looking.
Only each thousandth entry is signed, and the last: verifying reads the last signature alone.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Table

from bot.digest import canonical
from bot.proposal import Proposal, ProposedStep
from bot.run import State
from bot.store import changelog, tables, verification
from bot.store.changelog import GENESIS, Entry
from bot.store.database import Database
from bot.store.seal import Seal
from connectors.command import Shell
from runbooks import catalogue

HOSTS = [f"{kind}{n}" for kind in ("web", "lb", "nfs", "mail", "db") for n in range(1, 201)]
AREAS = ["edge", "stores", "mail", "web", "network", "office", "lab", "backup"]
PEOPLE = [f"person{n}" for n in range(60)]
STATES = [State.SUCCEEDED] * 16 + [State.FAILED, State.DENIED, State.EXPIRED, State.UNCHANGED]
DISKS = [f"sd{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
# One request in so many is for several hosts, and its parts are the runs after it.
_EVERY, _PARTS = 1000, 20
_ADDRESSES = 65_521
_RARE = 9_973
_SECOND = 1_000_000
_BATCH = 5_000


def fill(database: Database, count: int, seal: Seal) -> None:
    """Add so many runs, and as many entries, the newest of them of this moment."""
    began = round(time.time() * _SECOND) - count * _SECOND
    indexes = [index for table in (tables.run, tables.entry) for index in table.indexes]
    with database.engine.connect() as connection:
        for index in indexes:
            index.drop(connection)
        connection.commit()
    raw = database.engine.raw_connection()
    put = _insert if database.embedded else _copy
    try:
        put(raw.driver_connection, tables.run, _runs(count, began))
        put(raw.driver_connection, tables.word, _words(count))
        put(raw.driver_connection, tables.entry, _entries(count, began, seal))
    finally:
        raw.invalidate()
    with database.engine.connect() as connection:
        for index in indexes:
            index.create(connection)
        connection.commit()
        connection.execution_options(isolation_level="AUTOCOMMIT")
        # As autovacuum and the planner's statistics are in a database that has grown slowly.
        connection.exec_driver_sql("ANALYZE" if database.embedded else "VACUUM ANALYZE")


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
    columns = [column.name for column in tables.run.columns]
    runbooks = [words for words in catalogue() if "show" not in words]
    proposal, digest = _proposal()
    same = dict.fromkeys(columns) | {
        "version": 7,
        "kind": "change",
        "origin": '{"door":"slack","channel":"C1","user":"U1","schedule":0}',
        "reason": "the export is slow since the morning",
        "proposal": proposal,
        "digest": digest,
        "needed": 1,
        "groups": "[]",
        "says": "[]",
        "terms": "{}",
        "hosts": "[]",
        "editors": "[]",
        "summary": "It is as it was asked for: read again and nothing is left to do",
    }
    for number in range(1, count + 1):
        host, asked, place = host_of(number), began + number * _SECOND, place_of(number)
        words = runbooks[number % len(runbooks)]
        same["id"], same["host"], same["asked"], same["place"] = number, host, asked, place
        same["words"], same["request"] = words, f"{words} {host} {DISKS[number % 26]}"
        same["state"] = STATES[number * 13 // 7 % len(STATES)].value
        same["area"] = AREAS[number * 7 % len(HOSTS) % len(AREAS)]
        same["asked_by"] = PEOPLE[number * 11 % len(PEOPLE)]
        same["fields"] = f'{{"device":"{DISKS[number % 26]}","host":"{host}"}}'
        same["started"], same["ended"] = asked + 40_000_000, asked + 41_000_000
        same["hosts"] = '["web1","web2","web3"]' if place == 1 else "[]"
        same["parent"] = number - number % _EVERY if place == 2 else None
        yield tuple(same[name] for name in columns)


def _proposal() -> tuple[str, str]:
    step = ProposedStep(
        "Use mq-deadline on sdb",
        "nfs1",
        "SHA256:…",
        Shell(("sudo", "tee", "/sys/block/sdb/queue/scheduler")),
        Shell(("sudo", "tee", "/sys/block/sdb/queue/scheduler")),
        before="none",
        after="mq-deadline",
    )
    fields = {"host": "nfs1", "device": "sdb"}
    proposal = Proposal("nfs scheduler set", "1", fields, "person1", 0, "p", "it is", [step])
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


def _entries(count: int, began: int, seal: Seal) -> Iterator[tuple[Any, ...]]:
    prev, signature = GENESIS, ""
    for seq in range(1, count + 1):
        first = seq == 1
        entry = Entry(
            seq=seq,
            at=began + seq * _SECOND,
            kind=verification.KEY if first else "step succeeded" if seq % 3 else "planned",
            run=None if first else seq,
            person="" if first else PEOPLE[seq * 11 % len(PEOPLE)],
            host="" if first else host_of(seq),
            body=canonical(
                {"public": seal.public}
                if first
                else {"n": seq, "status": 0, "title": "Use mq-deadline on sdb", "trouble": ""}
            ),
            prev=prev,
            hash="",
            signature="",
        )
        prev = changelog.digest_of(tuple(vars(entry).values()))
        if first or seq % 1000 == 0 or seq == count:
            signature = seal.sign(prev)
        yield (*tuple(vars(entry).values())[:-2], prev, signature)
