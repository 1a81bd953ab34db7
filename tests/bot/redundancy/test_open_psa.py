"""Open-PSA files: read, written, and refused when not coherent or not safe."""

import pytest

from bot.redundancy.analysis import TreeAnalysis
from bot.redundancy.fault_tree import TreeError
from bot.redundancy.open_psa import format_open_psa, parse_open_psa
from tests.bot.redundancy import random_trees
from tests.bot.redundancy.test_analysis import PRESSURE_TANK
from tests.bot.redundancy.test_tree_file import SHOP, STORAGE, link

# In the form of the format's own example: nested formulas, parameters, model data apart.
VALVES = """<?xml version="1.0"?>
<opsa-mef>
  <define-fault-tree name="valves">
    <label>Loss of the primary water supply</label>
    <define-gate name="top">
      <label>No water</label>
      <or>
        <basic-event name="tank"/>
        <and><gate name="train1"/><gate name="train2"/></and>
      </or>
    </define-gate>
    <define-gate name="train1"><or><event name="pump1"/><event name="valve1"/></or></define-gate>
    <define-gate name="train2">
      <atleast min="1"><basic-event name="pump2"/><basic-event name="valve2"/></atleast>
    </define-gate>
    <define-house-event name="drill"><constant value="false"/></define-house-event>
  </define-fault-tree>
  <model-data>
    <define-basic-event name="tank"><float value="1e-5"/></define-basic-event>
    <define-basic-event name="pump1"><parameter name="pump"/></define-basic-event>
    <define-basic-event name="pump2"><parameter name="pump"/></define-basic-event>
    <define-parameter name="pump"><float value="0.7"/></define-parameter>
    <define-basic-event name="valve1"><float value="0.5"/></define-basic-event>
    <define-basic-event name="valve2"><float value="0.5"/></define-basic-event>
  </model-data>
</opsa-mef>
"""


def test_open_psa_file_is_read():
    tree = parse_open_psa(VALVES)
    assert (tree.name, tree.top, tree.title) == (
        "valves",
        "top",
        "Loss of the primary water supply",
    )
    analysis = TreeAnalysis(tree)
    assert analysis.cut_sets.count_by_order() == {1: 1, 2: 4}
    assert analysis.probability == pytest.approx(1 - (1 - 1e-5) * (1 - 0.7225))


def test_open_psa_file_is_read_as_it_was_written():
    for tree in (PRESSURE_TANK, link(shop=SHOP, storage=STORAGE)):
        again = parse_open_psa(format_open_psa(tree))
        assert (again.top, again.gates, again.events) == (tree.top, tree.gates, tree.events)


def test_random_fault_trees_survive_an_open_psa_round_trip():
    for seed in range(100):
        tree = random_trees.build_random_tree(seed)
        again = parse_open_psa(format_open_psa(tree), top=tree.top)
        assert random_trees.find_minimal_cut_sets(again) == random_trees.find_minimal_cut_sets(
            tree
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<opsa-mef", "this is not XML"),
        ("<html/>", "the outermost element is <html>"),
        (
            '<!DOCTYPE x [<!ENTITY e "boom">]><opsa-mef/>',
            "the file has a DTD: remove",
        ),
        ("<opsa-mef/>", r"has 0 top gates \(none\): name one with --top"),
        (
            VALVES.replace("<or><event", "<xor><event").replace("valve1'/></or>", "</xor>"),
            "this is not XML",
        ),
        (
            VALVES.replace(
                '<or><event name="pump1"/><event name="valve1"/></or>',
                '<not><event name="pump1"/></not>',
            ),
            "gate train1 has <not>: only and, or and atleast",
        ),
        (VALVES.replace('min="1"', ""), "gate train2: <atleast> needs min"),
        (VALVES.replace('"0.7"', '"often"'), "'often' is not a number"),
        (VALVES.replace('<gate name="train2"/>', "<gate/>"), "a <gate> has no name"),
        (
            VALVES.replace('<gate name="train2"/>', '<gate name="top"/>'),
            "has 1 top gates|round in a circle|has 0 top gates",
        ),
    ],
)
def test_invalid_open_psa_file_is_refused_with_the_reason(text: str, message: str):
    with pytest.raises(TreeError, match=message):
        parse_open_psa(text)
