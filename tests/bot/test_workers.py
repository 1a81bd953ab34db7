"""Workers are killed, stopped and started: each request is executed once."""

import os
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import pytest

from bot.app import Foundation
from bot.audit import change_log, events
from bot.db import runs
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from runbooks import load_catalogue
from tests.cli_process import Running
from tests.playground import sample_company
from tests.playground.fleet import PLACES, LoopbackFleet
from tests.playground.postgres import Postgres
from tests.playground.replicas import Replicas, end

# Processes take their time to start where many do.
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WEB = RequestOrigin("web")
ABUSERS = [f"203.0.113.{number}" for number in range(1, 8)]


@dataclass
class Installation:
    replicas: Replicas
    fleet: LoopbackFleet
    here: Foundation
    workers: list[Running] = field(default_factory=list[Running])

    def start_two_workers(self) -> list[Running]:
        """Return two workers; of those that run already, none is started again."""
        running = [one for one in self.workers if not one.is_over]
        self.workers = running + self.replicas.workers(2 - len(running))
        return self.workers

    def request_plan(self, abuser: str) -> Run:
        """Request that an abuser is cleared, and wait for the plan."""
        self.fleet.haproxy.abuse(abuser)
        runbook = load_catalogue()["abusers clear"].model_validate(
            {"host": "lb1", "address": abuser}
        )
        asked = self.here.service.request_run(runbook, RequestTerms("dora", WEB))
        return self.wait_until(asked.id, lambda run: run.state is State.PENDING)

    def approve(self, run: Run) -> None:
        self.here.service.approve_run(run.id, person="olga", digest=run.digest)

    def wait_until_ended(self, run: Run) -> Run:
        return self.wait_until(run.id, lambda run: run.is_ended or run.state is State.UNKNOWN)

    def wait_until(self, number: int, true: Callable[[Run], bool], seconds: float = 75) -> Run:
        """Wait until a run is so, doing meanwhile what the clock of a replica does."""
        deadline = time.monotonic() + seconds
        ticked = 0.0
        while True:
            if time.monotonic() - ticked > 2:
                self.here.service.advancer.recover_expired_leases()
                self.here.service.advancer.wake_stalled_runs()
                ticked = time.monotonic()
            with self.here.database.reading() as tx:
                run = runs.get_run(tx, number)
            if true(run):
                return run
            assert time.monotonic() < deadline, f"run {number} is {run.state}: {run.summary}"
            time.sleep(0.05)

    def list_entry_kinds(self, run: Run) -> list[str]:
        with self.here.database.reading() as tx:
            return [entry.kind for entry in change_log.list_entries_of_run(tx, run.id)]

    def worker_of(self, run: Run, among: list[Running]) -> Running:
        """Return the worker that claimed a run last."""
        with self.here.database.reading() as tx:
            entries = change_log.list_entries_of_run(tx, run.id, [events.Claimed.kind])
        name = entries[-1].facts["worker"]
        (worker,) = [one for one in among if f" {one.pid} " in name]
        return worker


@pytest.fixture(scope="module")
def installation(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres
) -> Generator[Installation]:
    """One installation for all tests: to start processes takes longer than any test."""
    tmp_path = tmp_path_factory.mktemp("installation")
    sample_company.create_policy(tmp_path / "policy")
    with (
        LoopbackFleet(tmp_path / "policy", places=PLACES[:1]) as fleet,
        Replicas(tmp_path, postgres.new_database()) as replicas,
    ):
        here = replicas.foundation()
        yield Installation(replicas, fleet, here)
        here.database.close()


def test_run_of_a_killed_worker_is_taken_over_and_sent_once(installation: Installation):
    workers = installation.start_two_workers()
    run = installation.request_plan(ABUSERS[0])
    # The host answers nobody for a while, so that a worker is killed while it reads.
    with _silent(installation.fleet):
        installation.approve(run)
        installation.wait_until(run.id, lambda run: run.state is State.STARTING)
        killed = installation.worker_of(run, workers)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        installation.wait_until(
            run.id, lambda _: "lease taken over" in installation.list_entry_kinds(run)
        )
    done = installation.wait_until_ended(run)
    assert done.state is State.SUCCEEDED, done.summary
    assert installation.list_entry_kinds(run).count("step sending") == 1
    assert installation.worker_of(run, workers) is not killed


def test_sigterm_to_a_worker_loses_no_run(installation: Installation):
    first, second = installation.start_two_workers()
    planned = [installation.request_plan(abuser) for abuser in ABUSERS[1:]]
    for run in planned:
        installation.approve(run)
    began = time.monotonic()
    assert end(first) == 0
    assert time.monotonic() - began < 30
    done = [installation.wait_until_ended(run) for run in planned]
    assert [run.state for run in done] == [State.SUCCEEDED] * len(done), [r.summary for r in done]
    assert [installation.list_entry_kinds(run).count("step sending") for run in done] == [1] * len(
        done
    )
    assert end(second) == 0


def test_two_servers_share_a_database_and_end_cleanly_on_sigterm(installation: Installation):
    replicas = installation.replicas.serving(2)
    with installation.here.database.reading() as tx:
        kinds = [entry.kind for entry in change_log.list_entries_after(tx, 0)]
    assert kinds.count("key") == 1
    assert kinds.count("policy changed") <= 1
    for replica in replicas:
        assert end(replica) in {0, -signal.SIGTERM}


class _silent:  # noqa: N801 - read as a word in `with`
    """Stops the balancer of a fleet for as long as the block lasts."""

    def __init__(self, fleet: LoopbackFleet) -> None:
        self._pid = fleet.haproxy.pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)
