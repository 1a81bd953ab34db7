"""Reading many hosts at once."""

import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bot.db import runs
from bot.model.run import RequestTerms, Run, State
from bot.service import KeyturnService
from connectors.command import Query, QueryRunner, Shell
from connectors.errors import UnreachableError
from runbooks import Check, Host, Refused, Report
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import INVENTORY
from tests.toy import RUNBOOKS, SHOW, SetSwitch, ShowSwitches, Switches, ToyFleet

NAMES = [f"lb{n}" for n in range(1, 7)]
OTHER = Query(Shell(("show", "other")), lambda text: f"other {text}")


class ShowTwice(Check[tuple[Switches, Switches, str]], words="toy twice", example="lb1"):
    """Ask the same twice, and then something else."""

    host: Host

    def read(self, ask: QueryRunner) -> tuple[Switches, Switches, str]:
        return ask(self.host, SHOW), ask(self.host, SHOW), ask(self.host, OTHER)

    def report(self, switches: tuple[Switches, Switches, str]) -> Report:
        first, second, other = switches
        return Report(f"{first} {second} {other}")


class RefuseAtOnce(Check[Switches], words="toy refuse", example="lb1"):
    """Refuse before anything is asked."""

    host: Host

    def read(self, ask: QueryRunner) -> Switches:
        if self.host == "lb2":
            raise Refused("not this one")
        return ask(self.host, SHOW)

    def report(self, switches: Switches) -> Report:
        return Report(f"{len(switches)} switches")


class Noted(ToyFleet):
    """Notes which thread asked which host."""

    def __init__(self) -> None:
        super().__init__(hosts={name: {"lamp": "off"} for name in NAMES})
        self.by: list[tuple[str, str, str]] = []

    def run_query(self, host: str, query: Query[Any], /) -> Any:
        self.by.append((threading.current_thread().name, host, str(query.command)))
        return super().run_query(host, query)


@pytest.fixture
def fleet() -> Noted:
    return Noted()


@pytest.fixture
def harness(tmp_path: Path, fleet: Noted, monkeypatch: pytest.MonkeyPatch) -> Generator[Harness]:
    for runbook in (ShowTwice, RefuseAtOnce):
        monkeypatch.setitem(cast("dict[str, object]", RUNBOOKS), runbook.words, runbook)
    with open_harness(tmp_path) as harness:
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in NAMES[2:])
        (harness.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        harness.context = replace(harness.context, fleet=fleet)
        harness.service = KeyturnService(harness.context)
        yield harness


def _request_child_runs(harness: Harness, requests: Sequence[Any]) -> list[Run]:
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    with harness.database.reading() as tx:
        return runs.list_children(tx, run.id)


def test_check_of_many_hosts_reads_them_concurrently(harness: Harness, fleet: Noted):
    all_there = threading.Barrier(len(NAMES))
    fleet.before_query = lambda _: cast("None", all_there.wait(30))
    parts = _request_child_runs(harness, [ShowSwitches(host=name) for name in NAMES])
    assert {run.state for run in parts} == {State.SUCCEEDED}
    assert sorted(host for _, host, _ in fleet.by) == NAMES


def test_check_with_several_queries_sends_each_query_once(harness: Harness, fleet: Noted):
    parts = _request_child_runs(harness, [ShowTwice(host=name) for name in NAMES])
    lamp = {"lamp": "off"}
    assert {run.summary for run in parts} == {f"{lamp} {lamp} other lamp=off"}
    asked = sorted((host, words) for _, host, words in fleet.by)
    each = ["show", "show", "show other"]
    assert asked == [(name, words) for name in NAMES for words in each]


def test_error_of_one_host_fails_only_its_child_run(harness: Harness, fleet: Noted):
    def stumble(host: str) -> None:
        if host in {"lb2", "lb5"}:
            raise UnreachableError("lb2 is down" if host == "lb2" else "no route")

    fleet.before_query = stumble
    parts = _request_child_runs(harness, [ShowSwitches(host=name) for name in NAMES])
    failed = {run.host: run.summary for run in parts if run.state is State.FAILED}
    assert failed == {"lb2": "lb2 is down", "lb5": "lb5: no route"}
    assert sum(run.state is State.SUCCEEDED for run in parts) == 4


def test_check_that_refuses_before_its_first_query_is_refused(harness: Harness, fleet: Noted):
    parts = _request_child_runs(harness, [RefuseAtOnce(host=name) for name in NAMES[:3]])
    assert [run.state for run in parts] == [State.SUCCEEDED, State.REFUSED, State.SUCCEEDED]
    assert parts[1].summary == "not this one"


def test_change_of_many_hosts_is_planned_for_each_host(harness: Harness, fleet: Noted):
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(rules.read_text().replace('@approvals("1")', '@approvals("1") @hosts("6")'))
    parts = _request_child_runs(
        harness, [SetSwitch(host=name, name="lamp", value="on") for name in NAMES]
    )
    assert {run.state for run in parts} == {State.PENDING}
