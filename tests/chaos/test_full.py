"""A disk that is full, or broken, at any write: nothing is sent that is not recorded before.

strace has the Nth call of a kind fail, on the files that Keyturn writes and on no others, for
N = 1, 2 … until a run comes to its end untouched: once, for a while, or from there on for good.
Afterwards there is room again, and nobody repairs anything. `make chaos` sweeps.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.chaos.report import NAME, Record
from tests.chaos.test_kills import counted
from tests.chaos.tracing import live
from tests.chaos.victim import REFUSED, Home
from tests.playground.fleet import LoopbackFleet, Place
from tests.policies import a_policy

CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
# All that writes, and what makes it durable; opening is what a full disk refuses first. Nothing is
# renamed there unless the database cannot be written.
CALLS = ("pwrite64", "fdatasync", "fsync", "write", "ftruncate", "openat")
ERRORS = ("ENOSPC", "EIO")
# Failing calls: one, a spell of them, and every one from there on, until the process ends.
SPELLS = ("{n}", "{n}..{last}", "{n}+")
_SPELL = 6
# Longer than a run takes, even one whose first tries were in vain; and how long one tries that
# cannot come to an end.
_PATIENCE, _LOST = 5, 2
MOST = 1000
# What `make test` has fail: call, error, and from which one on.
SAMPLE = (
    ("pwrite64", "ENOSPC", "9..60"),
    ("fdatasync", "EIO", "4+"),
    ("fdatasync", "EIO", "6..8"),
)


@pytest.fixture
def home(tmp_path: Path) -> Generator[tuple[Home, LoopbackFleet]]:
    a_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=(Place("lb1", "edge"),)) as fleet:
        yield Home(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}"), fleet


def life(home: Home, call: str, error: str, when: str, *, seed: int = 0) -> bool:
    """Have one run done where some calls fail; say whether any did."""
    failed = home.directory / "failed"
    paths = [word for file in home.files for word in ("-P", str(file))]
    inject = ("-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}")
    patience = _LOST if when.endswith("+") else _PATIENCE
    status = live(home, seed, patience=patience, strace=("-o", str(failed), *paths, *inject))
    assert status in {0, REFUSED}, f"{call} {error} {when}: {status}"
    return "(INJECTED)" in failed.read_text(errors="replace")


def swept(home: Home, call: str, error: str, *, seed: int) -> int:
    """Have each call of a kind fail, once, for a while or for good; return how many there were.

    seed: another one asks for other things.
    """
    for n in range(1, MOST + 1):
        when = SPELLS[n % len(SPELLS)].format(n=n, last=n + _SPELL)
        if not life(home, call, error, when, seed=seed + n):
            return n - 1
    return MOST


def _check_toll(home: tuple[Home, LoopbackFleet], times: int, what: str, record: Record) -> None:
    """Give it room again, and hold what the hosts have against what Keyturn says."""
    assert live(home[0], 0, patience=60) == 0
    toll = counted(*home, faults=times)
    record(NAME, f"a disk that fails, {what}: {toll}")
    assert not toll.wrong, f"{what}: {toll}: {toll.wrong}"
    assert toll.ends["succeeded"]


@pytest.mark.real
@pytest.mark.timeout(300)
def test_nothing_is_lost_and_no_repair_is_needed_when_the_disk_fails(
    home: tuple[Home, LoopbackFleet], record_property: Record
):
    failed = [life(home[0], *each, seed=n) for n, each in enumerate(SAMPLE, start=1)]
    assert all(failed)
    _check_toll(home, sum(failed), "a sample", record_property)


@pytest.mark.real
@pytest.mark.skipif(not CHAOS, reason="make chaos sweeps")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_lost_when_the_disk_is_full_or_broken_at_any_write(
    home: tuple[Home, LoopbackFleet], call: str, error: str, record_property: Record
):
    # The first sweep ends once a database is made: what a run writes into one that is there is
    # for the second.
    times = [swept(home[0], call, error, seed=seed) for seed in (0, MOST)]
    assert 0 < min(times) <= max(times) < MOST
    _check_toll(home, sum(times), f"every {call} with {error}", record_property)
