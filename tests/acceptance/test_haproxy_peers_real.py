"""Two real HAProxies that share a stick table as peers, and a cleared table."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from connectors import haproxy as dialect
from connectors.errors import CommandError
from connectors.fleet import Fleet
from runbooks.abusers_clear import ClearAbuser
from runbooks.abusers_empty import EmptyTable
from runbooks.abusers_mark import MarkAbuser
from runbooks.abusers_show import ShowAbusers
from tests.acceptance.direct_execution import execute_plan
from tests.acceptance.test_haproxy_real import Here, fleet_at, fleet_of
from tests.playground.daemon import Daemon, find_free_port, find_program
from tests.playground.haproxy import HAPROXY, Haproxy
from tests.runbooks.declared import load_check
from tests.scripted_fleet import build_inventory

pytestmark = pytest.mark.real

ABUSER = "203.0.113.9"
_CONFIG = """\
global
    stats socket {directory}/operator.sock level operator
    localpeer {name}
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
peers mesh
{peers}
frontend http
    bind unix@{directory}/http.sock
    stick-table type ip size 1k expire 10m store gpc0 peers mesh
"""


class Twin(Daemon):
    """One of two HAProxies. Both know the other's port before either starts."""

    def __init__(self, name: str, ports: dict[str, int]) -> None:
        super().__init__()
        self._name, self._ports = name, ports

    @property
    def path(self) -> str:
        return f"{self.directory}/operator.sock"

    def _choose_ports(self) -> None:
        pass

    def _configure(self) -> list[str]:
        peers = "\n".join(f"    peer {name} 127.0.0.1:{it}" for name, it in self._ports.items())
        config = self.directory / "haproxy.cfg"
        config.write_text(_CONFIG.format(directory=self.directory, name=self._name, peers=peers))
        return [find_program(HAPROXY, package="haproxy"), "-db", "-f", str(config)]

    def is_in_step(self) -> bool:
        """Return whether it has asked for all entries, as it does some seconds after its start.

        Until then it may learn again what was cleared meanwhile.
        """
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self.path)
            client.sendall(b"show peers\n")
            answer = client.makefile().read()
        return "resync_timeout=<PAST>" in answer

    def _answers(self) -> bool:
        try:
            fleet_at(self.path).run_query("lb1", dialect.query_tables())
        except CommandError:
            return False
        return True


@pytest.fixture
def twins() -> Iterator[dict[str, Twin]]:
    ports = {"lb1": find_free_port("127.0.0.1"), "lb2": find_free_port("127.0.0.1")}
    with ExitStack() as stack:
        yield {name: stack.enter_context(Twin(name, ports)) for name in ports}


@pytest.fixture
def fleet(twins: dict[str, Twin]) -> Fleet:
    inventory = build_inventory(*twins)
    hosts = {
        name: inventory[name].model_copy(
            update={"settings": {"haproxy.socket": twin.path, "haproxy.config": "/nonexistent"}}
        )
        for name, twin in twins.items()
    }
    fleet = Fleet(inventory.model_copy(update={"hosts": hosts}), Here())
    wait_until(lambda: all(_is_peer_connected(fleet, name) for name in twins))
    wait_until(lambda: all(twin.is_in_step() for twin in twins.values()))
    return fleet


def _is_peer_connected(fleet: Fleet, name: str) -> bool:
    return [peer.is_connected for peer in fleet.run_query(name, dialect.query_peers())] == [True]


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def marked(fleet: Fleet, host: str) -> bool:
    return bool(fleet.run_query(host, dialect.query_entries_at_least("http", "gpc0", 1)).entries)


MARK = MarkAbuser.model_validate({"host": "lb1", "address": ABUSER})
CLEAR = ClearAbuser.model_validate({"host": "lb1", "address": ABUSER})


def test_stick_table_cleared_on_one_haproxy_is_filled_again_by_its_peer(fleet: Fleet):
    execute_plan(fleet, MARK)
    wait_until(lambda: marked(fleet, "lb2"))
    plan = execute_plan(fleet, CLEAR)
    assert any(note.startswith("lb2 has a copy of http") for note in plan.notes)
    # The other one keeps its copy, and sends it once it counts the client again.
    assert marked(fleet, "lb2")
    head = dialect.find_table_head("http", fleet.run_query("lb2", dialect.query_tables()))
    fleet.run_command("lb2", dialect.mark_entry(head, ABUSER, "gpc0", 2))
    wait_until(lambda: marked(fleet, "lb1"))


def test_stick_table_cleared_on_both_haproxy_peers_stays_empty(fleet: Fleet):
    execute_plan(fleet, MARK)
    wait_until(lambda: marked(fleet, "lb2"))
    for host in ("lb1", "lb2"):
        execute_plan(fleet, EmptyTable.model_validate({"host": host}))
    # What is sent after it has arrived: nothing that was cleared came before it.
    head = dialect.find_table_head("http", fleet.run_query("lb2", dialect.query_tables()))
    fleet.run_command("lb2", dialect.mark_entry(head, "203.0.113.7", "gpc0", 1))
    wait_until(lambda: marked(fleet, "lb1"))
    entries = fleet.run_query("lb1", dialect.query_table("http")).entries
    assert [entry.key for entry in entries] == ["203.0.113.7"]


def test_stick_table_list_shows_peers_and_lost_peer_connections(
    fleet: Fleet, twins: dict[str, Twin]
):
    look = load_check("abusers tables").model_validate({"host": "lb1"})
    report = look.report(look.read(fleet.run_query))
    assert report.healthy
    assert report.table is not None
    assert report.table.rows[0][5] == "lb2"
    execute_plan(fleet, MARK)
    twins["lb2"].stop()
    wait_until(lambda: not _is_peer_connected(fleet, "lb1"))
    assert (
        "lb2 of the peers mesh is not connected"
        in look.report(look.read(fleet.run_query)).findings[0]
    )
    show = ShowAbusers.model_validate({"host": "lb1"})
    assert (
        show.report(show.read(fleet.run_query)).findings[-1].startswith("lb2 (not connected) has")
    )


EMPTY = EmptyTable.model_validate({"host": "lb1"})


def test_cleared_stick_table_admits_every_client(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    for number in range(20):
        haproxy.runtime(f"set table http key 203.0.113.{number} data.gpc0 1")
    assert haproxy.get(ABUSER) == 503
    plan = execute_plan(fleet, EMPTY)
    assert not plan.is_reversible
    assert plan.current_state == "20 of 20 entries of http are marked"
    assert haproxy.get(ABUSER) == 200
    # Nobody is marked, so there is no work, though traffic has made an entry again.
    assert EMPTY.plan(EMPTY.read(fleet.run_query)).current_state == (
        "no client is marked in http (1 entries)"
    )


def test_client_marked_again_by_a_rate_limit_does_not_fail_verification(haproxy: Haproxy):
    fleet = fleet_of(haproxy)
    haproxy.abuse(ABUSER)
    haproxy.runtime("set table http key 203.0.113.7 data.gpc0 1")
    plan = EMPTY.plan(EMPTY.read(fleet.run_query))
    assert any(note.startswith("1 of them is above a limit") for note in plan.notes)
    fleet.run_command("lb1", plan.steps[0].do)
    assert haproxy.get(ABUSER) == 503
    assert haproxy.marked(ABUSER)
    left = EMPTY.plan(EMPTY.read(fleet.run_query))
    assert not left.steps
    assert left.current_state.startswith("all marked clients of http are above a limit")
