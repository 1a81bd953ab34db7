"""A long queue: urgent runs go first, people take turns, and memory stays flat.

`make chaos` queues 1,000 runs at 50 hosts, `make test` 120 at 10.
"""

import os
import statistics
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from sqlalchemy import func, select

from bot.db import tables
from bot.db.database import StoreUnavailable
from bot.execution.local_dispatch import LocalDispatcher
from bot.model.run import RequestOrigin, RequestTerms, Run
from bot.policy import PolicyDirectory
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import Query
from runbooks import AnyRunbook
from tests.bot.authenticator_app import AuthenticatorApp, enrol_and_step_up
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, ManualDispatcher
from tests.campaigns import CHAOS
from tests.chaos.report import NAME, Record
from tests.policies import HOST_KEY, write_policy
from tests.toy import RUNBOOKS, SetSwitch, ShowSwitches, T, ToyFleet

RUNS, HOSTS, PEOPLE = (CHAOS or 120), (50 if CHAOS else 10), 10
THREADS, ROOT = 8, "web1"
# The limit for the 99th percentile of the wait of an urgent run, which is longer where all tests
# run at once; and for the growth of memory.
MAX_WAIT_SECONDS, MAX_GROWTH_MIB = 2.0 if CHAOS else 4.0, 100
# The number of urgent runs, and the seconds between two of them.
URGENT_RUNS, PAUSE = (100, 0.5) if CHAOS else (5, 0.05)
# Seconds after which the second factor is shown again: less than it is valid.
STEP_UP_SECONDS = 200
PATIENCE = 3600 if CHAOS else 120


class SlowFleet(ToyFleet):
    """Hosts that are slow to answer, and do not answer at all until `may_answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()

    def run_query(self, host: str, query: Query[T], /) -> T:
        if host != ROOT:
            assert self.may_answer.wait(PATIENCE)
            time.sleep(0.005)
        return super().run_query(host, query)


@dataclass
class LongQueue:
    """A service with dispatcher threads, and queued runs of many people.

    waits: the seconds until each measured run ended, by kind.
    """

    harness: Harness
    fleet: SlowFleet
    dispatcher: LocalDispatcher
    waits: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def fill(self) -> None:
        """Request half of the runs for one person, and then the rest for the others."""
        half = RUNS // 2
        for n in range(RUNS):
            person = "p0" if n < half else f"p{1 + n % (PEOPLE - 1)}"
            switch = SetSwitch(host=f"h{n % HOSTS}", name=f"s{n // HOSTS}", value="on")
            self.request_run(switch, person)

    def request_run(self, runbook: AnyRunbook, person: str) -> Run:
        return self.harness.service.request_run(
            runbook, RequestTerms(person, RequestOrigin("web"))
        )

    def measure_wait(self, run: Run, since: float, kind: str) -> None:
        """Wait until *run* has ended, and record how long that took."""
        self.wait_until(lambda: self.harness.get_run(run.id).is_ended)
        self.waits.setdefault(kind, []).append(time.monotonic() - since)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def count_unfinished_runs(self) -> int:
        with self.harness.database.reading() as tx:
            query = select(func.count()).where(tables.run.c.ended_at.is_(None))
            return tx.sql.execute(query).scalar_one()

    def list_requesters_of_ended_runs(self) -> Sequence[str]:
        """Return the requester of each ended change, in the order of their ends."""
        run = tables.run.c
        with self.harness.database.reading() as tx:
            query = select(run.requested_by).where(run.host != ROOT, run.kind == "change")
            return list(tx.sql.execute(query.order_by(run.ended_at, run.id)).scalars())


@pytest.fixture
def queue(tmp_path: Path) -> Generator[LongQueue]:
    fleet, dispatcher = SlowFleet(), LocalDispatcher(THREADS)
    for n in range(HOSTS):
        fleet.hosts[f"h{n}"] = {f"s{k}": "off" for k in range(RUNS // HOSTS + 1)}
    fleet.hosts[ROOT] = {f"s{k}": "off" for k in range(URGENT_RUNS * 100)}
    policies = _create_large_policy(tmp_path / "policy")
    context = WorkflowContext(
        create_sqlite_database(tmp_path / "keyturn.db"),
        policies,
        fleet,
        dispatcher,
        runbooks=RUNBOOKS,
        rate_limits=None,
    )
    harness = Harness(KeyturnService(context), context, fleet, ManualDispatcher(), policies)
    context.lease_keeper.start_heartbeat(harness.database)
    dispatcher.start(harness.service.advancer.advance_run)
    yield LongQueue(harness, fleet, dispatcher)
    fleet.may_answer.set()
    harness.service.close()
    assert dispatcher.stop(20)
    context.lease_keeper.end_leases(harness.database)
    harness.database.close()


def _create_large_policy(directory: Path) -> PolicyDirectory:
    """Write a policy with many people, who may change their own hosts, and many hosts."""
    policies = write_policy(directory)
    yaml = YAML(typ="safe", pure=True)
    people = yaml.load(directory / "people.yaml")
    areas = yaml.load(directory / "areas.yaml")
    inventory = yaml.load(directory / "inventory.yaml")
    names = [f"p{n}" for n in range(PEOPLE)]
    for name in names:
        people["people"][name] = {"name": name, "roles": ["administrator"]}
    areas["areas"]["many"] = {"title": "many hosts", "owners": names}
    for n in range(HOSTS):
        inventory["hosts"][f"h{n}"] = {"area": "many", "tags": [], "host_key": HOST_KEY}
    for name, content in (("people", people), ("areas", areas), ("inventory", inventory)):
        yaml.dump(content, directory / f"{name}.yaml")
    return policies


def _measure_memory() -> float:
    """Return the resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def _run_scheduler(harness: Harness) -> Generator[None]:
    """Do meanwhile what Keyturn's scheduler does every few seconds."""
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.wait(5 if CHAOS else 0.3):
            # What fails is done the next time.
            with suppress(StoreUnavailable):
                harness.service.advancer.recover_expired_leases()
                harness.service.advancer.wake_stalled_runs()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _use_break_glass(queue: LongQueue, app: AuthenticatorApp, n: int) -> None:
    """Use break-glass for a run, and measure how long it waits from then on."""
    run = queue.request_run(SetSwitch(host=ROOT, name=f"s{n}", value="on"), app.person)
    queue.wait_until(lambda: bool(queue.harness.get_run(run.id).digest))
    planned, since = queue.harness.get_run(run.id), time.monotonic()
    queue.harness.service.break_glass.activate_break_glass(
        run.id,
        person=app.person,
        session=app.session,
        digest=planned.digest,
        reason="all customers see an error page",
    )
    queue.measure_wait(run, since, "break-glass")


def _compute_p99(waits: Sequence[float]) -> float:
    return sorted(waits)[int(0.99 * (len(waits) - 1))]


@pytest.mark.timeout(0 if CHAOS else 300)
def test_long_queue_serves_urgent_runs_first_and_lets_people_take_turns(
    queue: LongQueue, record_property: Record
):
    queue.fill()
    app = enrol_and_step_up(queue.harness, "adam")
    stepped_up_at = time.monotonic()
    before = _measure_memory()
    queue.fleet.may_answer.set()
    start, highest, n = time.monotonic(), before, 0
    with _run_scheduler(queue.harness):
        while queue.count_unfinished_runs():
            if n < URGENT_RUNS:
                if time.monotonic() - stepped_up_at > STEP_UP_SECONDS:
                    app.step_up()
                    stepped_up_at = time.monotonic()
                _use_break_glass(queue, app, n)
                since = time.monotonic()
                check = queue.request_run(ShowSwitches(host="h0"), "stan")
                queue.measure_wait(check, since, "check")
                n += 1
            time.sleep(PAUSE)
            highest = max(highest, _measure_memory())
    duration = time.monotonic() - start
    ended = queue.list_requesters_of_ended_runs()
    # While everybody has runs in the queue, each person gets the same share. The runs that started
    # before the others were requested do not count.
    first = ended[THREADS : THREADS + len(ended) // 3]
    shares = [first.count(f"p{k}") for k in range(PEOPLE)]
    p99 = {kind: _compute_p99(waits) for kind, waits in queue.waits.items()}
    record_property(
        NAME,
        f"a queue of {RUNS} runs at {HOSTS} hosts in {duration:.0f} s; waits, p99: "
        + ", ".join(f"{kind} {seconds * 1000:.0f} ms" for kind, seconds in p99.items())
        + f"; memory {before:.0f} MiB, at most {highest:.0f}; shares of the first third: {shares}",
    )
    assert len(ended) == RUNS
    assert all(seconds <= MAX_WAIT_SECONDS for seconds in p99.values()), p99
    assert highest - before < MAX_GROWTH_MIB
    assert max(shares) <= 2 * statistics.mean(shares), shares
    assert min(shares) >= statistics.mean(shares) / 2, shares
