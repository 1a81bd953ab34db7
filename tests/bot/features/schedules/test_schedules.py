"""Schedules: approved once, fired once at each due time, and only as approved."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import update

from bot.db import tables
from bot.execution import gate
from bot.features.schedules import approval, runner
from bot.features.schedules import rows as schedules
from bot.features.schedules.actions import ScheduleActions
from bot.features.schedules.rows import Schedule
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from bot.model.schedule import FireOutcome, Overlap, ScheduleState, ScheduleTiming, parse_cron
from bot.policy import Policy, PolicyRequest, Ruling
from bot.workflow import requests
from runbooks import AnyRunbook
from tests.bot.clock import MINUTE
from tests.bot.features.schedules.due import (
    fire_due_schedules,
    make_due_now,
    move_decided_moments_back,
)
from tests.bot.harness import WEB, Harness
from tests.toy import BreakSwitch, SetSwitch, ShowSwitches

HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
LAMP = SetSwitch(host="lb1", name="lamp", value="on")


def _request_schedule(
    harness: Harness,
    timing: ScheduleTiming = HOURLY,
    what: AnyRunbook = LAMP,
    person: str = "dora",
) -> Run:
    run = harness.service.request_on_hosts(
        [what], RequestTerms(person, WEB, timing=timing), host_pattern=""
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def _approve_schedule(
    harness: Harness, timing: ScheduleTiming = HOURLY, what: AnyRunbook = LAMP
) -> Schedule:
    harness.approve(_request_schedule(harness, timing, what))
    return _list_schedules(harness)[-1]


def _list_schedules(harness: Harness) -> list[Schedule]:
    with harness.database.reading() as tx:
        return sorted(schedules.list_schedules(tx), key=lambda schedule: schedule.id)


def _list_fires(harness: Harness, schedule: Schedule) -> list[schedules.Fire]:
    with harness.database.reading() as tx:
        return list(schedules.list_fires(tx, schedule.id))


def _list_fired_runs(harness: Harness, schedule: Schedule) -> list[Run]:
    return [
        harness.get_run(fire.run)
        for fire in _list_fires(harness, schedule)
        if fire.run is not None
    ]


def test_schedule_needs_the_approval_of_its_runbook(db_harness: Harness):
    run = _request_schedule(db_harness)
    assert run.state is State.PENDING
    assert run.title == "schedule “hourly”: toy set lb1 lamp on"
    assert _list_schedules(db_harness) == []
    run = db_harness.approve(run)
    assert (run.state, run.summary) == (State.SUCCEEDED, "Schedule 1 is active")
    assert db_harness.fleet.sent == []


def test_fired_run_needs_no_approval_beyond_that_of_its_schedule(db_harness: Harness):
    schedule = _approve_schedule(db_harness)
    make_due_now(db_harness, schedule)
    fire_due_schedules(db_harness)
    [run] = _list_fired_runs(db_harness, schedule)
    assert (run.state, run.requested_by, run.origin.source) == (
        State.SUCCEEDED,
        "dora",
        "schedule",
    )
    assert db_harness.fleet.sent == [("lb1", "set lamp on")]
    assert "fired" in db_harness.list_entry_kinds()


def test_due_time_is_fired_once_by_concurrent_schedulers(db_harness: Harness):
    schedule = _approve_schedule(db_harness)
    make_due_now(db_harness, schedule)
    barrier = threading.Barrier(4)

    def look() -> None:
        barrier.wait()
        db_harness.service.bind(runner.fire_due_schedules)

    clocks = [threading.Thread(target=look) for _ in range(4)]
    for clock in clocks:
        clock.start()
    for clock in clocks:
        clock.join()
    db_harness.run_queued_work()
    assert len(_list_fired_runs(db_harness, schedule)) == 1
    assert db_harness.fleet.sent == [("lb1", "set lamp on")]


def test_fired_run_ends_as_no_changes_when_the_host_is_as_requested(harness: Harness):
    schedule = _approve_schedule(harness)
    harness.fleet.hosts["lb1"]["lamp"] = "on"
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    [run] = _list_fired_runs(harness, schedule)
    assert run.state is State.NO_CHANGES


def test_schedule_can_be_requested_while_its_plan_is_empty(harness: Harness):
    harness.fleet.hosts["lb1"]["lamp"] = "on"
    assert _request_schedule(harness).state is State.PENDING


def test_schedule_of_a_check_needs_no_approval_and_fires(harness: Harness):
    run = _request_schedule(harness, what=ShowSwitches(host="lb1"))
    assert run.state is State.SUCCEEDED
    [schedule] = _list_schedules(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    [fired] = _list_fired_runs(harness, schedule)
    assert fired.report is not None


@pytest.mark.parametrize(
    ("catch_up", "fired", "missed"), [(0, 0, 5), (1, 1, 4), (3, 3, 2), (99, 5, 0)]
)
def test_missed_due_times_are_recorded_and_caught_up_as_configured(
    harness: Harness, catch_up: int, fired: int, missed: int
):
    schedule = _approve_schedule(harness, replace(HOURLY, catch_up=catch_up))
    with harness.database.transaction() as tx:
        # Half an hour after the last of five full hours, whatever time it is now.
        hour = 60 * MINUTE
        zone = "Europe/Amsterdam"
        minute = (tx.now // MINUTE + 30) % 60
        timing = replace(schedule.timing, cron_expression=parse_cron(f"{minute} * * * *", zone))
        since = tx.now - 4 * hour - 45 * MINUTE
        tx.sql.execute(
            update(tables.schedule).values(
                decided_until=since, due_at=since, timing=timing.to_json()
            )
        )
    for _ in range(6):
        fire_due_schedules(harness)
    outcomes = [fire.outcome for fire in _list_fires(harness, schedule)]
    assert (outcomes.count(FireOutcome.FIRED), outcomes.count(FireOutcome.MISSED)) == (
        fired,
        missed,
    )


def test_more_than_a_thousand_missed_due_times_are_recorded(harness: Harness):
    schedule = _approve_schedule(harness)
    with harness.database.transaction() as tx:
        since = tx.now - 1500 * 60 * MINUTE
        tx.sql.execute(update(tables.schedule).values(decided_until=since, due_at=since))
    for _ in range(3):
        fire_due_schedules(harness)
    with harness.database.reading() as tx:
        rows = schedules.list_fires(tx, schedule.id, most=5000)
    assert len(rows) in {1499, 1500, 1501}


def test_due_time_is_skipped_while_the_last_run_has_not_ended(harness: Harness):
    schedule = _approve_schedule(harness)
    make_due_now(harness, schedule)
    harness.service.bind(runner.fire_due_schedules)
    harness.dispatcher.enqueued.clear()
    move_decided_moments_back(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    newest = _list_fires(harness, schedule)[0]
    assert newest.outcome is FireOutcome.SKIPPED
    assert newest.reason.endswith("had not ended")


def test_due_time_waits_for_the_last_run_when_overlap_is_queue(harness: Harness):
    schedule = _approve_schedule(harness, replace(HOURLY, overlap=Overlap.QUEUE))
    make_due_now(harness, schedule)
    harness.service.bind(runner.fire_due_schedules)
    waiting, harness.dispatcher.enqueued[:] = list(harness.dispatcher.enqueued), []
    move_decided_moments_back(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    assert _list_fires(harness, schedule)[0].outcome is FireOutcome.LATER
    harness.dispatcher.enqueued += waiting
    harness.run_queued_work()
    fire_due_schedules(harness)
    assert [fire.outcome for fire in _list_fires(harness, schedule)] == [FireOutcome.FIRED] * 2


def test_due_time_withdraws_the_last_run_when_overlap_is_cancel(harness: Harness):
    schedule = _approve_schedule(harness, replace(HOURLY, overlap=Overlap.CANCEL))
    make_due_now(harness, schedule)
    harness.service.bind(runner.fire_due_schedules)
    harness.dispatcher.enqueued.clear()
    move_decided_moments_back(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    assert [run.state for run in _list_fired_runs(harness, schedule)] == [
        State.SUCCEEDED,
        State.WITHDRAWN,
    ]


def test_schedule_with_spread_fires_each_host_at_its_own_time(harness: Harness):
    timing = replace(HOURLY, spread_minutes=30)
    lamps = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    run = harness.service.request_on_hosts(
        lamps, RequestTerms("dora", WEB, timing=timing), host_pattern="lb*"
    )
    harness.run_queued_work()
    harness.approve(harness.get_run(run.id))
    [schedule] = _list_schedules(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    fires = _list_fires(harness, schedule)
    assert {fire.host for fire in fires} == {"lb1", "lb2"}
    assert len({fire.starts_at for fire in fires}) == 2
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.fire).values(starts_at=tx.now))
    fire_due_schedules(harness)
    assert {run.state for run in _list_fired_runs(harness, schedule)} == {State.SUCCEEDED}
    assert sorted(harness.fleet.sent) == [("lb1", "set lamp on"), ("lb2", "set lamp on")]


def test_schedule_for_several_hosts_fires_as_one_request(harness: Harness):
    lamps = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    run = harness.service.request_on_hosts(
        lamps, RequestTerms("dora", WEB, timing=HOURLY), host_pattern="lb*"
    )
    harness.run_queued_work()
    harness.approve(harness.get_run(run.id))
    [schedule] = _list_schedules(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    [fired] = _list_fired_runs(harness, schedule)
    assert fired.state is State.SUCCEEDED
    assert sorted(harness.fleet.sent) == [("lb1", "set lamp on"), ("lb2", "set lamp on")]


def _fire_schedule(harness: Harness) -> Schedule:
    """Let the schedule's moment come, and return the schedule as it is then."""
    [schedule] = _list_schedules(harness)
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    return _list_schedules(harness)[0]


def _skip_guard(*_: object, **__: object) -> None:
    """Stand where a guard stood."""


def _find_nothing(*_: object, **__: object) -> None:
    return None


def _find_no_reason(*_: object, **__: object) -> str:
    return ""


def _allow_everybody(*_: object) -> Ruling:
    return Ruling(allowed=True)


def _never(*_: object) -> bool:
    return False


class TestFormerOwner:
    def _leaves(self, harness: Harness) -> Schedule:
        people = harness.policies.path / "people.yaml"
        people.write_text(people.read_text().replace("dora", "nora"))
        return _fire_schedule(harness)

    def test_a_schedule_is_suspended_and_announced_when_its_owner_leaves(self, harness: Harness):
        _approve_schedule(harness)
        schedule = self._leaves(harness)
        assert schedule.state is ScheduleState.SUSPENDED
        [run] = _list_fired_runs(harness, schedule)
        assert run.state is State.REFUSED
        assert harness.fleet.sent == []
        assert "schedule suspended" in harness.list_entry_kinds()

    def test_without_the_request_check_a_schedule_of_a_former_owner_fires(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        schedule = _approve_schedule(harness)
        monkeypatch.setattr(Policy, "get_request_ruling", _allow_everybody)
        self._leaves(harness)
        assert schedule.state is ScheduleState.ACTIVE
        assert harness.fleet.sent == [("lb1", "set lamp on")]


class TestLapsedApproval:
    def _lapses(self, harness: Harness) -> Schedule:
        _approve_schedule(harness)
        with harness.database.transaction() as tx:
            tx.sql.execute(update(tables.schedule).values(lapses_at=tx.now))
        return _fire_schedule(harness)

    def test_a_schedule_does_not_fire_when_its_approval_lapsed(self, harness: Harness):
        assert self._lapses(harness).state is ScheduleState.LAPSED
        assert harness.fleet.sent == []

    def test_without_the_approval_check_a_lapsed_schedule_fires(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(approval, "check_schedule_approval", _skip_guard)
        assert self._lapses(harness).state is ScheduleState.ACTIVE
        assert harness.fleet.sent == [("lb1", "set lamp on")]


OFTEN = replace(HOURLY, cron_expression=parse_cron("*/5 * * * *", "UTC"))


def test_schedule_of_a_change_that_fires_too_often_is_rejected(harness: Harness):
    with pytest.raises(InvalidRequestError, match="every 10 minutes at most"):
        _request_schedule(harness, OFTEN)
    _request_schedule(harness, OFTEN, what=ShowSwitches(host="lb1"))


def test_without_the_timing_check_a_change_is_scheduled_too_often(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(requests, "_check_timing", _skip_guard)
    assert _request_schedule(harness, OFTEN).state is State.PENDING


class TestAlteredValues:
    """The values in the table were altered after the approval, without its digest."""

    def _changed(self, harness: Harness) -> None:
        schedule = _approve_schedule(harness)
        with harness.database.transaction() as tx:
            fields = '{"host": "lb1", "name": "fan", "value": "on"}'
            tx.sql.execute(
                update(tables.run)
                .where(tables.run.c.id == schedule.run)
                .values(field_values=fields)
            )
        _fire_schedule(harness)

    def test_schedule_with_altered_values_does_not_fire(self, harness: Harness):
        self._changed(harness)
        assert harness.fleet.sent == []

    def test_without_the_approval_check_a_schedule_with_altered_values_fires(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(approval, "check_schedule_approval", _skip_guard)
        monkeypatch.setattr(gate, "_check_evidence", _skip_guard)
        self._changed(harness)
        assert harness.fleet.sent == [("lb1", "set fan on")]


class TestApprovalByTheOwner:
    """An irreversible change needs an area owner's approval; the requester is one."""

    def _asked_by_an_owner(self, harness: Harness) -> Run:
        return _request_schedule(harness, what=BreakSwitch(host="lb1", name="lamp"), person="olga")

    def test_owner_of_a_schedule_cannot_approve_it(self, harness: Harness):
        run = self._asked_by_an_owner(harness)
        with pytest.raises(NotAllowed, match="you requested it"):
            harness.approve(run, "olga")
        assert harness.approve(run, "adam").state is State.SUCCEEDED

    def test_without_the_requester_check_the_owner_approves_their_schedule(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(PolicyRequest, "is_made_by", _never)
        assert harness.approve(self._asked_by_an_owner(harness), "olga").state is State.SUCCEEDED


class TestFreeze:
    def _frozen(self, harness: Harness) -> Schedule:
        _approve_schedule(harness)
        (harness.policies.path / "freezes.yaml").write_text(
            'freezes: [{name: sale, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'
        )
        return _fire_schedule(harness)

    def test_due_time_is_skipped_during_a_freeze(self, harness: Harness):
        schedule = self._frozen(harness)
        assert _list_fires(harness, schedule)[0].outcome is FireOutcome.SKIPPED
        assert harness.fleet.sent == []

    def test_without_the_freeze_check_a_due_time_fires_during_a_freeze(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(Policy, "find_freeze", _find_nothing)
        self._frozen(harness)
        assert harness.fleet.sent == [("lb1", "set lamp on")]


def test_schedule_is_suspended_and_resumed_by_its_owner_and_area_owners(harness: Harness):
    schedule = _approve_schedule(harness)
    with pytest.raises(NotAllowed):
        harness.service.bind(ScheduleActions).suspend_schedule(schedule.id, person="theo")
    with pytest.raises(InvalidRequestError, match=r"U\+202E"):
        harness.service.bind(ScheduleActions).suspend_schedule(
            schedule.id, person="olga", reason="\u202ehidden"
        )
    harness.service.bind(ScheduleActions).suspend_schedule(
        schedule.id, person="olga", reason="new\ndisks"
    )
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    assert _list_fires(harness, schedule) == []
    with pytest.raises(TooLate):
        harness.service.bind(ScheduleActions).suspend_schedule(schedule.id, person="olga")
    harness.service.bind(ScheduleActions).resume_schedule(schedule.id, person="dora")
    fire_due_schedules(harness)
    assert _list_fires(harness, schedule) == []
    make_due_now(harness, schedule)
    fire_due_schedules(harness)
    assert len(_list_fired_runs(harness, schedule)) == 1
    harness.service.bind(ScheduleActions).end_schedule(schedule.id, person="dora")
    with pytest.raises(TooLate):
        harness.service.bind(ScheduleActions).resume_schedule(schedule.id, person="dora")


def test_schedule_taken_over_needs_an_approval_and_ends_the_old_one(harness: Harness):
    schedule = _approve_schedule(harness)
    run = harness.service.bind(ScheduleActions).take_over_schedule(
        schedule.id, person="stan", origin=RequestOrigin("web")
    )
    harness.run_queued_work()
    waiting = harness.get_run(run.id)
    assert (waiting.state, _list_schedules(harness)[0].state) == (
        State.PENDING,
        ScheduleState.ACTIVE,
    )
    run = harness.approve(waiting, "adam")
    old, new = _list_schedules(harness)
    assert run.state is State.SUCCEEDED
    assert (old.state, new.state, new.owner) == (
        ScheduleState.ENDED,
        ScheduleState.ACTIVE,
        "stan",
    )
    assert old.reason == "replaced by schedule 2"


class TestTakeOver:
    """Schedules of checks, which need no approval to be replaced."""

    def _taken(self, harness: Harness, person: str) -> tuple[Run, Schedule]:
        harness.service.request_on_hosts(
            [ShowSwitches(host="lb1")], RequestTerms("olga", WEB, timing=HOURLY), host_pattern=""
        )
        harness.run_queued_work()
        run = harness.service.bind(ScheduleActions).take_over_schedule(
            1, person=person, origin=WEB
        )
        harness.run_queued_work()
        return harness.get_run(run.id), _list_schedules(harness)[0]

    def test_schedule_of_a_check_cannot_be_taken_over_by_anybody(self, harness: Harness):
        run, old = self._taken(harness, "dora")
        assert (run.state, old.state) == (State.REFUSED, ScheduleState.ACTIVE)
        assert run.summary == "Only the owners can replace schedule 1: Adam Admin, Olga Owner"

    def test_without_the_manager_check_anybody_takes_over_a_schedule(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(approval, "_list_managers", _find_no_reason)
        assert self._taken(harness, "dora")[1].state is ScheduleState.ENDED

    def test_schedule_can_be_taken_over_by_an_owner_of_the_area(self, harness: Harness):
        run, old = self._taken(harness, "adam")
        assert (run.state, old.state) == (State.SUCCEEDED, ScheduleState.ENDED)

    def test_schedule_of_a_person_who_left_can_be_taken_over_by_anybody(self, harness: Harness):
        self._taken(harness, "dora")
        for name in ("people.yaml", "areas.yaml"):
            file = harness.policies.path / name
            lines = file.read_text().replace("[olga, adam]", "[adam]").replace("[olga]", "[adam]")
            file.write_text(
                "".join(f"{line}\n" for line in lines.split("\n") if "olga:" not in line)
            )
        run = harness.service.bind(ScheduleActions).take_over_schedule(
            1, person="dora", origin=WEB
        )
        harness.run_queued_work()
        assert harness.get_run(run.id).state is State.SUCCEEDED
        assert _list_schedules(harness)[0].state is ScheduleState.ENDED


def test_run_that_no_schedule_fired_is_refused_although_it_names_one(harness: Harness):
    """What stands in the table is not believed: the schedule must have fired it."""
    schedule = _approve_schedule(harness)
    make_due_now(harness, schedule)
    origin = RequestOrigin("schedule", schedule_id=schedule.id)
    run = harness.service.request_run(LAMP, RequestTerms("dora", origin))
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.REFUSED
    assert harness.fleet.sent == []
