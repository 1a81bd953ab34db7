"""Several processes that serve and work, under load: they are killed, and their database fails.

KEYTURN_CHAOS=1000 has 100 of them killed, PostgreSQL restarted 20 times and replaced ten times
(`make chaos`); `make test` has one of each.
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
from tests.chaos.crowd import Crowd, People
from tests.chaos.ledger import Toll
from tests.chaos.report import NAME, Record
from tests.playground.cluster import FAST, IMMEDIATE, Cluster

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
SHARES = 2
SEED = int(os.environ.get("KEYTURN_SEED", "0")) or secrets.randbelow(10**6)
# Between two faults, so that there is something to be lost; a start takes about a second.
PAUSE = (0.3, 2.0)
# Seconds until work goes on after the database is back, at the latest.
RECOVERED = 30.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(0 if CHAOS else 300)]


@dataclass
class Campaign:
    """Does one thing after the other to a crowd under load. slowest: seconds until it worked."""

    cluster: Cluster
    crowd: Crowd
    people: People
    slowest: float = 0.0

    def kill(self) -> None:
        self.crowd.kill()

    def kill_one_that_serves(self) -> None:
        self.crowd.kill("serve")

    def kill_one_that_works(self) -> None:
        self.crowd.kill("worker")

    def restart(self) -> None:
        self._recovers(partial(self.cluster.restart, FAST))

    def crash(self) -> None:
        self._recovers(partial(self.cluster.restart, IMMEDIATE))

    def fail_over(self) -> None:
        self.fail_over_for_good()
        self.cluster.stand_by()

    def fail_over_for_good(self) -> None:
        self._recovers(self.cluster.fail_over)

    def _recovers(self, fault: Callable[[], None]) -> None:
        """Have the database away, and wait until something is brought to its end again."""
        fault()
        began, before = time.monotonic(), self.people.ended
        while self.people.ended == before:
            waited = time.monotonic() - began
            assert waited < RECOVERED, "nobody works, though the database is back"
            time.sleep(0.02)
        self.slowest = max(self.slowest, time.monotonic() - began)


Fault = Callable[[Campaign], None]


def campaign(
    directory: Path, faults: Sequence[Fault], *, each: int, seed: int
) -> tuple[Toll, str]:
    """Return what it came to, and how fast it was. each: processes that serve, and workers."""
    standby = bool({Campaign.fail_over, Campaign.fail_over_for_good} & {*faults})
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(standby=standby))
        url = cluster.new_database()
        crowd = Crowd(directory, url, serving=each, workers=each, seed=seed)
        stack.enter_context(crowd)
        people = People(crowd)
        with people:
            under_way = Campaign(cluster, crowd, people)
            for fault in faults:
                time.sleep(crowd.chance.uniform(*PAUSE))
                fault(under_way)
                died = crowd.revive()
                assert not died, f"seed {seed}: {died}"
            crowd.all_work()
        toll = crowd.counted(people, faults=len(faults))
    waited = f"; work went on after {under_way.slowest:.1f} s at most" if under_way.slowest else ""
    return toll, waited


def _held(
    what: str,
    faults: Sequence[Fault],
    each: int,
    directory: Path,
    report: Record,
    *,
    share: int = 0,
) -> None:
    seed = SEED + share
    toll, waited = campaign(directory, faults, each=each, seed=seed)
    report(NAME, f"{what}, seed {seed}: {toll}{waited}")
    assert not toll.wrong, f"seed {seed}: {toll}: {toll.wrong}"
    assert toll.ends[State.SUCCEEDED]


@pytest.mark.skipif(bool(CHAOS), reason="the long ones are below")
def test_nothing_is_lost_or_done_twice_when_processes_are_killed(
    tmp_path: Path, record_property: Record
):
    """One of each: processes, a crash of PostgreSQL, and a failover."""
    faults = [
        Campaign.kill_one_that_works,
        Campaign.kill_one_that_serves,
        Campaign.crash,
        Campaign.fail_over_for_good,
    ]
    _held("one fault of each kind", faults, 2, tmp_path, record_property)


@pytest.mark.skipif(not CHAOS, reason="make chaos kills many times")
@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_is_lost_when_servers_workers_and_schedulers_are_killed(
    tmp_path: Path, record_property: Record, share: int
):
    faults = [Campaign.kill] * max(1, CHAOS // 10 // SHARES)
    _held(
        "kill -9 of 3 that serve and 3 that work",
        faults,
        3,
        tmp_path,
        record_property,
        share=share,
    )


@pytest.mark.skipif(not CHAOS, reason="make chaos restarts PostgreSQL many times")
def test_nothing_is_lost_when_postgresql_restarts_under_load(
    tmp_path: Path, record_property: Record
):
    faults = [Campaign.restart, Campaign.crash] * max(1, CHAOS // 100)
    _held("PostgreSQL restarts, half as after a crash", faults, 2, tmp_path, record_property)


@pytest.mark.skipif(not CHAOS, reason="make chaos replaces PostgreSQL many times")
def test_nothing_is_lost_when_postgresql_fails_over_under_load(
    tmp_path: Path, record_property: Record
):
    faults = [Campaign.fail_over] * max(1, CHAOS // 100)
    _held("failovers to a synchronous standby", faults, 2, tmp_path, record_property)
