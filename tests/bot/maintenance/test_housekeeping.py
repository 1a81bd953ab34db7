"""Housekeeping logs the settings, and sends every new head of the log to the witnesses."""

from pathlib import Path

import pytest
from sqlalchemy import text

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.audit.checkpoints import Checkpoint
from bot.audit.spool import Spool
from bot.db.database import StoreUnavailable
from bot.maintenance.housekeeping import Housekeeping
from tests.bot.harness import Harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture
def witnessed() -> list[Checkpoint]:
    return []


@pytest.fixture
def house(harness: Harness, tmp_path: Path, witnessed: list[Checkpoint]) -> Housekeeping:
    spool = Spool(tmp_path / "changelog.spool")
    return Housekeeping(harness.database, spool=spool, witnesses=[witnessed.append])


def _entries(harness: Harness, kind: str) -> list[Entry]:
    with harness.database.reading() as tx:
        return [entry for entry in change_log.list_entries_after(tx, 0) if entry.kind == kind]


def test_settings_are_logged_only_when_they_change(harness: Harness, house: Housekeeping):
    for listen in ("127.0.0.1", "127.0.0.1", "0.0.0.0"):  # noqa: S104 - only written down
        house.start({"listen": listen, "slack_bot_token": "set"})
    logged = [entry.facts["settings"]["listen"] for entry in _entries(harness, "settings changed")]
    assert logged == ["127.0.0.1", "0.0.0.0"]  # noqa: S104


def test_own_runbooks_are_logged_only_when_they_change(harness: Harness, house: Housekeeping):
    for digests in ({}, {"runbooks.a": "12"}, {"runbooks.a": "12"}, {"runbooks.a": "34"}, {}):
        house.log_own_runbooks(digests)
    logged = [entry.facts["files"] for entry in _entries(harness, "local runbooks changed")]
    assert logged == [{"runbooks.a": "12"}, {"runbooks.a": "34"}, {}]


def test_witnesses_receive_a_checkpoint_only_for_new_entries(
    harness: Harness, house: Housekeeping, witnessed: list[Checkpoint]
):
    house.start({})
    for _ in range(3):
        house.run_periodic_tasks()
    assert len(witnessed) == 1
    harness.request(LAMP_ON)
    house.run_periodic_tasks()
    assert [point.size for point in witnessed] == [witnessed[0].size, witnessed[0].size + 2]


def test_failing_witness_is_retried_and_does_not_block_others(
    harness: Harness, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    heard: list[Checkpoint] = []
    deaf = [True]

    def moody(point: Checkpoint) -> None:
        if deaf[0]:
            raise OSError("the log server is away")
        heard.append(point)

    others: list[Checkpoint] = []
    spool = Spool(tmp_path / "changelog.spool")
    house = Housekeeping(
        harness.database,
        spool=spool,
        witnesses=[moody, others.append],
    )
    house.start({})

    def list_levels() -> list[str]:
        return [one.level for one in house.list_witness_states()]

    assert list_levels() == ["unasked", "unasked"]
    house.run_periodic_tasks()
    assert (len(heard), len(others)) == (0, 1)
    assert "the log server is away" in caplog.text
    assert list_levels() == ["away", "ok"]
    deaf[0] = False
    house.run_periodic_tasks()
    assert list_levels() == ["ok", "ok"]
    assert [point.root for point in heard] == [point.root for point in others]


def test_logging_failure_is_logged_once_the_log_can_be_written(
    harness: Harness, house: Housekeeping
):
    house.start({})
    database = harness.database
    with database.engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON entry "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    with pytest.raises(StoreUnavailable):
        harness.request(LAMP_ON)
    assert "full" in str(database.error)
    with pytest.raises(StoreUnavailable):
        house.run_periodic_tasks()
    assert "full" in str(database.error)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER full")
    house.run_periodic_tasks()
    assert database.error is None
    (entry,) = _entries(harness, "logging failed")
    assert "full" in entry.facts["reason"]


def test_transaction_without_a_log_entry_does_not_clear_the_log_error(harness: Harness):
    error = harness.database.error = StoreUnavailable("the disk is full")
    with harness.database.transaction() as tx:
        tx.sql.execute(text("DELETE FROM seen_request"))
    assert harness.database.error is error
