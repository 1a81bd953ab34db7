"""Fault trees in YAML: written, refused, and linked to each other."""

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from bot.policy.fault_tree import EventModel, FaultTree, TreeError, TreeModel, link_tree
from bot.policy.tree_analysis import TreeAnalysis
from runbooks import Leg

SHOP = """
says: The shop
top: shop-down
gates:
  shop-down: {says: The shop is down, any: [no-balancer, storage]}
  no-balancer: {says: No balancer is left, all: [lb1, lb2]}
events:
  lb1: {says: lb1 is down, leg: lb1/haproxy, check: service status lb1 haproxy}
  lb2: {says: lb2 is down, leg: lb2/haproxy, check: service status lb2 haproxy}
"""
STORAGE = """
top: no-storage
gates:
  no-storage: {at-least: 2, of: [nas1, nas2, nas3]}
events:
  nas1: {leg: nas1, check: bond check nas1 bond0, when: Link of eth0 != up}
  nas2: {leg: nas2, undeveloped: true}
  nas3: {leg: nas3}
"""


def parse_tree(text: str) -> TreeModel:
    return TreeModel.model_validate(YAML(typ="safe", pure=True).load(text))


def link(name: str = "shop", **texts: str) -> FaultTree:
    return link_tree(name, {key: parse_tree(text) for key, text in texts.items()})


def list_cut_sets(tree: FaultTree) -> set[frozenset[str]]:
    return {frozenset(names) for names in TreeAnalysis(tree).iterate_cut_sets()}


def test_fault_tree_refers_to_the_top_of_another_file():
    tree = link(shop=SHOP, storage=STORAGE)
    assert tree.gates["shop-down"].inputs == ("no-balancer", "storage:no-storage")
    assert list_cut_sets(tree) == {
        frozenset(names)
        for names in (["lb1", "lb2"], ["nas1", "nas2"], ["nas1", "nas3"], ["nas2", "nas3"])
    }
    assert tree.events["lb1"].leg == Leg("lb1", "haproxy")
    assert EventModel.model_validate({"leg": "sw1/Gi1/0/3"}).build("a").leg == Leg(
        "sw1", "Gi1/0/3"
    )
    assert tree.events["nas2"].is_undeveloped


@pytest.mark.parametrize(
    ("before", "after", "message", "where"),
    [
        ("all: [lb1, lb2]", "all: [lb1, lb9]", "lb9 is not a gate", ("gates", "no-balancer")),
        ("all: [lb1, lb2]", "all: [lb1, lb1]", "names an input twice", ("gates", "no-balancer")),
        (
            "all: [lb1, lb2]",
            "at-least: 3, of: [lb1, lb2]",
            "between 1 and 2",
            ("gates", "no-balancer"),
        ),
        (
            "all: [lb1, lb2]",
            "all: [lb1, shop-down]",
            "no-balancer → shop-down → no-balancer|shop-down → no-balancer → shop-down",
            None,
        ),
        ("top: shop-down", "top: down", "down is not a gate or event", ("top",)),
        (
            "  lb1: {says",
            "  no-balancer: {undeveloped: true}\n  lb1: {says",
            "a gate and an event",
            None,
        ),
    ],
)
def test_mistake_in_a_fault_tree_file_is_refused_with_its_place(
    before: str, after: str, message: str, where: tuple[str, ...] | None
):
    assert before in SHOP
    with pytest.raises(TreeError, match=message) as error:
        link(shop=SHOP.replace(before, after), storage=STORAGE)
    assert where is None or error.value.where == where


def test_fault_trees_that_refer_to_each_other_are_refused():
    circular = STORAGE.replace("of: [nas1, nas2, nas3]", "of: [nas1, nas2, shop]")
    with pytest.raises(TreeError, match="trees go round in a circle: shop → storage → shop"):
        link(shop=SHOP, storage=circular)


def test_event_with_another_meaning_in_a_linked_fault_tree_is_refused():
    other = STORAGE.replace("events:\n", "events:\n  lb1: {leg: lb3}\n")
    with pytest.raises(TreeError, match="lb1 is another event"):
        link(shop=SHOP, storage=other)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("all: [lb1, lb2]", "all: [lb1], any: [lb2]", "give one of"),
        ("all: [lb1, lb2]", "at-least: 2", "give one of"),
        ("lb1 haproxy}", "lb1 haproxy, when: often}", "must compare a cell of the check's table"),
        ("check: service status lb1 haproxy}", "when: rows < 2}", "add check"),
        ("leg: lb1/haproxy", "leg: lb1 haproxy", "should match pattern"),
        ("says: lb1 is down", "talks: lb1 is down", "Extra inputs"),
    ],
)
def test_invalid_field_of_a_fault_tree_file_is_refused(before: str, after: str, message: str):
    assert before in SHOP
    with pytest.raises(ValidationError, match=message):
        parse_tree(SHOP.replace(before, after, 1))
