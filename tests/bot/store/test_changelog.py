import threading
from contextlib import suppress

import pytest
from sqlalchemy import text

from bot.store import changelog, verification
from bot.store.database import Database, StoreUnavailable


def _fill(database: Database, entries: int) -> None:
    with database.transaction() as tx:
        verification.open_log(tx)
        for n in range(1, entries):
            changelog.append(tx, "noted", person="olga", host="lb1", n=n, words="naïve ☃")


def _verify(database: Database) -> verification.Verdict:
    with database.reading() as tx:
        return verification.verify(tx)


def _disarm(database: Database) -> None:
    """Do as somebody with the owner's rights would: take the triggers away first."""
    with database.engine.connect() as connection:
        if database.embedded:
            connection.exec_driver_sql("DROP TRIGGER entry_no_update")
            connection.exec_driver_sql("DROP TRIGGER entry_no_delete")
        else:
            connection.exec_driver_sql("ALTER TABLE entry DISABLE TRIGGER ALL")
        connection.commit()


def test_an_empty_log_is_whole(database: Database):
    assert _verify(database) == verification.Verdict(0, changelog.GENESIS)


def test_what_was_appended_verifies(database: Database):
    _fill(database, 40)
    verdict = _verify(database)
    assert (verdict.entries, verdict.broken) == (40, None)


@pytest.mark.parametrize("statement", ["UPDATE entry SET person = 'adam'", "DELETE FROM entry"])
def test_even_we_cannot_change_it(database: Database, statement: str):
    _fill(database, 3)
    with pytest.raises(StoreUnavailable, match="append-only"), database.transaction() as tx:
        tx.sql.execute(text(statement))
    assert _verify(database).entries == 3


@pytest.mark.parametrize(
    ("tampering", "broken"),
    [
        ("UPDATE entry SET person = 'adam' WHERE seq = 7", 7),
        ("UPDATE entry SET at = at + 1 WHERE seq = 1", 1),
        ("UPDATE entry SET body = '{}' WHERE seq = 5", 5),
        ("UPDATE entry SET hash = prev WHERE seq = 4", 4),
        ("UPDATE entry SET run = 1 WHERE seq = 9", 9),
        ("DELETE FROM entry WHERE seq = 6", 6),
        ("DELETE FROM entry WHERE seq = 1", 1),
        ("UPDATE entry SET seq = 11 WHERE seq = 8", 8),
        ("UPDATE entry SET kind = 'noted ' WHERE seq = 10", 10),
    ],
)
def test_t_l4_whatever_a_dba_alters_is_found(database: Database, tampering: str, broken: int):
    _fill(database, 10)
    _disarm(database)
    with database.transaction() as tx:
        tx.sql.execute(text(tampering))
    assert _verify(database).broken == broken


def test_t_l9_many_writers_make_one_chain(database: Database):
    _fill(database, 1)

    def write() -> None:
        left = list(range(10))

        def done() -> None:
            left.pop(0)

        while left:
            # More writers than connections: who waits too long is turned away and comes again.
            with suppress(StoreUnavailable), database.transaction() as tx:
                changelog.append(tx, "noted", n=left[0])
                tx.after_commit(done)

    writers = [threading.Thread(target=write) for _ in range(50)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert _verify(database).entries == 501
