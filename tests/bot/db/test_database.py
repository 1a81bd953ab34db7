import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import event

from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.db import migrations
from bot.db.database import AlreadyRunning, Database, StoreUnavailable, lock_data_directory
from bot.db.process_lock import lock_exclusive
from bot.model.signing import SigningKey
from tests.playground.daemon import find_free_port
from tests.playground.postgres import Postgres


def test_schema_upgrade_is_idempotent(database: Database):
    assert migrations.is_schema_current(database)
    migrations.upgrade_schema(database)
    assert migrations.is_schema_current(database)


def test_schema_of_an_empty_database_is_not_current(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'empty.db'}", SigningKey.create())
    assert not migrations.is_schema_current(database)
    database.close()


def test_failed_transaction_is_rolled_back(database: Database):
    def fail() -> None:
        with database.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="half"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.reading() as tx:
        assert change_log.get_head(tx)[0] == 0


def test_reading_transaction_sees_one_snapshot(database: Database):
    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="first"))
    with database.reading() as reading:
        before = change_log.get_head(reading)
        with database.transaction() as tx:
            change_log.append_entry(tx, UnknownEvent(kind="second"))
        assert change_log.get_head(reading) == before
    with database.reading() as reading:
        assert change_log.get_head(reading)[0] == 2


def test_after_commit_callbacks_run_only_after_a_commit(database: Database):
    seen: list[int] = []

    def look() -> None:
        with database.reading() as tx:
            seen.append(change_log.get_head(tx)[0])

    with database.transaction() as tx:
        change_log.append_entry(tx, UnknownEvent(kind="news"))
        tx.after_commit(look)
        assert seen == []
    assert seen == [1]

    def fail() -> None:
        with database.transaction() as tx:
            tx.after_commit(look)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [1]


def test_database_clock_returns_microseconds(database: Database):
    with database.reading() as tx:
        assert 1_700_000_000_000_000 < tx.now < 4_000_000_000_000_000


def test_sqlite_uses_wal_full_synchronous_and_foreign_keys(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    with database.engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    database.close()
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_full_disk_is_reported_and_the_transaction_is_rolled_back(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    migrations.upgrade_schema(database)
    with database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    database.engine.dispose()

    # Each connection has its own limit, so it is set on every one that the pool makes.
    @event.listens_for(database.engine, "connect")
    def _limit(connection: sqlite3.Connection, _record: object) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.execute(f"PRAGMA max_page_count={pages}")

    with pytest.raises(StoreUnavailable, match="full"), database.transaction() as tx:
        change_log.append_entry(
            tx, UnknownEvent(kind="too much", facts={"words": "x" * 1_000_000})
        )
    with database.reading() as tx:
        assert change_log.get_head(tx)[0] == 0
    database.close()


def test_second_process_on_the_same_data_directory_is_refused(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from bot.db.database import lock_data_directory\n"
        "with lock_data_directory(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning, match="another Keyturn"), lock_data_directory(tmp_path):
            pass
        other.communicate()
    with lock_data_directory(tmp_path):
        pass


def test_failing_after_commit_callback_does_not_stop_the_others(database: Database):
    heard: list[str] = []

    def deaf() -> None:
        raise RuntimeError("no ears")

    with database.transaction() as tx:
        tx.after_commit(deaf)
        tx.after_commit(lambda: heard.append("news"))
    assert heard == ["news"]


@pytest.mark.real
def test_second_embedded_server_on_the_same_postgresql_database_is_refused(postgres: Postgres):
    url = postgres.new_database()
    first, second = Database(url), Database(url)
    with lock_exclusive(first), pytest.raises(AlreadyRunning), lock_exclusive(second):
        pass
    with lock_exclusive(second):
        pass
    first.close()
    second.close()


def test_transaction_open_at_close_leaves_no_connection(database: Database):
    closed: list[str] = []
    event.listen(database.engine, "close", lambda *_: closed.append("closed"))
    with database.reading():
        database.close()
        before = len(closed)
    assert len(closed) == before + 1


@pytest.mark.real
def test_postgresql_works_with_file_descriptors_above_1023(postgres: Postgres):
    """A socket with a number above 1023, which select() does not take, is as good as any."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    database = Database(postgres.new_database())
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
        while taken[-1] < 1100:
            taken.append(os.dup(taken[0]))
        for _ in range(3):
            with database.reading() as tx:
                assert tx.now
    finally:
        for number in taken:
            os.close(number)
        database.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_postgresql_error_message_is_one_line():
    database = Database(
        f"postgresql+psycopg://nobody@127.0.0.1:{find_free_port('127.0.0.1')}/none"
    )
    with pytest.raises(StoreUnavailable, match="refused") as raised, database.reading():
        pass
    database.close()
    assert "\n" not in str(raised.value)
