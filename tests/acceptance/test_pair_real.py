"""Two real SSH hosts carry a service: the one that is left is not taken down."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pydantic import Field

from bot.db import runs
from bot.features import load_hooks
from bot.model.run import RequestTerms, Run, State
from bot.queries.policy_facts import PolicyWithFacts
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import Query, QueryRunner, Shell
from connectors.fleet import Fleet
from connectors.ssh_pool import SshPool
from runbooks import Change, Host, Leg, Plan, Step
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, ManualDispatcher
from tests.playground.fleet import LoopbackFleet, Place
from tests.policies import write_policy

pytestmark = pytest.mark.real

PAIR = (Place("lb1", "edge"), Place("lb2", "edge"))


class SetFile(Change[str], words="file set", example="lb1 /tmp/a on"):
    """Write one word into a file, with its host down meanwhile."""

    host: Host
    file: str
    value: str = Field(pattern="^[a-z]+$")

    def read(self, run_query: QueryRunner) -> str:
        return run_query(self.host, Query(Shell(("cat", self.file)), str.strip))

    def plan(self, state: str) -> Plan:
        if state == self.value:
            return Plan(f"it is {state}")
        do, undo = (Shell(("tee", self.file), stdin=word) for word in (self.value, state))
        return Plan(f"it is {state}", [Step("Set it", self.host, do=do, undo=undo)])

    def takes_down(self) -> Sequence[Leg]:
        return [Leg(self.host)]


class Pair:
    """The workflow over both hosts; nothing happens but what `work` does."""

    def __init__(self, directory: Path, hosts: LoopbackFleet) -> None:
        self.hosts, self.directory, self.queue = hosts, directory, ManualDispatcher()
        inventory_text = hosts.inventory_file.read_text()
        policies = write_policy(hosts.directory)
        hosts.inventory_file.write_text(f"{inventory_text}redundant: [lb1, lb2]\n")
        inventory = policies.get_policy().inventory
        self.fleet = Fleet(inventory, SshPool(hosts.directory))
        self.database = create_sqlite_database(directory / "keyturn.db")
        hooks = load_hooks()
        self.context = WorkflowContext(
            self.database,
            PolicyWithFacts(policies, self.database, hooks.policy_facts),
            self.fleet,
            self.queue,
            runbooks={SetFile.words: SetFile},
            hooks=hooks,
        )
        self.service = KeyturnService(self.context)

    def change(self, host: str, value: str = "on") -> Run:
        file = self.directory / host
        if not file.exists():
            file.write_text("off")
        request = SetFile(host=host, file=str(file), value=value)
        run = self.service.request_run(request, RequestTerms("dora", WEB))
        self.work()
        return self.get_run(run.id)

    def approve(self, run: Run) -> Run:
        for person in ("olga", "adam"):
            self.service.approve_run(run.id, person=person, digest=run.digest)
        self.work()
        return self.get_run(run.id)

    def work(self) -> None:
        while self.queue.enqueued:
            self.service.advancer.advance_run(self.queue.enqueued.pop(0))

    def get_run(self, number: int) -> Run:
        with self.database.reading() as tx:
            return runs.get_run(tx, number)

    def read_file(self, host: str) -> str:
        return (self.directory / host).read_text()

    def close(self) -> None:
        self.fleet.close()
        self.database.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    hosts = LoopbackFleet(tmp_path / "policy", places=PAIR)
    with hosts:
        made = Pair(tmp_path, hosts)
        yield made
        made.close()


def test_plan_for_one_host_is_refused_while_the_other_refuses_connections(pair: Pair):
    pair.hosts.hosts["lb2"].stop()
    run = pair.change("lb1")
    assert run.state is State.REFUSED
    assert run.summary.startswith("lb2 could not be reached at 20")
    assert "refused the connection: check that sshd is running" in run.summary
    assert "This change would take lb1 down too" in run.summary


def test_change_is_refused_at_the_gate_when_the_other_host_dies_after_the_plan(pair: Pair):
    run = pair.change("lb1")
    assert run.state is State.PENDING
    assert run.plan
    assert "Redundancy of lb1-lb2: margin 2 → 1 without lb1 (cut set lb1, lb2)." in run.plan.notes
    pair.hosts.hosts["lb2"].stop()
    ended = pair.approve(run)
    assert ended.state is State.REFUSED
    assert "lb2 could not be reached at 20" in ended.summary
    assert pair.read_file("lb1") == "off"


def test_change_of_one_host_is_made_while_the_other_answers(pair: Pair):
    assert pair.approve(pair.change("lb1")).state is State.SUCCEEDED
    assert pair.read_file("lb1") == "on"
