"""Two at once: on each database, however they meet, one effect and an honest loser."""

import threading
from collections.abc import Callable

import pytest

from bot.run import State
from bot.store import runs
from bot.workflow import TooLate
from tests.bot.office import Office
from tests.toy import SetSwitch


def _together(*actions: Callable[[], object]) -> list[BaseException | None]:
    """Run all at the same moment and return what each raised."""
    barrier = threading.Barrier(len(actions))
    raised: list[BaseException | None] = [None] * len(actions)

    def go(n: int, action: Callable[[], object]) -> None:
        barrier.wait()
        try:
            action()
        except (TooLate, runs.Overtaken) as late:
            raised[n] = late

    threads = [threading.Thread(target=go, args=pair) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("attempt", range(5))
def test_t_a2_two_approvers_at_once_start_one_run(any_office: Office, attempt: int):
    office = any_office
    run = office.ask(SetSwitch(host="lb1", name="lamp", value=f"v{attempt}"))

    def by(person: str) -> Callable[[], object]:
        return lambda: office.workflow.approve(run.id, person=person, digest=run.digest)

    raised = _together(by("olga"), by("adam"), by("olga"))
    assert sum(late is None for late in raised) == 1
    office.work()
    assert office.fleet.told == [("lb1", f"set lamp v{attempt}")]


@pytest.mark.parametrize("attempt", range(5))
def test_t_a3_approve_and_deny_at_once_leave_one_truth(any_office: Office, attempt: int):
    office = any_office
    run = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    _together(
        lambda: office.workflow.approve(run.id, person="olga", digest=run.digest),
        lambda: office.workflow.deny(run.id, person="adam"),
    )
    office.work()
    assert office.run(run.id).state is State.DENIED
    assert office.fleet.told == []


def test_a_run_that_two_threads_advance_is_done_once(any_office: Office):
    office = any_office
    run = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    office.workflow.approve(run.id, person="olga", digest=run.digest)
    office.queue.waiting.clear()
    _together(*[lambda: office.workflow.advance(run.id)] * 4)
    assert office.fleet.told == [("lb1", "set lamp on")]
    assert office.run(run.id).state is State.SUCCEEDED


def test_changes_to_one_host_take_turns(any_office: Office):
    office = any_office
    first = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    second = office.ask(SetSwitch(host="lb1", name="fan", value="on"))
    inside = threading.Semaphore(1)

    def alone(_host: str, _words: str) -> None:
        assert inside.acquire(blocking=False), "two changes on one host at once"
        inside.release()

    office.fleet.before_tell = alone
    for run in (first, second):
        office.workflow.approve(run.id, person="olga", digest=run.digest)
    waiting, office.queue.waiting = office.queue.waiting, []
    _together(*[lambda n=n: office.workflow.advance(n) for n in waiting])
    office.work()
    assert {office.run(run.id).state for run in (first, second)} == {State.SUCCEEDED}
