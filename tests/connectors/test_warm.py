"""What is private to paramiko and was overridden, against real sshd's: both ways do the same."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from connectors.command import Shell
from connectors.packets import WarmPacketizer
from connectors.ssh import Session
from connectors.transport import Limits
from connectors.trouble import TimedOut
from connectors.warm import WarmTransport
from tests.connectors.test_ssh import connected, eventually
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

PLAIN = Limits(plain=True)
MIB = 1024 * 1024


@pytest.fixture(params=[Limits(), PLAIN], ids=["reactor", "plain"])
def limits(request: pytest.FixtureRequest) -> Limits:
    return request.param


@pytest.fixture
def session(sshd: Sshd, limits: Limits) -> Iterator[Session]:
    with connected(sshd, limits) as session:
        yield session


def _transport(session: Session) -> WarmTransport:
    assert isinstance(session.transport, WarmTransport)
    return session.transport


def test_after_the_login_the_reactor_reads_and_the_thread_has_ended(sshd: Sshd):
    with connected(sshd) as session:
        transport = _transport(session)
        assert eventually(lambda: not transport.is_alive())
        assert session.alive
        assert session.run(Shell(("echo", "here"))).out == "here\n"


def test_the_plain_way_keeps_its_thread(sshd: Sshd):
    with connected(sshd, PLAIN) as session:
        assert session.run(Shell(("echo", "here"))).out == "here\n"
        assert _transport(session).is_alive()


@pytest.mark.parametrize("option", ["Ciphers aes256-ctr\nMACs hmac-sha2-256"])
def test_ciphers_that_hide_a_packets_length_leave_the_thread_at_work(option: str):
    with Sshd(options=option.split("\n")) as sshd, connected(sshd) as session:
        assert _transport(session).is_alive()
        assert session.run(Shell(("echo", "here"))).out == "here\n"


@pytest.mark.parametrize(
    "options",
    [
        ["Ciphers aes128-gcm@openssh.com"],
        ["Ciphers aes256-gcm@openssh.com"],
        ["Ciphers aes128-ctr", "MACs hmac-sha2-512-etm@openssh.com"],
    ],
)
def test_each_cipher_that_tells_it_is_read_by_the_reactor(options: list[str]):
    with Sshd(options=options) as sshd, connected(sshd) as session:
        assert session.run(Shell(("head", "-c", "300000", "/dev/zero"))).out == "\0" * 300_000
        assert not _transport(session).is_alive()


def test_a_host_that_wants_new_keys_often_gets_them_and_loses_nothing(limits: Limits):
    with Sshd(options=["RekeyLimit 256K"]) as sshd, connected(sshd, limits) as session:
        first = _transport(session).H
        for _ in range(3):
            answer = session.run(Shell(("head", "-c", str(MIB), "/dev/zero")))
            assert answer.out == "\0" * MIB
        assert first != _transport(session).H


def test_we_want_new_keys_ourselves_and_lose_nothing(
    sshd: Sshd, limits: Limits, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(WarmPacketizer, "REKEY_BYTES", 200_000)
    with connected(sshd, limits) as session:
        first = _transport(session).H
        for _ in range(5):
            assert session.run(Shell(("head", "-c", "150000", "/dev/zero"))).out == "\0" * 150_000
        assert first != _transport(session).H


def test_whoever_reads_never_waits_for_new_keys_which_it_agrees_on_itself(
    limits: Limits, monkeypatch: pytest.MonkeyPatch
):
    """A keepalive is due, as it may be, just when the host wants new keys."""
    agreed = WarmTransport._negotiate_keys  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - paramiko has it

    def also_ask(transport: WarmTransport, message: paramiko.Message) -> None:
        agreed(transport, message)
        if transport.is_authenticated():
            transport.global_request("keepalive@lag.net", wait=False)

    monkeypatch.setattr(WarmTransport, "_negotiate_keys", also_ask)
    with Sshd(options=["RekeyLimit 64K"]) as sshd, connected(sshd, limits) as session:
        began = time.monotonic()
        assert session.run(Shell(("head", "-c", str(MIB), "/dev/zero"))).out == "\0" * MIB
        assert time.monotonic() - began < 10


def test_what_is_said_while_new_keys_are_agreed_reaches_the_right_command(limits: Limits):
    with (
        Sshd(options=["RekeyLimit 64K"]) as sshd,
        connected(sshd, limits) as session,
        ThreadPoolExecutor(6) as pool,
    ):
        said = "x" * 99 + "\n"
        lines = [said * n for n in range(200, 1400, 200)]
        told = pool.map(session.run, [Shell(("cat",), stdin=text) for text in lines])
        assert [answer.out for answer in told] == lines


def test_a_host_that_asks_whether_we_are_there_is_answered(limits: Limits):
    options = ["ClientAliveInterval 1", "ClientAliveCountMax 1"]
    with Sshd(options=options) as sshd, connected(sshd, limits) as session:
        # Three times as long as it would wait for an answer.
        assert session.run(Shell(("sleep", "3.2"))).status == 0
        assert session.alive


def test_many_channels_at_once_each_get_their_own(limits: Limits):
    commands = [Shell(("echo", str(n))) for n in range(64)]
    with (
        Sshd(max_sessions=40) as sshd,
        connected(sshd, limits) as session,
        ThreadPoolExecutor(8) as pool,
    ):
        told = [answer.out for answer in pool.map(session.run, commands)]
    assert told == [f"{n}\n" for n in range(64)]


def test_a_host_that_hangs_up_is_noticed_without_a_command(session: Session, sshd: Sshd):
    for process in set(sshd.processes()) - {sshd.pid}:
        os.kill(process, signal.SIGKILL)
    assert eventually(lambda: not session.alive)


def test_a_host_that_takes_in_nothing_keeps_no_other_waiting(sshd: Sshd):
    with Sshd() as stuck, connected(stuck) as silent, connected(sshd) as session:
        assert silent.run(Shell(("true",))).status == 0
        frozen = stuck.processes()
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        try:
            # More than its socket takes in, so that some must be kept.
            stdin = ("x" * 99 + "\n") * 30_000
            command = Shell(("cat",), stdin=stdin, deadline=1)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(silent.run, command)
                for _ in range(20):
                    assert session.run(Shell(("echo", "here"))).out == "here\n"
                silent.close()
                with pytest.raises(Exception, match=r"lost|hung up|neither answered"):
                    waiting.result(30)
        finally:
            for process in frozen:
                os.kill(process, signal.SIGCONT)


def test_a_half_open_peer_is_given_up_by_the_kernel(sshd: Sshd):
    """Its packets would vanish, and nobody can have that here: so what the kernel was told."""
    import socket

    from connectors.transport import dial
    from tests.connectors.test_ssh import host_of

    with dial(host_of(sshd), Limits()) as stream:
        told = {
            name: stream.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_USER_TIMEOUT")
        }
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert told["TCP_KEEPIDLE"] + told["TCP_KEEPINTVL"] + told["TCP_USER_TIMEOUT"] / 1000 <= 30
    assert told["TCP_USER_TIMEOUT"] / 1000 + told["TCP_KEEPINTVL"] <= 25


def test_a_command_that_outlives_its_deadline_leaves_the_connection_to_the_others(
    session: Session,
):
    with pytest.raises(TimedOut):
        session.run(Shell(("sleep", "20"), deadline=1))
    assert session.run(Shell(("echo", "still here"))).out == "still here\n"


def _is_quiet(thread: threading.Thread) -> bool:
    before = _wakes(thread)
    return _still(lambda: _wakes(thread) - before, seconds=0.5) <= 1


def test_twenty_idle_connections_wake_nobody(sshd: Sshd, tmp_path: Path):
    sessions = [connected(sshd) for _ in range(20)]
    opened = [one.__enter__() for one in sessions]
    try:
        assert eventually(lambda: not any(_transport(one).is_alive() for one in opened))
        reactor = next(one for one in threading.enumerate() if one.name == "reactor")
        # sshd may say something more shortly after it has let one in.
        assert eventually(lambda: _is_quiet(reactor))
        wakes = _wakes(reactor)
        opened[0].run(Shell(("true",)))
        assert _wakes(reactor) > wakes  # it is the reactor that would have been woken
    finally:
        for one in sessions:
            one.__exit__(None, None, None)


def test_a_plain_connection_wakes_its_thread_ten_times_a_second(sshd: Sshd):
    with connected(sshd, PLAIN) as session:
        wakes = _wakes(_transport(session))
        assert eventually(lambda: _wakes(_transport(session)) - wakes >= 5)


def test_a_command_takes_three_packets_of_ours_and_two_round_trips(sshd: Sshd):
    """One opens the channel, one starts the command, and one closes it: no more is said."""
    with connected(sshd) as session:
        session.run(Shell(("true",)))
        asked: list[int] = []
        transport = _transport(session)
        send = transport.packetizer.send_message

        def noted(data: paramiko.Message) -> None:
            asked.append(data.asbytes()[0])
            send(data)

        transport.packetizer.send_message = noted
        session.run(Shell(("true",)))
        opens, requests, closes = 90, 98, 97
        assert eventually(lambda: asked == [opens, requests, closes])


def _wakes(thread: threading.Thread) -> int:
    """Return how often the thread has given up a processor to wait for something."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("voluntary_ctxt")]
    return int(line.split()[1])


def _still(count: Callable[[], int], *, seconds: float) -> int:
    """Watch for so long that something which happens ten times a second would be seen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not count():
        time.sleep(0.05)
    return count()
