"""Servers and workers are killed under load, and their database restarts and fails over.

`make chaos` with KEYTURN_CHAOS=1000 kills 100 processes, restarts PostgreSQL 20 times and fails
over ten times; `make test` does each once.
"""

import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from bot.model.run import State
from tests.campaigns import CHAOS
from tests.chaos.host_ledger import CampaignResult
from tests.chaos.report import NAME, Record
from tests.chaos.service_group import Requesters, ServiceGroup
from tests.playground.cluster import FAST, IMMEDIATE, Cluster

SHARES = 2
SEED = int(os.environ.get("KEYTURN_SEED", "0")) or secrets.randbelow(10**6)
# Seconds between two faults, so that runs are under way; a start takes about a second.
PAUSE = (0.3, 2.0)
# Seconds after the return of the database until a run ends, at most.
RECOVERY_SECONDS = 30.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(0 if CHAOS else 300)]


@dataclass
class Campaign:
    """Faults for a group under load. slowest: the seconds of the slowest recovery."""

    cluster: Cluster
    group: ServiceGroup
    requesters: Requesters
    slowest: float = 0.0

    def kill_process(self) -> None:
        self.group.kill()

    def kill_server(self) -> None:
        self.group.kill("serve")

    def kill_worker(self) -> None:
        self.group.kill("worker")

    def restart_database(self) -> None:
        self._measure_recovery(partial(self.cluster.restart, FAST))

    def crash_database(self) -> None:
        self._measure_recovery(partial(self.cluster.restart, IMMEDIATE))

    def fail_over(self) -> None:
        self.fail_over_finally()
        self.cluster.stand_by()

    def fail_over_finally(self) -> None:
        self._measure_recovery(self.cluster.fail_over)

    def _measure_recovery(self, fault: Callable[[], None]) -> None:
        """Cause a fault of the database, and wait until a run ends again."""
        fault()
        start, before = time.monotonic(), self.requesters.ended_count
        while self.requesters.ended_count == before:
            waited = time.monotonic() - start
            assert waited < RECOVERY_SECONDS, "no run ends, though the database is back"
            time.sleep(0.02)
        self.slowest = max(self.slowest, time.monotonic() - start)


Fault = Callable[[Campaign], None]


def _run_campaign(
    directory: Path, faults: Sequence[Fault], *, size: int, seed: int
) -> tuple[CampaignResult, str]:
    """Return the result, and how fast the recovery was. size: of servers, and of workers."""
    standby = bool({Campaign.fail_over, Campaign.fail_over_finally} & {*faults})
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(standby=standby))
        url = cluster.new_database()
        group = ServiceGroup(directory, url, servers=size, workers=size, seed=seed)
        stack.enter_context(group)
        requesters = Requesters(group)
        with requesters:
            campaign = Campaign(cluster, group, requesters)
            for fault in faults:
                time.sleep(group.random.uniform(*PAUSE))
                fault(campaign)
                crashed = group.restart_ended()
                assert not crashed, f"seed {seed}: {crashed}"
            group.wait_until_all_work()
        result = group.collect_result(requesters, faults=len(faults))
    recovery = f"; work went on after {campaign.slowest:.1f} s at most" if campaign.slowest else ""
    return result, recovery


def _check_campaign(
    name: str,
    faults: Sequence[Fault],
    size: int,
    directory: Path,
    report: Record,
    *,
    share: int = 0,
) -> None:
    seed = SEED + share
    result, recovery = _run_campaign(directory, faults, size=size, seed=seed)
    report(NAME, f"{name}, seed {seed}: {result}{recovery}")
    assert not result.violations, f"seed {seed}: {result}: {result.violations}"
    assert result.run_counts[State.SUCCEEDED]


@pytest.mark.skipif(bool(CHAOS), reason="make chaos runs the longer ones below")
def test_no_run_is_lost_or_repeated_after_process_kill_crash_and_failover(
    tmp_path: Path, record_property: Record
):
    faults = [
        Campaign.kill_worker,
        Campaign.kill_server,
        Campaign.crash_database,
        Campaign.fail_over_finally,
    ]
    _check_campaign("one fault of each kind", faults, 2, tmp_path, record_property)


@pytest.mark.skipif(not CHAOS, reason="make chaos kills many times")
@pytest.mark.parametrize("share", range(SHARES))
def test_no_run_is_lost_when_servers_workers_and_schedulers_are_killed(
    tmp_path: Path, record_property: Record, share: int
):
    faults = [Campaign.kill_process] * max(1, CHAOS // 10 // SHARES)
    _check_campaign(
        "kill -9 of 3 servers and 3 workers",
        faults,
        3,
        tmp_path,
        record_property,
        share=share,
    )


@pytest.mark.skipif(not CHAOS, reason="make chaos restarts PostgreSQL many times")
def test_no_run_is_lost_when_postgresql_restarts_under_load(
    tmp_path: Path, record_property: Record
):
    faults = [Campaign.restart_database, Campaign.crash_database] * max(1, CHAOS // 100)
    _check_campaign(
        "PostgreSQL restarts, half as after a crash", faults, 2, tmp_path, record_property
    )


@pytest.mark.skipif(not CHAOS, reason="make chaos replaces PostgreSQL many times")
def test_no_run_is_lost_when_postgresql_fails_over_under_load(
    tmp_path: Path, record_property: Record
):
    faults = [Campaign.fail_over] * max(1, CHAOS // 100)
    _check_campaign("failovers to a synchronous standby", faults, 2, tmp_path, record_property)
