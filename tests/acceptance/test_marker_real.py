"""The markers of steps on a host, over a real sshd, with one login, and with two and sudo."""

import subprocess
import tempfile
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from connectors import nginx_agents
from connectors.command import Shell
from connectors.errors import AlreadyStartedError, CommandError, SetupError
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.ssh_pool import SshPool
from connectors.step_marker import MARKER_SETTING, NO_MARKER, StepMarker
from connectors.step_status import NO_STATUS, MarkerState
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd
from tests.playground.two_logins import CHANGER, READER, TwoLogins

pytestmark = pytest.mark.real

STEP = StepMarker("f00d-7", 1)
# As the playground's server knows it.
CHANGER_ID = 64001


@contextmanager
def _fleet(host: Host) -> Generator[Fleet]:
    entry = host.model_dump(mode="json", exclude={"name"}, exclude_none=True)
    fleet = Fleet(Inventory.model_validate({"hosts": {host.name: entry}}), SshPool(Path("/")))
    try:
        yield fleet
    finally:
        fleet.close()


# --- one login ---


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def _build_host_with_one_login(sshd: Sshd, **settings: str) -> Host:
    entry = sshd.inventory_entry(area="web", settings=settings)
    return Host.model_validate({**entry, "name": "web1"})


def _append_to_ledger(ledger: Path) -> Shell:
    """Return a step that leaves a line behind for each time that it is run, and then fails."""
    words = ("sh", "-c", f'echo said; echo x >>"{ledger}"; exit 3')
    return Shell(words, marker=STEP)


def test_marked_step_runs_once_over_concurrent_connections(sshd: Sshd, ledger: Path):
    host = _build_host_with_one_login(sshd)
    outcomes = {CommandError: 0, AlreadyStartedError: 0}

    def tell(_: int) -> None:
        with _fleet(host) as fleet, pytest.raises((CommandError, AlreadyStartedError)) as trouble:
            fleet.run_command("web1", _append_to_ledger(ledger))
        outcomes[type(trouble.value)] += 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(tell, range(6)))
    assert outcomes == {CommandError: 1, AlreadyStartedError: 5}
    assert ledger.read_text() == "x\n"


def test_without_a_marker_a_step_runs_each_time(sshd: Sshd, ledger: Path):
    with _fleet(_build_host_with_one_login(sshd, **{MARKER_SETTING: NO_MARKER})) as fleet:
        for _ in range(2):
            with pytest.raises(CommandError):
                fleet.run_command("web1", _append_to_ledger(ledger))
        assert fleet.query_step("web1", STEP) == NO_STATUS
    assert ledger.read_text() == "x\nx\n"


def test_marker_returns_the_outcome_of_a_step_over_another_connection(sshd: Sshd, ledger: Path):
    host = _build_host_with_one_login(sshd)
    with _fleet(host) as fleet, pytest.raises(CommandError):
        fleet.run_command("web1", _append_to_ledger(ledger))
    with _fleet(host) as fleet:
        status = fleet.query_step("web1", STEP)
    assert (status.state, status.status, status.out, status.is_complete) == (
        MarkerState.ENDED,
        3,
        "said\n",
        True,
    )


def test_step_queried_before_it_was_sent_never_starts(sshd: Sshd, ledger: Path):
    with _fleet(_build_host_with_one_login(sshd)) as fleet:
        assert fleet.query_step("web1", STEP).state is MarkerState.CLOSED
        with pytest.raises(AlreadyStartedError):
            fleet.run_command("web1", _append_to_ledger(ledger))
    assert not ledger.exists()


# --- two logins ---


@dataclass(frozen=True)
class Web:
    """A host with nginx, whose logins are not root. place: where the one that changes keeps it."""

    sshd: TwoLogins
    refused: Path
    place: Path

    def times(self, words: str) -> int:
        return self.refused.read_text().count(words)


@pytest.fixture
def web() -> Iterator[Web]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may give a server logins of its own")
    nginx = Nginx("include keyturn-agents.conf;")
    refused = nginx.directory / "keyturn-agents.conf"
    refused.touch()
    # Where a login that is not root may look.
    with tempfile.TemporaryDirectory() as place:
        _change_owner(Path(place))
        settings = {
            "nginx.config": str(nginx.configuration),
            "nginx.agents": str(refused),
            MARKER_SETTING: place,
        }
        with nginx, TwoLogins(tags=("nginx",), settings=settings) as sshd:
            yield Web(sshd, refused, Path(place))


def _change_owner(place: Path) -> None:
    subprocess.run(["chown", f"{CHANGER_ID}:65534", str(place)], check=True)


def _number_step(n: int, command: Shell) -> Shell:
    return replace(command, marker=replace(STEP, step=n))


def test_marked_step_through_sudo_runs_once_under_its_sudoers_line(web: Web):
    refuse = _number_step(1, nginx_agents.block_agent("Evil Bot/2"))
    with _fleet(web.sshd.host()) as fleet:
        fleet.run_command("web1", refuse)
        assert web.times("Evil Bot/2") == 1
        # Somebody takes it back by hand: a second telling must not bring it in again.
        fleet.run_command("web1", nginx_agents.unblock_agent("Evil Bot/2"))
        with pytest.raises(AlreadyStartedError):
            fleet.run_command("web1", refuse)
        assert web.times("Evil Bot/2") == 0
        fleet.run_command("web1", replace(refuse, marker=None))
        assert web.times("Evil Bot/2") == 1


def test_changing_login_reads_the_sudo_exit_status_from_the_marker(web: Web):
    with _fleet(web.sshd.host()) as fleet:
        fleet.run_command("web1", _number_step(1, nginx_agents.block_agent("Evil Bot/2")))
        with pytest.raises(CommandError, match="the login may not run this with sudo"):
            fleet.run_command("web1", _number_step(2, Shell(("id",), root=True)))
    with _fleet(web.sshd.host()) as fleet:
        done = fleet.query_step("web1", STEP)
        assert (done.state, done.status) == (MarkerState.ENDED, 0)
        refused = fleet.query_step("web1", replace(STEP, step=2))
        assert (refused.state, refused.status) == (MarkerState.ENDED, 1)
        assert "sudo" in refused.err
    assert (web.sshd.logins_of(READER), web.sshd.logins_of(CHANGER)) == (0, 2)


def test_reading_login_can_neither_read_nor_write_a_marker(web: Web):
    reader = {"user": READER, "key": str(web.sshd.directory / READER), "reader": None}
    with _fleet(web.sshd.host()) as fleet:
        fleet.run_command("web1", _number_step(1, nginx_agents.block_agent("Evil Bot/2")))
    with _fleet(web.sshd.host(**reader)) as fleet:
        assert fleet.query_step("web1", STEP).state is MarkerState.UNMARKED
        with pytest.raises(SetupError, match=f"cannot write a marker in {web.place}"):
            fleet.run_command("web1", Shell(("touch", "/tmp/never"), marker=replace(STEP, step=2)))


def test_marked_command_equals_the_command_listed_in_sudoers(web: Web):
    """The marker stands around sudo and not within it: sudo is told what it was without one."""
    refuse = nginx_agents.block_agent("Evil Bot/2")
    host = web.sshd.host()
    marked = host.resolve(_number_step(1, refuse))
    assert isinstance(marked, Shell)
    assert marked.marker == replace(STEP, directory=str(web.place))
    assert replace(marked, marker=None) == host.resolve(refuse)
    assert marked.words[:3] == ("sudo", "-n", "--")
    assert host.user == CHANGER
