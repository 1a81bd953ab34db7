"""An approval may name the earliest start, and an approved run can be held before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from bot.audit import change_log, events
from bot.db import runs, tables
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestTerms, Run, State
from bot.model.run_states import get_run_display
from bot.model.signing import SigningKey
from bot.model.times import HOUR, MINUTE, format_deadline
from bot.model.waiting import WaitingFor
from bot.queries.run_view import Viewer, build_run_view
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.clock import Clock
from tests.bot.harness import WEB, Harness, open_harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
TWO_APPROVALS = """
@id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
@id("ask") @approvals("2") @from("owners")
permit (principal, action == Action::"request", resource);
"""


def _open(directory: Path, rules: str | None = None) -> Iterator[Harness]:
    clock = Clock(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create())
    with open_harness(directory, rules=rules, database=clock) as harness:
        clock.stop()
        yield harness


@pytest.fixture
def timed(tmp_path: Path) -> Iterator[Harness]:
    yield from _open(tmp_path)


@pytest.fixture
def timed_by_two(tmp_path: Path) -> Iterator[Harness]:
    yield from _open(tmp_path, TWO_APPROVALS)


def _get_now(harness: Harness) -> int:
    with harness.database.reading() as tx:
        return tx.now


def _wait(harness: Harness, microseconds: int) -> None:
    clock = harness.database
    assert isinstance(clock, Clock)
    clock.ahead += microseconds
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()


def _approve(harness: Harness, run: Run, delay: int, person: str = "olga") -> Run:
    """Approve the run to start after *delay* microseconds."""
    at = _get_now(harness) + delay
    harness.service.approve_run(run.id, person=person, digest=run.digest, start_at=at)
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_run_starts_at_the_time_that_its_approver_named(timed: Harness):
    run = _approve(timed, timed.request(LAMP_ON), 2 * HOUR)
    start_at = _get_now(timed) + 2 * HOUR
    assert run.state is State.QUEUED
    assert run.waiting is not None
    assert (run.waiting.reason, run.waiting.time) == (WaitingFor.START_TIME, start_at)
    display = get_run_display(run)
    when = format_deadline(start_at)
    assert display.label == "Starts later"
    assert display.sentence == f"Starts at {when}, as it was approved."
    _wait(timed, 2 * HOUR - 1)
    assert (timed.get_run(run.id).state, timed.fleet.sent) == (State.QUEUED, [])
    _wait(timed, 1)
    assert timed.get_run(run.id).state is State.SUCCEEDED
    assert timed.list_entry_kinds(run).count("on hold") == 1


def test_other_runs_of_the_host_go_first(timed: Harness):
    later = _approve(timed, timed.request(LAMP_ON), HOUR)
    other = timed.approve(timed.request(SetSwitch(host="lb1", name="fan", value="on")))
    assert other.state is State.SUCCEEDED
    _wait(timed, HOUR)
    assert timed.get_run(later.id).state is State.SUCCEEDED


def test_run_that_starts_later_is_not_the_next_one_of_its_host(timed: Harness):
    later = _approve(timed, timed.request(LAMP_ON), HOUR)
    others = [
        timed.request(SetSwitch(host="lb1", name=name, value="red")) for name in ("fan", "lamp")
    ]
    for run in others:
        timed.service.approve_run(run.id, person="olga", digest=run.digest)
    # Only the end of the first one wakes the second one.
    timed.dispatcher.enqueued.remove(others[1].id)
    timed.run_queued_work()
    assert [timed.get_run(run.id).state for run in others] == [State.SUCCEEDED] * 2
    assert timed.get_run(later.id).state is State.QUEUED


def test_host_that_changed_meanwhile_is_not_changed(timed: Harness):
    later = _approve(timed, timed.request(LAMP_ON), HOUR)
    timed.approve(timed.request(LAMP_ON))
    _wait(timed, HOUR)
    assert timed.get_run(later.id).state is State.NO_CHANGES


def test_all_hosts_of_a_request_start_at_the_time(timed: Harness):
    requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    terms = RequestTerms("dora", WEB)
    run = timed.service.request_on_hosts(requests, terms, host_pattern="lb*")
    timed.run_queued_work()
    run = _approve(timed, timed.get_run(run.id), HOUR)
    assert (run.state, run.waiting and run.waiting.reason) == (
        State.QUEUED,
        WaitingFor.START_TIME,
    )
    _wait(timed, HOUR - 1)
    assert timed.fleet.sent == []
    for _ in range(4):
        _wait(timed, 1)
    assert timed.get_run(run.id).state is State.SUCCEEDED


def test_latest_time_of_all_approvals_counts(timed_by_two: Harness):
    run = _approve(timed_by_two, timed_by_two.request(LAMP_ON), 3 * HOUR, "olga")
    assert run.state is State.PENDING
    run = _approve(timed_by_two, run, HOUR, "adam")
    assert run.waiting is not None
    assert run.waiting.time == _get_now(timed_by_two) + 3 * HOUR


def test_approval_expires_no_sooner_than_a_while_after_its_start(timed: Harness):
    run = timed.request(LAMP_ON)
    assert run.plan is not None
    run = _approve(timed, run, 9 * HOUR)
    _wait(timed, 9 * HOUR - 1)
    timed.service.advancer.expire_runs()
    assert timed.get_run(run.id).state is State.QUEUED
    _wait(timed, 1)
    assert timed.get_run(run.id).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("delay", "words"),
    [
        (-1, "has passed already"),
        (0, "has passed already"),
        (17 * HOUR, "is too late for the plan of run 1"),
    ],
)
def test_times_that_the_plan_cannot_keep_are_refused(timed: Harness, delay: int, words: str):
    run = timed.request(LAMP_ON)
    assert run.plan is not None
    with pytest.raises(InvalidRequestError, match=words) as refused:
        _approve(timed, run, delay)
    latest = format_deadline(run.plan.expires_at - 10 * MINUTE)
    assert (f"which can start until {latest}" in str(refused.value)) is (delay > 0)
    assert timed.get_run(run.id).state is State.PENDING
    assert "approved" not in timed.list_entry_kinds(run)
    # The twin: a time that it can keep.
    assert _approve(timed, run, MINUTE).state is State.QUEUED


def test_freeze_holds_the_run_beyond_its_time(timed: Harness):
    run = _approve(timed, timed.request(LAMP_ON), HOUR)
    (timed.policies.path / "freezes.yaml").write_text(
        'freezes: [{name: sale, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'
    )
    _wait(timed, HOUR)
    held = timed.get_run(run.id)
    assert held.waiting is not None
    assert held.waiting.reason is WaitingFor.FREEZE


def test_held_run_needs_its_approval_again(timed: Harness):
    run = _approve(timed, timed.request(LAMP_ON), HOUR)
    held = timed.service.hold_run(run.id, person="olga", reason="the sale begins early")
    assert (held.state, held.waiting) == (State.PENDING, None)
    _wait(timed, HOUR)
    assert (timed.get_run(run.id).state, timed.fleet.sent) == (State.PENDING, [])
    assert timed.approve(timed.get_run(run.id)).state is State.SUCCEEDED
    with timed.database.reading() as tx:
        [entry] = change_log.list_entries_of_run(tx, run.id, [events.Held.kind])
    assert (entry.person, entry.event.get_fact("reason")) == ("olga", "the sale begins early")


def test_hold_takes_back_all_approvals(timed_by_two: Harness):
    run = timed_by_two.request(LAMP_ON)
    for person in ("olga", "adam"):
        run = _approve(timed_by_two, run, HOUR, person)
    timed_by_two.service.hold_run(run.id, person="dora")
    _approve(timed_by_two, run, HOUR, "adam")
    run = timed_by_two.get_run(run.id)
    assert run.state is State.PENDING
    assert _approve(timed_by_two, run, HOUR, "olga").state is State.QUEUED


def test_requester_and_approvers_may_hold_it(timed: Harness):
    run = _approve(timed, timed.request(LAMP_ON), HOUR)
    with timed.database.reading() as tx:
        may_hold = {
            person: build_run_view(
                tx, run.id, timed.policies.get_policy(), Viewer(person)
            ).allowed_actions.hold
            for person in ("dora", "olga", "adam", "stan")
        }
    assert may_hold == {"dora": True, "olga": True, "adam": True, "stan": False}
    with pytest.raises(NotAllowed, match="only if you requested it or could approve it"):
        timed.service.hold_run(run.id, person="stan")
    assert timed.service.hold_run(run.id, person="dora").state is State.PENDING


def test_run_that_is_not_approved_or_has_run_cannot_be_held(timed: Harness):
    run = timed.request(LAMP_ON)
    with pytest.raises(TooLate, match="only an approved run can be held until it starts"):
        timed.service.hold_run(run.id, person="olga")
    timed.approve(run)
    with pytest.raises(TooLate, match="only an approved run can be held until it starts"):
        timed.service.hold_run(run.id, person="olga")


def test_taken_back_approval_does_not_count_when_its_row_returns(timed: Harness):
    run = _approve(timed, timed.request(LAMP_ON), HOUR)
    with timed.database.transaction() as tx:
        [approval] = runs.list_decisions(tx, run.id)
    timed.service.hold_run(run.id, person="olga")
    with timed.database.transaction() as tx:
        tx.sql.execute(insert(tables.decision).values(**vars(approval)))
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(state="queued"))
    _wait(timed, HOUR)
    ended = timed.get_run(run.id)
    assert (ended.state, timed.fleet.sent) == (State.REFUSED, [])
    assert "does not confirm that olga approved it" in ended.summary


def test_earlier_start_than_was_approved_is_refused(timed: Harness):
    run = _approve(timed, timed.request(LAMP_ON), HOUR)
    with timed.database.transaction() as tx:
        tx.sql.execute(
            update(tables.decision).where(tables.decision.c.run == run.id).values(start_at=None)
        )
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(waiting=None))
    _wait(timed, 1)
    ended = timed.get_run(run.id)
    assert (ended.state, timed.fleet.sent) == (State.REFUSED, [])
    assert "does not confirm that olga approved it" in ended.summary


def test_break_glass_starts_it_before_its_time(timed: Harness):
    change = SetSwitch(host="web1", name="lamp", value="on")
    timed.fleet.hosts["web1"] = {"lamp": "off"}
    run = _approve(timed, timed.request(change, person="adam"), 2 * HOUR)
    policy = timed.policies.get_policy()
    with timed.database.reading() as tx:
        view = build_run_view(tx, run.id, policy, Viewer("adam"))
    assert view.allowed_actions.break_glass
    app = enrol_and_step_up(timed, "adam")
    timed.service.break_glass.activate_break_glass(
        run.id,
        person="adam",
        session=app.session,
        digest=run.digest,
        reason="all customers see an error page",
    )
    timed.run_queued_work()
    assert timed.get_run(run.id).state is State.SUCCEEDED
