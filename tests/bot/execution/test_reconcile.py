"""Whoever saw no end of a step asks the host: what it says is the outcome, and nobody guesses."""

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
from bot.model.run import Run, State, StepRecord, StepState
from bot.model.signing import SigningKey
from bot.queries.run_timeline import build_run_events
from bot.service import Workflow
from connectors.command import Shell
from connectors.errors import UnknownOutcomeError, UnreachableError
from connectors.step_status import NO_STATUS, MarkerState, StepStatus
from tests.bot.office import Office, an_office
from tests.bot.time import Clock
from tests.toy import SetAll, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
BOTH_ON = SetAll(host="lb1", value="on")
UP = 1e9


@pytest.fixture
def office(tmp_path: Path) -> Generator[Office]:
    with an_office(
        tmp_path, database=Clock(f"sqlite:///{tmp_path / 'kt.db'}", SigningKey.create())
    ) as it:
        yield it


def _lose(*_: str) -> None:
    raise UnknownOutcomeError("the connection was lost")


def _lost_before(office: Office, request: SetSwitch | SetAll = LAMP_ON) -> Run:
    office.fleet.before_tell = _lose
    run = office.approve(office.ask(request))
    office.fleet.before_tell = lambda _host, _words: None
    return run


def _lost_after(office: Office, request: SetSwitch | SetAll = LAMP_ON) -> Run:
    office.fleet.after_tell = _lose
    run = office.approve(office.ask(request))
    office.fleet.after_tell = lambda _host, _words: None
    return run


def _later(office: Office, *, seconds: float = 1200) -> None:
    """Let time go by, and the clock tick."""
    database = office.database
    assert isinstance(database, Clock)
    database.ahead += round(seconds * 1_000_000)
    office.workflow.wake_stalled_runs()
    office.work()


def _holder(office: Office) -> int | None:
    with office.database.reading() as tx:
        held = locks.get_lock(tx, "lb1")
    return held and held.run


def _saying(office: Office, said: StepStatus) -> None:
    office.fleet.recalls = lambda: said


def test_what_the_host_has_done_is_proven_and_the_run_has_succeeded(office: Office):
    run = _lost_after(office)
    assert run.state is State.UNKNOWN
    _later(office)
    run = office.run(run.id)
    assert run.state is State.SUCCEEDED
    assert run.summary == "Verified: lamp is on"
    assert _holder(office) is None
    kinds = office.entries(run)
    assert kinds[-5:] == [
        *("host queried", "host answered", "step succeeded", "verified", "succeeded")
    ]
    with office.database.reading() as tx:
        (step,) = runs.list_steps(tx, run.id)
    assert (step.state, step.exit_status, step.output) == (
        StepState.SUCCEEDED,
        0,
        "lamp is on now",
    )


def test_what_the_host_has_not_begun_it_never_will(office: Office):
    run = _lost_before(office)
    assert run.state is State.UNKNOWN
    _later(office)
    run = office.run(run.id)
    assert run.state is State.FAILED
    assert (
        "lb1 returned that the step never started, and never will. It changed nothing."
        in run.summary
    )
    assert office.fleet.told == []
    assert _holder(office) is None
    again = office.approve(office.ask(LAMP_ON))
    assert again.state is State.SUCCEEDED


def test_where_the_policy_was_changed_a_missing_marker_proves_nothing(office: Office):
    run = _lost_before(office)
    file = office.policies.path / "inventory.yaml"
    file.write_text(f"{file.read_text()}\n# another login, perhaps\n")
    _later(office)
    unknown = office.run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "the policy was changed since" in unknown.summary
    assert _holder(office) == run.id


class Crash(BaseException):
    """The process is gone from one moment to the next."""


def _restart(office: Office) -> None:
    office.queue.waiting.clear()
    office.workflow = Workflow(office.parts)
    office.workflow.recover_unfinished_runs()


def test_a_crash_before_the_proof_was_read_has_it_read_later(office: Office):
    run = office.ask(LAMP_ON)

    def after(_host: str, _words: str) -> None:
        office.fleet.before_ask = crash

    def crash(_host: str) -> None:
        raise Crash

    office.fleet.after_tell = after
    with pytest.raises(Crash):
        office.approve(run)
    _restart(office)
    assert office.run(run.id).state is State.UNKNOWN

    def away(_host: str) -> None:
        raise UnreachableError("lb1 did not answer within 5 s")

    office.fleet.before_ask = away
    _later(office)
    assert office.run(run.id).state is State.UNKNOWN
    assert _holder(office) == run.id
    office.fleet.before_ask = lambda _host: None
    _later(office)
    assert office.run(run.id).state is State.SUCCEEDED
    assert office.fleet.recalled == 0


def _crashed_in_a_step(office: Office) -> Run:
    """Have the process die when the host has done the step, and another one begin."""

    def crash(*_: str) -> None:
        raise Crash

    office.fleet.after_tell = crash
    run = office.ask(LAMP_ON)
    with pytest.raises(Crash):
        office.approve(run)
    office.fleet.after_tell = lambda _host, _words: None
    _restart(office)
    return run


def test_a_crash_in_the_middle_of_a_step_ends_without_people(office: Office):
    run = _crashed_in_a_step(office)
    assert office.run(run.id).state is State.UNKNOWN
    office.workflow.wake_stalled_runs()
    office.work()
    assert office.run(run.id).state is State.SUCCEEDED
    assert len(office.fleet.told) == 1


def test_without_asking_the_host_such_a_run_waits_for_a_person(
    office: Office, monkeypatch: pytest.MonkeyPatch
):
    def nothing(_self: Reconciler, _tx: Transaction) -> list[Run]:
        return []

    monkeypatch.setattr(Reconciler, "list_due_runs", nothing)
    run = _lost_after(office)
    _later(office)
    assert office.run(run.id).state is State.UNKNOWN


def test_what_the_host_says_has_failed_has_failed(office: Office):
    run = _lost_before(office)
    _saying(office, StepStatus(MarkerState.ENDED, UP, status=3, err="glued\n"))
    _later(office)
    run = office.run(run.id)
    assert run.state is State.FAILED
    assert "lb1 returned that it exited with status 3: output: glued" in run.summary
    assert "Current state: lamp is off." in run.summary


def test_what_was_done_and_did_not_hold_is_said_so(office: Office):
    run = _lost_before(office)
    _saying(office, StepStatus(MarkerState.ENDED, UP, status=0))
    _later(office)
    assert office.run(run.id).state is State.FAILED
    assert "verification failed" in office.run(run.id).summary


def test_steps_that_were_not_sent_are_not_sent_now(office: Office):
    run = _lost_after(office, BOTH_ON)
    _later(office)
    run = office.run(run.id)
    assert run.state is State.FAILED
    assert "Later steps were not sent: request it again to execute them." in run.summary
    assert len(office.fleet.told) == 1
    assert office.fleet.hosts["lb1"] == {"fan": "on", "lamp": "off"}


def test_what_is_still_at_it_is_waited_for(office: Office):
    run = _lost_after(office)
    _saying(office, StepStatus(MarkerState.RUNNING, UP))
    asked = office.fleet.asked
    _later(office)
    unknown = office.run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "lb1 returned that the command is still running" in unknown.summary
    assert (
        "lb1 stays locked until the host returns the outcome, or an owner resolves this run"
        in unknown.summary
    )
    assert _holder(office) == run.id
    # What is half done is not read for proof.
    assert office.fleet.asked == asked
    office.fleet.recalls = lambda: None
    _later(office)
    assert office.run(run.id).state is State.SUCCEEDED


def test_who_cannot_be_asked_is_asked_again_ever_more_seldom(office: Office):
    run = _lost_after(office)

    def unreachable() -> StepStatus:
        raise UnreachableError("lb1 did not answer within 5 s")

    office.fleet.recalls = unreachable
    asked: list[int] = []
    for _ in range(40):
        _later(office, seconds=1)
        asked.append(office.fleet.recalled)
    assert [asked.index(n) for n in range(1, asked[-1] + 1)] == [0, 2, 6, 14, 30]
    unknown = office.run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "lb1 could not be asked: lb1 did not answer within 5 s" in unknown.summary
    assert _holder(office) == run.id
    # It is told once, not each time.
    assert office.entries(run).count("host queried") == 1
    office.fleet.recalls = lambda: None
    _later(office)
    assert office.run(run.id).state is State.SUCCEEDED


def test_where_workers_elsewhere_ask_they_are_sent_ever_more_seldom_too(office: Office):
    _lost_after(office)
    database = office.database
    assert isinstance(database, Clock)
    sent: list[int] = []
    for second in range(40):
        database.ahead += 1_000_000
        office.workflow.wake_stalled_runs()
        # A worker takes the hint: what it finds out stays in its own process.
        sent += [second] * len(office.queue.waiting)
        office.queue.waiting.clear()
    assert sent == [0, 2, 6, 14, 30]


def test_it_is_asked_every_ten_minutes_at_the_least(office: Office):
    _lost_after(office)
    _saying(office, StepStatus(MarkerState.RUNNING, UP))
    for _ in range(30):
        _later(office, seconds=601)
    assert office.fleet.recalled == 30


@pytest.mark.parametrize("fate", [MarkerState.GONE, MarkerState.REBOOTED])
def test_what_was_cut_off_is_for_a_person_unless_nothing_is_left(
    office: Office, fate: MarkerState
):
    run = _lost_before(office)
    _saying(office, StepStatus(fate, UP))
    for _ in range(3):
        _later(office)
    unknown = office.run(run.id)
    assert unknown.state is State.UNKNOWN
    assert "Current state: lamp is off. lb1 stays locked until an owner" in unknown.summary
    # It has nothing more to say.
    assert office.fleet.recalled == 1
    office.workflow.resolve_run(
        run.id, person="olga", succeeded=False, reason="I looked at the lamp"
    )
    assert office.run(run.id).state is State.FAILED


def test_the_end_of_a_step_whose_run_was_settled_is_awaited_no_more(office: Office):
    run = _crashed_in_a_step(office)
    office.workflow.resolve_run(
        run.id, person="olga", succeeded=True, reason="the lamp is on indeed"
    )
    with office.database.reading() as tx:
        (step,) = runs.list_steps(tx, run.id)
    assert (step.state, step.exit_status) == (StepState.UNKNOWN, None)


@pytest.mark.parametrize("said", [StepStatus(MarkerState.GONE, UP), NO_STATUS])
def test_nothing_left_to_do_proves_what_the_host_cannot_say(office: Office, said: StepStatus):
    run = _lost_after(office)
    _saying(office, said)
    _later(office)
    run = office.run(run.id)
    assert run.state is State.SUCCEEDED
    assert run.summary == "Verified: lamp is on"


def test_what_keeps_no_marker_is_read_again_until_nothing_is_left(office: Office):
    run = _lost_before(office)
    _saying(office, NO_STATUS)
    _later(office)
    assert office.run(run.id).state is State.UNKNOWN
    assert "lb1 keeps no marker of the step" in office.run(run.id).summary
    office.fleet.hosts["lb1"]["lamp"] = "on"
    _later(office)
    assert office.run(run.id).state is State.SUCCEEDED


def _judged(said: StepStatus, *, seconds: float = 60) -> tuple[StepState, bool]:
    step = StepRecord(1, 1, StepState.UNKNOWN, sent_at=0)
    finding = interpret_marker(said, _STEP, step, round(seconds * 1_000_000))
    return finding.state, finding.can_retry


_STEP = PlannedStep("Do it", "lb1", "", Shell(("true",)), None, "no need")


@pytest.mark.parametrize(
    ("said", "seconds", "state", "again"),
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
def test_what_a_host_says_is_taken_for_what_it_proves(
    said: StepStatus, seconds: float, state: StepState, again: bool
):
    assert _judged(said, seconds=seconds) == (state, again)


def test_whoever_settles_it_meanwhile_has_the_last_word(office: Office):
    run = _lost_after(office)

    def settle() -> None:
        office.fleet.recalls = lambda: None
        office.workflow.resolve_run(
            run.id, person="olga", succeeded=False, reason="I looked at it"
        )

    office.fleet.recalls = settle
    _later(office)
    assert office.run(run.id).state is State.FAILED
    assert "host queried" not in office.entries(run)


def test_what_was_noted_beside_the_database_is_taken_first(office: Office, tmp_path: Path):
    run = _lost_after(office)
    spool = Spool(tmp_path / "spool")
    spool.add_facts(
        run.id,
        {"step": 1, "outcome": "succeeded", "exit_status": 0, "error": "", "reason": "gone"},
    )
    with office.database.transaction() as tx:
        spool.merge_into_log(tx)
    _later(office)
    assert office.run(run.id).state is State.SUCCEEDED
    assert office.fleet.recalled == 0


def test_each_step_has_a_name_of_its_own_and_keeps_it(office: Office):
    run = office.ask(LAMP_ON)
    with office.database.reading() as tx:
        one, two = build_step_marker(tx, run, 1), build_step_marker(tx, run, 2)
        first = change_log.list_entries_after(tx, 0, limit=1)[0]
        # A backup that is brought back may give its number to another request.
        other = build_step_marker(tx, replace(run, requested_at=run.requested_at + 2_000_000), 1)
    assert (one.run, one.step, two.step) == (two.run, 1, 2)
    assert one.run.startswith(f"{first.hash[:12]}-{run.id}-")
    assert other.run != one.run


def test_people_read_what_the_host_was_asked_and_what_it_said(office: Office):
    run = _lost_after(office)
    _later(office)
    with office.database.reading() as tx:
        told = build_run_events(change_log.list_entries_of_run(tx, run.id), str)
    said = {event.title: event.detail for event in told}
    assert said["Queried lb1 for the outcome of step 1"] == ""
    assert said["lb1 returned the outcome"] == "The host returned that the step succeeded"


def _many(office: Office) -> Callable[[], None]:
    def twice() -> None:
        office.workflow.wake_stalled_runs()
        office.workflow.wake_stalled_runs()

    return twice


def test_asking_twice_at_once_concludes_once(office: Office):
    run = _lost_after(office)
    _many(office)()
    office.work()
    assert office.entries(run).count("host answered") == 1
    assert office.run(run.id).state is State.SUCCEEDED
