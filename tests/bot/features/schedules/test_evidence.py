"""The signed log decides whether a schedule fires."""

from collections.abc import Callable

import pytest
from sqlalchemy import Table, update

from bot.audit import change_log, events, evidence
from bot.db import tables
from bot.db.database import Transaction
from bot.features.schedules import approval
from bot.features.schedules import rows as schedules
from bot.features.schedules.actions import ScheduleActions
from bot.features.schedules.rows import Schedule
from bot.model.run import RequestTerms
from bot.model.schedule import ScheduleState, ScheduleTiming, parse_cron
from tests.bot.features.schedules.due import fire_due_schedules, make_due_now
from tests.bot.harness import WEB, Harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
DAY = 24 * 3_600_000_000
Forgery = Callable[[Transaction], None]


def find_no_reason(*_: object) -> str:
    return ""


def amend(tx: Transaction, table: Table, **values: object) -> None:
    tx.sql.execute(update(table).values(**values))


def _reactivate_schedule(tx: Transaction) -> None:
    amend(tx, tables.schedule, state=ScheduleState.ACTIVE.value, reason="")


def _postpone_lapse(tx: Transaction) -> None:
    change_log.append_entry(tx, events.ScheduleResumed(schedule=1), run=1)
    amend(tx, tables.schedule, state="active", lapses_at=tables.schedule.c.lapses_at + DAY)


def _change_timing(tx: Transaction) -> None:
    change_log.append_entry(tx, events.ScheduleResumed(schedule=1), run=1)
    often = ScheduleTiming("hourly", parse_cron("* * * * *", "Europe/Amsterdam"))
    amend(tx, tables.schedule, state="active", timing=often.to_json())


FORGERIES = (_reactivate_schedule, _postpone_lapse, _change_timing)


@pytest.mark.parametrize("forge", FORGERIES)
class TestAlteredSchedules:
    """The row of a schedule is altered."""

    @staticmethod
    def _ended(harness: Harness) -> Schedule:
        """Return a schedule that was due just now when its owner ended it."""
        run = harness.service.request_on_hosts(
            [LAMP_ON], RequestTerms("dora", WEB, timing=HOURLY), host_pattern=""
        )
        harness.run_queued_work()
        harness.approve(harness.get_run(run.id))
        with harness.database.reading() as tx:
            [schedule] = schedules.list_schedules(tx)
        make_due_now(harness, schedule)
        harness.service.bind(ScheduleActions).end_schedule(schedule.id, person="dora")
        return schedule

    def test_altered_schedule_does_not_fire_when_the_log_does_not_confirm_it(
        self, harness: Harness, forge: Forgery
    ):
        self._ended(harness)
        with harness.database.transaction() as tx:
            forge(tx)
        fire_due_schedules(harness)
        with harness.database.reading() as tx:
            fired = schedules.get_last_run(tx, 1, host="")
        assert fired
        assert "The change log does not confirm" in harness.get_run(fired).summary
        assert harness.fleet.sent == []

    def test_without_the_evidence_check_an_altered_schedule_fires(
        self, harness: Harness, forge: Forgery, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(approval, "_find_mismatch_of_fire", find_no_reason)
        monkeypatch.setattr(evidence, "find_missing_entry_of_run", find_no_reason)
        self._ended(harness)
        with harness.database.transaction() as tx:
            forge(tx)
        fire_due_schedules(harness)
        assert harness.fleet.sent == [("lb1", "set lamp on")]


class TestApprovedRunMadeASchedule:
    """What was approved once is turned into something that is done every hour."""

    @staticmethod
    def _list_schedules(harness: Harness) -> list[Schedule]:
        run = harness.request(LAMP_ON)
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        with harness.database.transaction() as tx:
            amend(tx, tables.run, timing=HOURLY.to_json())
        harness.run_queued_work()
        with harness.database.reading() as tx:
            return schedules.list_schedules(tx)

    def test_an_approved_run_cannot_become_a_schedule(self, harness: Harness):
        assert self._list_schedules(harness) == []

    def test_without_the_evidence_check_an_approved_run_becomes_a_schedule(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(evidence, "find_mismatch_of_run", find_no_reason)
        assert len(self._list_schedules(harness)) == 1
