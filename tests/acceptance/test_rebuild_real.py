"""Random histories on a real host, and a new host rebuilt from Keyturn's record of the first.

Each host is a real sshd with a real nginx and a real Apache, whose lists of blocked agents Keyturn
sets. `make chaos` plays 100 histories, `make test` plays two.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from bot.db import runs
from bot.features import load_hooks
from bot.features.rebuild.actions import RebuildActions
from bot.model.run import RequestTerms, Run, State
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors import apache_agents, nginx_agents
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks.agents import BlockAgent, UnblockAgent
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, ManualDispatcher
from tests.campaigns import CHAOS
from tests.playground.apache import Apache
from tests.playground.nginx import Nginx
from tests.playground.sshd import Sshd
from tests.policies import write_policy

pytestmark = pytest.mark.real

AGENTS = ("EvilBot/2", "C++ Crawler", "scraper.example")
SERVERS = {"nginx": nginx_agents, "apache": apache_agents}


class Site:
    """A Keyturn with two hosts, web1 and web2."""

    def __init__(self, directory: Path, hosts: dict[str, object]) -> None:
        policies = write_policy(directory / "policy")
        with (directory / "policy" / "inventory.yaml").open("w") as file:
            YAML().dump({"hosts": hosts}, file)
        self.fleet = Fleet(policies.get_policy().inventory, SshPool(directory))
        self.database = create_sqlite_database(directory / "keyturn.db")
        self.queue = ManualDispatcher()
        self.service = KeyturnService(
            WorkflowContext(self.database, policies, self.fleet, self.queue, hooks=load_hooks())
        )

    def finish(self, run: Run) -> Run:
        """Plan and approve a run, execute all that is queued, and return it."""
        self._work()
        run = self._get_run(run)
        if run.state is State.PENDING:
            self.service.approve_run(run.id, person="olga", digest=run.digest)
            self._work()
        return self._get_run(run)

    def request(self, kind: type[BlockAgent | UnblockAgent], agent: str, server: str) -> Run:
        values = {"host": "web1", "agent": agent, "server": server}
        request = kind.model_validate(values)
        return self.finish(self.service.request_run(request, RequestTerms("dora", WEB)))

    def rebuild(self) -> Run:
        return self.finish(
            self.service.bind(RebuildActions).request_rebuild(
                "web1", RequestTerms("dora", WEB), new_host="web2"
            )
        )

    def list_blocked(self, host: str) -> dict[str, frozenset[str]]:
        return {
            name: frozenset(self.fleet.run_query(host, connector.query_agents()).refused)
            for name, connector in SERVERS.items()
        }

    def close(self) -> None:
        self.fleet.close()
        self.database.close()

    def _work(self) -> None:
        while self.queue.enqueued:
            self.service.advancer.advance_run(self.queue.enqueued.pop(0))

    def _get_run(self, run: Run) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, run.id)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        hosts: dict[str, object] = {}
        for name in ("web1", "web2"):
            sshd, apache = stack.enter_context(Sshd()), Apache()
            (apache.conf_d / "keyturn-agents.conf").touch()
            nginx = Nginx("include keyturn-agents.conf;")
            (nginx.directory / "keyturn-agents.conf").touch()
            stack.enter_context(apache)
            stack.enter_context(nginx)
            settings = {
                "nginx.config": str(nginx.configuration),
                "nginx.agents": f"{nginx.directory}/keyturn-agents.conf",
                "apache.control": str(apache.control),
                "apache.agents": f"{apache.conf_d}/keyturn-agents.conf",
            }
            hosts[name] = sshd.inventory_entry(area="web", settings=settings)
        site = Site(tmp_path, hosts)
        stack.callback(site.close)
        yield site


@pytest.mark.parametrize("seed", range(CHAOS // 10 or 2))
def test_rebuilt_real_host_equals_the_first_after_a_random_history(site: Site, seed: int):
    chance = random.Random(seed)  # noqa: S311 - no secret
    done: list[Run] = []
    for _ in range(chance.randint(4, 7)):
        if done and chance.random() < 0.3:
            undo = site.service.request_undo(chance.choice(done).id, RequestTerms("dora", WEB))
            site.finish(undo)
            continue
        # The first one changes something: without a change, a history proves nothing.
        kind = chance.choice([BlockAgent, BlockAgent, UnblockAgent]) if done else BlockAgent
        run = site.request(kind, chance.choice(AGENTS), chance.choice(sorted(SERVERS)))
        assert run.state in {State.SUCCEEDED, State.NO_CHANGES}, run.summary
        done += [run] * (run.state is State.SUCCEEDED)
    blocked = site.list_blocked("web1")
    if site.service.bind(RebuildActions).read_rebuild("web1", view_rights=None).values:
        run = site.rebuild()
        assert run.state in {State.SUCCEEDED, State.NO_CHANGES}, run.summary
        # Every plan is empty then.
        assert site.rebuild().state is State.NO_CHANGES
    assert site.list_blocked("web2") == site.list_blocked("web1") == blocked
