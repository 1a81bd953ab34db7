"""Two real HAProxy hosts carry a shop: the last one that runs is not restarted."""

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.db import runs
from bot.features import load_hooks
from bot.features.redundancy import claims, rows
from bot.model.run import RequestTerms, Run, State
from bot.queries.policy_facts import PolicyWithFacts
from bot.service import KeyturnService
from bot.workflow.context import WorkflowContext
from connectors.command import NO_HOOKS, Answer, RunHooks
from connectors.fleet import Fleet
from connectors.inventory import Host
from runbooks.service_control import RestartService
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import WEB, ManualDispatcher
from tests.playground.daemon import find_free_port
from tests.playground.systemd import Systemd, explain_missing_support
from tests.policies import write_policy
from tests.runbooks.declared import load_check

_MISSING = explain_missing_support()
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_MISSING), reason=f"systemd cannot run here: {_MISSING}"),
]

_WHEN = "state != active (running)"
_TREE = f"""\
says: The shop
top: no-balancer
gates:
  no-balancer: {{says: No balancer is left, all: [lb1, lb2]}}
events:
  lb1: {{leg: lb1/haproxy, check: service status lb1 haproxy, when: {_WHEN}}}
  lb2: {{leg: lb2/haproxy, check: service status lb2 haproxy, when: {_WHEN}}}
"""


class TwoHosts:
    """Runs commands on one of several systemds, by the name of the host."""

    def __init__(self, hosts: Mapping[str, Systemd]) -> None:
        self.hosts = hosts

    def run(
        self,
        host: Host,
        command: object,
        /,
        *,
        through: tuple[Host, ...] = (),
        hooks: RunHooks = NO_HOOKS,
    ) -> Answer:
        return self.hosts[host.name].run(host, command, through=through, hooks=hooks)

    def close(self) -> None:
        """Each host is closed by the test."""


class Shop:
    """The workflow over both hosts; nothing happens but what `work` does."""

    def __init__(self, directory: Path, hosts: Mapping[str, Systemd]) -> None:
        policies = write_policy(directory / "policy")
        (directory / "policy" / "trees").mkdir()
        (directory / "policy" / "trees" / "shop.yaml").write_text(_TREE)
        self.hosts, self.queue = hosts, ManualDispatcher()
        fleet = Fleet(policies.get_policy().inventory, TwoHosts(hosts))
        self.database = create_sqlite_database(directory / "keyturn.db")
        hooks = load_hooks()
        known = PolicyWithFacts(policies, self.database, hooks.policy_facts)
        self.context = WorkflowContext(self.database, known, fleet, self.queue, hooks=hooks)
        self.service = KeyturnService(self.context)

    def restart(self, host: str) -> Run:
        request = RestartService.model_validate({"host": host, "service": "haproxy"})
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

    def wait_for_second(self, host: str) -> None:
        """Wait until a request made now asks for a start after the last one, in whole seconds."""
        look = load_check("service status").model_validate({"host": host, "service": "haproxy"})
        start = look.read(self.context.fleet.run_query)[0].started_at
        assert start is not None
        while datetime.now(UTC) < start + timedelta(seconds=3):
            time.sleep(0.02)

    def list_claims(self) -> list[str]:
        with self.database.reading() as tx:
            return [claim.event for claim in rows.list_claims(tx)]


@contextmanager
def _start_host(directory: Path) -> Generator[Systemd]:
    configuration = directory / "haproxy.cfg"
    directory.mkdir()
    port = find_free_port("127.0.0.1")
    configuration.write_text(
        f"global\n  stats socket {directory}/haproxy.sock\n"
        f"listen shop\n  bind 127.0.0.1:{port}\n  mode tcp\n"
        "  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\n"
    )
    unit = (
        "[Unit]\nDescription=HAProxy\n[Service]\n"
        f"ExecStart=/usr/sbin/haproxy -db -f {configuration}\n"
    )
    with Systemd({"haproxy.service": unit}) as host:
        host.systemctl("start", "haproxy")
        yield host


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with ExitStack() as stack:
        names = ("lb1", "lb2")
        hosts = {name: stack.enter_context(_start_host(tmp_path / name)) for name in names}
        made = Shop(tmp_path, hosts)
        for name in names:
            made.wait_for_second(name)
        yield made
        made.database.close()


def test_restart_of_the_last_balancer_is_refused_by_name(shop: Shop):
    shop.hosts["lb2"].systemctl("stop", "haproxy")
    run = shop.restart("lb1")
    assert run.state is State.REFUSED
    assert "lb2 is down since" in run.summary
    assert "This change would take lb1 down too: No balancer is left" in run.summary
    assert "cut set shop: lb1, lb2" in run.summary


def test_restart_is_refused_at_the_gate_when_the_other_balancer_stopped_meanwhile(shop: Shop):
    run = shop.restart("lb1")
    assert run.state is State.PENDING
    assert run.plan
    assert "Redundancy of shop: margin 2 → 1 without lb1 (cut set lb1, lb2)." in run.plan.notes
    shop.hosts["lb2"].systemctl("stop", "haproxy")
    look = load_check("service status").model_validate({"host": "lb2", "service": "haproxy"})
    shop.service.request_run(look, RequestTerms("olga", WEB))
    shop.work()
    assert shop.approve(run).state is State.REFUSED


def test_second_balancer_is_restarted_once_the_first_is_healthy_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claims, "_SETTLE", 0)
    monkeypatch.setattr(claims, "_CHECK_INTERVAL", 0)
    first, second = shop.restart("lb1"), shop.restart("lb2")
    assert shop.approve(first).state is State.SUCCEEDED
    assert shop.list_claims() == ["lb1"]
    refused = shop.approve(second)
    assert refused.state is State.REFUSED
    assert f"run {first.id} of Dora Developer" in refused.summary
    shop.hosts["lb1"].systemctl("stop", "haproxy")
    claims.release_due_claims(shop.context)
    assert shop.list_claims() == ["lb1"]
    shop.hosts["lb1"].systemctl("start", "haproxy")
    claims.release_due_claims(shop.context)
    assert shop.list_claims() == []
    assert shop.approve(shop.restart("lb2")).state is State.SUCCEEDED


def test_restart_of_a_balancer_is_allowed_while_both_are_down(shop: Shop):
    shop.hosts["lb1"].systemctl("stop", "haproxy")
    shop.hosts["lb2"].systemctl("stop", "haproxy")
    # systemd restarts what has failed, and Keyturn starts nothing that people have stopped.
    shop.hosts["lb2"].write("haproxy.service", "[Unit]\n[Service]\nExecStart=/bin/false\n")
    shop.hosts["lb2"].systemctl("daemon-reload")
    shop.hosts["lb2"].systemctl("start", "haproxy")
    run = shop.restart("lb2")
    assert run.state is State.PENDING
