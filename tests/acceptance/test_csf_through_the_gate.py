"""The csf refresh requested, approved, executed, verified and undone through the service."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bot.db import migrations, runs
from bot.db.database import Database
from bot.model.run import RequestTerms, Run, State
from bot.model.signing import SigningKey
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.https import Fetcher
from connectors.ssh_pool import SshPool
from runbooks.csf_pingdom_refresh import RefreshPingdom
from tests.bot.harness import WEB, ManualDispatcher
from tests.pingdom_feeds import FOURS, SIXES, build_feed
from tests.playground.csf import CsfHost, explain_missing_support
from tests.playground.fixed_response_server import FixedResponseServer, build_response
from tests.policies import write_policy

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"no firewall can be had here: {_MISSING}"),
]


class Gate:
    """A workflow on a host behind csf, whose runs go as far as they go at once."""

    def __init__(self, directory: Path, host: CsfHost, mirror: FixedResponseServer) -> None:
        policies = write_policy(directory / "policy")
        settings = {
            "pingdom.feed": mirror.url("/feed"),
            "pingdom.feed_networks": "127.0.0.0/8,::1/128",
            "pingdom.feed_authority": mirror.authority.name,
            **host.settings,
        }
        entry = host.inventory_entry(area="web", tags=["csf"], settings=settings)
        inventory = directory / "policy" / "inventory.yaml"
        with inventory.open("w") as file:
            YAML().dump({"hosts": {"web1": entry}}, file)
        database = Database(f"sqlite:///{directory / 'keyturn.db'}", SigningKey.create())
        migrations.upgrade_schema(database)
        self.database, self.queue = database, ManualDispatcher()
        self.fleet = Fleet(
            policies.get_policy().inventory,
            SshPool(directory, fetcher=Fetcher(directory, cache_seconds=0)),
        )
        self.service = KeyturnService(WorkflowContext(database, policies, self.fleet, self.queue))

    def approved(self, number: int) -> State:
        self.work()
        self.service.approve_run(number, person="olga", digest=self.run(number).digest)
        self.work()
        return self.run(number).state

    def run(self, number: int) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, number)

    def work(self) -> None:
        while self.queue.enqueued:
            self.service.advancer.advance_run(self.queue.enqueued.pop(0))

    def close(self) -> None:
        self.fleet.close()
        self.database.close()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[FixedResponseServer]:
    with FixedResponseServer(tmp_path) as mirror:
        mirror.replies["/feed"] = build_response(build_feed().encode())
        yield mirror


def test_csf_refresh_is_approved_verified_and_undone_through_the_gate(
    tmp_path: Path, mirror: FixedResponseServer
):
    with CsfHost() as host, closing(Gate(tmp_path, host, mirror)) as gate:
        host.restart()
        refresh = RefreshPingdom.model_validate({"host": "web1"})
        run = gate.service.request_run(refresh, RequestTerms("dora", WEB))
        assert gate.approved(run.id) == State.SUCCEEDED
        assert len(host.own.read_text().splitlines()) == len(FOURS) + len(SIXES) + 1
        undo = gate.service.request_undo(run.id, RequestTerms("dora", WEB))
        assert gate.approved(undo.id) == State.SUCCEEDED
        assert host.own.read_text() == ""
        assert not host.probations.is_armed("csf")


def test_undo_of_a_csf_refresh_works_after_the_feed_has_changed(
    tmp_path: Path, mirror: FixedResponseServer
):
    with CsfHost() as host, closing(Gate(tmp_path, host, mirror)) as gate:
        host.restart()
        refresh = RefreshPingdom.model_validate({"host": "web1"})
        run = gate.service.request_run(refresh, RequestTerms("dora", WEB))
        assert gate.approved(run.id) == State.SUCCEEDED
        mirror.replies["/feed"] = build_response(build_feed((*FOURS, "5.173.1.1")).encode())
        undo = gate.service.request_undo(run.id, RequestTerms("dora", WEB))
        assert gate.approved(undo.id) == State.SUCCEEDED
        proposal = gate.run(undo.id).plan
        assert proposal
        assert len(proposal.steps) == 3
        assert host.own.read_text() == ""
        assert not host.probations.is_armed("csf")
