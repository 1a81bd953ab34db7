"""A fault tree in the form that other tools exchange has the cut sets that its numbers imply."""

import pytest

from bot.policy.tree_analysis import TreeAnalysis
from tests.bot.policy import random_trees
from tests.bot.policy.open_psa import parse_open_psa

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


def test_cut_sets_of_an_open_psa_file_have_its_probability():
    model = parse_open_psa(VALVES)
    analysis = TreeAnalysis(model.build_tree("top"))
    assert analysis.cut_sets.count_by_order() == {1: 1, 2: 4}
    assert analysis.single_points == ["tank"]
    cut_sets = [frozenset(names) for names in analysis.iterate_cut_sets()]
    computed = random_trees.compute_probability(cut_sets, model.probabilities)
    assert computed == pytest.approx(1 - (1 - 1e-5) * (1 - 0.7225))
