"""Three processes on one database, in which people approve and schedules fire at once.

Each request is one run, each run is begun by one of them, and each tick fires once.
KEYTURN_CHAOS=1000 tries so many (`make chaos`).
"""

import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sqlalchemy import update

from bot.db import runs, search, tables
from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.runs import ConcurrentUpdateError
from bot.features import load_hooks
from bot.features.schedules import rows as schedules
from bot.features.schedules import runner
from bot.model import signing
from bot.model.errors import TooLate
from bot.model.run import RequestTerms, State
from bot.model.schedule import FireOutcome, Overlap, ScheduleTiming, parse_cron
from bot.policy import PolicyDirectory
from bot.service import KeyturnService
from bot.workflow import approvals
from bot.workflow.context import WorkflowContext
from connectors.command import NO_HOOKS, Answer, Command, RunHooks
from tests.bot.clock import MINUTE
from tests.bot.databases import add_schema
from tests.bot.harness import WEB, ManualDispatcher
from tests.campaigns import CHAOS
from tests.chaos.report import NAME, Record
from tests.playground.postgres import Postgres
from tests.policies import write_policy
from tests.processes import get_fork_context
from tests.toy import RUNBOOKS, SetSwitch, ToyFleet

# Half of them take one approval, and half of them two.
RACES = CHAOS // 2 or 6
TOGETHER = 60
REPLICAS = 3
# Who clicks in one of them: somebody twice.
FIRST = ("olga", "olga")
# Fires of one schedule that wait for each other; one clock is killed so often.
TICKS, KILLED_EVERY = 10, 8
_HOUR = 60 * MINUTE
SEED = int(os.environ.get("KEYTURN_SEED", "0")) or secrets.randbelow(10**6)

RULES = """
@id("approve") permit (principal, action in [Action::"approve", Action::"view"], resource);
@id("ask") @approvals("{}") @from("owners")
permit (principal, action == Action::"request", resource);
"""


@dataclass(frozen=True)
class Ledger:
    """What was done, by whichever process: each line is written at once, behind all others."""

    file: Path

    def note(self, what: str) -> None:
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, f"{what}\n".encode())
        finally:
            os.close(descriptor)

    @property
    def counted(self) -> Counter[str]:
        return Counter(self.file.read_text().split("\n"))


@dataclass
class LedgerFleet(ToyFleet):
    ledger: Ledger | None = None

    def run_command(
        self,
        host: str,
        command: Command,
        /,
        *,
        fingerprint: str = "",
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        assert self.ledger
        self.ledger.note(f"sent {command}")
        return super().run_command(host, command, fingerprint=fingerprint, hooks=hooks)


@dataclass
class Noted(ManualDispatcher):
    """A dispatcher that notes what is put to work."""

    ledger: Ledger | None = None

    def enqueue_run(self, tx: Transaction, run_id: int, site: str) -> None:
        assert self.ledger
        note = self.ledger.note
        tx.after_commit(lambda: note(f"enqueued {run_id}"))
        super().enqueue_run(tx, run_id, site)

    look = enqueue_run


@dataclass(frozen=True)
class Place:
    """Where the processes meet."""

    url: str
    directory: Path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.directory / "ledger")

    def service(self) -> tuple[KeyturnService, LedgerFleet, Noted, Database]:
        # A machine that is busy is no database that hangs: who is first may take its time.
        key = signing.load_signing_key(self.directory / "key")
        database = Database(self.url, key, patience=TOGETHER)
        policies = PolicyDirectory(self.directory / "policy")
        fleet, queue = LedgerFleet(ledger=self.ledger), Noted(ledger=self.ledger)
        context = WorkflowContext(
            database, policies, fleet, queue, runbooks=RUNBOOKS, hooks=load_hooks()
        )
        return (
            KeyturnService(context),
            fleet,
            queue,
            database,
        )


def approve_and_advance(
    place: Place, people: Sequence[str], races: Sequence[tuple[int, str]], together: Barrier
) -> None:
    """Be one replica: approve each run as these people, and work on it at once.

    people: who clicks here, in order, somebody perhaps twice.
    """
    service, fleet, queue, database = place.service()
    for number, digest in races:
        fleet.hosts["lb1"]["lamp"] = "off"
        together.wait(TOGETHER)
        for person in people:
            with suppress(TooLate, ConcurrentUpdateError):
                service.approve_run(number, person=person, digest=digest)
                place.ledger.note(f"approved {number}")
        # As nudge() does in every replica, whoever was told of it.
        service.advancer.advance_run(number)
        while queue.enqueued:
            service.advancer.advance_run(queue.enqueued.pop(0))
    database.close()


def advance_all_runs(
    place: Place, people: Sequence[str], races: Sequence[tuple[int, str]], together: Barrier
) -> None:
    """Be one replica that is told, as all others are, of a run that may begin."""
    service, fleet, queue, database = place.service()
    for number, digest in races:
        # Whoever is still at the last one would take this one up, too, as things stand there.
        together.wait(TOGETHER)
        fleet.hosts["lb1"]["lamp"] = "off"
        if people == FIRST:
            service.approve_run(number, person="olga", digest=digest)
            queue.enqueued.clear()
        together.wait(TOGETHER)
        service.advancer.advance_run(number)
        while queue.enqueued:
            service.advancer.advance_run(queue.enqueued.pop(0))
    database.close()


def run_clock(place: Place) -> None:
    """Be one clock, for as long as it is let live."""
    service, _, _, _ = place.service()
    while True:
        # As the clock does, which looks again later.
        with suppress(StoreUnavailable):
            service.bind(runner.fire_due_schedules)


def approve_without_check(
    place: Place, people: Sequence[str], races: Sequence[tuple[int, str]], together: Barrier
) -> None:
    """Be one where nobody looks whether it was decided before."""
    approvals.check_is_pending = _do_nothing  # in a process of its own
    runs.check_transition = _do_nothing
    approve_and_advance(place, people, races, together)


def _do_nothing(*_: object) -> None: ...


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'keyturn.db'}"
    else:
        server: Postgres = request.getfixturevalue("postgres")
        url = server.new_database()
    return Place(url, tmp_path)


Replica = Callable[[Place, Sequence[str], Sequence[tuple[int, str]], Barrier], None]


def _add_requests(place: Place, needed: int, times: int) -> list[tuple[int, str]]:
    """Ask for so many, and return their numbers with their digests."""
    write_policy(place.directory / "policy", rules=RULES.format(needed))
    service, _, queue, database = place.service()
    add_schema(database)
    races: list[tuple[int, str]] = []
    for n in range(times):
        wanted = SetSwitch(host="lb1", name="lamp", value=f"v{n}")
        service.advancer.advance_run(service.request_run(wanted, RequestTerms("dora", WEB)).id)
        with database.reading() as tx:
            run = runs.get_run(tx, n + 1)
        assert run.state is State.PENDING
        races.append((run.id, run.digest))
    queue.enqueued.clear()
    place.ledger.file.unlink()
    database.close()
    return races


def _race_replicas(
    place: Place, races: Sequence[tuple[int, str]], replica: Replica = approve_and_advance
) -> list[int]:
    """Have three processes at them at once, and return their numbers."""
    several = get_fork_context()
    together = several.Barrier(REPLICAS)
    replicas = [
        several.Process(target=replica, args=(place, people, races, together))
        for people in (FIRST, ("adam",), ("olga", "adam"))
    ]
    for process in replicas:
        process.start()
    for process in replicas:
        process.join(TOGETHER + len(races))
    assert [process.exitcode for process in replicas] == [0] * REPLICAS
    return [number for number, _ in races]


def _are_all_succeeded(place: Place, numbers: Sequence[int]) -> bool:
    database = Database(place.url)
    with database.reading() as tx:
        states = {runs.get_run(tx, number).state for number in numbers}
    database.close()
    return states == {State.SUCCEEDED}


def _describe_result(what: str, races: int) -> str:
    # Nothing seen in n tries happens with 95 % certainty less often than in 3 of n.
    sure = f"with 95 % certainty fewer than {300 / races:.2g} % go wrong"
    return f"{races} races of {REPLICAS} processes {what}: each had one winner; {sure}"


@pytest.mark.timeout(0 if CHAOS else 120)
@pytest.mark.parametrize("needed", [1, 2])
def test_each_request_is_one_run_when_processes_race(
    place: Place, needed: int, record_property: Record
):
    numbers = _race_replicas(place, _add_requests(place, needed, RACES))
    done = place.ledger.counted
    for n, number in enumerate(numbers):
        counts = (
            done[f"approved {number}"],
            done[f"enqueued {number}"],
            done[f"sent set lamp v{n}"],
        )
        assert counts == (needed, 1, 1), f"run {number}"
    assert _are_all_succeeded(place, numbers)
    record_property(
        NAME, _describe_result(f"to approve, {needed} needed, {_name_database(place)}", RACES)
    )


@pytest.mark.timeout(0 if CHAOS else 120)
def test_run_is_started_by_one_process_when_several_are_notified(
    place: Place, record_property: Record
):
    times = CHAOS or RACES
    numbers = _race_replicas(place, _add_requests(place, 1, times), advance_all_runs)
    done = place.ledger.counted
    assert [done[f"sent set lamp v{n}"] for n in range(times)] == [1] * times
    assert _are_all_succeeded(place, numbers)
    record_property(NAME, _describe_result(f"to begin, {_name_database(place)}", times))


@pytest.mark.timeout(0 if CHAOS else 120)
def test_due_time_fires_once_while_scheduler_processes_are_killed(
    place: Place, record_property: Record
):
    chance = random.Random(SEED)  # noqa: S311 - no secret
    times = CHAOS // TICKS * TICKS or TICKS
    write_policy(place.directory / "policy", rules=RULES.format(1))
    service, fleet, _, database = place.service()
    add_schema(database)
    done, kills = 0, 0
    with _run_clocks(place) as clocks:
        for _ in range(times // TICKS):
            founded = _add_overdue_schedule(service, database)
            under_way: set[int] = set()
            wanted, moved = done + TICKS, time.monotonic()
            while done < wanted:
                for _ in _finish_runs(service, database, under_way):
                    fleet.hosts["lb1"]["lamp"] = "off"
                    done, moved = done + 1, time.monotonic()
                    if chance.randrange(KILLED_EVERY) == 0:
                        kills += 1
                        _kill_clock(clocks.pop(chance.randrange(REPLICAS)))
                        clocks.append(_start_clock(place))
                waited = f"{done} of {wanted} fires, seed {SEED}, under way: {under_way}"
                assert time.monotonic() - moved < TOGETHER, waited
            with database.reading() as tx:
                fires = schedules.list_fires(tx, founded, most=2 * TICKS)
            assert [fire.outcome for fire in fires] == [FireOutcome.FIRED] * TICKS, f"seed {SEED}"
            assert len({fire.run for fire in fires}) == TICKS
    with database.reading() as tx:
        known = search.find_newest_runs(tx, search.RunFilter(), most=10 * times)
    database.close()
    fired = [run.state for run in known if run.origin.source == "schedule"]
    assert (len(fired), {*fired}) == (times, {State.SUCCEEDED})
    assert place.ledger.counted["sent set lamp on"] == times
    what = f"to fire, {_name_database(place)}, {kills} of them killed, seed {SEED}"
    record_property(NAME, _describe_result(what, times))


@contextmanager
def _run_clocks(place: Place) -> Generator[list[ForkServerProcess]]:
    """Have three of them tick; whoever kills one puts another in its place."""
    clocks = [_start_clock(place) for _ in range(REPLICAS)]
    try:
        yield clocks
    finally:
        # A try that fails leaves none to the next one, which would get no turn beside them.
        for clock in clocks:
            _kill_clock(clock)


def _start_clock(place: Place) -> ForkServerProcess:
    clock = get_fork_context().Process(target=run_clock, args=(place,), daemon=True)
    clock.start()
    return clock


def _kill_clock(clock: ForkServerProcess) -> None:
    clock.kill()
    clock.join()


def _finish_runs(service: KeyturnService, database: Database, under_way: set[int]) -> list[int]:
    """Bring all runs as far as they go; return those that came to their end.

    under_way: which did not, where the database was too busy for that. One whose end nobody saw
    is among them, though nobody has to work on it: its host is asked.
    """
    with suppress(StoreUnavailable):
        with database.reading() as tx:
            under_way.update(run.id for run in runs.list_unfinished(tx))
        for number in under_way:
            service.advancer.advance_run(number)
        # As the clock does: what rests until the database is back is taken up again.
        service.advancer.wake_stalled_runs()
        with database.reading() as tx:
            over = [number for number in under_way if runs.get_run(tx, number).is_ended]
        under_way.difference_update(over)
        return over
    return []


def _add_overdue_schedule(service: KeyturnService, database: Database) -> int:
    """Have a schedule approved that was due in each of the last hours; return its number."""
    with database.reading() as tx:
        hour = tx.now // _HOUR * _HOUR
    then = [hour - n * _HOUR for n in range(1, TICKS + 1)]
    at = sorted(datetime.fromtimestamp(moment // 1_000_000, UTC).hour for moment in then)
    hours = parse_cron(f"0 {','.join(map(str, at))} * * *", "UTC")
    timing = ScheduleTiming("tick", hours, overlap=Overlap.QUEUE, catch_up=TICKS)
    lamp = SetSwitch(host="lb1", name="lamp", value="on")
    run = service.request_on_hosts(
        [lamp], RequestTerms("dora", WEB, timing=timing), host_pattern=""
    )
    service.advancer.advance_run(run.id)
    with database.reading() as tx:
        run = runs.get_run(tx, run.id)
    service.approve_run(run.id, person="olga", digest=run.digest)
    service.advancer.advance_run(run.id)
    with database.transaction() as tx:
        newest = max(schedule.id for schedule in schedules.list_schedules(tx))
        since = then[-1] - 1
        tx.sql.execute(
            update(tables.schedule)
            .where(tables.schedule.c.id == newest)
            .values(decided_until=since, due_at=since + 1)
        )
    return newest


def _name_database(place: Place) -> str:
    return "SQLite" if place.url.startswith("sqlite") else "PostgreSQL"


def test_without_the_pending_check_a_run_is_enqueued_twice(place: Place):
    """The twin."""
    numbers = _race_replicas(place, _add_requests(place, 1, 3), approve_without_check)
    done = place.ledger.counted
    assert max(done[f"enqueued {number}"] for number in numbers) > 1
