"""Reconciling: steps with an unknown outcome are resolved by querying the host."""

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.audit.spool import Spool
from bot.db import locks, runs
from bot.db.database import Transaction
from bot.execution.intent import build_step_marker
from bot.execution.reconcile import Reconciler, interpret_marker
from bot.model.plan import PlannedStep
from bot.model.run import RequestTerms, Run, State, StepRecord, StepState
from bot.model.sequence import UndoSelection
from bot.model.signing import SigningKey
from bot.model.waiting import WaitingFor
from bot.queries.run_timeline import build_run_events
from bot.service import KeyturnService
from connectors.command import Shell
from connectors.errors import UnknownOutcomeError, UnreachableError
from connectors.step_status import NO_STATUS, MarkerState, StepStatus
from tests.bot.clock import Clock
from tests.bot.harness import WEB, Harness, open_harness
from tests.toy import KeepSwitch, SetAll, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
BOTH_ON = SetAll(host="lb1", value="on")
UP = 1e9
SWITCHES = ("fan", "lamp", "pump")


@pytest.fixture
def harness(tmp_path: Path) -> Generator[Harness]:
    with open_harness(
        tmp_path, database=Clock(f"sqlite:///{tmp_path / 'kt.db'}", SigningKey.create())
    ) as it:
        yield it


def _lose_connection(*_: str) -> None:
    raise UnknownOutcomeError("the connection was lost")


def _run_until_lost_before_step(harness: Harness, request: SetSwitch | SetAll = LAMP_ON) -> Run:
    harness.fleet.before_send = _lose_connection
    run = harness.approve(harness.request(request))
    harness.fleet.before_send = lambda _host, _words: None
    return run


def _run_until_lost_after_step(harness: Harness, request: SetSwitch | SetAll = LAMP_ON) -> Run:
    harness.fleet.after_send = _lose_connection
    run = harness.approve(harness.request(request))
    harness.fleet.after_send = lambda _host, _words: None
    return run


def _stop_clock(harness: Harness) -> Clock:
    database = harness.database
    assert isinstance(database, Clock)
    database.stop()
    return database


def _pass_time(harness: Harness, *, seconds: float = 1200) -> None:
    """Let time go by, and the clock tick."""
    database = harness.database
    assert isinstance(database, Clock)
    database.ahead += round(seconds * 1_000_000)
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()


def _get_lock_holder(harness: Harness) -> int | None:
    with harness.database.reading() as tx:
        held = locks.get_lock(tx, "lb1")
    return held and held.run


def _set_marker_status(harness: Harness, answer: StepStatus) -> None:
    harness.fleet.recalls = lambda: answer


def test_reconcile_verifies_a_step_that_the_host_completed(harness: Harness):
    run = _run_until_lost_after_step(harness)
    assert run.state is State.UNKNOWN
    _pass_time(harness)
    run = harness.get_run(run.id)
    assert run.state is State.SUCCEEDED
    assert run.summary == "Verified: lamp is on"
    assert _get_lock_holder(harness) is None
    kinds = harness.list_entry_kinds(run)
    assert kinds[-5:] == [
        *("host queried", "host answered", "step succeeded", "verified", "succeeded")
    ]
    with harness.database.reading() as tx:
        (step,) = runs.list_steps(tx, run.id)
    assert (step.state, step.exit_status, step.output) == (
        StepState.SUCCEEDED,
        0,
        "lamp is on now",
    )


def turn_on_three_switches(harness: Harness) -> None:
    """Make three changes of lb1, which a sequence can undo or repeat elsewhere."""
    harness.fleet.hosts = {host: dict.fromkeys(SWITCHES, "off") for host in ("lb1", "lb2")}
    for name in SWITCHES:
        harness.approve(harness.request(KeepSwitch(host="lb1", name=name, value="on")))


def test_undo_goes_on_once_a_part_with_unknown_outcome_is_verified(harness: Harness):
    turn_on_three_switches(harness)
    selection = UndoSelection(person="dora", since=1)
    run = harness.service.request_undo_of_selection(selection, RequestTerms("dora", WEB))
    check_sequence_goes_on_after_a_kill(harness, run, "lb1", "off")


def check_sequence_goes_on_after_a_kill(
    harness: Harness, run: Run, target: str, value: str
) -> None:
    """Kill the process after a part was sent to the target: the next process asks the host."""
    harness.run_queued_work()

    def kill(host: str, _words: str) -> None:
        harness.fleet.after_send = lambda _host, _words: None
        assert host == target
        raise UnknownOutcomeError("the connection was lost")

    harness.fleet.after_send = kill
    held = harness.approve(harness.get_run(run.id))
    assert held.state is State.RUNNING
    assert held.waiting is not None
    assert held.waiting.reason is WaitingFor.OUTCOME
    sent = len(harness.fleet.sent)
    _pass_time(harness)
    ended = harness.get_run(run.id)
    assert (ended.state, ended.summary) == (State.SUCCEEDED, "Verified 3 of 3 changes")
    assert len(harness.fleet.sent) == sent + 2
    assert harness.fleet.hosts[target] == dict.fromkeys(SWITCHES, value)


def test_reconcile_fails_a_step_that_the_host_never_started(harness: Harness):
    run = _run_until_lost_before_step(harness)
    assert run.state is State.UNKNOWN
    _pass_time(harness)
    run = harness.get_run(run.id)
    assert run.state is State.FAILED
    assert (
        "lb1 returned that the step never started, and never will. It changed nothing."
        in run.summary
    )
    assert harness.fleet.sent == []
    assert _get_lock_holder(harness) is None
    again = harness.approve(harness.request(LAMP_ON))
    assert again.state is State.SUCCEEDED


def test_reconcile_keeps_unknown_outcome_when_the_policy_changed_meanwhile(harness: Harness):
    run = _run_until_lost_before_step(harness)
    file = harness.policies.path / "inventory.yaml"
    file.write_text(f"{file.read_text()}\n# another login, perhaps\n")
    _pass_time(harness)
    unknown = harness.get_run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "the policy was changed since" in unknown.summary
    assert _get_lock_holder(harness) == run.id


class Crash(BaseException):
    """The process is gone from one moment to the next."""


def _restart(harness: Harness) -> None:
    harness.dispatcher.enqueued.clear()
    harness.service = KeyturnService(harness.context)
    harness.service.advancer.recover_unfinished_runs()


def test_reconcile_verifies_a_run_that_crashed_before_verification(harness: Harness):
    run = harness.request(LAMP_ON)

    def after(_host: str, _words: str) -> None:
        harness.fleet.before_query = crash

    def crash(_host: str) -> None:
        raise Crash

    harness.fleet.after_send = after
    with pytest.raises(Crash):
        harness.approve(run)
    _restart(harness)
    assert harness.get_run(run.id).state is State.UNKNOWN

    def away(_host: str) -> None:
        raise UnreachableError("lb1 did not answer within 5 s")

    harness.fleet.before_query = away
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.UNKNOWN
    assert _get_lock_holder(harness) == run.id
    harness.fleet.before_query = lambda _host: None
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert harness.fleet.recalled == 0


def _crash_after_step(harness: Harness) -> Run:
    """Have the process die when the host has done the step, and another one begin."""

    def crash(*_: str) -> None:
        raise Crash

    harness.fleet.after_send = crash
    run = harness.request(LAMP_ON)
    with pytest.raises(Crash):
        harness.approve(run)
    harness.fleet.after_send = lambda _host, _words: None
    _restart(harness)
    return run


def test_reconcile_ends_a_run_that_crashed_during_a_step(harness: Harness):
    run = _crash_after_step(harness)
    assert harness.get_run(run.id).state is State.UNKNOWN
    harness.service.advancer.wake_stalled_runs()
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert len(harness.fleet.sent) == 1


def test_without_reconcile_a_run_that_crashed_during_a_step_stays_unknown(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    def nothing(_self: Reconciler, _tx: Transaction) -> list[Run]:
        return []

    monkeypatch.setattr(Reconciler, "list_due_runs", nothing)
    run = _run_until_lost_after_step(harness)
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.UNKNOWN


def test_reconcile_fails_a_run_whose_step_failed_on_the_host(harness: Harness):
    run = _run_until_lost_before_step(harness)
    _set_marker_status(harness, StepStatus(MarkerState.ENDED, UP, status=3, err="glued\n"))
    _pass_time(harness)
    run = harness.get_run(run.id)
    assert run.state is State.FAILED
    assert "lb1 returned that it exited with status 3: output: glued" in run.summary
    assert "Current state: lamp is off." in run.summary


def test_reconcile_fails_a_run_whose_completed_step_is_not_verified(harness: Harness):
    run = _run_until_lost_before_step(harness)
    _set_marker_status(harness, StepStatus(MarkerState.ENDED, UP, status=0))
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.FAILED
    assert "verification failed" in harness.get_run(run.id).summary


def test_reconcile_sends_no_remaining_steps(harness: Harness):
    run = _run_until_lost_after_step(harness, BOTH_ON)
    _pass_time(harness)
    run = harness.get_run(run.id)
    assert run.state is State.FAILED
    assert "Later steps were not sent: request it again to execute them." in run.summary
    assert len(harness.fleet.sent) == 1
    assert harness.fleet.hosts["lb1"] == {"fan": "on", "lamp": "off"}


def test_reconcile_waits_for_a_command_that_is_still_running(harness: Harness):
    run = _run_until_lost_after_step(harness)
    _set_marker_status(harness, StepStatus(MarkerState.RUNNING, UP))
    asked = harness.fleet.asked
    _pass_time(harness)
    unknown = harness.get_run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "lb1 returned that the command is still running" in unknown.summary
    assert (
        "lb1 stays locked until the host returns the outcome, or an owner resolves this run"
        in unknown.summary
    )
    assert _get_lock_holder(harness) == run.id
    # What is half done is not read for proof.
    assert harness.fleet.asked == asked
    harness.fleet.recalls = lambda: None
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_reconcile_of_an_unreachable_host_backs_off(harness: Harness):
    run = _run_until_lost_after_step(harness)
    _stop_clock(harness)

    def unreachable() -> StepStatus:
        raise UnreachableError("lb1 did not answer within 5 s")

    harness.fleet.recalls = unreachable
    asked: list[int] = []
    for _ in range(40):
        _pass_time(harness, seconds=1)
        asked.append(harness.fleet.recalled)
    assert [asked.index(n) for n in range(1, asked[-1] + 1)] == [0, 2, 6, 14, 30]
    unknown = harness.get_run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "lb1 could not be asked: lb1 did not answer within 5 s" in unknown.summary
    assert _get_lock_holder(harness) == run.id
    # It is told once, not each time.
    assert harness.list_entry_kinds(run).count("host queried") == 1
    harness.fleet.recalls = lambda: None
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def test_reconcile_by_workers_of_other_sites_backs_off(harness: Harness):
    _run_until_lost_after_step(harness)
    database = _stop_clock(harness)
    sent: list[int] = []
    for second in range(40):
        database.ahead += 1_000_000
        harness.service.advancer.wake_stalled_runs()
        # A worker takes the hint: what it finds out stays in its own process.
        sent += [second] * len(harness.dispatcher.enqueued)
        harness.dispatcher.enqueued.clear()
    assert sent == [0, 2, 6, 14, 30]


def test_reconcile_queries_a_running_command_at_least_every_ten_minutes(harness: Harness):
    _run_until_lost_after_step(harness)
    _set_marker_status(harness, StepStatus(MarkerState.RUNNING, UP))
    for _ in range(30):
        _pass_time(harness, seconds=601)
    assert harness.fleet.recalled == 30


@pytest.mark.parametrize("fate", [MarkerState.GONE, MarkerState.REBOOTED])
def test_reconcile_leaves_an_interrupted_step_to_an_owner(harness: Harness, fate: MarkerState):
    run = _run_until_lost_before_step(harness)
    _set_marker_status(harness, StepStatus(fate, UP))
    for _ in range(3):
        _pass_time(harness)
    unknown = harness.get_run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "Current state: lamp is off. lb1 stays locked until an owner" in unknown.summary
    # It has nothing more to say.
    assert harness.fleet.recalled == 1
    harness.service.resolve_run(
        run.id, person="olga", succeeded=False, reason="I looked at the lamp"
    )
    assert harness.get_run(run.id).state is State.FAILED


def test_step_of_a_resolved_run_is_no_longer_pending(harness: Harness):
    run = _crash_after_step(harness)
    harness.service.resolve_run(
        run.id, person="olga", succeeded=True, reason="the lamp is on indeed"
    )
    with harness.database.reading() as tx:
        (step,) = runs.list_steps(tx, run.id)
    assert (step.state, step.exit_status) == (StepState.UNKNOWN, None)


@pytest.mark.parametrize("answer", [StepStatus(MarkerState.GONE, UP), NO_STATUS])
def test_reconcile_verifies_by_an_empty_plan_when_the_marker_is_lost(
    harness: Harness, answer: StepStatus
):
    run = _run_until_lost_after_step(harness)
    _set_marker_status(harness, answer)
    _pass_time(harness)
    run = harness.get_run(run.id)
    assert run.state is State.SUCCEEDED
    assert run.summary == "Verified: lamp is on"


def test_reconcile_reads_a_host_without_markers_until_the_plan_is_empty(harness: Harness):
    run = _run_until_lost_before_step(harness)
    _set_marker_status(harness, NO_STATUS)
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.UNKNOWN
    assert "lb1 keeps no marker of the step" in harness.get_run(run.id).summary
    harness.fleet.hosts["lb1"]["lamp"] = "on"
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED


def _interpret_status(answer: StepStatus, *, seconds: float = 60) -> tuple[StepState, bool]:
    step = StepRecord(1, 1, StepState.UNKNOWN, sent_at=0)
    finding = interpret_marker(answer, _STEP, step, round(seconds * 1_000_000))
    return finding.state, finding.can_retry


_STEP = PlannedStep("Do it", "lb1", "", Shell(("true",)), None, "no need")


@pytest.mark.parametrize(
    ("answer", "seconds", "state", "again"),
    [
        (StepStatus(MarkerState.CLOSED, uptime=1e9), 60, StepState.FAILED, False),
        # A host that was started since may have lost the marker: it proves nothing.
        (StepStatus(MarkerState.CLOSED, uptime=30), 60, StepState.UNKNOWN, False),
        (StepStatus(MarkerState.CLOSED, uptime=65), 60, StepState.UNKNOWN, False),
        # By then it may have been swept away.
        (StepStatus(MarkerState.CLOSED, uptime=1e9), 7 * 86400, StepState.UNKNOWN, False),
        (StepStatus(MarkerState.STARTING, uptime=1e9), 5, StepState.UNKNOWN, True),
        (StepStatus(MarkerState.STARTING, uptime=1e9), 90, StepState.UNKNOWN, False),
        (StepStatus(MarkerState.RUNNING, uptime=1e9), 9000, StepState.UNKNOWN, True),
        (StepStatus(MarkerState.GONE, uptime=1e9), 60, StepState.UNKNOWN, False),
        (StepStatus(MarkerState.REBOOTED, uptime=5), 60, StepState.UNKNOWN, False),
        # An enrolled host remembers for good, and says what it knows.
        (StepStatus(MarkerState.GIVEN_UP), 7 * 86400, StepState.FAILED, False),
        (StepStatus(MarkerState.INTERRUPTED), 60, StepState.UNKNOWN, False),
        (StepStatus(MarkerState.WAITING), 9000, StepState.UNKNOWN, True),
        (StepStatus(MarkerState.ENDED, uptime=5, status=0), 60, StepState.SUCCEEDED, False),
        (StepStatus(MarkerState.ENDED, uptime=5, status=1), 60, StepState.FAILED, False),
        # It was stopped from outside, or ran out of time: how far it came, nobody knows.
        (StepStatus(MarkerState.ENDED, uptime=5, status=137), 60, StepState.UNKNOWN, False),
        (
            StepStatus(MarkerState.ENDED, uptime=5, status=124, started_at=1, ended_at=31),
            60,
            StepState.UNKNOWN,
            False,
        ),
        (
            StepStatus(MarkerState.ENDED, uptime=5, status=124, started_at=1, ended_at=3),
            60,
            StepState.FAILED,
            False,
        ),
    ],
)
def test_marker_status_determines_the_outcome_of_a_step(
    answer: StepStatus, seconds: float, state: StepState, again: bool
):
    assert _interpret_status(answer, seconds=seconds) == (state, again)


def test_reconcile_does_not_override_a_person_who_resolved_the_run(harness: Harness):
    run = _run_until_lost_after_step(harness)

    def settle() -> None:
        harness.fleet.recalls = lambda: None
        harness.service.resolve_run(
            run.id, person="olga", succeeded=False, reason="I looked at it"
        )

    harness.fleet.recalls = settle
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.FAILED
    assert "host queried" not in harness.list_entry_kinds(run)


def test_reconcile_uses_spooled_outcomes_before_it_queries_the_host(
    harness: Harness, tmp_path: Path
):
    run = _run_until_lost_after_step(harness)
    spool = Spool(tmp_path / "spool")
    spool.add_facts(
        run.id,
        {"step": 1, "outcome": "succeeded", "exit_status": 0, "error": "", "reason": "gone"},
    )
    with harness.database.transaction() as tx:
        spool.merge_into_log(tx)
    _pass_time(harness)
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert harness.fleet.recalled == 0


def test_step_marker_is_unique_for_each_step_and_request(harness: Harness):
    run = harness.request(LAMP_ON)
    with harness.database.reading() as tx:
        one, two = build_step_marker(tx, run, 1), build_step_marker(tx, run, 2)
        first = change_log.list_entries_after(tx, 0, limit=1)[0]
        # A backup that is brought back may give its number to another request.
        other = build_step_marker(tx, replace(run, requested_at=run.requested_at + 2_000_000), 1)
    assert (one.run, one.step, two.step) == (two.run, 1, 2)
    assert one.run.startswith(f"{first.hash[:12]}-{run.id}-")
    assert other.run != one.run


def test_timeline_shows_the_reconcile_query_and_its_answer(harness: Harness):
    run = _run_until_lost_after_step(harness)
    _pass_time(harness)
    with harness.database.reading() as tx:
        events = build_run_events(change_log.list_entries_of_run(tx, run.id), str)
    details = {event.title: event.detail for event in events}
    assert details["Queried lb1 for the outcome of step 1"] == ""
    assert details["lb1 returned the outcome"] == "The host returned that the step succeeded"


def _wake_stalled_runs_twice(harness: Harness) -> Callable[[], None]:
    def twice() -> None:
        harness.service.advancer.wake_stalled_runs()
        harness.service.advancer.wake_stalled_runs()

    return twice


def test_concurrent_reconciles_conclude_once(harness: Harness):
    run = _run_until_lost_after_step(harness)
    _wake_stalled_runs_twice(harness)()
    harness.run_queued_work()
    assert harness.list_entry_kinds(run).count("host answered") == 1
    assert harness.get_run(run.id).state is State.SUCCEEDED
