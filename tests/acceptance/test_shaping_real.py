"""The traffic shaping runbooks against this machine's kernel, in a network namespace."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import shaping
from connectors.command import NO_HOOKS, Answer, QueryCommand, RunHooks, Shell
from connectors.errors import HostError
from connectors.fleet import Fleet
from connectors.inventory import Host, Inventory
from connectors.probation import query_probation
from connectors.shaping import Rates, ShapedInterface
from runbooks.shaping_set import SetShaping
from runbooks.shaping_show import ShowShaping
from tests.acceptance.direct_execution import execute_plan, make_plan, undo_plan
from tests.runbooks.declared import load_change
from tests.scripted_fleet import build_inventory

SHOW = ShowShaping.model_validate({"host": "web1"})
CLEAR = load_change("shaping clear").model_validate({"host": "web1", "interface": "eth0"})
SET = SetShaping.model_validate(
    {"host": "web1", "interface": "eth0", "down": 1024, "up": 512, "peer": "198.51.100.1"}
)

# With processes of its own too, so that whatever waits in the background ends with it.
_NAMESPACE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_BEGIN = (
    "mount -t tmpfs none /run && mkdir -p /run/etc/cron.d && ip link set lo up && "
    "ip link add eth0 type veth peer name eth1 && ip link set eth0 up && ip link set eth1 up && "
    "ip addr add 198.51.100.1/25 dev eth0 && ip addr add 198.51.100.129/25 dev eth1 && "
    "ip neigh add 198.51.100.2 lladdr 02:00:00:00:00:02 dev eth0 && "
    "ip neigh add 198.51.100.130 lladdr 02:00:00:00:00:03 dev eth1 && "
    "echo ready && exec cat"
)
_NEEDED = (
    "ip link add probe type ifb && tc qdisc add dev probe root tbf rate 1mbit burst 10k "
    "latency 50ms && tc qdisc add dev probe handle ffff: ingress && tc filter add dev probe "
    "parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev eth1; "
    "ended=$?; ip link del probe; exit $ended"
)
# A burst of packets to somebody behind each end of the cable.
_BURST = (
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
    "[s.sendto(bytes(1000), (f'198.51.100.{last}', 9)) for last in (2, 130) for _ in range(100)]"
)


class Inside:
    """Runs commands in the namespaces of a process, where a fleet would run them on a host."""

    def __init__(self, process: int) -> None:
        self._enter = ("nsenter", "-t", str(process), "--net", "--mount", "--pid", "--")

    def run(
        self,
        host: Host,  # noqa: ARG002 - it is here
        command: QueryCommand,
        /,
        *,
        through: tuple[Host, ...] = (),  # noqa: ARG002 - and reached through nobody
        hooks: RunHooks = NO_HOOKS,  # noqa: ARG002 - nothing listens
    ) -> Answer:
        assert isinstance(command, Shell)
        done = self.do(*command.words)
        return Answer(done.returncode, done.stdout, done.stderr)

    def do(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*self._enter, *words), capture_output=True, text=True, timeout=30, check=False
        )

    def begin(self, *_: object, through: tuple[Host, ...] = ()) -> None:
        """Begin nothing that is not waited for."""

    def close(self) -> None:
        pass


@pytest.fixture
def inside() -> Iterator[Inside]:
    if os.geteuid() != 0:
        pytest.skip("only root may have a network of its own")
    holder = subprocess.Popen(
        (*_NAMESPACE, "sh", "-c", _BEGIN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "ready\n":
            _, output = holder.communicate()
            pytest.skip(f"this machine gives nobody a network of its own: {output}")
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        host = Inside(int(children[0]))
        lacking = host.do("sh", "-c", _NEEDED)
        if lacking.returncode:
            pytest.skip(f"this kernel lacks a part of tc: {lacking.stderr}")
        yield host
    finally:
        holder.communicate()


@pytest.fixture
def fleet(inside: Inside) -> Fleet:
    return _build_fleet_with_probation(inside, seconds=60)


def _read_eth0(fleet: Fleet) -> ShapedInterface:
    return fleet.run_query("web1", shaping.query_interfaces())["eth0"]


def _run_command(fleet: Fleet, command: Shell) -> None:
    fleet.run_command("web1", fleet.resolve_command("web1", command))


def _build_fleet_with_probation(inside: Inside, *, seconds: int) -> Fleet:
    """Return a fleet with a host where a probation is this short."""
    host = build_inventory("web1")["web1"].model_dump(mode="json", exclude={"name"})
    host["settings"] = {"shaping.probation": str(seconds), "probation.root": "/run"}
    return Fleet(Inventory.model_validate({"hosts": {"web1": host}}), inside)


def _wait_until_reverted(fleet: Fleet) -> Rates:
    deadline = time.monotonic() + 20
    while fleet.run_query("web1", query_probation("shaping")).armed:
        assert time.monotonic() < deadline, "the host never took the limits back"
        time.sleep(0.05)
    return _read_eth0(fleet).rates


@pytest.mark.real
def test_shaping_limits_drop_packets_until_the_undo(fleet: Fleet, inside: Inside):
    before = inside.do("sh", "-c", "ip -o link | cut -d' ' -f2; tc qdisc show").stdout
    plan = execute_plan(fleet, SET)
    assert plan.notes[0].startswith("198.51.100.1 is 0.")
    card = _read_eth0(fleet)
    assert (card.rates, card.foreign_queues) == (Rates(1024, 512), ())
    assert inside.do("python3", "-c", _BURST).returncode == 0
    card = _read_eth0(fleet)
    assert card.up_queue is not None
    assert card.down_queue is not None
    assert card.up_queue.dropped > 0
    assert card.down_queue.dropped > 0
    assert SHOW.report(SHOW.read(fleet.run_query)).summary == (
        "web1 limits eth0: 1,024 kbit/s in, 512 kbit/s out"
    )
    undo_plan(fleet, SET, plan)
    assert inside.do("sh", "-c", "ip -o link | cut -d' ' -f2; tc qdisc show").stdout == before


@pytest.mark.real
def test_without_shaping_limits_all_packets_arrive(fleet: Fleet, inside: Inside):
    """Shows that the packets dropped above were dropped by the limits."""
    received = (
        "cat /proc/net/dev | tr -s ' ' | sed -n 's/^ *eth[01]: [0-9]* \\([0-9]*\\) .*/\\1/p'"
    )
    assert inside.do("python3", "-c", _BURST).returncode == 0
    assert all(int(count) >= 100 for count in inside.do("sh", "-c", received).stdout.split())
    assert _read_eth0(fleet).rates == Rates()


@pytest.mark.real
def test_cleared_shaping_limits_are_restored_by_the_undo(fleet: Fleet):
    execute_plan(fleet, SET)
    plan = execute_plan(fleet, CLEAR)
    assert _read_eth0(fleet).rates == Rates()
    undo_plan(fleet, CLEAR, plan)
    assert _read_eth0(fleet).rates == Rates(1024, 512)


@pytest.mark.real
@pytest.mark.parametrize("former", [Rates(), Rates(up=2048), Rates(4096, 2048)])
def test_unconfirmed_shaping_limits_are_restored_by_the_host(inside: Inside, former: Rates):
    fleet = _build_fleet_with_probation(inside, seconds=2)
    if former != Rates():
        before = {"down": former.down, "up": former.up}
        execute_plan(fleet, SET.model_copy(update=before))
    begin, limit, keep = make_plan(fleet, SET).steps
    fleet.run_command("web1", fleet.resolve_command("web1", begin.do))
    fleet.run_command("web1", fleet.resolve_command("web1", limit.do))
    assert _wait_until_reverted(fleet) == former
    with pytest.raises(HostError, match="has restored what was"):
        fleet.run_command("web1", fleet.resolve_command("web1", keep.do))


@pytest.mark.real
def test_confirmed_shaping_limits_outlast_the_probation(inside: Inside):
    """Shows, with the test above, that it is the keeping that makes the difference."""
    fleet = _build_fleet_with_probation(inside, seconds=5)
    execute_plan(fleet, SET)
    deadline = time.monotonic() + 20
    while any("shaping/expire" in line for line in _commands(inside)):
        assert time.monotonic() < deadline, "the host's timer never ended"
        time.sleep(0.05)
    assert _read_eth0(fleet).rates == Rates(1024, 512)


def _commands(inside: Inside) -> list[str]:
    return inside.do("ps", "-eo", "args").stdout.splitlines()


@pytest.mark.real
def test_shaping_limits_are_refused_without_a_probation(fleet: Fleet):
    with pytest.raises(HostError):
        _run_command(fleet, shaping.try_limits("eth0", Rates(up=512)))
    assert _read_eth0(fleet).rates == Rates()


@pytest.mark.real
def test_second_shaping_probation_is_refused(fleet: Fleet):
    arm = shaping.make_probation("eth0").arm("0" * 16)
    _run_command(fleet, arm)
    with pytest.raises(HostError, match="wait some minutes"):
        _run_command(fleet, arm)
    assert fleet.run_query("web1", query_probation("shaping")).armed == "0" * 16


@pytest.mark.real
def test_shaping_set_up_outside_keyturn_is_shown(fleet: Fleet, inside: Inside):
    assert (
        inside.do(
            *("sh", "-c"),
            "tc qdisc add dev eth1 root handle 1: htb default 10 && "
            "tc class add dev eth1 parent 1: classid 1:10 htb rate 3000kbit ceil 8mbit",
        ).returncode
        == 0
    )
    report = SHOW.report(SHOW.read(fleet.run_query))
    assert report.table is not None
    assert "class 1:10 3Mbit to 8Mbit" in report.table.rows[0][2]
