"""Hosts that fall silent or hang up at any byte are noticed in time.

`make chaos` cuts off at every single byte, `make test` at some.
"""

import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import paramiko
import pytest

from connectors import ssh_transport
from connectors.command import Query, RunHooks, Shell
from connectors.errors import HostError, UnknownOutcomeError, UnreachableError
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.ssh_pool import SshPool
from connectors.ssh_stream import Stream
from connectors.ssh_transport import SshLimits
from connectors.step_marker import StepMarker
from connectors.step_status import MarkerState, StepStatus
from tests.campaigns import CHAOS
from tests.chaos.report import NAME, Record
from tests.playground.silencing_proxy import SilencingProxy
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

# Bytes between two that are cut at, and connections that are cut at once.
STRIDE, HANG_UP_STRIDE = (1, 1) if CHAOS else (150, 320)
AT_ONCE = 48
# What a server says once the answer is complete, at the most: it says some of that earlier or not
# at all, as it happens.
AFTER_ANSWER = 300
# As shipped, but for how long each lasts. A command's own deadline is not what is waited for.
SHORT = SshLimits(connect=2, handshake=2, login=2, channel=2, grace=2, unacknowledged=2)
LONG = 60
NOTICED_SECONDS = 25
STEP = StepMarker("f00d-8", 1)
# In this order, by what is said of a host that falls silent in it.
PHASES = {
    "keys": "began the SSH handshake and did not finish it",
    "login": "did not answer the login",
    "channel": "was lost before anything was sent",
    "command": "did not answer for 2 s after the command was sent",
}


@dataclass(frozen=True)
class ProxiedHost:
    """A host behind a proxy, and the fleet that knows it."""

    sshd: Sshd
    limits: SshLimits

    @contextmanager
    def open_fleet(self, proxy: SilencingProxy) -> Generator[Fleet]:
        entry = {**self.sshd.inventory_entry(area="infra"), "port": proxy.port}
        inventory = Inventory.model_validate({"hosts": {"web1": entry}})
        fleet = Fleet(inventory, SshPool(Path("/"), limits=self.limits))
        with proxy:
            try:
                yield fleet
            finally:
                fleet.close()

    def proxy(self, *, after: int | None = None, hangs_up: bool = False) -> SilencingProxy:
        return SilencingProxy(self.sshd.address, self.sshd.port, after=after, hangs_up=hangs_up)


@pytest.fixture
def proxied_host(sshd: Sshd) -> ProxiedHost:
    return ProxiedHost(sshd, SHORT)


def _catch_error(act: Callable[[], object]) -> HostError:
    """Return the error of a call, which must come long before a command's deadline."""
    began = time.monotonic()
    with pytest.raises(HostError) as error:
        act()
    assert time.monotonic() - began < NOTICED_SECONDS
    return error.value


def _run_echo(fleet: Fleet) -> str:
    return fleet.run_query("web1", Query(Shell(("echo", "here"), deadline=LONG), str.strip))


def _count_answer_bytes(proxied_host: ProxiedHost) -> int:
    """Return how many bytes the server sends from its banner to the end of a short answer."""
    proxy = proxied_host.proxy()
    with proxied_host.open_fleet(proxy) as fleet:
        assert _run_echo(fleet) == "here"
    return proxy.passed_bytes


def test_host_that_is_silent_before_its_banner_is_unreachable(proxied_host: ProxiedHost):
    with proxied_host.open_fleet(proxied_host.proxy(after=0)) as fleet:
        error = _catch_error(lambda: _run_echo(fleet))
    assert isinstance(error, UnreachableError)
    assert "accepted the connection but sent nothing" in str(error)


@pytest.mark.timeout(0 if CHAOS else 120)
def test_host_that_falls_silent_at_any_byte_before_its_answer_is_noticed(
    proxied_host: ProxiedHost, record_property: Record
):
    """The cuts lie in the banner, key exchange, login, channel and answer."""
    cuts = range(10, _count_answer_bytes(proxied_host) - AFTER_ANSWER, STRIDE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        noticed = list(pool.map(partial(_silence_after, proxied_host), cuts))
    phases = [next(name for name, words in PHASES.items() if words in each) for each in noticed]
    assert list(dict.fromkeys(phases)) == list(PHASES), noticed
    record_property(NAME, f"silence after each of {len(cuts)} bytes: {Counter(phases)}")


def _silence_after(proxied_host: ProxiedHost, after: int) -> str:
    with proxied_host.open_fleet(proxied_host.proxy(after=after)) as fleet:
        error = _catch_error(lambda: _run_echo(fleet))
    assert error.started is (None if isinstance(error, UnknownOutcomeError) else False)
    return str(error)


@pytest.mark.timeout(0 if CHAOS else 120)
def test_host_that_hangs_up_at_any_byte_is_unreachable_or_has_unknown_outcome(
    proxied_host: ProxiedHost, record_property: Record
):
    """`started` is False before the command was sent, and None after it."""
    cuts = range(0, _count_answer_bytes(proxied_host) - AFTER_ANSWER, HANG_UP_STRIDE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = list(pool.map(partial(_hang_up_after, proxied_host), cuts))
    # Where the command was sent differs from one connection to the next by a few bytes.
    assert (started[0], started[-1], {*started}) == (False, None, {False, None})
    summary = f"{started.count(False)} before the command was sent, {started.count(None)} after it"
    record_property(NAME, f"a hang-up after each of {len(cuts)} bytes: {summary}")


def _hang_up_after(proxied_host: ProxiedHost, after: int) -> bool | None:
    with proxied_host.open_fleet(proxied_host.proxy(after=after, hangs_up=True)) as fleet:
        error = _catch_error(lambda: _run_echo(fleet))
    assert error.started is (None if isinstance(error, UnknownOutcomeError) else False)
    return error.started


def test_host_that_hangs_up_between_key_exchange_and_login_is_unreachable(
    proxied_host: ProxiedHost, monkeypatch: pytest.MonkeyPatch
):
    """paramiko raises a different error at this byte."""
    known = ssh_transport._verify_host_key  # pyright: ignore[reportPrivateUsage] - the moment in question

    def then_cut(connection: paramiko.Transport, host: Host) -> None:
        known(connection, host)
        stream = connection.sock
        assert isinstance(stream, Stream)
        stream._below.shutdown(socket.SHUT_WR)  # pyright: ignore[reportPrivateUsage] - as the host would

    monkeypatch.setattr(ssh_transport, "_verify_host_key", then_cut)
    with proxied_host.open_fleet(proxied_host.proxy()) as fleet:
        error = _catch_error(lambda: _run_echo(fleet))
    assert isinstance(error, UnreachableError)
    # The login may have begun when paramiko sees it.
    assert re.search("closed the connection (before|during) the login", str(error))


def test_command_is_not_sent_to_a_host_that_fell_silent_after_the_last_command(
    proxied_host: ProxiedHost,
):
    proxy = proxied_host.proxy()
    with proxied_host.open_fleet(proxy) as fleet:
        assert _run_echo(fleet) == "here"
        proxy.fall_silent()
        error = _catch_error(lambda: _run_echo(fleet))
        assert isinstance(error, UnreachableError)
        assert error.started is False
        proxy.resume()
        assert _run_echo(fleet) == "here"


def test_host_that_falls_silent_during_a_command_has_unknown_outcome(
    proxied_host: ProxiedHost, tmp_path: Path
):
    gate = tmp_path / "gate"
    wait = f'echo on; while [ ! -e "{gate}" ]; do sleep 0.05; done; echo done'
    step = Shell(("sh", "-c", wait), deadline=LONG, marker=STEP)
    proxy = proxied_host.proxy()
    with proxied_host.open_fleet(proxy) as fleet:
        hooks = RunHooks(on_output=lambda _: proxy.fall_silent())
        error = _catch_error(lambda: fleet.run_command("web1", step, hooks=hooks))
        assert isinstance(error, UnknownOutcomeError)
        assert error.started is None
        assert "did not answer for 2 s" in str(error)
        proxy.resume()
        assert fleet.query_step("web1", STEP).state is MarkerState.RUNNING
        gate.touch()
        status = _until_ended(fleet)
        assert (status.status, status.out) == (0, "on\ndone\n")


def _until_ended(fleet: Fleet) -> StepStatus:
    deadline = time.monotonic() + 20
    while (status := fleet.query_step("web1", STEP)).state is not MarkerState.ENDED:
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def test_host_that_falls_silent_during_its_output_has_unknown_outcome(proxied_host: ProxiedHost):
    proxy = proxied_host.proxy(after=_count_answer_bytes(proxied_host) + 300_000)
    with proxied_host.open_fleet(proxy) as fleet:
        much = Shell(("seq", "1", "9000000"), deadline=LONG)
        error = _catch_error(lambda: fleet.run_command("web1", much))
    assert isinstance(error, UnknownOutcomeError)
    assert error.started is None
    assert "did not answer for 2 s" in str(error)


def test_command_without_output_is_not_taken_for_a_silent_host(proxied_host: ProxiedHost):
    with proxied_host.open_fleet(proxied_host.proxy()) as fleet:
        quiet = Shell(("sh", "-c", "sleep 3; echo at last"), deadline=LONG)
        assert fleet.run_command("web1", quiet).out == "at last\n"


def test_silent_host_behind_a_jump_host_is_noticed(proxied_host: ProxiedHost):
    """The kernel cannot notice it: the TCP connection ends at the jump host."""
    proxy = proxied_host.proxy()
    jump = proxied_host.sshd.inventory_entry(area="infra")
    behind = {**jump, "port": proxy.port, "jump": "gate"}
    inventory = Inventory.model_validate({"hosts": {"gate": jump, "web1": behind}})
    fleet = Fleet(inventory, SshPool(Path("/"), limits=proxied_host.limits))
    with proxy:
        try:
            assert _run_echo(fleet) == "here"
            hooks = RunHooks(on_output=lambda _: proxy.fall_silent())
            slow = Shell(("sh", "-c", "echo on; sleep 50"), deadline=LONG)
            error = _catch_error(lambda: fleet.run_command("web1", slow, hooks=hooks))
        finally:
            fleet.close()
    assert "did not answer for 2 s" in str(error)


def test_default_ssh_limits_notice_a_silent_host_within_25_seconds():
    shipped = SshLimits()
    # A connection that is found dead before a command is followed by a new one, once.
    assert shipped.channel + shipped.connect + shipped.handshake <= NOTICED_SECONDS
    assert shipped.connect + shipped.handshake + shipped.login <= NOTICED_SECONDS
    assert shipped.unacknowledged <= NOTICED_SECONDS
