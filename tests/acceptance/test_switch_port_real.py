"""A switch port changed through the service, and reverted by the switch when it cuts Keyturn off.

The switch is an SSH server that speaks as a Cisco does: see tests/playground/device.py.
"""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bot.audit import change_log, events
from bot.db import migrations, runs
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import NO_HOOKS, Answer, RemoteCommand, RunHooks, SwitchLines
from connectors.fleet import Fleet
from connectors.inventory import Host as InventoryHost
from connectors.ssh_pool import SshPool
from connectors.ssh_transport import SshLimits
from runbooks.switch_port import DisablePort, SetPortVlan
from tests.bot.clock import Clock
from tests.bot.harness import WEB, ManualDispatcher
from tests.playground.device import PASSWORD, ScriptedDevice
from tests.policies import write_policy
from tests.runbooks.network import recorded

pytestmark = pytest.mark.real

PORT = "GigabitEthernet1/0/3"
WAS = ["switchport access vlan 10", "switchport mode access"]
ANSWERS = {
    "show interfaces status": recorded("cisco-interfaces-status"),
    "show vlan": recorded("cisco-vlan"),
    "show cdp neighbors": recorded("cisco-cdp-neighbours"),
    "show lldp neighbors": "% LLDP is not enabled",
}


class WatchedPool(SshPool):
    """A pool in which something happens right after configuration was entered."""

    after_change: Callable[[], None] = staticmethod(lambda: None)

    def run(
        self,
        host: InventoryHost,
        command: RemoteCommand,
        *,
        through: tuple[InventoryHost, ...] = (),
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        answer = super().run(host, command, through=through, hooks=hooks)
        if isinstance(command, SwitchLines) and command.has_timer:
            self.after_change()
        return answer


class Site:
    def __init__(self, directory: Path, device: ScriptedDevice) -> None:
        policies = write_policy(directory / "policy")
        (directory / "password").write_text(f"{PASSWORD}\n")
        (directory / "password").chmod(0o600)
        entry = device.inventory_entry(password_file="password", area="web", tags=["switch"])
        with (directory / "policy" / "inventory.yaml").open("w") as file:
            YAML().dump({"hosts": {"sw1": entry}}, file)
        self.device = device
        self.database = Clock(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create())
        migrations.upgrade_schema(self.database)
        self.pool = WatchedPool(directory, limits=SshLimits(connect=1, handshake=2, login=2))
        self.fleet = Fleet(policies.get_policy().inventory, self.pool)
        self.queue = ManualDispatcher()
        known = {each.words: each for each in (DisablePort, SetPortVlan)}
        self.service = KeyturnService(
            WorkflowContext(self.database, policies, self.fleet, self.queue, runbooks=known)
        )

    def work(self) -> None:
        while self.queue.enqueued:
            self.service.advancer.advance_run(self.queue.enqueued.pop(0))

    def get_run(self, number: int) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, number)

    def approve(self, number: int) -> Run:
        self.work()
        run = self.get_run(number)
        assert run.state is State.PENDING, run.summary
        self.service.approve_run(number, person="olga", digest=run.digest)
        self.work()
        return self.get_run(number)

    def request(self, change: DisablePort | SetPortVlan) -> Run:
        return self.approve(self.service.request_run(change, RequestTerms("dora", WEB)).id)

    def reconcile(self, number: int) -> Run:
        self.database.ahead += 1200 * 1_000_000
        self.service.advancer.wake_stalled_runs()
        self.work()
        return self.get_run(number)

    def close(self) -> None:
        self.fleet.close()
        self.database.close()


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    with ScriptedDevice(ANSWERS, ports={PORT: WAS}) as device:
        site = Site(tmp_path, device)
        yield site
        site.close()


def test_switch_port_vlan_is_set_confirmed_and_undone(site: Site):
    run = site.request(SetPortVlan(host="sw1", port="gi1/0/3", vlan=50))
    assert run.state is State.SUCCEEDED, run.summary
    assert run.summary == "Verified: Gi1/0/3 is in VLAN 50, and its link is down"
    assert "switchport access vlan 50" in site.device.ports[PORT]
    assert site.device.backup is None
    undo = site.approve(site.service.request_undo(run.id, RequestTerms("dora", WEB)).id)
    assert undo.state is State.SUCCEEDED, undo.summary
    assert sorted(site.device.ports[PORT]) == WAS
    assert site.device.backup is None
    assert site.device.heard.count("configure confirm") == 2


def test_switch_port_change_that_cuts_keyturn_off_is_reverted_by_the_switch(site: Site):
    def cut_off() -> None:
        site.device.open = False
        site.device.hang_up()

    site.pool.after_change = cut_off
    run = site.request(DisablePort(host="sw1", port=PORT))
    assert run.state is State.UNKNOWN
    assert "The change of sw1 (configuration) is on probation" in run.summary
    assert "shutdown" in site.device.ports[PORT]
    # The switch is reached again, but its timer still runs.
    site.device.open = True
    assert site.reconcile(run.id).state is State.UNKNOWN
    site.device.let_timer_run_out()
    run = site.reconcile(run.id)
    assert run.state is State.FAILED
    assert run.summary.startswith("Restored by host: sw1 restored configuration, since")
    assert site.device.ports[PORT] == WAS
    with site.database.reading() as tx:
        kinds = [each.kind for each in change_log.list_entries_of_run(tx, run.id)]
    assert kinds[-2:] == [events.RestoredByHost.kind, "failed"]


def test_switch_change_is_verified_when_the_answer_to_its_confirmation_is_lost(site: Site):
    """The answer to it is lost: only the configuration tells what became of it."""
    site.device.slow = ("configure confirm",)

    def hang_up_later() -> None:
        site.device.after_slow = lambda: (site.device.confirm(), site.device.hang_up())

    site.pool.after_change = hang_up_later
    run = site.request(DisablePort(host="sw1", port=PORT))
    assert run.state is State.UNKNOWN, run.summary
    run = site.reconcile(run.id)
    assert run.state is State.SUCCEEDED, run.summary
    assert "shutdown" in site.device.ports[PORT]
