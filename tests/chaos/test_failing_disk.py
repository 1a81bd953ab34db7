"""A disk is full or broken at any write: no command is sent that was not recorded before.

strace makes the Nth call of a system call fail on the files that Keyturn writes, for N = 1, 2 …
until a run ends without a failure: once, several times in a row, or from there on for good.
Afterwards the disk works again, and nobody repairs anything. `make test` tries a sample, `make
chaos` every call.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.campaigns import CHAOS
from tests.chaos.killable_service import REFUSED, ServiceDirectory, collect_result
from tests.chaos.report import NAME, Record
from tests.chaos.traced_service import complete_one_run
from tests.playground.fleet import LoopbackFleet, Place
from tests.policies import write_policy

# All calls that write, that make writes durable, and that open files, which a full disk refuses
# first. Files are renamed only where the database cannot be written.
CALLS = ("pwrite64", "fdatasync", "fsync", "write", "ftruncate", "openat")
ERRORS = ("ENOSPC", "EIO")
# Which calls fail, as strace takes it: one, several in a row, and all from there on.
RANGES = ("{n}", "{n}..{last}", "{n}+")
_RANGE_LENGTH = 6
# Seconds to try: longer than a run takes, even one whose first tries failed; and for a run that
# can never end.
_PATIENCE, _PATIENCE_WHEN_BROKEN = 5, 2
MAX_CALLS = 1000
# What `make test` makes fail: the call, the error, and which of the calls.
SAMPLE = (
    ("pwrite64", "ENOSPC", "9..60"),
    ("fdatasync", "EIO", "4+"),
    ("fdatasync", "EIO", "6..8"),
)


@pytest.fixture
def service_and_fleet(tmp_path: Path) -> Generator[tuple[ServiceDirectory, LoopbackFleet]]:
    write_policy(tmp_path / "policy")
    with LoopbackFleet(tmp_path / "policy", places=(Place("lb1", "edge"),)) as fleet:
        yield ServiceDirectory(tmp_path, f"sqlite:///{tmp_path / 'keyturn.db'}"), fleet


def _complete_run_with_failures(
    directory: ServiceDirectory, call: str, error: str, when: str, *, seed: int = 0
) -> bool:
    """Complete a run while some calls fail; return whether any did."""
    trace = directory.directory / "trace"
    paths = [word for file in directory.list_written_files() for word in ("-P", str(file))]
    inject = ("-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}")
    patience = _PATIENCE_WHEN_BROKEN if when.endswith("+") else _PATIENCE
    options = ("-o", str(trace), *paths, *inject)
    status = complete_one_run(directory, seed, patience=patience, strace=options)
    assert status in {0, REFUSED}, f"{call} {error} {when}: {status}"
    return "(INJECTED)" in trace.read_text(errors="replace")


def _fail_each_call(directory: ServiceDirectory, call: str, error: str, *, seed: int) -> int:
    """Make each call of a run fail in turn; return how many there were.

    seed: must differ between two rounds on the same directory.
    """
    for n in range(1, MAX_CALLS + 1):
        when = RANGES[n % len(RANGES)].format(n=n, last=n + _RANGE_LENGTH)
        if not _complete_run_with_failures(directory, call, error, when, seed=seed + n):
            return n - 1
    return MAX_CALLS


def _check_result(
    service_and_fleet: tuple[ServiceDirectory, LoopbackFleet],
    faults: int,
    name: str,
    record: Record,
) -> None:
    """Complete all runs now that the disk works, and compare them with the ledgers."""
    assert complete_one_run(service_and_fleet[0], 0, patience=60) == 0
    result = collect_result(*service_and_fleet, faults=faults)
    record(NAME, f"a disk that fails, {name}: {result}")
    assert not result.violations, f"{name}: {result}: {result.violations}"
    assert result.run_counts["succeeded"]


@pytest.mark.real
@pytest.mark.timeout(300)
def test_no_run_is_lost_when_sampled_disk_writes_fail(
    service_and_fleet: tuple[ServiceDirectory, LoopbackFleet], record_property: Record
):
    directory, _ = service_and_fleet
    failed = [
        _complete_run_with_failures(directory, *failure, seed=n)
        for n, failure in enumerate(SAMPLE, start=1)
    ]
    assert all(failed)
    _check_result(service_and_fleet, sum(failed), "a sample", record_property)


@pytest.mark.real
@pytest.mark.skipif(not CHAOS, reason="make chaos tries every call")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", CALLS)
def test_no_run_is_lost_when_the_disk_fails_at_any_write(
    service_and_fleet: tuple[ServiceDirectory, LoopbackFleet],
    call: str,
    error: str,
    record_property: Record,
):
    # The first round creates the database; the second writes runs into an existing one.
    faults = [
        _fail_each_call(service_and_fleet[0], call, error, seed=seed) for seed in (0, MAX_CALLS)
    ]
    assert 0 < min(faults) <= max(faults) < MAX_CALLS
    _check_result(service_and_fleet, sum(faults), f"every {call} with {error}", record_property)
