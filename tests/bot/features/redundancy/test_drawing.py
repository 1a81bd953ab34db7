"""Drawings of fault trees show by shape and word what colour shows."""

from xml.etree.ElementTree import Element

from defusedxml.ElementTree import fromstring

from bot.features.redundancy.drawing import draw_tree, outline_tree
from bot.policy.fault_tree import Event, FaultTree, Gate
from tests.bot.policy.test_tree_file import SHOP, STORAGE, link


def list_texts(picture: Element, tag: str) -> list[str]:
    return [element.text or "" for element in picture.iter(tag)]


def test_fault_tree_drawing_shows_each_node_once_with_its_symbol():
    tree = link(shop=SHOP, storage=STORAGE)
    picture = fromstring(draw_tree(tree, {"lb1": "failed"}))
    titles = list_texts(picture, "title")
    assert titles[0] == "Fault tree shop: The shop is down"
    assert "lb1, lb1 is down, failed" in titles
    assert "no-balancer, No balancer is left, all of 2" in titles
    assert len(titles) == 1 + 3 + 5
    assert "2/3" in list_texts(picture, "text")
    assert "failed" in list_texts(picture, "text")
    symbols = [one.tag for one in picture.iter() if one.get("class") == "tree-symbol"]
    assert symbols.count("circle") == 4  # nas2 is a diamond
    assert symbols.count("path") == 4


def test_subtree_of_several_gates_is_drawn_once_and_then_referenced():
    gates = {
        "top": Gate("top", "all", ("left", "right")),
        "left": Gate("left", "any", ("shared", "a")),
        "right": Gate("right", "any", ("shared", "b")),
        "shared": Gate("shared", "any", ("c", "d")),
    }
    tree = FaultTree("t", "top", gates, {name: Event(name) for name in "abcd"})
    titles = list_texts(fromstring(draw_tree(tree)), "title")
    assert titles.count("shared, any of 2") == 1
    assert titles.count("shared, drawn elsewhere") == 1
    assert [str(line) for line in outline_tree(tree)].count("   ├─ shared [shown above]") == 1


def test_hostile_text_in_a_fault_tree_drawing_stays_text():
    event = Event("e", title="<script>alert(1)</script> & more")
    tree = FaultTree("t", "e", {}, {"e": event})
    drawn = draw_tree(tree)
    assert "<script" not in drawn
    assert "<script>alert(1)</script> & more" in list_texts(fromstring(drawn), "title")[1]


def test_fault_tree_outline_shows_gates_events_and_states():
    tree = link(shop=SHOP, storage=STORAGE)
    assert [str(line) for line in outline_tree(tree, {"lb2": "failed since 13:40"})] == [
        "shop-down: The shop is down [any of 2]",
        "├─ no-balancer: No balancer is left [all of 2]",
        "│  ├─ lb1: lb1 is down",
        "│  └─ lb2: lb2 is down [failed since 13:40]",
        "└─ storage:no-storage [at least 2 of 3]",
        "   ├─ nas1",
        "   ├─ nas2",
        "   └─ nas3",
    ]
