"""The runbooks about a whole host, on this machine over a real sshd."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks.allocator_check import AllocatorCheck
from runbooks.host_changes import HostChanges
from tests.acceptance.direct_execution import execute_plan, undo_plan
from tests.playground.probation import Probations
from tests.playground.sshd import Sshd
from tests.runbooks.declared import load_change, load_check

SetConntrack = load_change("conntrack set")

UptimeCheck = load_check("uptime check")

pytestmark = pytest.mark.real


@pytest.fixture
def fleet(sshd: Sshd) -> Iterator[Fleet]:
    settings = Probations(sshd.directory / "root").settings
    entry = sshd.inventory_entry(area="web", settings=settings)
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), SshPool(Path("/")))
    yield fleet
    fleet.close()


def test_uptime_check_shows_how_long_the_host_is_up(fleet: Fleet):
    check = UptimeCheck.model_validate({"host": "web1"})
    up = check.read(fleet.run_query)
    assert up.seconds > 0
    assert up.cores is not None
    assert up.cores > 0
    assert check.report(up).summary.startswith("web1 has been up for ")


def test_host_changes_are_collected_from_every_available_source(fleet: Fleet):
    look = HostChanges.model_validate({"host": "web1"})
    happened = look.read(fleet.run_query)
    # Packages are known everywhere; a container has no journal, and newer systems no `last`.
    assert "packages" not in dict(happened.unread_sources)
    assert "events on web1" in look.report(happened).summary


def test_conntrack_limit_is_raised_and_restored_by_the_undo(fleet: Fleet):
    limit = Path("/proc/sys/net/netfilter/nf_conntrack_max")
    if not limit.exists() or not os.access(limit, os.W_OK):
        pytest.skip("this kernel tracks no connections, or only its owner may set the limit")
    before = int(limit.read_text())
    change = SetConntrack.model_validate({"host": "web1", "maximum": before + 1})
    plan = execute_plan(fleet, change)
    assert int(limit.read_text()) == before + 1
    undo_plan(fleet, change, plan)
    assert int(limit.read_text()) == before


def test_tcp_window_check_measures_the_round_trip_by_ping(fleet: Fleet):
    check = load_check("tcp window check").model_validate({"host": "web1", "peer": "127.0.0.1"})
    state = check.read(fleet.run_query)
    _, route, round_trip = state
    assert route.interface == "lo"
    assert 0 < round_trip < 1
    assert check.report(state).summary.startswith(
        "One connection between web1 and 127.0.0.1 gets "
    )


def test_allocator_check_shows_the_malloc_of_a_running_program(fleet: Fleet, sshd: Sshd):
    # A name that nothing else here has, and of which the kernel keeps all.
    name = f"kt-{os.getpid()}"
    program = sshd.directory / name
    shutil.copy("/bin/sleep", program)
    check = AllocatorCheck.model_validate({"host": "web1", "process": name})
    with subprocess.Popen([program, "60"]) as running:
        try:
            (process,) = check.read(fleet.run_query)
        finally:
            running.kill()
    assert (process.pid, process.malloc) == (running.pid, "glibc")
    with pytest.raises(CommandError, match="web1 has no process"):
        check.read(fleet.run_query)
