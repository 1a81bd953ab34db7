"""Drift of a real nginx changed by hand: when it changed, and who was logged in."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from sqlalchemy import update

from bot.db import runs, tables
from bot.db.database import Database
from bot.features import load_hooks
from bot.features.drift import rows as drift
from bot.features.drift.actions import DriftActions
from bot.features.drift.details import read_details
from bot.features.drift.rows import DriftKey
from bot.model.drift_state import DriftState
from bot.model.run import RequestTerms, Run, State
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks.agents import BlockAgent
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, ManualDispatcher
from tests.drift_keys import read_due_keys
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd
from tests.policies import write_policy

pytestmark = pytest.mark.real

AGENT = "EvilBot/2"


@dataclass
class WebServer:
    """The service with one web server, whose shell people may use as well."""

    sshd: Sshd
    list_file: Path
    context: WorkflowContext
    queue: ManualDispatcher

    @property
    def database(self) -> Database:
        return self.context.database

    def block(self, service: KeyturnService) -> Run:
        request = BlockAgent.model_validate({"host": "web1", "agent": AGENT})
        run = service.request_run(request, RequestTerms("dora", WEB, "it scrapes"))
        self.work(service)
        service.approve_run(run.id, person="olga", digest=self.get_run(run.id).digest)
        self.work(service)
        return self.get_run(run.id)

    def work(self, service: KeyturnService) -> None:
        while self.queue.enqueued:
            service.advancer.advance_run(self.queue.enqueued.pop(0))

    def get_run(self, number: int) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, number)

    def read_now(self, service: KeyturnService) -> DriftKey:
        with self.database.transaction() as tx:
            tx.sql.execute(update(tables.drift_key).values(next_at=0))
        read_due_keys(service)
        with self.database.reading() as tx:
            (key,) = drift.list_keys(tx)
        return key


@pytest.fixture
def web(sshd: Sshd, tmp_path: Path) -> Iterator[WebServer]:
    nginx = Nginx("include keyturn-agents.conf;")
    list_file = nginx.directory / "keyturn-agents.conf"
    list_file.touch()
    settings = {"nginx.config": str(nginx.configuration), "nginx.agents": str(list_file)}
    policies = write_policy(tmp_path / "policy")
    entry = sshd.inventory_entry(area="web", settings=settings)
    with (tmp_path / "policy" / "inventory.yaml").open("w") as file:
        YAML().dump({"hosts": {"web1": entry}}, file)
    fleet = Fleet(policies.get_policy().inventory, SshPool(tmp_path / "policy"))
    queue = ManualDispatcher()
    database = create_sqlite_database(tmp_path / "keyturn.db")
    with nginx:
        context = WorkflowContext(database, policies, fleet, queue, hooks=load_hooks())
        yield WebServer(sshd, list_file, context, queue)
    fleet.close()
    database.close()


def test_drift_of_a_value_changed_by_hand_is_found_explained_and_restored(web: WebServer):
    service = KeyturnService(web.context)
    run = web.block(service)
    assert run.state is State.SUCCEEDED
    assert web.read_now(service).state is DriftState.AS_SET
    web.sshd.type_by_hand(f"sed -i /EvilBot/d {web.list_file}")
    key = web.read_now(service)
    assert (key.name, key.state) == (f"agent nginx {AGENT}", DriftState.CHANGED)
    assert (key.value, key.set_value) == ("allowed", "answered with 403")
    policy = web.context.policies.get_policy()
    with web.database.reading(policy.get_view_rights("olga")) as tx:
        details = read_details(tx, policy, key.id, person="olga")
    logins = [one.account for one in details.candidates if one.kind == "login"]
    # Only a server that root has started writes them down, and other tests log in meanwhile.
    assert web.sshd.user in logins or os.geteuid() != 0
    again = service.bind(DriftActions).restore_value(
        key.id, RequestTerms("dora", WEB, "a mistake")
    )
    web.work(service)
    again = web.get_run(again.id)
    assert again.plan
    assert "changed outside Keyturn between" in again.plan.notes[-1]
    service.approve_run(again.id, person="olga", digest=again.digest)
    web.work(service)
    assert web.get_run(again.id).state is State.SUCCEEDED
    assert web.read_now(service).state is DriftState.AS_SET
