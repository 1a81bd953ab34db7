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
    with pytest.raises(NoPolicyError) as error:
        load_policy(directory)
    assert message in str(error.value)


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
