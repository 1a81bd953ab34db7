"""kill -9 at random moments: nothing is lost or done twice, and no run needs a person to continue.

`make chaos` with KEYTURN_CHAOS=1000 kills 200 times on SQLite and 200 times on PostgreSQL.
"""

import os
import random
import secrets
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import RequestOrigin, Run, State, StepRecord, StepState
from connectors.command import Shell
from tests.campaigns import CHAOS
from tests.chaos import killable_service
from tests.chaos.host_ledger import (
    PARTS,
    CampaignResult,
    compare_with_ledgers,
    read_ledgers,
)
from tests.chaos.killable_service import ServiceDirectory, collect_result
from tests.chaos.report import NAME, Record
from tests.chaos.traced_service import complete_one_run
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.postgres import Postgres
from tests.policies import write_policy
from tests.processes import get_fork_context

SHARES = 4 if CHAOS else 1
KILLS = (CHAOS // 5 or 10) // SHARES
SEED = int(os.environ.get("KEYTURN_SEED", "0")) or secrets.randbelow(10**6)
PLACES = (Place("lb1", "edge"), Place("lb2", "edge"))
# Processes are killed at any moment of a run, and every fifth earlier, while it recovers the runs
# of the one before.
MAX_START_SECONDS = 1.0
# By how much the time until the kill grows while no process writes to a ledger, as on a busy
# machine, and shrinks again.
_GROWTH = 1.2


@pytest.fixture
def service_and_fleet(tmp_path: Path) -> Generator[tuple[ServiceDirectory, LoopbackFleet]]:
    write_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=PLACES) as fleet:
        yield ServiceDirectory(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}"), fleet


def _run_campaign(
    directory: ServiceDirectory, fleet: LoopbackFleet, *, kills: int, seed: int
) -> CampaignResult:
    """Kill one process after the other, complete all runs, and compare them with the ledgers."""
    generator, processes = random.Random(seed), get_fork_context()  # noqa: S311 - no secret
    start = time.monotonic()
    assert complete_one_run(directory, seed, patience=60) == 0
    shortest = longest = time.monotonic() - start
    written = len(read_ledgers(fleet))
    for n in range(kills):
        started = processes.Event()
        process = processes.Process(
            target=killable_service.serve_until_killed,
            args=(directory, seed * 100_000 + n, started),
        )
        process.start()
        if n % 5:
            assert started.wait(60), f"seed {seed}"
            process.join(generator.uniform(0, longest))
        else:
            process.join(generator.uniform(0, MAX_START_SECONDS))
        assert process.is_alive(), f"it ended by itself with {process.exitcode}, seed {seed}"
        process.kill()
        process.join()
        before, written = written, len(read_ledgers(fleet))
        longest = max(shortest, longest / _GROWTH if written > before else longest * _GROWTH)
    process = processes.Process(target=killable_service.complete_all_runs, args=(directory,))
    process.start()
    process.join(90)
    assert process.exitcode == 0, f"seed {seed}"
    return collect_result(directory, fleet, faults=kills)


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 300)
@pytest.mark.parametrize("share", range(SHARES))
def test_no_run_is_lost_or_repeated_when_a_process_is_killed_at_any_time(
    service_and_fleet: tuple[ServiceDirectory, LoopbackFleet],
    share: int,
    record_property: Record,
):
    result = _run_campaign(*service_and_fleet, kills=KILLS, seed=SEED + share)
    record_property(NAME, f"kill -9 on SQLite, seed {SEED + share}: {result}")
    assert not result.violations, f"seed {SEED + share}: {result}: {result.violations}"
    assert result.lines


@pytest.mark.real
@pytest.mark.skipif(not CHAOS, reason="make chaos kills on PostgreSQL too")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("share", range(SHARES))
def test_no_run_is_lost_or_repeated_when_a_process_is_killed_on_postgresql(
    tmp_path: Path, share: int, record_property: Record
):
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        write_policy(tmp_path / "policy")
        fleet = stack.enter_context(LoopbackFleet(tmp_path / "policy", places=PLACES))
        directory = ServiceDirectory(tmp_path, server.new_database())
        result = _run_campaign(directory, fleet, kills=KILLS, seed=SEED + share)
        record_property(NAME, f"kill -9 on PostgreSQL, seed {SEED + share}: {result}")
        assert not result.violations, f"seed {SEED + share}: {result}: {result.violations}"
        assert result.lines


# --- The comparison finds each kind of violation -------------------------------------------------


def _create_run(state: State) -> Run:
    steps = [
        PlannedStep(part, "lb1", "", Shell(("write", "n", part)), None, "no") for part in PARTS
    ]
    plan = ResolvedPlan("ledger write", "1", {}, "dora", 0, "1", "", steps)
    fields = {"host": "lb1", "nonce": "n"}
    return Run(
        *(
            7,
            1,
            state,
            "ledger write",
            "change",
            fields,
            "lb1",
            "edge",
            "dora",
            RequestOrigin("api"),
            "",
        ),
        requested_at=int(time.time()),
        plan=plan,
    )


@pytest.mark.parametrize(
    ("lines", "state", "first_step", "second_step", "violation"),
    [
        (["n one", "n two"], State.SUCCEEDED, "succeeded", "succeeded", None),
        (["n one"], State.STOPPED, "succeeded", None, None),
        (["n one"], State.FAILED, "succeeded", "failed", None),
        (["n one", "n one"], State.STOPPED, "succeeded", None, "duplicated"),
        (["n one", "n two"], State.STOPPED, "succeeded", None, "unrecorded"),
        (["n one"], State.SUCCEEDED, "succeeded", "succeeded", "lost"),
        (["n one", "n two"], State.FAILED, "succeeded", "failed", "lost"),
        (["n one"], State.UNKNOWN, "succeeded", "unknown", "unfinished"),
    ],
)
def test_ledger_comparison_finds_duplicated_unrecorded_lost_and_hanging_steps(
    lines: list[str],
    state: State,
    first_step: str,
    second_step: str | None,
    violation: str | None,
):
    states = [StepState(one) for one in (first_step, second_step) if one]
    steps = [StepRecord(7, n, one, 0) for n, one in enumerate(states, start=1)]
    result = compare_with_ledgers(lines, {7: _create_run(state)}, {7: steps}, [7], faults=1)
    violations = {
        name
        for name in ("duplicated", "unrecorded", "lost", "unfinished")
        if getattr(result, name)
    }
    assert violations == ({violation} if violation else set())


def test_accepted_request_that_is_not_stored_counts_as_lost():
    assert compare_with_ledgers([], {}, {}, [8], faults=1).lost == ["request 8"]
