"""Whose turn it is at a host: the urgent first, then people one after the other."""

from sqlalchemy import update

from bot.db import break_glass, locks, priority, runs, tables
from bot.model.run import Run, State
from tests.bot.office import Office
from tests.toy import SetSwitch


def _set(office: Office, name: str, person: str = "dora") -> Run:
    office.fleet.hosts["lb1"].setdefault(name, "off")
    return office.ask(SetSwitch(host="lb1", name=name, value="on"), person=person)


def _approved(office: Office, *asked: Run) -> None:
    for run in asked:
        office.workflow.approve_run(run.id, person="olga", digest=run.digest)


def _broken(office: Office, run: Run) -> None:
    with office.database.transaction() as tx:
        break_glass.request_break_glass(tx, run=run.id, person=run.requested_by, reason="it burns")
        tx.sql.execute(
            update(tables.break_glass)
            .where(tables.break_glass.c.run == run.id)
            .values(activated_at=1)
        )


def _taken(office: Office) -> list[str]:
    return [told.split()[1] for _, told in office.fleet.told]


class _Held:
    """Somebody else holds lb1 for as long as the block lasts."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._other = office.ask(SetSwitch(host="lb2", name="lamp", value="on")).id

    def __enter__(self) -> None:
        with self._office.database.transaction() as tx:
            locks.take_lock(tx, "lb1", self._other)

    def __exit__(self, *_: object) -> None:
        with self._office.database.transaction() as tx:
            locks.release_locks(tx, self._other)
        self._office.workflow.wake_stalled_runs()
        # Only the first is woken: each wakes the next.
        assert self._office.queue.waiting == [self._next()]
        self._office.work()

    def _next(self) -> int:
        with self._office.database.reading() as tx:
            return priority.get_next_run(tx, "lb1") or 0


def test_at_a_host_people_take_turns(any_office: Office):
    """Without that, stan would wait for all that dora has asked for before him."""
    doras = [_set(any_office, f"d{n}") for n in range(4)]
    stans = [_set(any_office, f"s{n}", person="stan") for n in range(2)]
    with _Held(any_office):
        _approved(any_office, *doras, *stans)
        any_office.work()
    assert _taken(any_office) == ["d0", "s0", "d1", "s1", "d2", "d3"]


def test_broken_glass_is_next_at_its_host(any_office: Office):
    doras = [_set(any_office, f"d{n}") for n in range(3)]
    urgent = _set(any_office, "burning", person="stan")
    with _Held(any_office):
        _approved(any_office, *doras, urgent)
        any_office.work()
        _broken(any_office, urgent)
        with any_office.database.reading() as tx:
            [line] = locks.list_queues(tx).values()
        assert [run.id for run in line] == [urgent.id, *[run.id for run in doras]]
    assert _taken(any_office)[0] == "burning"


def test_a_host_that_was_just_freed_is_not_taken_from_under_broken_glass(any_office: Office):
    """Whoever comes by meanwhile waits for it, and says so."""
    first, urgent = _set(any_office, "first"), _set(any_office, "burning", person="stan")
    _approved(any_office, first, urgent)
    _broken(any_office, urgent)
    any_office.queue.waiting[:] = [first.id]
    any_office.work()
    waiting = any_office.run(first.id)
    assert waiting.state is State.QUEUED
    assert waiting.summary == f"waits for break-glass run {urgent.id}"
    any_office.queue.waiting.append(urgent.id)
    any_office.work()
    assert _taken(any_office) == ["burning", "first"]


def test_the_parts_of_a_wave_wait_for_what_one_person_waits_for(any_office: Office):
    alone = _set(any_office, "alone")
    part = _set(any_office, "part")
    with any_office.database.transaction() as tx:
        tx.sql.execute(
            update(tables.run).where(tables.run.c.id == part.id).values(parent=alone.id)
        )
        assert priority.get_turn(tx, part.id) == priority.Turn(priority.BULK, "dora")
        assert priority.get_turn(tx, alone.id) == priority.Turn(priority.DIRECT, "dora")
        assert priority.get_next_run(tx, "lb1") is None
    _approved(any_office, alone)
    with any_office.database.reading() as tx:
        assert priority.get_next_run(tx, "lb1") == alone.id


def test_at_a_host_too_a_wave_does_not_wait_for_good(office: Office):
    for n in range(7):
        office.approve(_set(office, f"before{n}"))
    alone, part = _set(office, "alone"), _set(office, "part")
    with office.database.transaction() as tx:
        of = tables.run.c
        tx.sql.execute(update(tables.run).where(of.id == part.id).values(parent=alone.id))
        for run in (alone, part):
            runs.move_run(tx, runs.get_run(tx, run.id), State.QUEUED)
        assert priority.get_next_run(tx, "lb1") == part.id
        # One of them was among the last seven.
        tx.sql.execute(update(tables.run).where(of.id == 3).values(parent=alone.id))
        assert priority.get_next_run(tx, "lb1") == alone.id


def test_what_a_person_has_asked_for_long_ago_is_not_held_against_others(office: Office):
    """Whoever has not had the host of late comes before who has."""
    for name in ("a", "b"):
        office.approve(_set(office, name))
    doras, stans = _set(office, "d"), _set(office, "s", person="stan")
    with office.database.transaction() as tx:
        for run in (doras, stans):
            runs.move_run(tx, runs.get_run(tx, run.id), State.QUEUED)
        assert priority.get_next_run(tx, "lb1") == stans.id
