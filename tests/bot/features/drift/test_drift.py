"""Drift, from the change to the answer of a person, on each database."""

import threading
import time
from dataclasses import replace

import pytest
from sqlalchemy import delete, update

from bot.audit import change_log
from bot.db import locks, outbox, stops, tables
from bot.features.drift import rows as drift
from bot.features.drift.actions import DriftActions
from bot.features.drift.details import get_answer_right, read_details
from bot.features.drift.rows import DriftKey, NoSuchKeyError
from bot.model.approvals import ApprovalRequirements
from bot.model.drift_state import DriftState
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestTerms, Run, State
from bot.queries.run_timeline import build_run_events
from bot.service import KeyturnService
from connectors.errors import UnreachableError
from tests.bot.harness import WEB, Harness
from tests.drift_keys import read_due_keys, read_requested_keys
from tests.toy import KeepSwitch, SetSwitch

MINUTE = 60 * 1_000_000
HOUR = 60 * MINUTE
CHANGED, AS_SET = DriftState.CHANGED, DriftState.AS_SET


def run_keep_switch(
    harness: Harness, value: str = "on", *, host: str = "lb1", name: str = "lamp"
) -> Run:
    run = harness.approve(harness.request(KeepSwitch(host=host, name=name, value=value)))
    assert run.state is State.SUCCEEDED
    return run


def list_keys(harness: Harness) -> list[DriftKey]:
    with harness.database.reading() as tx:
        return drift.list_keys(tx)


def get_only_key(harness: Harness) -> DriftKey:
    (key,) = list_keys(harness)
    return key


def set_drift_times(harness: Harness, **values: int | None) -> None:
    """Set times of all keys."""
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(**values))


def read_keys_now(harness: Harness) -> DriftKey:
    """Have every key read now; return the first."""
    set_drift_times(harness, next_at=0)
    read_due_keys(harness.service)
    return list_keys(harness)[0]


def change_by_hand(harness: Harness, value: str = "dim") -> DriftKey:
    harness.fleet.hosts["lb1"]["lamp"] = value
    return read_keys_now(harness)


def list_announced(harness: Harness) -> list[int]:
    with harness.database.reading() as tx:
        return [one.run for one in outbox.list_pending_updates(tx)]


def forget_announcements(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        tx.sql.execute(delete(tables.outbox))


def test_change_is_watched_and_first_read_ten_minutes_later(db_harness: Harness):
    run = run_keep_switch(db_harness)
    key = get_only_key(db_harness)
    assert (key.host, key.name, key.run, key.state) == ("lb1", "switch lamp", run.id, AS_SET)
    assert key.set_value == "on"
    assert key.next_at - key.good_at == 10 * MINUTE
    asked = db_harness.fleet.asked
    read_due_keys(db_harness.service)
    assert db_harness.fleet.asked == asked


def test_fleet_at_rest_makes_no_entry_and_no_message(db_harness: Harness):
    run_keep_switch(db_harness)
    forget_announcements(db_harness)
    before = db_harness.list_entry_kinds()
    for _ in range(7):
        key = read_keys_now(db_harness)
        assert key.state is AS_SET
        assert key.good_at == key.read_at < key.next_at
    assert db_harness.list_entry_kinds() == before
    assert list_announced(db_harness) == []


def test_change_outside_is_found_once_with_its_window(db_harness: Harness):
    run = run_keep_switch(db_harness)
    good = read_keys_now(db_harness).good_at
    forget_announcements(db_harness)
    change_by_hand(db_harness)
    change_by_hand(db_harness)
    key = change_by_hand(db_harness)
    assert (key.state, key.value, key.set_value) == (CHANGED, "dim", "on")
    assert key.good_at == good < key.since_at < key.read_at
    assert db_harness.list_entry_kinds(run).count("drift found") == 1
    assert list_announced(db_harness) == [run.id]


def test_change_back_ends_the_drift_with_its_duration(db_harness: Harness):
    run = run_keep_switch(db_harness)
    change_by_hand(db_harness)
    key = change_by_hand(db_harness, "on")
    assert key.state is AS_SET
    with db_harness.database.reading() as tx:
        entries = change_log.list_entries_of_run(tx, run.id)
    assert [one.kind for one in entries[-2:]] == ["drift found", "drift ended"]
    assert entries[-1].facts["seconds"] == 0
    titles = [one.title for one in build_run_events(entries, str)]
    assert titles[-2:] == ["Changed outside Keyturn", "Drift ended"]


def test_missing_and_unreadable_values_are_drift_states(db_harness: Harness):
    run = run_keep_switch(db_harness)
    db_harness.fleet.hosts["lb1"]["lamp"] = "stuck"
    key = read_keys_now(db_harness)
    assert (key.state, key.value) == (
        DriftState.MISSING,
        "lamp is stuck: loosen it before setting it",
    )

    def fail(_host: str) -> None:
        raise UnreachableError("no route to lb1")

    db_harness.fleet.before_query = fail
    # What is known of it stays.
    assert read_keys_now(db_harness).state is DriftState.MISSING
    db_harness.fleet.before_query = lambda _host: None
    db_harness.fleet.hosts["lb1"]["lamp"] = "on"
    assert read_keys_now(db_harness).state is AS_SET
    db_harness.fleet.before_query = fail
    key = read_keys_now(db_harness)
    assert (key.state, key.value) == (DriftState.UNREADABLE, "no route to lb1")
    kinds = [one for one in db_harness.list_entry_kinds(run) if one.startswith("drift")]
    assert kinds == ["drift found", "drift ended", "drift found"]


def test_drift_of_a_host_is_announced_in_chat_once_an_hour(db_harness: Harness):
    first, second = run_keep_switch(db_harness), run_keep_switch(db_harness, name="fan")
    forget_announcements(db_harness)
    change_by_hand(db_harness)
    assert list_announced(db_harness) == [first.id]
    forget_announcements(db_harness)
    db_harness.fleet.hosts["lb1"]["fan"] = "off"
    read_keys_now(db_harness)
    assert list_announced(db_harness) == []
    late = next(key for key in list_keys(db_harness) if key.name == "switch fan")
    announced_at = next(
        key for key in list_keys(db_harness) if key.name == "switch lamp"
    ).announced_at
    assert announced_at is not None
    assert late.next_at == announced_at + HOUR
    with db_harness.database.transaction() as tx:
        tx.sql.execute(
            update(tables.drift_key)
            .where(tables.drift_key.c.announced_at.is_not(None))
            .values(announced_at=announced_at - HOUR, since_at=announced_at - 2 * HOUR)
        )
    read_keys_now(db_harness)
    assert list_announced(db_harness) == [second.id]


def test_new_run_replaces_the_watched_value_of_the_same_key(db_harness: Harness):
    run_keep_switch(db_harness)
    change_by_hand(db_harness)
    run = run_keep_switch(db_harness, "off")
    key = get_only_key(db_harness)
    assert (key.run, key.state, key.set_value) == (run.id, AS_SET, "off")
    assert db_harness.list_entry_kinds().count("drift ended") == 1


def test_undo_ends_the_drift_readings_of_its_value(db_harness: Harness):
    run = run_keep_switch(db_harness)
    undo = db_harness.service.request_undo(run.id, RequestTerms("dora", WEB))
    db_harness.run_queued_work()
    assert db_harness.approve(db_harness.get_run(undo.id)).state is State.SUCCEEDED
    assert list_keys(db_harness) == []


def test_change_without_a_lasting_value_is_not_watched_for_drift(db_harness: Harness):
    db_harness.approve(db_harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
    assert list_keys(db_harness) == []


def test_stop_of_everything_halts_drift_readings(db_harness: Harness):
    run_keep_switch(db_harness)
    with db_harness.database.transaction() as tx:
        stops.add_stop(tx, stops.EVERYTHING, person="olga", why="storm")
    asked = db_harness.fleet.asked
    assert change_by_hand(db_harness).state is AS_SET
    assert db_harness.fleet.asked == asked


def test_drift_reading_of_a_locked_host_is_delayed_by_a_minute(db_harness: Harness):
    run = run_keep_switch(db_harness)
    with db_harness.database.transaction() as tx:
        assert locks.take_lock(tx, "lb1", run.id) is None
    asked = db_harness.fleet.asked
    key = change_by_hand(db_harness)
    assert db_harness.fleet.asked == asked
    assert key.state is AS_SET
    with db_harness.database.reading() as tx:
        assert 0 < key.next_at - tx.now <= MINUTE


def test_drift_reading_is_discarded_when_a_run_changed_the_value_meanwhile(db_harness: Harness):
    run_keep_switch(db_harness)
    db_harness.fleet.hosts["lb1"]["lamp"] = "dim"
    service = KeyturnService(replace(db_harness.context))

    def set_meanwhile(_host: str) -> None:
        db_harness.fleet.before_query = lambda _host: None
        run_keep_switch(db_harness, "off")

    db_harness.fleet.before_query = set_meanwhile
    set_drift_times(db_harness, next_at=0)
    read_due_keys(service)
    assert get_only_key(db_harness).state is AS_SET


def test_two_processes_read_each_drift_key_once(db_harness: Harness):
    for host, name in (("lb1", "lamp"), ("lb1", "fan"), ("lb2", "lamp")):
        run_keep_switch(db_harness, host=host, name=name)
    services = [db_harness.service, KeyturnService(replace(db_harness.context))]
    set_drift_times(db_harness, next_at=0)
    asked, barrier = db_harness.fleet.asked, threading.Barrier(2)

    def read(service: KeyturnService) -> None:
        barrier.wait()
        read_due_keys(service)

    threads = [threading.Thread(target=read, args=(one,)) for one in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db_harness.fleet.asked - asked == 3


def test_drift_readings_of_other_sites_are_left_to_their_workers(db_harness: Harness):
    run_keep_switch(db_harness)
    elsewhere = KeyturnService(replace(db_harness.context, sites=frozenset({"ams"})))
    set_drift_times(db_harness, next_at=0)
    asked = db_harness.fleet.asked
    read_due_keys(elsewhere)
    assert db_harness.fleet.asked == asked


def test_plan_says_that_its_value_changed_outside(db_harness: Harness):
    run = run_keep_switch(db_harness)
    change_by_hand(db_harness)
    again = db_harness.request(KeepSwitch(host="lb1", name="lamp", value="off"))
    assert again.plan
    (note,) = again.plan.notes
    assert note.startswith("switch lamp changed outside Keyturn between ")
    assert note.endswith(f": dim, set to on (run {run.id}).")
    other = db_harness.request(KeepSwitch(host="lb2", name="lamp", value="on"))
    assert other.plan
    assert not other.plan.notes


def test_adopted_drift_value_is_as_set_until_it_changes_again(db_harness: Harness):
    run = run_keep_switch(db_harness)
    number = change_by_hand(db_harness).id
    sent = len(db_harness.fleet.sent)
    actions = db_harness.service.bind(DriftActions)
    key = actions.adopt_value(number, person="olga", reason="dim is better")
    assert (key.state, key.set_value) == (AS_SET, "dim")
    assert len(db_harness.fleet.sent) == sent
    assert read_keys_now(db_harness).state is AS_SET
    with pytest.raises(InvalidRequestError, match="adopted value"):
        actions.restore_value(number, RequestTerms("dora", WEB))
    with pytest.raises(TooLate, match="nothing to adopt"):
        actions.adopt_value(number, person="olga", reason="again")
    # The run's own value is not the adopted one.
    key = change_by_hand(db_harness, "on")
    assert (key.state, key.set_value) == (CHANGED, "dim")
    kinds = [one for one in db_harness.list_entry_kinds(run) if one.startswith("drift")]
    assert kinds == ["drift found", "drift adopted", "drift ended", "drift found"]


def test_drift_expectation_covers_a_value_until_it_lapses(db_harness: Harness):
    run = run_keep_switch(db_harness)
    number = change_by_hand(db_harness).id
    with db_harness.database.reading() as tx:
        until = tx.now + HOUR
    key = db_harness.service.bind(DriftActions).expect_value(
        number, person="olga", until=until, reason="test of the lamp"
    )
    assert key.state is AS_SET
    # Its daily reading may come before.
    assert key.next_at <= until
    assert change_by_hand(db_harness, "off").state is AS_SET
    set_drift_times(db_harness, expected_until=1)
    key = change_by_hand(db_harness, "off")
    assert (key.state, key.expectation) == (CHANGED, None)
    kinds = [one for one in db_harness.list_entry_kinds(run) if one.startswith("drift")]
    assert kinds == ["drift found", "drift expected", "drift ended", "drift found"]


@pytest.mark.parametrize(
    ("until", "value_range", "message"),
    [
        (HOUR, "1..2", "on is no number: leave the range empty"),
        (HOUR, "2..1", r"LOWEST\.\.HIGHEST"),
        (-1, "", "within the next year"),
        (400 * 24 * HOUR, "", "within the next year"),
    ],
)
def test_invalid_drift_expectation_is_refused(
    db_harness: Harness, until: int, value_range: str, message: str
):
    run_keep_switch(db_harness)
    key = get_only_key(db_harness)
    with pytest.raises(InvalidRequestError, match=message):
        db_harness.service.bind(DriftActions).expect_value(
            *(key.id,),
            person="olga",
            until=key.good_at + until,
            value_range=value_range,
            reason="test",
        )


def test_drift_is_answered_only_by_people_who_can_approve_the_change(db_harness: Harness):
    run = run_keep_switch(db_harness)
    number = change_by_hand(db_harness).id
    actions = db_harness.service.bind(DriftActions)
    with pytest.raises(NotAllowed, match="only people who can approve toy keep on lb1"):
        actions.adopt_value(number, person="dora", reason="it was me")
    assert db_harness.list_entry_kinds(run)[-1] == "drift answer refused"
    with pytest.raises(InvalidRequestError, match="give a reason"):
        actions.adopt_value(number, person="olga", reason=" ")
    with pytest.raises(NoSuchKeyError):
        actions.adopt_value(99, person="olga", reason="which?")


def test_drift_answer_needs_the_second_factor_of_the_run_when_its_requester_left(
    db_harness: Harness,
):
    run = run_keep_switch(db_harness)
    strict = ApprovalRequirements(requires_second_factor=True)
    gone = replace(run, requested_by="gone", requirements=strict)
    policy = db_harness.policies.get_policy()
    right = get_answer_right(policy, gone, person="olga", now=run.requested_at)
    assert (right.refusal, right.needs_factor) == ("", True)


def test_restore_of_a_drifted_value_requests_the_same_change_again(db_harness: Harness):
    run = run_keep_switch(db_harness)
    number = change_by_hand(db_harness).id
    again = db_harness.service.bind(DriftActions).restore_value(
        number, RequestTerms("dora", WEB, "back to it")
    )
    db_harness.run_queued_work()
    again = db_harness.get_run(again.id)
    assert (again.state, again.values) == (State.PENDING, run.values)
    assert db_harness.approve(again).state is State.SUCCEEDED
    assert (get_only_key(db_harness).state, get_only_key(db_harness).run) == (AS_SET, again.id)


def test_drift_of_a_host_is_read_on_demand_at_most_every_ten_seconds(db_harness: Harness):
    run_keep_switch(db_harness)
    actions = db_harness.service.bind(DriftActions)
    assert actions.read_host_now("lb1", person="dora") == 0
    set_drift_times(db_harness, read_at=0)
    for _ in range(2):  # to ask again does not disturb a reading
        assert actions.read_host_now("lb1", person="dora") == 1
        assert get_only_key(db_harness).requested_at is not None
    db_harness.fleet.hosts["lb1"]["lamp"] = "dim"
    read_requested_keys(db_harness.service)
    assert get_only_key(db_harness).state is CHANGED
    assert get_only_key(db_harness).requested_at is None
    assert actions.read_host_now("lb2", person="dora") == 0
    with pytest.raises(InvalidRequestError, match="not in the inventory"):
        actions.read_host_now("lb9", person="dora")


def test_requested_reading_does_not_wait_for_hosts_that_do_not_answer(db_harness: Harness):
    run_keep_switch(db_harness)
    run_keep_switch(db_harness, host="lb2")
    set_drift_times(db_harness, read_at=0)
    release = threading.Event()
    asked = threading.Event()

    def hang(host: str) -> None:
        if host == "lb2":
            asked.set()
            assert release.wait(30)

    db_harness.fleet.before_query = hang
    with db_harness.database.transaction() as tx:
        tx.sql.execute(
            update(tables.drift_key).where(tables.drift_key.c.host == "lb2").values(next_at=0)
        )
    periodic = threading.Thread(target=read_due_keys, args=(db_harness.service,))
    periodic.start()
    try:
        assert asked.wait(30)
        assert db_harness.service.bind(DriftActions).read_host_now("lb1", person="dora") == 1
        began = time.monotonic()
        read_requested_keys(db_harness.service)
        assert time.monotonic() - began < 5
        read, waiting = list_keys(db_harness)
        assert (read.host, read.requested_at) == ("lb1", None)
        assert read.read_at > waiting.read_at == 0
    finally:
        release.set()
        periodic.join()


def test_requested_reading_that_fails_is_over(db_harness: Harness):
    run_keep_switch(db_harness)
    change_by_hand(db_harness)
    set_drift_times(db_harness, read_at=0)
    assert db_harness.service.bind(DriftActions).read_host_now("lb1", person="dora") == 1

    def refuse(host: str) -> None:
        raise UnreachableError(f"{host} does not answer")

    db_harness.fleet.before_query = refuse
    read_requested_keys(db_harness.service)
    key = get_only_key(db_harness)
    assert (key.state, key.requested_at) == (CHANGED, None)


def test_drift_candidates_include_runs_in_the_window_and_unread_sources(
    db_harness: Harness,
):
    run_keep_switch(db_harness)
    db_harness.approve(db_harness.request(SetSwitch(host="lb1", name="lamp", value="dim")))
    key = read_keys_now(db_harness)
    policy = db_harness.policies.get_policy()
    with db_harness.database.reading(policy.get_view_rights("olga")) as tx:
        details = read_details(tx, policy, key.id, person="olga")
    kinds = [one.kind for one in details.candidates]
    assert kinds == ["keyturn", "unread"]
    assert "toy set lb1 lamp dim" in details.candidates[0].description
    assert not details.answer_right.refusal
    assert [one.kind for one in details.entries] == ["drift found"]


def test_drift_keys_are_counted_and_listed_by_state(db_harness: Harness):
    run_keep_switch(db_harness)
    run_keep_switch(db_harness, host="lb2")
    change_by_hand(db_harness)
    with db_harness.database.reading() as tx:
        assert drift.count_by_state(tx) == {
            AS_SET: 1,
            CHANGED: 1,
            DriftState.MISSING: 0,
            DriftState.UNREADABLE: 0,
        }
        assert [key.host for key in drift.list_keys(tx)] == ["lb1", "lb2"]
        assert [key.host for key in drift.list_keys(tx, host="lb2")] == ["lb2"]
        assert [key.host for key in drift.list_keys(tx, state=CHANGED)] == ["lb1"]
