"""The router runbooks against two real FRR routers, whose command lines are real SSH logins."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from connectors import gateway, switch
from connectors.command import DeviceCommand, Query, SwitchLines
from connectors.errors import CommandError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.ssh_pool import SshPool
from runbooks.hsrp_check import HsrpCheck
from tests.playground.frr import ADDRESS, Routers
from tests.playground.probation import wait_until
from tests.playground.sshd import Sshd
from tests.runbooks.declared import load_check

CheckBgp = load_check("bgp check")

SwitchPorts = load_check("switch ports")

pytestmark = pytest.mark.real


class Network:
    """Two routers, and a fleet that reaches them."""

    def __init__(self, routers: Routers, fleet: Fleet) -> None:
        self.routers = routers
        self.fleet = fleet


@pytest.fixture
def network() -> Iterator[Network]:
    with ExitStack() as stack:
        routers = stack.enter_context(Routers())
        hosts: dict[str, object] = {}
        for name in ("r1", "r2"):
            sshd = stack.enter_context(Sshd(options=(routers.shell(name),)))
            entry = sshd.inventory_entry(area="network", tags=("router", "switch"))
            hosts[name] = entry | {"platform": "frr"}
        fleet = Fleet(Inventory.model_validate({"hosts": hosts}), SshPool(Path("/")))
        stack.callback(fleet.close)
        yield Network(routers, fleet)


def test_vrrp_split_brain_is_found_when_the_link_is_cut(network: Network):
    ask = network.fleet.run_query
    check = HsrpCheck.model_validate({"host": "r1", "other": "r2"})
    report = check.report(check.read(ask))
    assert (report.healthy, list(report.findings)) == (True, [])
    sessions = CheckBgp.model_validate({"host": "r1"})
    wait_until(lambda: sessions.report(sessions.read(ask)).healthy)
    network.routers.cut()
    report = check.report(check.read(ask))
    assert not report.healthy
    (finding,) = report.findings
    assert finding.startswith(
        f"r1 and r2 are both Master for link0 group 5 ({ADDRESS}): split brain."
    )
    wait_until(lambda: not sessions.report(sessions.read(ask)).healthy)
    (finding,) = sessions.report(sessions.read(ask)).findings
    assert finding.startswith("10.81.0.3 (AS 65003, IPv4) is ")


def test_ports_of_an_frr_router_are_listed(network: Network):
    check = SwitchPorts.model_validate({"host": "r1"})
    report = check.report(check.read(network.fleet.run_query))
    assert report.table is not None
    assert ["link0", "up"] in [list(row[:2]) for row in report.table.rows]


def test_frr_router_is_configured_and_restored(network: Network):
    fleet = network.fleet
    (before,) = fleet.run_query("r1", gateway.query_gateways())
    fleet.run_command("r1", SwitchLines(("interface link0", "vrrp 5 priority 90")))
    (after,) = fleet.run_query("r1", gateway.query_gateways())
    assert (before.priority, after.priority) == (200, 90)
    fleet.run_command("r1", SwitchLines(("interface link0", f"vrrp 5 priority {before.priority}")))
    assert fleet.run_query("r1", gateway.query_gateways())[0].priority == 200


def test_unknown_frr_command_is_an_error(network: Network):
    fleet = network.fleet
    with pytest.raises(CommandError, match="does not know the command"):
        fleet.run_query("r1", Query(DeviceCommand(("show bogus",), ("frr",), switch.HINTS), str))
    with pytest.raises(
        CommandError, match=r"refused 'vrrp 5 bogus'; the line before it is in force$"
    ):
        fleet.run_command("r1", SwitchLines(("interface link0", "vrrp 5 bogus")))
    assert fleet.run_query("r1", gateway.query_gateways())


def test_stopped_frr_daemon_is_an_error_and_not_an_empty_list(network: Network):
    pid = (network.routers.home("r1") / "vrrpd.pid").read_text().strip()
    os.kill(int(pid), signal.SIGKILL)
    with pytest.raises(CommandError, match="daemon of FRR is not running"):
        network.fleet.run_query("r1", gateway.query_gateways())
