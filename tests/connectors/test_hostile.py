"""A host that attacks over SSH is cut off and counted, and slows no other host for long.

`make chaos` tries every attack at every moment, and garbage of many seeds.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from connectors import ssh
from connectors.command import Shell
from connectors.errors import (
    HostError,
    HostKeyMismatchError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host
from connectors.ssh_pool import SshPool
from connectors.ssh_stream import COMMAND_SECONDS, SPARE_SECONDS
from connectors.ssh_transport import SshLimits, fetch_host_key
from tests.campaigns import CHAOS
from tests.connectors.test_ssh import eventually
from tests.playground.hostile import KEYS, RAW, SEALED, Hostile, When
from tests.playground.keys import make_key
from tests.playground.sshd import Sshd

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SEEDS = range(60 if CHAOS else 4)
# Besides what the connection's own thread may take: whoever waits, and what paramiko starts with.
BESIDES_SECONDS = 3.0
FLOODS = ("requests", "statements", "ignored", "debug", "windows", "opens", "rekey")
SHORT = SshLimits(connect=5, handshake=10, login=10, channel=3, grace=2, unacknowledged=5)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return str(make_key().write(tmp_path / "key"))


@contextmanager
def pool() -> Generator[SshPool]:
    sessions = SshPool(Path("/"), limits=SHORT)
    try:
        yield sessions
    finally:
        sessions.close()


def is_idle(*, seconds: float = 0.5) -> bool:
    """Return whether this process uses almost no processor time for that many seconds."""
    before, end = time.process_time(), time.monotonic() + seconds
    threading.Event().wait(seconds)
    return time.process_time() - before < 0.3 * (time.monotonic() - end + seconds)


def catch_host_error(
    sessions: SshPool, host: Host, *, seconds: int = 20 if CHAOS else 8
) -> HostError | None:
    try:
        sessions.run(host, Shell(("true",), deadline=seconds))
    except HostError as error:
        return error
    return None


def _list_moments() -> list[tuple[str, When]]:
    names = (*SEALED, *KEYS)
    if CHAOS:
        moments: tuple[When, ...] = ("keys", "login", "exec")
        return [(name, when) for name in names for when in moments]
    return [
        *[("extensions", "keys"), ("extensions", "exec"), ("questions", "keys")],
        *[("requests", "exec"), ("rekey", "exec"), ("nothing", "exec"), ("output", "exec")],
        ("another-key", "exec"),
    ]


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(("attack", "when"), _list_moments())
def test_hostile_host_uses_a_bounded_amount_of_processor_time(attack: str, when: When, key: str):
    with Hostile(attack, when) as hostile, pool() as sessions:
        before = time.process_time()
        error = catch_host_error(sessions, hostile.host(key))
        assert error is not None
        assert error.started is (None if isinstance(error, UnknownOutcomeError) else False)
        used = time.process_time() - before
        assert used < SPARE_SECONDS + 2 * COMMAND_SECONDS + BESIDES_SECONDS
        assert eventually(is_idle)


@pytest.mark.parametrize("attack", [name for name in RAW if CHAOS or name != "banner"])
def test_connection_is_closed_when_a_hostile_host_does_not_speak_ssh(attack: str, key: str):
    with Hostile(attack) as hostile, pool() as sessions:
        before = time.process_time()
        error = catch_host_error(sessions, hostile.host(key, public=make_key().public))
        assert isinstance(error, UnreachableError)
        assert error.started is False
        assert time.process_time() - before < BESIDES_SECONDS
        assert eventually(is_idle)


@pytest.mark.parametrize("attack", ["extensions", "requests", "rekey"])
def test_hostile_host_that_attacks_before_the_host_key_check_is_cut_off(attack: str, key: str):
    with Hostile(attack, "keys") as hostile, pool() as sessions:
        host = hostile.host(key, public=make_key().public)
        error = catch_host_error(sessions, host)
        assert isinstance(error, HostKeyMismatchError | UnreachableError)
        assert error.started is False
        # So is one who is asked for its key alone.
        with_key = (fetch_host_key(host), hostile.public)
        assert with_key[0] == with_key[1]
        assert eventually(is_idle)


@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_from_a_hostile_host_ends_only_its_connection(seed: int, key: str):
    moments: tuple[When, ...] = ("exec", "login", "keys")
    with Hostile("garbage", moments[seed % 3], seed) as hostile, pool() as sessions:
        assert isinstance(catch_host_error(sessions, hostile.host(key), seconds=5), HostError)
        assert eventually(is_idle)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits of processor time: a busy machine takes long to use them up."""
    if not CHAOS:
        monkeypatch.setattr("connectors.ssh_stream.SPARE_SECONDS", 0.3)
        monkeypatch.setattr("connectors.ssh_stream.COMMAND_SECONDS", 0.3)
        monkeypatch.setattr("connectors.ssh_stream._REGAINED_IDLE", 0.005)
        monkeypatch.setattr("connectors.ssh_stream._REGAINED_BY_COMMAND", 0.025)


@pytest.mark.usefixtures("_impatient")
def test_host_that_floods_an_idle_connection_is_cut_off_and_counted(key: str):
    with Hostile("requests") as hostile:
        cuts: list[tuple[str, str]] = []
        limits = SshLimits(on_hang_up=lambda host, why: cuts.append((host, why)))
        session = ssh.connect(hostile.host(key), Path("/"), limits)
        assert eventually(lambda: not session.is_usable, seconds=120)
        session.close()
        assert cuts == [("evil1", "it flooded Keyturn with messages")]


def test_without_the_processor_limit_a_flood_continues(key: str, monkeypatch: pytest.MonkeyPatch):
    limit = SPARE_SECONDS + 1 if CHAOS else 0.6
    monkeypatch.setattr("connectors.ssh_stream.SPARE_SECONDS", 1e9)
    with Hostile("requests") as hostile:
        session = ssh.connect(hostile.host(key), Path("/"))
        before = time.process_time()
        assert eventually(lambda: time.process_time() - before > limit, seconds=120)
        assert session.is_usable
        session.close()


def test_ssh_pool_lists_the_hostile_host_that_it_cut_off(key: str):
    with Hostile("extensions", "exec") as hostile, pool() as sessions:
        error = catch_host_error(sessions, hostile.host(key))
        assert isinstance(error, UnknownOutcomeError)
        assert "Keyturn closed the connection to evil1" in str(error)
        assert sessions.drop_count == 1
        assert [(cut.host, cut.reason) for cut in sessions.list_recent_drops()] == [
            ("evil1", "it announced more than it sent")
        ]


def test_another_host_key_at_rekeying_is_refused(key: str):
    with Hostile("another-key", "exec") as hostile, pool() as sessions:
        error = catch_host_error(sessions, hostile.host(key))
        assert isinstance(error, UnknownOutcomeError)
        assert "a different host key" in str(error)
        assert sessions.drop_count == 1


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("attack", FLOODS if CHAOS else ("requests", "rekey"))
def test_flood_of_one_host_barely_slows_commands_on_another(attack: str, key: str, sshd: Sshd):
    """Compare command times during the flood with those before it."""
    well = Host.model_validate({**sshd.inventory_entry(area="infra"), "name": "web1"})
    with Hostile(attack) as hostile, pool() as sessions:
        quiet = [_time_command(sessions, well) for _ in range(10)]
        session = ssh.connect(hostile.host(key), Path("/"))
        flooded: list[float] = []
        # One that costs less than what is regained may go on, and is no flood.
        while not flooded or (session.is_usable and len(flooded) < 200):
            flooded.append(_time_command(sessions, well))
        session.close()
        after = [_time_command(sessions, well) for _ in range(10)]
    summary = f"{attack}: {median(quiet):.3f} s, {median(flooded):.3f} s, {median(after):.3f} s"
    assert median(flooded) < 40 * median(quiet) + 0.2, summary
    assert max(flooded) < 10, summary
    assert median(after) < 5 * median(quiet) + 0.05, summary


def _time_command(sessions: SshPool, host: Host) -> float:
    began = time.perf_counter()
    assert sessions.run(host, Shell(("true",))).status == 0
    return time.perf_counter() - began
