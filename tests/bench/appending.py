"""Appending to the change log, and the same rows by the driver alone."""

from itertools import count
from typing import Any

from bot.store import changelog
from bot.store.database import Database

_EACH, _BATCHES, _BATCH = 200, 10, 32
_NUMBERS = count(1)


def append_each(database: Database) -> int:
    for n in range(_EACH):
        with database.transaction() as tx:
            _append(tx, n)
    return _EACH


def append_batches(database: Database) -> int:
    for _ in range(_BATCHES):
        with database.transaction() as tx:
            for n in range(_BATCH):
                _append(tx, n)
    return _BATCHES * _BATCH


def _append(tx: Any, n: int) -> None:
    changelog.append(tx, "sending", run=1, person="dora", host="web1", n=n, title="Use bfq on sdb")


def raw_each(database: Database) -> int:
    return _raw(database, _EACH, 1)


def raw_batches(database: Database) -> int:
    return _raw(database, _BATCHES, _BATCH)


def _raw(database: Database, commits: int, each: int) -> int:
    """Insert rows of the same size into a table with the same indexes, durably, with no chain."""
    raw = database.engine.raw_connection()
    try:
        driver: Any = raw.driver_connection
        _copy_of_the_table(driver, embedded=database.embedded)
        marks = ", ".join(["?" if database.embedded else "%s"] * 10)
        statement = f"INSERT INTO raw_entry VALUES ({marks})"  # noqa: S608 - only marks
        for _ in range(commits):
            if database.embedded:
                driver.execute("BEGIN IMMEDIATE")
            for _ in range(each):
                driver.execute(statement, _row(next(_NUMBERS)))
            driver.execute("COMMIT") if database.embedded else driver.commit()
        driver.execute("DROP TABLE raw_entry")
        if not database.embedded:
            driver.commit()
    finally:
        raw.close()
    return commits * each


def _copy_of_the_table(driver: Any, *, embedded: bool) -> None:
    driver.execute(
        "CREATE TABLE raw_entry (seq BIGINT PRIMARY KEY, at BIGINT, kind TEXT, run INTEGER, "
        "person TEXT, host TEXT, body TEXT, prev TEXT UNIQUE, hash TEXT, signature TEXT)"
    )
    for columns in ("run, seq", "kind, seq", "host, seq", "person, seq", "at, seq"):
        driver.execute(f"CREATE INDEX raw_{columns[:2]} ON raw_entry ({columns})")
    if not embedded:
        driver.commit()


def _row(n: int) -> tuple[Any, ...]:
    digest = f"{n:064x}"
    body = '{"n":7,"title":"Use bfq on sdb"}'
    return (n, n, "sending", 1, "dora", "web1", body, digest, digest, digest * 2)
