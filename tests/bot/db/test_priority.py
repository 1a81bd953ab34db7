"""The queue of a host: urgent runs first, then people take turns."""

from sqlalchemy import update

from bot.db import break_glass, locks, priority, runs, tables
from bot.model.run import Run, State
from bot.model.run_states import describe_outcome
from tests.bot.harness import Harness
from tests.toy import SetSwitch


def _request_switch(harness: Harness, name: str, person: str = "dora") -> Run:
    harness.fleet.hosts["lb1"].setdefault(name, "off")
    return harness.request(SetSwitch(host="lb1", name=name, value="on"), person=person)


def _approve_all(harness: Harness, *asked: Run) -> None:
    for run in asked:
        harness.service.approve_run(run.id, person="olga", digest=run.digest)


def _activate_break_glass(harness: Harness, run: Run) -> None:
    with harness.database.transaction() as tx:
        break_glass.request_break_glass(tx, run=run.id, person=run.requested_by, reason="it burns")
        tx.sql.execute(
            update(tables.break_glass)
            .where(tables.break_glass.c.run == run.id)
            .values(activated_at=1)
        )


def _list_switches_sent(harness: Harness) -> list[str]:
    return [command.split()[1] for _, command in harness.fleet.sent]


class _Held:
    """Somebody else holds lb1 for as long as the block lasts."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._other = harness.request(SetSwitch(host="lb2", name="lamp", value="on")).id

    def __enter__(self) -> None:
        with self._harness.database.transaction() as tx:
            locks.take_lock(tx, "lb1", self._other)

    def __exit__(self, *_: object) -> None:
        with self._harness.database.transaction() as tx:
            locks.release_locks(tx, self._other)
        self._harness.service.advancer.wake_stalled_runs()
        # Only the first is woken: each wakes the next.
        assert self._harness.dispatcher.enqueued == [self._next()]
        self._harness.run_queued_work()

    def _next(self) -> int:
        with self._harness.database.reading() as tx:
            return priority.get_next_run(tx, "lb1") or 0


def test_host_queue_lets_people_take_turns(db_harness: Harness):
    """Without that, stan would wait for all that dora has asked for before him."""
    doras = [_request_switch(db_harness, f"d{n}") for n in range(4)]
    stans = [_request_switch(db_harness, f"s{n}", person="stan") for n in range(2)]
    with _Held(db_harness):
        _approve_all(db_harness, *doras, *stans)
        db_harness.run_queued_work()
    assert _list_switches_sent(db_harness) == ["d0", "s0", "d1", "s1", "d2", "d3"]


def test_break_glass_run_is_first_in_the_host_queue(db_harness: Harness):
    doras = [_request_switch(db_harness, f"d{n}") for n in range(3)]
    urgent = _request_switch(db_harness, "burning", person="stan")
    with _Held(db_harness):
        _approve_all(db_harness, *doras, urgent)
        db_harness.run_queued_work()
        _activate_break_glass(db_harness, urgent)
        with db_harness.database.reading() as tx:
            [line] = locks.list_queues(tx).values()
        assert [run.id for run in line] == [urgent.id, *[run.id for run in doras]]
    assert _list_switches_sent(db_harness)[0] == "burning"


def test_freed_host_is_kept_for_a_waiting_break_glass_run(db_harness: Harness):
    """Whoever comes by meanwhile waits for it, and says so."""
    first, urgent = (
        _request_switch(db_harness, "first"),
        _request_switch(db_harness, "burning", person="stan"),
    )
    _approve_all(db_harness, first, urgent)
    _activate_break_glass(db_harness, urgent)
    db_harness.dispatcher.enqueued[:] = [first.id]
    db_harness.run_queued_work()
    waiting = db_harness.get_run(first.id)
    assert waiting.state is State.QUEUED
    assert describe_outcome(waiting) == f"waits for break-glass run {urgent.id}"
    db_harness.dispatcher.enqueued.append(urgent.id)
    db_harness.run_queued_work()
    assert _list_switches_sent(db_harness) == ["burning", "first"]


def test_child_runs_wait_for_single_requests_in_the_host_queue(db_harness: Harness):
    alone = _request_switch(db_harness, "alone")
    part = _request_switch(db_harness, "part")
    with db_harness.database.transaction() as tx:
        tx.sql.execute(
            update(tables.run).where(tables.run.c.id == part.id).values(parent=alone.id)
        )
        assert priority.get_turn(tx, part.id) == priority.Turn(priority.BULK, "dora")
        assert priority.get_turn(tx, alone.id) == priority.Turn(priority.DIRECT, "dora")
        assert priority.get_next_run(tx, "lb1") is None
    _approve_all(db_harness, alone)
    with db_harness.database.reading() as tx:
        assert priority.get_next_run(tx, "lb1") == alone.id


def test_child_run_gets_its_turn_after_seven_single_requests(harness: Harness):
    for n in range(7):
        harness.approve(_request_switch(harness, f"before{n}"))
    alone, part = _request_switch(harness, "alone"), _request_switch(harness, "part")
    with harness.database.transaction() as tx:
        of = tables.run.c
        tx.sql.execute(update(tables.run).where(of.id == part.id).values(parent=alone.id))
        for run in (alone, part):
            runs.move_run(tx, runs.get_run(tx, run.id), State.QUEUED)
        assert priority.get_next_run(tx, "lb1") == part.id
        # One of them was among the last seven.
        tx.sql.execute(update(tables.run).where(of.id == 3).values(parent=alone.id))
        assert priority.get_next_run(tx, "lb1") == alone.id


def test_host_queue_prefers_the_person_without_recent_runs_on_the_host(harness: Harness):
    """Whoever has not had the host of late comes before who has."""
    for name in ("a", "b"):
        harness.approve(_request_switch(harness, name))
    doras, stans = _request_switch(harness, "d"), _request_switch(harness, "s", person="stan")
    with harness.database.transaction() as tx:
        for run in (doras, stans):
            runs.move_run(tx, runs.get_run(tx, run.id), State.QUEUED)
        assert priority.get_next_run(tx, "lb1") == stans.id
