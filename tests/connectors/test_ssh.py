"""One SSH connection, to real OpenSSH servers and to servers that are not SSH."""

import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paramiko.packet import Packetizer

from connectors import ssh, ssh_stream, ssh_transport
from connectors.command import Shell
from connectors.errors import (
    CommandTimeoutError,
    HostError,
    HostKeyMismatchError,
    LoginError,
    NoCommandsError,
    OutputLimitError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
    WeakAlgorithmsError,
)
from connectors.inventory import Host
from connectors.ssh import SshSession
from connectors.ssh_pool import SshPool
from connectors.ssh_transport import HostBusyError, SshLimits
from connectors.step_marker import StepMarker
from tests.connectors.test_wrapper import NASTY, WORDS
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd

pytestmark = pytest.mark.real

NOWHERE = Path("/")
QUICK = SshLimits(connect=0.5, handshake=0.5, login=0.5, channel=0.5, grace=0.5)
HOST_KEY = make_key().public


def make_host(sshd: Sshd, **changed: object) -> Host:
    return Host.model_validate({**sshd.inventory_entry(area="infra"), "name": "web1", **changed})


@contextmanager
def open_session(sshd: Sshd, limits: SshLimits | None = None) -> Generator[SshSession]:
    session = ssh.connect(make_host(sshd), NOWHERE, limits)
    try:
        yield session
    finally:
        session.close()


@pytest.fixture
def session(sshd: Sshd) -> Iterator[SshSession]:
    with open_session(sshd) as session:
        yield session


def eventually(claim: Callable[[], bool], *, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if claim():
            return True
        time.sleep(0.005)
    return claim()


def serve_bytes(stack: ExitStack, keys: Path, says: bytes | None) -> Host:
    """Return a host that accepts, sends *says* and hangs up. None: it sends nothing."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    if says is not None:
        thread = threading.Thread(target=_greet, args=(listener, says), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
    port = listener.getsockname()[1]
    return _host_at(port, keys)


def _greet(listener: socket.socket, says: bytes) -> None:
    try:
        while True:
            with listener.accept()[0] as guest:
                guest.sendall(says)
    except OSError:
        return


def _host_at(port: int, keys: Path) -> Host:
    key = make_key().write(keys / "key")
    return Host.model_validate(
        {
            "name": "web1",
            "address": "127.0.0.1",
            "port": port,
            "key": str(key),
            "host_key": HOST_KEY,
            "area": "infra",
        }
    )


# --- answers ---


def test_ssh_command_returns_exit_status_and_both_streams(session: SshSession):
    answer = session.run(Shell(("sh", "-c", "echo yes; echo no >&2; exit 7")))
    assert (answer.status, answer.out, answer.err) == (7, "yes\n", "no\n")


def test_ten_megabytes_on_stdin_stdout_and_stderr_do_not_deadlock(session: SshSession):
    command = "head -c 10000000 /dev/zero | tr '\\0' e >&2; cat; head -c 10000000 /dev/zero"
    stdin = ("o" * 99 + "\n") * 100_000
    answer = session.run(Shell(("sh", "-c", command), stdin=stdin))
    assert answer.status == 0
    assert answer.out.startswith(stdin[:1000])
    assert answer.out.endswith("\0" * 1000)
    assert answer.err.startswith("e" * 1000)
    assert answer.err.endswith("e" * 1000)
    frames = 2 * (len("begins") + 32 + 2 + 32 + 3)
    assert answer.omitted_bytes == 30_000_000 - 2 * 4 * 1024 * 1024 + frames


def test_stdin_that_a_command_does_not_read_is_no_error(session: SshSession):
    assert session.run(Shell(("true",), stdin=("x" * 99 + "\n") * 50_000)).status == 0


def test_output_bytes_that_are_not_utf_8_are_escaped(session: SshSession):
    answer = session.run(Shell(("printf", "\\377\\376 \\000 \\303(")))
    assert answer.out == "\\xff\\xfe \0 \\xc3("


def test_background_process_with_open_streams_does_not_delay_the_answer(session: SshSession):
    begun = time.monotonic()
    assert session.run(Shell(("sh", "-c", "sleep 9 & echo started"))).out == "started\n"
    assert time.monotonic() - begun < 5


def test_hostile_arguments_reach_a_program_unchanged(session: SshSession):
    answer = session.run(Shell(("printf", "%s\\0", *NASTY)))
    assert answer.out.split("\0")[:-1] == NASTY


@pytest.fixture(scope="module")
def shared_session() -> Iterator[SshSession]:
    with Sshd() as sshd, open_session(sshd) as session:
        yield session


@given(batches=st.lists(WORDS, min_size=5, max_size=8))
@settings(max_examples=60)
def test_generated_arguments_reach_a_program_unchanged(
    shared_session: SshSession, batches: list[list[str]]
):
    words = [word for batch in batches for word in batch]
    assert shared_session.run(Shell(("printf", "%s\\0", *words))).out.split("\0")[:-1] == words


# --- ends that are none ---


def test_command_past_its_deadline_is_stopped_on_the_host(sshd: Sshd, session: SshSession):
    begun = time.monotonic()
    with pytest.raises(CommandTimeoutError, match="the host stopped the command") as error:
        session.run(Shell(("sh", "-c", "while :; do printf .; sleep 0.05; done"), deadline=1))
    assert error.value.started is None
    assert time.monotonic() - begun < 6
    assert session.run(Shell(("echo", "still here"))).out == "still here\n"


def test_command_that_ignores_the_stop_is_abandoned_at_the_deadline(sshd: Sshd):
    with open_session(sshd, replace(QUICK, grace=0.2)) as session:
        stubborn = "trap '' TERM; while :; do sleep 0.05; done"
        begun = time.monotonic()
        with pytest.raises(CommandTimeoutError, match="may still be running"):
            session.run(Shell(("sh", "-c", stubborn), deadline=1))
        assert time.monotonic() - begun < 2.5
        assert session.run(Shell(("echo", "still here"))).out == "still here\n"


def test_command_on_a_stopped_host_ends_at_the_deadline(sshd: Sshd):
    with open_session(sshd, QUICK) as session:
        background = threading.Timer(0.3, lambda: _signal_all(sshd, "STOP"))
        background.start()
        try:
            begun = time.monotonic()
            with pytest.raises(UnknownOutcomeError):
                session.run(Shell(("sleep", "30"), deadline=1))
            assert time.monotonic() - begun < 5
        finally:
            background.join()
            _signal_all(sshd, "CONT")


def _signal_all(sshd: Sshd, name: str) -> None:
    ids = [str(number) for number in sshd.processes()]
    subprocess.run(["kill", f"-{name}", *ids], check=False, capture_output=True)


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV"])
def test_command_killed_by_a_signal_has_unknown_outcome(session: SshSession, name: str):
    with pytest.raises(UnknownOutcomeError, match=f"SIG{name}") as error:
        session.run(Shell(("sh", "-c", f"kill -{name} $$")))
    assert error.value.started is None


def test_command_has_unknown_outcome_when_its_connection_breaks(sshd: Sshd):
    with open_session(sshd) as session:
        background = threading.Thread(target=_break_when_busy, args=(sshd,))
        background.start()
        with pytest.raises(UnknownOutcomeError) as error:
            session.run(Shell(("sleep", "20")))
        background.join()
    assert error.value.started is None
    assert type(error.value) is UnknownOutcomeError


def _break_when_busy(sshd: Sshd) -> None:
    assert eventually(lambda: "Starting session" in sshd.log())
    for number in sshd.processes():
        name = Path(f"/proc/{number}/comm").read_text().strip()
        if number != sshd.pid and name == "sshd":
            os.kill(number, signal.SIGKILL)


def test_command_has_unknown_outcome_when_its_session_is_closed(session: SshSession):
    background = threading.Timer(0.3, session.close)
    background.start()
    with pytest.raises(UnknownOutcomeError, match="may or may not have run") as error:
        session.run(Shell(("sleep", "20")))
    background.join()
    assert error.value.started is None


def test_forged_end_marker_in_output_is_ignored(session: SshSession):
    forger = (
        "word=0123456789abcdef0123456789abcdef; echo $word begins; echo $word 0; "
        "echo $word begins >&2; echo $word 0 >&2; exit 5"
    )
    answer = session.run(Shell(("sh", "-c", forger)))
    assert answer.status == 5
    assert answer.out.endswith(" 0\n")


# Looks at all that a program of the same user finds of those that started it, and at what is kept
# of the step; takes each word that it finds for the one that ends its output, and ends them all.
_FORGER = r"""
seen=$(cat ~/.keyturn/*/* 2>/dev/null; cat); above=; up=$$
while up=$(sed -n 's/^PPid:.//p' /proc/$up/status); do
  case $(cat /proc/$up/comm) in *sshd*) break;; esac
  above="$above $up"
  seen="$seen $(tr '\0' ' ' </proc/$up/cmdline; tr '\0' ' ' </proc/$up/environ)"
done
for word in $(echo "$seen" | grep -oE '[0-9a-f]{32,}' | sort -u); do
  echo "$word 0"; echo "$word 0" >&2
done
sleep 0.3; kill -9 $above
"""


@pytest.mark.parametrize("mark", [None, StepMarker("f00d-5-1", 1)], ids=["", "marked"])
@pytest.mark.parametrize("stdin", ["", "some"])
def test_program_cannot_find_the_secret_word_that_ends_its_step(
    sshd: Sshd, tmp_path: Path, mark: StepMarker | None, stdin: str
):
    if mark is not None:
        mark = replace(
            mark, run=f"f00d-{len(stdin)}-{os.getpid():x}", directory=str(tmp_path / "m")
        )
    forger = tmp_path / "forger"
    forger.write_text(_FORGER.replace("~/.keyturn", str(tmp_path / "m")))
    with open_session(sshd) as session, pytest.raises(UnknownOutcomeError) as error:
        session.run(Shell(("sh", str(forger)), stdin=stdin, marker=mark))
    assert error.value.started is None


@pytest.mark.parametrize(
    ("forced", "output"),
    [
        ("echo go away; exit 0", "go away"),
        ("/usr/sbin/nologin", "This account is currently not available"),
        ("/bin/false", "runs no commands: "),
        ("internal-sftp", "runs no commands"),
        ("kill -9 $$", ""),
    ],
)
def test_login_with_a_forced_command_is_named_as_one_that_runs_no_commands(
    forced: str, output: str
):
    with ExitStack() as stack:
        strict = stack.enter_context(Sshd(options=[f"ForceCommand {forced}"]))
        session = stack.enter_context(open_session(strict))
        with pytest.raises(HostError) as error:
            session.run(Shell(("true",)))
        if output:
            _require_no_commands(error.value, strict, output)
        else:  # a signal says nothing of the next command
            assert error.value.started is None


def test_key_with_a_forced_command_is_named_as_one_that_runs_no_commands():
    with ExitStack() as stack:
        strict = stack.enter_context(Sshd())
        keys = strict.directory / "authorized_keys"
        keys.write_text(f'command="echo menu" {keys.read_text()}')
        session = stack.enter_context(open_session(strict))
        with pytest.raises(NoCommandsError) as error:
            session.run(Shell(("true",), stdin="some"))
        _require_no_commands(error.value, strict, "last output: menu")


def test_login_with_nologin_as_its_shell_is_named_as_one_that_runs_no_commands():
    with ExitStack() as stack:
        strict = stack.enter_context(_NoLoginSshd())
        session = stack.enter_context(open_session(strict))
        with pytest.raises(NoCommandsError) as error:
            session.run(Shell(("true",)))
        _require_no_commands(error.value, strict, "This account is currently not available")


def _require_no_commands(error: HostError, sshd: Sshd, output: str) -> None:
    assert isinstance(error, NoCommandsError)
    assert str(error).startswith(f"the login {sshd.user} on web1 runs no commands")
    assert output in str(error)
    assert error.started is False


class _NoLoginSshd(Sshd):
    """An sshd that reads a passwd where the login's shell is nologin."""

    def _configure(self) -> list[str]:
        passwd = self.directory / "passwd"
        with_shell = Path("/etc/passwd").read_text()
        passwd.write_text(
            re.sub(rf"(?m)^({self.user}:.*:)[^:]*$", r"\1/usr/sbin/nologin", with_shell)
        )
        # What it mounts is seen by this sshd and its children only.
        begin = f'mount --bind {shlex.quote(str(passwd))} /etc/passwd && exec "$@"'
        return ["unshare", "-m", "sh", "-c", begin, "begin", *super()._configure()]


def test_command_that_a_login_runs_with_hidden_output_has_unknown_outcome(tmp_path: Path):
    hidden = 'ForceCommand sh -c "$SSH_ORIGINAL_COMMAND" >/dev/null 2>&1'
    with ExitStack() as stack:
        strict = stack.enter_context(Sshd(options=[hidden]))
        session = stack.enter_context(open_session(strict))
        with pytest.raises(UnknownOutcomeError):
            session.run(Shell(("touch", str(tmp_path / "done"))))
    assert (tmp_path / "done").exists()


def test_endless_output_is_cut_off_and_uses_little_memory(sshd: Sshd):
    # How soon the next channel opens is not the subject: this machine may stall for seconds.
    with open_session(sshd, SshLimits(channel=60)) as session:
        with (
            sample_memory() as mebibytes,
            pytest.raises(OutputLimitError, match="64 MiB") as error,
        ):
            session.run(Shell(("sh", "-c", "head -c 100000000 /dev/zero")))
        assert error.value.started is None
        assert mebibytes[-1] - mebibytes[0] < 40
        assert session.run(Shell(("echo", "still here"))).out == "still here\n"


def test_memory_sampler_measures_64_allocated_mebibytes():
    with sample_memory() as mebibytes:
        hoard = b"".join(b"\1" * 2**20 for _ in range(64))
    assert len(hoard) == 64 * 2**20
    assert mebibytes[-1] - mebibytes[0] > 40


@contextmanager
def sample_memory() -> Generator[list[float]]:
    """Sample this process's resident memory: yield the first and, at the end, the highest."""
    seen = [_read_resident_memory()]
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.002):
            seen.append(_read_resident_memory())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield seen
    finally:
        over.set()
        sampler.join()
        seen.append(max(*seen, _read_resident_memory()))


def _read_resident_memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# --- new keys ---


def test_rekeying_by_the_host_loses_no_output():
    with Sshd(options=["RekeyLimit 256K"]) as sshd, open_session(sshd) as session:
        first = session.transport.H
        for _ in range(3):
            assert session.run(Shell(("head", "-c", "1048576", "/dev/zero"))).out == "\0" * 2**20
        assert first != session.transport.H


def test_output_during_rekeying_reaches_its_own_command():
    with (
        Sshd(options=["RekeyLimit 64K"]) as sshd,
        open_session(sshd) as session,
        ThreadPoolExecutor(6) as pool,
    ):
        line = "x" * 99 + "\n"
        lines = [line * n for n in range(200, 1400, 200)]
        answers = pool.map(session.run, [Shell(("cat",), stdin=text) for text in lines])
        assert [answer.out for answer in answers] == lines


@pytest.mark.parametrize("limit", ["MAX_AGE_SECONDS", "MAX_BYTES"])
def test_connection_is_replaced_before_paramiko_rekeys(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch, limit: str
):
    """A rekey by paramiko could lose output in transit."""
    assert ssh_stream.MAX_AGE_SECONDS <= 3600
    assert ssh_stream.MAX_BYTES + 4 * SshLimits().output < Packetizer.REKEY_BYTES
    sessions = SshPool(NOWHERE)
    for _ in range(3):
        assert sessions.run(make_host(sshd), Shell(("true",))).status == 0
    assert sshd.accepted == 1
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(
            sessions.run, make_host(sshd), Shell(("sh", "-c", "sleep 1; echo done"))
        )
        assert eventually(lambda: sshd.log().count("Starting session") == 4)
        patch.setattr(ssh_stream, limit, 0)
        assert sessions.run(make_host(sshd), Shell(("true",))).status == 0
        # What is under way goes on, over the old one, which ends with it.
        assert slow.result().out == "done\n"
    assert sshd.accepted == 2
    assert sessions.open_count == 1
    sessions.close()


def test_keepalive_requests_of_the_host_are_answered():
    options = ["ClientAliveInterval 1", "ClientAliveCountMax 1"]
    with Sshd(options=options) as sshd, open_session(sshd) as session:
        # Three times as long as it would wait for an answer.
        assert session.run(Shell(("sleep", "3.2"))).status == 0
        assert session.is_usable


def test_session_is_unusable_after_the_host_hangs_up(session: SshSession, sshd: Sshd):
    for process in set(sshd.processes()) - {sshd.pid}:
        # sshd ends the rest of a connection by itself once one of its processes is gone.
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert eventually(lambda: not session.is_usable)


def test_closed_sessions_leave_no_threads_and_descriptors(sshd: Sshd):
    def left() -> tuple[int, int]:
        threads = sum(isinstance(each, paramiko.Transport) for each in threading.enumerate())
        return threads, len(list(Path("/proc/self/fd").iterdir()))

    before = left()
    for _ in range(10):
        with open_session(sshd) as session:
            assert session.run(Shell(("cat",), stdin="said\n")).out == "said\n"
        began = time.monotonic()
        session.close()
        assert time.monotonic() - began < 1
    assert eventually(lambda: left() <= before), (before, left())


# --- doors that do not open ---


def catch_host_error(host: Host, limits: SshLimits | None = None) -> HostError:
    with pytest.raises(HostError) as error:
        ssh.connect(host, NOWHERE, limits)
    assert error.value.started is False
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return error.value


def test_host_key_mismatch_is_refused_before_login(sshd: Sshd):
    host = make_host(sshd, host_key=HOST_KEY)
    error = catch_host_error(host)
    assert type(error) is HostKeyMismatchError
    assert host.fingerprint in str(error)
    assert make_host(sshd).fingerprint in str(error)
    assert eventually(lambda: sshd.processes() == [sshd.pid])
    for trace_of_a_login in ("Accepted", "Failed", "publickey", "authenticating user"):
        assert trace_of_a_login not in sshd.log()


def test_login_attempt_is_recorded_in_the_sshd_log(sshd: Sshd):
    stranger_key = make_key().write(sshd.directory / "stranger")
    error = catch_host_error(make_host(sshd, key=str(stranger_key)))
    assert type(error) is LoginError
    assert eventually(lambda: "authenticating user" in sshd.log())


def test_refused_client_key_is_named_with_its_user(sshd: Sshd):
    stranger_key = make_key().write(sshd.directory / "stranger")
    error = str(catch_host_error(make_host(sshd, key=str(stranger_key))))
    assert f"refuses {sshd.user} with key {stranger_key} (SHA256:" in error


def test_host_that_requires_a_password_is_a_login_error():
    options = ["PubkeyAuthentication no", "PasswordAuthentication yes"]
    with Sshd(options=options) as sshd:
        error = catch_host_error(make_host(sshd))
    assert type(error) is LoginError
    assert "it requires password" in str(error)


def test_host_that_requires_a_key_and_a_password_is_a_login_error():
    options = ["PasswordAuthentication yes", "AuthenticationMethods publickey,password"]
    with Sshd(options=options) as sshd:
        error = catch_host_error(make_host(sshd))
    assert type(error) is LoginError
    assert "it requires password" in str(error)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_host_with_several_host_keys_shows_the_key_of_the_inventory(kind: str):
    with Sshd(host_key_types=("rsa", "ecdsa", "ed25519")) as sshd:
        key = next(pair.public for name, pair in sshd.host_keys.items() if name == kind)
        session = ssh.connect(make_host(sshd, host_key=key), NOWHERE)
        assert session.run(Shell(("echo", kind))).out == f"{kind}\n"
        session.close()


def test_host_without_a_host_key_of_the_known_type_is_a_mismatch():
    with Sshd(host_key_types=("ecdsa",)) as sshd:
        error = catch_host_error(make_host(sshd, host_key=HOST_KEY))
        assert type(error) is HostKeyMismatchError
        assert make_host(sshd).fingerprint in str(error)


@pytest.mark.parametrize(
    "option",
    [
        "Ciphers aes128-cbc,3des-cbc",
        "MACs hmac-sha1,hmac-md5",
        "KexAlgorithms diffie-hellman-group14-sha1,diffie-hellman-group-exchange-sha1",
    ],
)
def test_weak_ssh_algorithms_are_refused(option: str):
    with Sshd(options=[option]) as sshd:
        error = catch_host_error(make_host(sshd))
    assert type(error) is WeakAlgorithmsError
    assert "that Keyturn accepts" in str(error)


@pytest.mark.parametrize("option", ["Ciphers aes128-cbc", "MACs hmac-sha1"])
def test_without_the_list_of_refused_algorithms_weak_ones_are_accepted(
    option: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ssh_transport, "REFUSED_ALGORITHMS", {})
    with Sshd(options=[option]) as sshd, open_session(sshd) as session:
        assert session.run(Shell(("true",))).status == 0


def test_strict_key_exchange_is_agreed_with_openssh(session: SshSession):
    assert getattr(session.transport, "agreed_on_strict_kex")  # noqa: B009 - its stub lacks it


def test_refused_connection_is_reported(tmp_path: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # held and not listening
        error = catch_host_error(_host_at(holder.getsockname()[1], tmp_path))
    assert type(error) is UnreachableError
    assert "refused the connection: check that sshd is running" in str(error)


def test_host_that_accepts_and_sends_no_banner_is_reported(tmp_path: Path):
    with ExitStack() as stack:
        error = catch_host_error(serve_bytes(stack, tmp_path, None), QUICK)
    assert type(error) is UnreachableError
    assert "accepted the connection but sent nothing" in str(error)


@pytest.mark.parametrize(
    ("says", "kind", "words"),
    [
        (b"", HostBusyError, "closed the connection before the SSH handshake"),
        (b"Exceeded MaxStartups\r\n", HostBusyError, "MaxStartups"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            UnreachableError,
            "is not an SSH server, it sent 'HTTP/1.1",
        ),
        (b"\xff\xfe\x00garbage\n" * 3, UnreachableError, "is not an SSH server"),
        (b"SSH-2.0-x\r\n", UnreachableError, "closed the connection during the SSH handshake"),
        (b"SSH-2.0-x\r\n" + b"\x00" * 700, UnreachableError, "SSH"),
        (b"SSH-1.5-old\r\n", WeakAlgorithmsError, "no SSH version that Keyturn accepts"),
        (b"x" * 10_000_000, UnreachableError, "is not an SSH server"),
    ],
)
def test_server_that_is_not_sshd_is_reported(tmp_path: Path, says: bytes, kind: type, words: str):
    with ExitStack() as stack:
        error = catch_host_error(serve_bytes(stack, tmp_path, says), replace(QUICK, handshake=5.0))
    assert type(error) is kind
    assert words in str(error)


def test_host_name_unknown_to_dns_is_reported(sshd: Sshd):
    assert "DNS" in str(catch_host_error(make_host(sshd, address="no-such-host.invalid")))


def test_ssh_socket_sets_nodelay_keepalive_and_user_timeout(sshd: Sshd):
    with ssh_transport.open_tcp_connection(make_host(sshd), SshLimits()) as stream:
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_command_above_max_sessions_of_sshd_is_unreachable():
    with Sshd(max_sessions=1) as sshd, open_session(sshd) as session:
        first = threading.Thread(target=session.run, args=(Shell(("sleep", "1")),))
        first.start()
        assert eventually(lambda: "Starting session" in sshd.log())
        with pytest.raises(UnreachableError, match="MaxSessions") as error:
            session.run(Shell(("true",)))
        assert error.value.started is False
        first.join()


# --- our own keys ---


def test_client_key_that_others_can_read_is_refused(sshd: Sshd):
    sshd.client_key.chmod(0o640)
    error = catch_host_error(make_host(sshd))
    assert type(error) is SetupError
    assert f"chmod 600 {sshd.client_key}" in str(error)


def test_missing_client_key_is_reported(sshd: Sshd):
    error = catch_host_error(make_host(sshd, key=str(sshd.directory / "none")))
    assert type(error) is SetupError
    assert "No such file" in str(error)


def test_client_key_with_a_passphrase_is_reported(sshd: Sshd):
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame", "-f", str(sshd.client_key)],
        check=True,
        capture_output=True,
    )
    error = catch_host_error(make_host(sshd))
    assert type(error) is SetupError
    assert "passphrase" in str(error)
    assert "sesame" not in str(error)


def test_invalid_client_key_file_is_not_quoted_in_the_error(sshd: Sshd):
    sshd.client_key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n")
    error = catch_host_error(make_host(sshd))
    assert type(error) is SetupError
    assert "c2VjcmV0" not in str(error)


def test_user_certificate_beside_the_client_key_is_presented(sshd: Sshd):
    authority = make_key().write(sshd.directory / "ca")
    key = make_key().write(sshd.directory / "certified")
    _get_public_path(key).write_text(_format_public_key(key))
    options = [f"TrustedUserCAKeys {_public_file(authority)}"]
    with Sshd(options=options) as strict:
        for validity, welcome in (("+1h", True), ("20200101:20200102", False)):
            _certify(authority, key, strict.user, validity)
            host = make_host(strict, key=str(key))
            if welcome:
                ssh.connect(host, NOWHERE).close()
            else:
                assert "its certificate is no longer accepted" in str(catch_host_error(host))


def _format_public_key(key: Path) -> str:
    ended = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], check=True, capture_output=True)
    return ended.stdout.decode()


def _public_file(key: Path) -> Path:
    public = _get_public_path(key)
    public.write_text(_format_public_key(key))
    return public


def _certify(authority: Path, key: Path, user: str, validity: str) -> None:
    words = (
        "-q",
        "-s",
        str(authority),
        "-I",
        "test",
        "-n",
        user,
        "-V",
        validity,
        str(_get_public_path(key)),
    )
    subprocess.run(["ssh-keygen", *words], check=True, capture_output=True)


def _get_public_path(key: Path) -> Path:
    return key.with_suffix(".pub")
