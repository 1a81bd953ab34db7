"""What digest, notices and health say of schedules."""

import pytest
from sqlalchemy import update

from bot.audit import change_log
from bot.db import tables
from bot.features.schedules import readings
from bot.model.run import RequestTerms
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.bot.clock import MINUTE
from tests.bot.features.schedules.due import record_missed_moments
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch, ShowSwitches

DAY = 24 * 60 * MINUTE
HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "UTC"))


@pytest.fixture
def approved(harness: Harness) -> Harness:
    """A schedule that was approved, and one that needs no approval."""
    for runbook in (SetSwitch(host="lb1", name="lamp", value="on"), ShowSwitches(host="lb1")):
        run = harness.service.request_on_hosts(
            [runbook], RequestTerms("dora", WEB, timing=HOURLY), host_pattern=""
        )
        harness.run_queued_work()
        if harness.get_run(run.id).required_approvals:
            harness.approve(harness.get_run(run.id))
    return harness


def set_days_left(harness: Harness, days: int) -> None:
    with harness.database.transaction() as tx:
        lapses_at = tx.now + days * DAY
        tx.sql.execute(update(tables.schedule).values(lapses_at=lapses_at, due_at=lapses_at))
        tx.sql.execute(update(tables.schedule).values(created_at=tx.now - 76 * DAY))


def test_digest_lists_the_schedules_of_an_area_that_lapse_soon(approved: Harness):
    def read_lines(area: str) -> list[str]:
        with approved.database.reading() as tx:
            policy = approved.policies.get_policy()
            (section,) = readings.build_digest(tx, policy, {area})
        return [line.partition(", until")[0] for line in section.lines]

    assert read_lines("edge") == []
    set_days_left(approved, 20)
    assert read_lines("edge") == ["schedule 1: schedule “hourly”: toy set lb1 lamp on"]
    assert read_lines("storage") == []


def test_schedule_that_lapses_soon_gets_one_entry(approved: Harness):
    def append_entries() -> list[int | None]:
        with approved.database.transaction() as tx:
            return [one.run for one in change_log.append_entries(tx, [*readings.list_ends(tx)])]

    set_days_left(approved, 20)
    assert append_entries() == []
    set_days_left(approved, 10)
    assert append_entries() == [1]
    assert append_entries() == []


def test_health_names_overdue_and_missed_schedules(approved: Harness):
    def check() -> tuple[str, str]:
        with approved.database.reading() as tx:
            (result,) = readings.check_schedules(tx, approved.policies.get_policy())
        return result.level, result.message

    assert check() == ("ok", "2 active, none overdue")
    record_missed_moments(approved.database, 1, times=2)
    assert check() == ("warning", "2 missed in the last 7 days")
    set_days_left(approved, -1)
    level, message = check()
    assert level == "error"
    assert message.startswith("2 are overdue, such as hourly, hourly: check that keyturn serve")
