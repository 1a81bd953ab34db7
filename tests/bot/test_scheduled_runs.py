"""Schedules together with others: redundancy, undo and a policy that changes."""

import pytest

from bot.features.schedules import rows as schedules
from bot.model.errors import NoSuchSchedule
from bot.model.run import RequestTerms, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.sequence import UndoSelection
from tests.bot.execution.test_outdated_plans import change_rules, end_outdated_plans
from tests.bot.features.redundancy.test_last_leg import approve, build_take_down, lose_host
from tests.bot.features.schedules.due import fire_due_schedules, make_due_now
from tests.bot.harness import WEB, Harness
from tests.bot.test_sequences import NAMES, pair
from tests.toy import KeepSwitch, SetSwitch

__all__ = ["pair"]
LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def test_scheduled_run_of_the_last_leg_is_refused(harness: Harness):
    inventory = harness.policies.path / "inventory.yaml"
    inventory.write_text(inventory.read_text() + "redundant: [lb1, lb2]\n")
    timing = ScheduleTiming("nightly", parse_cron("0 3 * * *", "UTC"))
    run = harness.service.request_on_hosts(
        [build_take_down("lb1")], RequestTerms("dora", WEB, timing=timing), host_pattern=""
    )
    harness.run_queued_work()
    schedule = approve(harness, harness.get_run(run.id))
    assert schedule.state is State.SUCCEEDED
    lose_host(harness, "lb2")
    with harness.database.reading() as tx:
        (made,) = schedules.list_schedules(tx)
    make_due_now(harness, made)
    fire_due_schedules(harness)
    fired = harness.get_run(run.id + 1)
    assert fired.state is State.REFUSED
    assert "This change would take lb1 down too" in fired.summary
    assert harness.fleet.sent == []


def test_undo_of_a_schedule_reverts_its_last_due_time(pair: Harness):
    dimmed = KeepSwitch(host="lb1", name="lamp", value="dim")
    timing = ScheduleTiming("dim at night", parse_cron("0 22 * * *", "UTC"))
    asked = pair.service.request_on_hosts(
        [dimmed], RequestTerms("dora", WEB, timing=timing), host_pattern=""
    )
    pair.run_queued_work()
    pair.approve(pair.get_run(asked.id))
    with pair.database.reading() as tx:
        schedule = schedules.get_schedule(tx, 1)
    make_due_now(pair, schedule)
    fire_due_schedules(pair)
    assert pair.fleet.hosts["lb1"]["lamp"] == "dim"
    run = pair.service.request_undo_of_selection(
        UndoSelection(schedule=schedule.id), RequestTerms("olga", WEB)
    )
    pair.run_queued_work()
    assert run.title == f"undo of schedule {schedule.id}, last due time"
    assert pair.get_run(run.id).state is State.SUCCEEDED
    assert pair.fleet.hosts["lb1"] == dict.fromkeys(NAMES, "on")


def test_pending_schedule_under_an_earlier_policy_is_not_ended(harness: Harness):
    hourly = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
    asked = harness.service.request_on_hosts(
        [LAMP_ON], RequestTerms("dora", WEB, timing=hourly), host_pattern=""
    )
    harness.run_queued_work()
    change_rules(harness.policies)
    assert end_outdated_plans(harness) == []
    assert harness.approve(harness.get_run(asked.id)).state is State.SUCCEEDED


def test_undo_of_a_schedule_that_does_not_exist_says_so(pair: Harness):
    with pytest.raises(NoSuchSchedule, match="there is no schedule 7"):
        pair.service.request_undo_of_selection(
            UndoSelection(schedule=7), RequestTerms("olga", WEB)
        )
