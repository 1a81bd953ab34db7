"""Fault trees in the policy directory: loaded with it, and refused with file and line."""

from pathlib import Path

import pytest

from bot.policy import NoPolicyError
from bot.policy.loader import check_access, load_policy
from tests.policies import write_policy

SHOP = """\
top: no-balancer
gates:
  no-balancer: {says: No balancer is left, all: [lb1, lb2]}
events:
  lb1: {leg: lb1/haproxy, check: service status lb1 haproxy}
  lb2: {leg: lb2/haproxy, check: service status lb2 haproxy}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_policy(tmp_path)
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "shop.yaml").write_text(SHOP)
    return tmp_path


def test_fault_trees_and_redundant_hosts_belong_to_the_policy(directory: Path):
    inventory = directory / "inventory.yaml"
    inventory.write_text(inventory.read_text() + "redundant: [[lb1, lb2], [web1, nas1]]\n")
    policy = load_policy(directory)
    assert [*policy.trees] == ["lb1-lb2", "shop", "web1-nas1"]
    assert [*policy.trees["shop"].iterate_cut_sets()] == [("lb1", "lb2")]
    assert [*policy.events_by_check] == [
        "service status lb1 haproxy",
        "service status lb2 haproxy",
    ]


def test_policy_version_changes_with_a_fault_tree(directory: Path):
    before = load_policy(directory).version
    (directory / "trees" / "shop.yaml").write_text(SHOP.replace("No balancer", "No one"))
    assert load_policy(directory).version != before


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("all: [lb1, lb2]", "all: [lb1, lb9]", "shop.yaml, line 3: lb9 is not a gate"),
        ("leg: lb2/haproxy", "leg: lb9/haproxy", "shop.yaml, line 6: event lb2: lb9 is not in"),
        ("status lb2", "status lb9", "shop.yaml, line 6: event lb2: lb9 is not in the inventory"),
        ("service status lb1", "service sttus lb1", "shop.yaml, line 5: event lb1: There is no"),
        (
            "service status lb1 haproxy",
            "service restart lb1 haproxy",
            "shop.yaml, line 5: event lb1: service restart is a change",
        ),
        (
            "service status lb1 haproxy",
            "service status host=lb1 haproxy",
            "shop.yaml, line 5: event lb1: write the check as `service status lb1 haproxy`",
        ),
        ("says:", "tells:", "shop.yaml, line 3: gates.no-balancer.tells: is an unknown field"),
        ("top: no-balancer", "top: [x", "shop.yaml, line "),
    ],
)
def test_mistake_in_a_fault_tree_is_refused_with_file_and_line(
    directory: Path, before: str, after: str, message: str
):
    assert before in SHOP
    (directory / "trees" / "shop.yaml").write_text(SHOP.replace(before, after, 1))
    policy = load_policy(directory)
    assert message in "; ".join(map(str, policy.tree_problems))
    assert not policy.trees


BOND = """\
top: net-down
gates:
  net-down: {says: No leg of the bond is left, all: [leg0, leg1]}
events:
  leg0: {leg: nas1/eth0, check: bond check nas1, when: Link of eth0 != up}
  leg1: {leg: nas1/eth1, check: bond check nas1, when: Link of eth1 != up}
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("", "", ""),
        # One finding of the check would fail both events, and with them the whole service.
        (", when: Link of eth0 != up", "", "line 5: event leg0: has no `when:`, so one result of"),
        (", when: Link of eth1 != up", "", "line 6: event leg1: has no `when:`, so one result of"),
        ("eth1 != up", "eth0  !=  up", "line 5: event leg0: has the condition of leg1, `Link of"),
        ("Link of eth0 != up", "members < 2", "line 5: event leg0: when: the table has 8 columns"),
        (
            "Link of eth0",
            "Lnk of eth0",
            "line 5: event leg0: when: the table has no column called",
        ),
        ("Link of eth0 != up", "often", "line 5: events.leg0.when: must compare a cell"),
        (
            "Link of eth0 != up",
            '"Member = eth0 and Link != up"',
            "line 5: event leg0: when: the table has 8 columns, so name one",
        ),
        (
            "check: bond check nas1, when: Link of eth0 != up",
            "check: service status nas1 ssh, when: stat != active (running)",
            "line 5: event leg0: when: the table has no row stat; it has description, state",
        ),
        (
            "check: bond check nas1, when: Link of eth0 != up",
            "check: uptime check nas1, when: rows < 1",
            "line 5: event leg0: when: uptime check reports no table: leave it out",
        ),
        (
            ", check: bond check nas1, when: Link of eth0 != up",
            "",
            "line 5: event leg0: a contact with nas1 says nothing about its part eth0",
        ),
        (
            "leg: nas1/eth0, check: bond check nas1, when: Link of eth0 != up",
            "says: eth0 is down",
            "line 5: event leg0: has neither leg nor check, so nothing can be known of it",
        ),
        (
            "leg: nas1/eth0, check: bond check nas1, when: Link of eth0 != up",
            "undeveloped: true",
            "",
        ),
        (
            BOND.partition("events:\n")[2],
            "  leg0: {leg: nas1}\n  leg1: {leg: nas1}\n",
            "line 5: event leg0: leg1 is the same leg, nas1: use one event in both places",
        ),
    ],
)
def test_event_of_which_nothing_can_be_known_is_refused_with_file_and_line(
    directory: Path, before: str, after: str, message: str
):
    assert before in BOND
    (directory / "trees" / "shop.yaml").write_text(BOND.replace(before, after, 1))
    problems = [*map(str, load_policy(directory).tree_problems)]
    assert len(problems) == bool(message)
    assert all(problem.startswith(f"trees/shop.yaml, {message}") for problem in problems)


def test_invalid_fault_tree_leaves_the_other_trees_in_force(directory: Path):
    (directory / "trees" / "net.yaml").write_text(BOND)
    (directory / "trees" / "shop.yaml").write_text("top: [x")
    policy = load_policy(directory)
    assert [*policy.trees] == ["net"]
    assert [problem.file for problem in policy.tree_problems] == ["trees/shop.yaml"]
    assert policy.without_people({"dora"}).tree_problems == policy.tree_problems


def test_redundant_host_that_does_not_exist_is_refused(directory: Path):
    inventory = directory / "inventory.yaml"
    inventory.write_text(inventory.read_text() + "redundant: [lb1, lb9]\n")
    with pytest.raises(NoPolicyError, match="lb9 is not in the inventory"):
        load_policy(directory)


def test_fault_tree_that_others_can_write_is_refused(directory: Path):
    file = directory / "trees" / "shop.yaml"
    check_access(directory)
    file.chmod(0o666)
    with pytest.raises(NoPolicyError, match=r"shop\.yaml"):
        check_access(directory)


def test_directory_of_fault_trees_that_others_can_write_is_refused(directory: Path):
    check_access(directory)
    (directory / "trees").chmod(0o777)
    with pytest.raises(NoPolicyError, match="trees is writable by others"):
        check_access(directory)


def test_edited_fault_tree_is_used_by_the_next_request(directory: Path):
    policies = write_policy(directory)
    assert [*policies.get_policy().trees] == ["shop"]
    (directory / "trees" / "shop.yaml").unlink()
    assert [*policies.get_policy().trees] == []
