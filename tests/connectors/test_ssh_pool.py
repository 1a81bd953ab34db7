"""The pool of connections, against real OpenSSH servers."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from connectors.command import Shell
from connectors.errors import (
    HostError,
    HostKeyMismatchError,
    LoginError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host
from connectors.ssh import SshSession
from connectors.ssh_pool import SshPool
from connectors.ssh_transport import SshLimits
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

NOWHERE = Path("/")
TRUE = Shell(("true",))


def make_host(sshd: Sshd, name: str = "web1", **changed: object) -> Host:
    return Host.model_validate({**sshd.inventory_entry(area="infra"), "name": name, **changed})


def eventually(claim: Callable[[], bool], *, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if claim():
            return True
        time.sleep(0.005)
    return claim()


@pytest.fixture
def sessions() -> Iterator[SshPool]:
    sessions = SshPool(NOWHERE)
    yield sessions
    sessions.close()


def test_ssh_pool_runs_twenty_commands_with_one_login(sshd: Sshd, sessions: SshPool):
    for number in range(20):
        assert sessions.run(make_host(sshd), Shell(("echo", str(number)))).out == f"{number}\n"
    assert sshd.accepted == 1


def test_ssh_pool_shares_one_login_between_threads(sshd: Sshd, sessions: SshPool):
    words = [str(number) for number in range(40)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(partial(_echo, sessions, sshd), words))
    assert answers == [f"{word}\n" for word in words]
    assert sshd.accepted == 1


def test_command_over_a_new_connection_has_its_own_login_and_closes_it(
    sshd: Sshd, sessions: SshPool
):
    for _ in range(2):
        assert sessions.run(make_host(sshd), TRUE).status == 0
    assert sessions.run(make_host(sshd), replace(TRUE, new_connection=True)).status == 0
    assert sshd.accepted == 2
    # sshd has several words for it, by how far the two of them were in saying good-bye.
    ended = re.compile("Closing connection to|Connection (closed|reset) by|Disconnected from")
    assert eventually(lambda: ended.search(sshd.log()) is not None)
    assert sessions.run(make_host(sshd), TRUE).status == 0
    assert sshd.accepted == 2


def test_ssh_pool_counts_only_open_connections(sshd: Sshd, sessions: SshPool):
    assert sessions.run(make_host(sshd), TRUE).status == 0
    assert sessions.open_count == 1
    sshd.stop()
    assert eventually(lambda: sessions.open_count == 0)


def _echo(sessions: SshPool, sshd: Sshd, word: str) -> str:
    return sessions.run(make_host(sshd), Shell(("echo", word))).out


def test_ssh_pool_limits_parallel_commands_per_host(sshd: Sshd, tmp_path: Path):
    # Each one takes a place, says how many places are taken, and gives its own back.
    count = f"mkdir {tmp_path}/$$; ls {tmp_path} | wc -l; sleep 0.1; rmdir {tmp_path}/$$"
    sessions = SshPool(NOWHERE, per_host=2)
    with ThreadPoolExecutor(8) as pool:
        command = Shell(("sh", "-c", count))
        answers = [pool.submit(sessions.run, make_host(sshd), command) for _ in range(8)]
        at_once = [int(answer.result().out) for answer in answers]
    sessions.close()
    assert max(at_once) == 2


def test_command_is_not_started_after_waiting_too_long_for_a_busy_host(sshd: Sshd):
    sessions = SshPool(NOWHERE, per_host=1, patience=0.1)
    first = threading.Thread(
        target=sessions.run, args=(make_host(sshd), Shell(("sh", "-c", "echo ready; sleep 1")))
    )
    first.start()
    assert eventually(lambda: "Starting session" in sshd.log())
    with pytest.raises(UnreachableError, match="web1 is busy") as error:
        sessions.run(make_host(sshd), TRUE)
    assert error.value.started is False
    first.join()
    sessions.close()


def test_ssh_pool_replaces_a_dead_connection(sshd: Sshd, sessions: SshPool):
    assert sessions.run(make_host(sshd), TRUE).status == 0
    sshd.stop()
    sshd.start()
    assert sessions.run(make_host(sshd), Shell(("echo", "again"))).out == "again\n"
    assert sshd.accepted == 2


def test_command_that_was_sent_is_not_sent_again_after_a_reconnect(
    sshd: Sshd, sessions: SshPool, tmp_path: Path
):
    marks = tmp_path / "marks"
    command = Shell(("sh", "-c", f"echo x >> {marks}; sleep 20"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sessions.run, make_host(sshd), command)
        assert eventually(marks.exists)
        sshd.stop()
        sshd.start()
        with pytest.raises(UnknownOutcomeError) as error:
            running.result()
    assert error.value.started is None
    assert sessions.run(make_host(sshd), TRUE).status == 0
    assert marks.read_text() == "x\n"


def test_ssh_pool_reconnects_each_time_to_a_host_that_was_down(sshd: Sshd, sessions: SshPool):
    sshd.stop()
    with pytest.raises(UnreachableError):
        sessions.run(make_host(sshd), TRUE)
    sshd.start()
    assert sessions.run(make_host(sshd), TRUE).status == 0


def test_ssh_pool_reports_a_failed_login_to_all_waiting_threads(sshd: Sshd, sessions: SshPool):
    sshd.stop()
    troubles: list[HostError] = []

    def ask() -> None:
        with pytest.raises(UnreachableError) as error:
            sessions.run(make_host(sshd), TRUE)
        troubles.append(error.value)

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(troubles) == 10


def test_ssh_pool_does_not_retry_after_a_host_key_mismatch(sshd: Sshd, sessions: SshPool):
    with pytest.raises(HostKeyMismatchError):
        sessions.run(make_host(sshd, host_key=make_key().public), TRUE)
    assert eventually(lambda: sshd.connections == 1)
    assert sshd.accepted == 0


def test_ssh_pool_reconnects_when_the_connection_data_of_a_host_changes(
    sshd: Sshd, sessions: SshPool
):
    sessions.run(make_host(sshd), TRUE)
    stranger = make_key().write(sshd.directory / "stranger")
    with pytest.raises(LoginError):
        sessions.run(make_host(sshd, key=str(stranger)), TRUE)
    assert sessions.run(make_host(sshd, tags=["web"]), TRUE).status == 0
    assert sshd.accepted == 1


def test_ssh_pool_closes_an_idle_connection(sshd: Sshd):
    sessions = SshPool(NOWHERE, idle=0.2)
    sessions.run(make_host(sshd), TRUE)
    assert eventually(lambda: sshd.processes() == [sshd.pid])
    assert sessions.run(make_host(sshd), TRUE).status == 0
    assert sshd.accepted == 2
    sessions.close()


def test_ssh_pool_does_not_close_a_connection_with_a_running_command(
    sshd: Sshd, sessions: SshPool
):
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sessions.run, make_host(sshd), Shell(("sleep", "0.5")))
        assert eventually(lambda: "Starting session" in sshd.log())
        sessions.close_idle(time.monotonic() + 10_000)
        assert running.result().status == 0
    sessions.close_idle(time.monotonic() + 10_000)
    sessions.run(make_host(sshd), TRUE)
    assert sshd.accepted == 2


def test_closed_ssh_pool_starts_no_command(sshd: Sshd, sessions: SshPool):
    sessions.run(make_host(sshd), TRUE)
    sessions.close()
    with pytest.raises(UnreachableError, match="shutting down") as error:
        sessions.run(make_host(sshd), TRUE)
    assert error.value.started is False


def test_command_without_a_channel_does_not_cut_off_others_on_its_connection(
    sshd: Sshd,
):
    """As when a virtual machine is paused for seconds by a live migration."""
    sessions = SshPool(NOWHERE, limits=SshLimits(channel=0.5))
    assert sessions.run(make_host(sshd), TRUE).status == 0
    with ThreadPoolExecutor(1) as pool:
        command = Shell(("sh", "-c", "sleep 1; echo done"))
        running_command = pool.submit(sessions.run, make_host(sshd), command)
        assert eventually(
            lambda: any("sleep" in _read_command_line(pid) for pid in sshd.processes())
        )
        with _paused_sshd(sshd) as carrying:
            assert sessions.run(make_host(sshd), TRUE).status == 0
        assert running_command.result().out == "done\n"
    assert sshd.accepted == 2
    # And it ends with the last that was under way on it.
    assert eventually(lambda: not set(carrying).intersection(sshd.processes()))
    assert sessions.run(make_host(sshd), TRUE).status == 0
    assert sshd.accepted == 2
    sessions.close()


def test_without_retiring_a_connection_its_running_command_is_cut_off(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SshSession, "retire", SshSession.close)
    sessions = SshPool(NOWHERE, limits=SshLimits(channel=0.5))
    assert sessions.run(make_host(sshd), TRUE).status == 0
    with ThreadPoolExecutor(1) as pool:
        running_command = pool.submit(sessions.run, make_host(sshd), Shell(("sleep", "1")))
        assert eventually(
            lambda: any("sleep" in _read_command_line(pid) for pid in sshd.processes())
        )
        with _paused_sshd(sshd):
            assert sessions.run(make_host(sshd), TRUE).status == 0
        with pytest.raises(UnknownOutcomeError):
            running_command.result()
    sessions.close()


@contextmanager
def _paused_sshd(sshd: Sshd) -> Generator[list[int]]:
    """Stop all processes of sshd that carry connections; yield them."""
    carrying = [pid for pid in sshd.processes() if pid != sshd.pid]
    for pid in carrying:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield carrying
    finally:
        for pid in carrying:
            os.kill(pid, signal.SIGCONT)


def _read_command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


# --- jump hosts ---


@pytest.fixture
def jump_host() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


def test_host_behind_a_jump_host_is_reached_with_its_own_client_key(
    jump_host: Sshd, sshd: Sshd, sessions: SshPool
):
    for _ in range(3):
        answer = sessions.run(
            make_host(sshd), Shell(("echo", "inside")), through=(make_host(jump_host, "gate"),)
        )
        assert answer.out == "inside\n"
    assert (jump_host.accepted, sshd.accepted) == (1, 1)
    assert jump_host.client.public != sshd.client.public


def test_chain_of_jump_hosts_is_connected_in_order(jump_host: Sshd, sshd: Sshd, sessions: SshPool):
    with Sshd() as inner:
        jump_hosts = (make_host(jump_host, "gate"), make_host(inner, "inner"))
        assert sessions.run(make_host(sshd), TRUE, through=jump_hosts).status == 0
        assert sessions.run(make_host(inner, "inner"), TRUE, through=jump_hosts[:1]).status == 0
        assert (jump_host.accepted, inner.accepted, sshd.accepted) == (1, 1, 1)


def test_error_at_the_jump_host_names_the_jump_host(
    jump_host: Sshd, sshd: Sshd, sessions: SshPool
):
    jump_host.stop()
    words = r"web1 is reached through gate: gate \(.*refused the connection"
    with pytest.raises(UnreachableError, match=words) as error:
        sessions.run(make_host(sshd), TRUE, through=(make_host(jump_host, "gate"),))
    assert error.value.started is False
    assert sshd.connections == 0


def test_jump_host_with_another_host_key_is_refused(
    jump_host: Sshd, sshd: Sshd, sessions: SshPool
):
    with pytest.raises(HostKeyMismatchError, match="through gate"):
        sessions.run(
            make_host(sshd),
            TRUE,
            through=(make_host(jump_host, "gate", host_key=make_key().public),),
        )
    assert (jump_host.accepted, sshd.connections) == (0, 0)


def test_host_behind_a_jump_host_is_verified_by_its_own_host_key(
    jump_host: Sshd, sshd: Sshd, sessions: SshPool
):
    with pytest.raises(HostKeyMismatchError, match="web1"):
        sessions.run(
            make_host(sshd, host_key=make_key().public),
            TRUE,
            through=(make_host(jump_host, "gate"),),
        )
    assert sshd.accepted == 0


def test_host_that_the_jump_host_cannot_connect_to_is_named(
    jump_host: Sshd, sshd: Sshd, sessions: SshPool
):
    sshd.stop()
    with pytest.raises(UnreachableError, match="the jump host gate cannot connect to web1"):
        sessions.run(make_host(sshd), TRUE, through=(make_host(jump_host, "gate"),))


@contextmanager
def _silent_address() -> Generator[int]:
    """Yield a port of this machine that never answers, as behind a firewall."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        # Room for one, who is never let in: of everybody else the kernel hears nothing.
        listener.listen(0)
        for _ in range(3):
            caller = waiting.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_unreachable_host_does_not_disturb_others_behind_its_jump_host(
    jump_host: Sshd, sshd: Sshd
):
    sessions = SshPool(NOWHERE, limits=SshLimits(connect=1))
    jump_hosts = (make_host(jump_host, "gate"),)
    with _silent_address() as port, ThreadPoolExecutor(1) as pool:
        assert sessions.run(make_host(sshd), TRUE, through=jump_hosts).status == 0
        running_command = pool.submit(
            sessions.run,
            make_host(sshd),
            Shell(("sh", "-c", "sleep 4; echo done")),
            through=jump_hosts,
        )
        away = make_host(sshd, "web2", port=port)
        with pytest.raises(UnreachableError, match="the jump host gate cannot connect to web2"):
            sessions.run(away, TRUE, through=jump_hosts)
        assert running_command.result().out == "done\n"
    assert jump_host.accepted == 1
    sessions.close()


def test_restarted_jump_host_is_reconnected_with_the_hosts_behind_it(
    jump_host: Sshd, sshd: Sshd, sessions: SshPool
):
    jump_hosts = (make_host(jump_host, "gate"),)
    sessions.run(make_host(sshd), TRUE, through=jump_hosts)
    jump_host.stop()
    jump_host.start()
    assert sessions.run(make_host(sshd), TRUE, through=jump_hosts).status == 0
    assert (jump_host.accepted, sshd.accepted) == (2, 2)


def test_jump_host_is_not_idle_while_a_host_behind_it_is_connected(jump_host: Sshd, sshd: Sshd):
    sessions = SshPool(NOWHERE, idle=100)
    jump_hosts = (make_host(jump_host, "gate"),)
    much_later = time.monotonic() + 10_000
    sessions.run(make_host(sshd), TRUE, through=jump_hosts)
    sessions.close_idle(much_later)  # the host behind it goes first
    assert eventually(lambda: sshd.processes() == [sshd.pid])
    sessions.run(jump_hosts[0], TRUE)
    assert jump_host.accepted == 1
    sessions.close_idle(much_later)
    assert eventually(lambda: jump_host.processes() == [jump_host.pid])
    sessions.close()


# --- busy hosts ---


def test_ssh_pool_retries_a_host_at_its_max_startups():
    with ExitStack() as stack:
        sshd = stack.enter_context(Sshd(max_startups="1"))
        host = make_host(sshd)
        blocker = stack.enter_context(_half_open(host))
        freed = threading.Timer(0.25, blocker.close)
        freed.start()
        sessions = SshPool(NOWHERE, limits=SshLimits())
        stack.callback(sessions.close)
        assert sessions.run(host, TRUE).status == 0
        freed.join()
        assert "MaxStartups" in sshd.log() or "drop connection" in sshd.log()


def test_ssh_pool_runs_all_commands_on_a_host_with_few_max_sessions():
    with Sshd(max_sessions=1) as sshd:
        sessions = SshPool(NOWHERE, per_host=2)
        with ThreadPoolExecutor(2) as pool:
            command = Shell(("sh", "-c", "echo done; sleep 0.1"))
            running = [pool.submit(sessions.run, make_host(sshd), command) for _ in range(2)]
            assert [answer.result().out for answer in running] == ["done\n", "done\n"]
        sessions.close()


def test_many_short_commands_with_unread_stdin_keep_their_own_output(
    sshd: Sshd, sessions: SshPool
):
    """Stdin of a command that has ended must not reach the next one or break the connection."""
    unread_stdin = "x" * 200_000
    commands = [
        Shell(("echo", str(number)), stdin=unread_stdin if number % 2 else "")
        for number in range(48)
    ]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(partial(sessions.run, make_host(sshd)), commands))
    assert [answer.out for answer in answers] == [f"{number}\n" for number in range(48)]
    assert sshd.accepted == 1
    assert "nonexistent channel" not in sshd.log()


def _half_open(host: Host) -> socket.socket:
    stream = socket.create_connection((host.address, host.port))
    stream.recv(8)  # it has its place now
    return stream
