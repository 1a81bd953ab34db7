"""kill -9 at any moment: nothing is done twice, nothing is lost, and nothing waits for people.

KEYTURN_CHAOS=1000 kills 200 times on either storage (`make chaos`).
"""

import os
import random
import secrets
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bot.audit import verification
from bot.model.plan import PlannedStep, ResolvedPlan
from bot.model.run import RequestOrigin, Run, State, StepRecord, StepState
from connectors.command import Shell
from tests.chaos import victim
from tests.chaos.ledger import PARTS, Toll, judged
from tests.chaos.report import NAME, Record
from tests.chaos.tracing import live
from tests.chaos.victim import Home
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.postgres import Postgres
from tests.policies import a_policy
from tests.processes import get_fork_context

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
SHARES = 4 if CHAOS else 1
KILLS = (CHAOS // 5 or 10) // SHARES
SEED = int(os.environ.get("KEYTURN_SEED", "0")) or secrets.randbelow(10**6)
PLACES = (Place("lb1", "edge"), Place("lb2", "edge"))
# Any moment of a run may be the last. Every fifth life ends earlier still, while it takes up what
# the one before has left.
LONGEST_START = 1.0
# By how much lives become longer while none gets anything done, as on a machine that is busy; and
# shorter again.
_LONGER = 1.2


@pytest.fixture
def home(tmp_path: Path) -> Generator[tuple[Home, LoopbackFleet]]:
    a_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=PLACES) as fleet:
        yield Home(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}"), fleet


def campaign(home: Home, fleet: LoopbackFleet, *, kills: int, seed: int) -> Toll:
    """Kill again and again, let the last one come to an end, and count."""
    chance, several = random.Random(seed), get_fork_context()  # noqa: S311 - no secret
    began = time.monotonic()
    assert live(home, seed, patience=60) == 0
    shortest = longest = time.monotonic() - began
    written = len(_lines(fleet))
    for n in range(kills):
        begun = several.Event()
        process = several.Process(target=victim.live, args=(home, seed * 100_000 + n, begun))
        process.start()
        if n % 5:
            assert begun.wait(60), f"seed {seed}"
            process.join(chance.uniform(0, longest))
        else:
            process.join(chance.uniform(0, LONGEST_START))
        assert process.is_alive(), f"it ended by itself with {process.exitcode}, seed {seed}"
        process.kill()
        process.join()
        before, written = written, len(_lines(fleet))
        longest = max(shortest, longest / _LONGER if written > before else longest * _LONGER)
    process = several.Process(target=victim.finish, args=(home,))
    process.start()
    process.join(90)
    assert process.exitcode == 0, f"seed {seed}"
    return counted(home, fleet, faults=kills)


def counted(home: Home, fleet: LoopbackFleet, *, faults: int) -> Toll:
    database = home.database()
    known = victim.everything(database)
    steps = victim.records(database, known)
    with database.reading() as tx:
        verdict = verification.verify_log(tx)
    database.close()
    assert verdict.broken is None, verdict.why
    acks = home.acks.read_text().split() if home.acks.exists() else []
    return judged(
        _lines(fleet), {run.id: run for run in known}, steps, [*map(int, acks)], faults=faults
    )


def _lines(fleet: LoopbackFleet) -> list[str]:
    ledgers = [host.home / "ledger" for host in fleet.hosts.values()]
    return [line for file in ledgers if file.exists() for line in file.read_text().splitlines()]


@pytest.mark.real
@pytest.mark.timeout(0 if CHAOS else 300)
@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_is_lost_or_done_twice_when_a_process_is_killed_at_any_time(
    home: tuple[Home, LoopbackFleet], share: int, record_property: Record
):
    toll = campaign(*home, kills=KILLS, seed=SEED + share)
    record_property(NAME, f"kill -9 on SQLite, seed {SEED + share}: {toll}")
    assert not toll.wrong, f"seed {SEED + share}: {toll}: {toll.wrong}"
    assert toll.lines


@pytest.mark.real
@pytest.mark.skipif(not CHAOS, reason="make chaos kills on PostgreSQL too")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_is_lost_or_done_twice_when_a_process_is_killed_on_postgresql(
    tmp_path: Path, share: int, record_property: Record
):
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        a_policy(tmp_path / "policy")
        fleet = stack.enter_context(LoopbackFleet(tmp_path / "policy", places=PLACES))
        home = Home(tmp_path, server.new_database())
        toll = campaign(home, fleet, kills=KILLS, seed=SEED + share)
        record_property(NAME, f"kill -9 on PostgreSQL, seed {SEED + share}: {toll}")
        assert not toll.wrong, f"seed {SEED + share}: {toll}: {toll.wrong}"
        assert toll.lines


# --- the oracle finds what it is there for ---


def _run(state: State) -> Run:
    steps = [
        PlannedStep(part, "lb1", "", Shell(("write", "n", part)), None, "no") for part in PARTS
    ]
    proposal = ResolvedPlan("ledger write", "1", {}, "dora", 0, "1", "", steps)
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
        plan=proposal,
    )


@pytest.mark.parametrize(
    ("lines", "state", "one", "two", "what"),
    [
        (["n one", "n two"], State.SUCCEEDED, "succeeded", "succeeded", None),
        (["n one"], State.STOPPED, "succeeded", None, None),
        (["n one"], State.FAILED, "succeeded", "failed", None),
        (["n one", "n one"], State.STOPPED, "succeeded", None, "duplicated"),
        (["n one", "n two"], State.STOPPED, "succeeded", None, "unrecorded"),
        (["n one"], State.SUCCEEDED, "succeeded", "succeeded", "lost"),
        (["n one", "n two"], State.FAILED, "succeeded", "failed", "lost"),
        (["n one"], State.UNKNOWN, "succeeded", "unknown", "hanging"),
    ],
)
def test_the_ledger_tells_what_is_not_as_keyturn_says(
    lines: list[str], state: State, one: str, two: str | None, what: str | None
):
    wrong = [each for each in (one, two) if each]
    steps = [StepRecord(7, n, StepState(each), 0) for n, each in enumerate(wrong, start=1)]
    toll = judged(lines, {7: _run(state)}, {7: steps}, [7], faults=1)
    columns = {
        name for name in ("duplicated", "unrecorded", "lost", "hanging") if getattr(toll, name)
    }
    assert columns == ({what} if what else set())


def test_a_request_that_was_accepted_and_is_not_there_is_lost():
    assert judged([], {}, {}, [8], faults=1).lost == ["request 8"]
