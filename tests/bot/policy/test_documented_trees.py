"""Fault trees of the documentation and of the starter policy, on real reports of their checks."""

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from bot.policy.loader import load_policy
from bot.policy.tree_condition import has_failed, parse_condition
from connectors import systemd
from connectors.command import QueryCommand
from runbooks import Report
from tests.connectors.test_systemd import ANSWERS
from tests.policies import write_policy
from tests.runbooks.declared import load_check
from tests.runbooks.test_bond_check import CHECK, healthy
from tests.scripted_fleet import Replies, ScriptedFleet

_PAGE = (Path(__file__).parents[3] / "docs" / "redundancy.md").read_text()
_TREES = re.findall(r"```yaml\n((?:says: [^\n]*\n)?top: .*?)```", _PAGE, re.DOTALL)
_STARTER = (files("bot.policy") / "starter" / "trees" / "example.yaml").read_text()
# The conditions of the table in the page, and of the comments in the starter's tree.
_CONDITIONS = [
    *re.findall(r"^\| `([^`]+ (?:!=|<) [^`]+)` \|", _PAGE, re.MULTILINE),
    *re.findall(r"^#\s+check: .*?, when: (.+)$", _STARTER, re.MULTILINE),
]


def report_bond(**links: str) -> Report:
    """Return the report of a recorded bond. links: the state of some of its members."""
    state = healthy()
    members = [
        replace(one, link_state=links.get(one.name, one.link_state)) for one in state.bond.members
    ]
    return CHECK.report(replace(state, bond=replace(state.bond, members=tuple(members))))


def report_service(name: str, service: str) -> Report:
    """Return the report of a recorded service."""
    look = load_check("service status").model_validate({"host": "lb1", "service": service})
    answers: dict[tuple[str, str | QueryCommand], Replies] = {
        ("lb1", systemd.query_service(service).command): (ANSWERS / f"{name}.txt").read_text(),
        ("lb1", systemd.query_journal(service).command): "",
    }
    return look.report(look.read(ScriptedFleet(answers).run_query))


# Of each event, a report that means that it has happened, and one that means that it has not.
_BOND_REPORTS: Mapping[str, tuple[Report, Report]] = {
    f"leg{n}": (report_bond(**{f"eth{n}": "down"}), report_bond(**{f"eth{1 - n}": "down"}))
    for n in (0, 1)
}
_SERVICE_REPORTS = (report_service("failed", "broken"), report_service("running", "web"))


@pytest.mark.parametrize("text", _TREES)
def test_documented_fault_tree_is_valid_and_its_conditions_hold_on_real_reports(
    tmp_path: Path, text: str
):
    write_policy(tmp_path)
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "shop.yaml").write_text(text)
    (tmp_path / "trees" / "storage.yaml").write_text(
        "top: down\nevents:\n  down: {undeveloped: true}\n"
    )
    policy = load_policy(tmp_path)
    assert not policy.tree_problems
    checked = [event for event in policy.trees["shop"].events if event.check]
    assert len(checked) == 2
    for event in checked:
        is_bond = event.check.startswith("bond check")
        down, up = _BOND_REPORTS[event.name] if is_bond else _SERVICE_REPORTS
        assert has_failed(down, event.when)
        assert not has_failed(up, event.when)


def test_documentation_has_a_fault_tree_with_conditions():
    assert len(_TREES) == 2
    assert any("when: Link of eth0 != up" in text for text in _TREES)


@pytest.mark.parametrize(
    ("condition", "down", "up"),
    [
        ("Link of eth0 != up", *_BOND_REPORTS["leg0"]),
        ("state != active (running)", *_SERVICE_REPORTS),
        ("rows < 2", Report("no members"), report_bond()),
    ],
)
def test_documented_condition_holds_on_real_reports(condition: str, down: Report, up: Report):
    assert condition in _CONDITIONS
    assert has_failed(down, condition)
    assert not has_failed(up, condition)


def test_every_documented_condition_is_tried():
    # The one with two cells is in test_condition.py, with the report of two routers.
    assert {*_CONDITIONS} == {
        *("Link of eth0 != up", "state != active (running)", "rows < 2"),
        "State of sw1 Vlan10 != Active",
    }
    assert parse_condition("State of sw1 Vlan10 != Active").row == "sw1 Vlan10"


def test_starter_fault_tree_is_valid(tmp_path: Path):
    write_policy(tmp_path)
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "example.yaml").write_text(_STARTER)
    assert not load_policy(tmp_path).tree_problems
