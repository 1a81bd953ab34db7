"""Appending to the change log, beside inserting the same rows by the driver alone."""

from collections.abc import Sequence
from itertools import count
from typing import Any

from bot.audit import change_log, events
from bot.audit.change_log import EntryDraft
from bot.db.database import Database

_EACH, _BATCHES, _BATCH = 200, 10, 32
_NUMBERS = count(1)
_MARKS = ", ".join(["%s"] * 8)


def append_each(database: Database) -> int:
    for n in range(_EACH):
        with database.transaction() as tx:
            change_log.append_entry(
                tx,
                events.StepSending(step=n, title="Use bfq on sdb"),
                run=1,
                person="dora",
                host="web1",
            )
    return _EACH


def append_batches(database: Database) -> int:
    return _append(database, _BATCHES, _BATCH)


def _append(database: Database, commits: int, each: int) -> int:
    for _ in range(commits):
        with database.transaction() as tx:
            change_log.append_entries(tx, [_intent(n) for n in range(each)])
    return commits * each


def _intent(n: int) -> EntryDraft:
    return EntryDraft(
        events.StepSending(step=n, title="Use bfq on sdb"), run=1, person="dora", host=f"web{n}"
    )


def raw_each(database: Database) -> int:
    return _raw(database, _EACH, 1)


def raw_batches(database: Database) -> int:
    return _raw(database, _BATCHES, _BATCH)


def _raw(database: Database, commits: int, each: int) -> int:
    """Insert rows of the same size into a table with the same indexes, durably, with no tree.

    Each commit is a transaction that the driver begins and ends.
    """
    raw = database.engine.raw_connection()
    driver: Any = raw.driver_connection
    ours = None if database.embedded else driver.autocommit
    try:
        if not database.embedded:
            driver.autocommit = False
        create_raw_table(driver)
        if not database.embedded:
            driver.commit()
        marks = _MARKS.replace("%s", "?") if database.embedded else _MARKS
        statement = f"INSERT INTO raw_entry VALUES ({marks})"  # noqa: S608 - only marks
        for _ in range(commits):
            _insert(driver, statement, [_row(next(_NUMBERS)) for _ in range(each)])
            driver.commit()
        driver.execute("DROP TABLE raw_entry")
        driver.commit()
    finally:
        if not database.embedded:
            driver.autocommit = ours
        raw.close()
    return commits * each


def _insert(driver: Any, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert them in one transaction, as the driver does that best."""
    cursor = driver.cursor()
    cursor.execute("BEGIN IMMEDIATE") if "?" in statement else None
    cursor.executemany(statement, rows) if len(rows) > 1 else cursor.execute(statement, rows[0])


def create_raw_table(driver: Any) -> None:
    """Create a table with the columns and the indexes of the change log."""
    driver.execute("DROP TABLE IF EXISTS raw_entry")
    driver.execute(
        "CREATE TABLE raw_entry (seq BIGINT PRIMARY KEY, at BIGINT, kind TEXT, run INTEGER, "
        "person TEXT, host TEXT, body TEXT, hash TEXT)"
    )
    for columns in ("run, seq", "kind, seq", "host, seq", "person, seq", "at, seq"):
        driver.execute(f"CREATE INDEX raw_{columns[:2]} ON raw_entry ({columns})")


def insert_raw_entry(driver: Any, number: int) -> None:
    """Insert a row of PostgreSQL. driver: psycopg's connection, which commits each statement."""
    driver.execute(f"INSERT INTO raw_entry VALUES ({_MARKS})", _row(number))  # noqa: S608 - only marks


def _row(n: int) -> tuple[Any, ...]:
    digest = f"{n:064x}"
    body = '{"step":7,"title":"Use bfq on sdb"}'
    return (n, n, "step sending", 1, "dora", "web1", body, digest)
