"""`keyturn tree`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from tests.bot.harness import open_harness
from tests.bot.policy.test_trees import SHOP
from tests.policies import write_policy

VALVES = """\
top: top
gates:
  top: {says: No water, any: [tank, trains]}
  trains: {all: [train1, train2]}
  train1: {any: [pump1, valve1]}
  train2: {any: [pump2, valve2]}
events: {tank: {}, pump1: {}, pump2: {}, valve1: {}, valve2: {}}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_policy(tmp_path / "policy")
    (tmp_path / "policy" / "trees").mkdir()
    (tmp_path / "policy" / "trees" / "shop.yaml").write_text(SHOP)
    monkeypatch.setenv("KEYTURN_POLICY", str(tmp_path / "policy"))
    monkeypatch.setenv("KEYTURN_DATA", str(tmp_path))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["tree", *words])


def test_tree_check_counts_gates_events_and_cut_sets():
    assert run("check").output == (
        "shop: valid, 1 gate, 2 events, 1 minimal cut set, 0 single points of failure\n"
    )


def test_tree_check_prints_file_and_line_of_an_error(place: Path):
    file = place / "x.yaml"
    file.write_text(SHOP.replace("all: [lb1, lb2]", "all: [lb1, lb9]"))
    checked = run("check", "--file", str(file))
    assert checked.exit_code == 2
    assert "x.yaml, line 3: lb9 is not a gate, event or tree" in checked.stderr


def test_tree_draw_prints_an_outline_or_writes_svg(place: Path):
    assert run("draw", "shop").output.splitlines()[0] == (
        "no-balancer: No balancer is left [all of 2]"
    )
    picture = place / "shop.svg"
    assert run("draw", "shop", "--svg", str(picture)).output == f"wrote {picture}\n"
    assert picture.read_text().startswith("<svg")


def test_tree_analyse_counts_cut_sets_and_names_single_points_of_failure(place: Path):
    file = place / "valves.yaml"
    file.write_text(VALVES)
    assert json.loads(run("analyse", "--file", str(file), "--json").output) == {
        "tree": "valves",
        "minimal_cut_sets": 5,
        "by_order": {"1": 1, "2": 4},
        "single_points": ["tank"],
    }
    assert run("analyse", "--file", str(file)).output.splitlines() == [
        "valves: No water",
        "single points of failure: tank",
        "minimal cut sets:         5 (1 of size 1, 4 of size 2)",
    ]


def test_tree_cuts_lists_the_smallest_cut_sets_first(place: Path):
    file = place / "valves.yaml"
    file.write_text(VALVES)
    listed = run("cuts", "--file", str(file), "--limit", "2")
    assert listed.stdout.splitlines()[0] == "tank"
    assert listed.stderr == "and 3 more: use --limit or --order\n"
    assert json.loads(run("cuts", "--file", str(file), "--order", "1", "--json").output) == [
        ["tank"]
    ]


def test_tree_command_with_an_unknown_tree_lists_the_known_ones():
    wrong = run("draw", "shp")
    assert (wrong.exit_code, wrong.stderr) == (
        3,
        "keyturn: the policy has no tree shp; it has: shop\n",
    )


def test_tree_claims_lists_claims_and_tree_release_frees_one(place: Path):
    with open_harness(place):
        pass
    assert run("claims").output == "No claims.\n"
    wrong = run("release", "shop", "lb1", "--as", "adam", "--reason", "gone")
    assert (wrong.exit_code, wrong.stderr) == (
        3,
        "keyturn: no run claims lb1 of shop: see keyturn tree claims\n",
    )
    unknown = run("release", "shop", "lb1", "--as", "nobody-at-all", "--reason", "gone")
    assert (unknown.exit_code, unknown.stderr) == (
        3,
        "keyturn: unknown person nobody-at-all. Run this on the server with --as PERSON, your id "
        "in people.yaml\n",
    )


def test_tree_and_policy_commands_print_file_and_line_of_an_invalid_fault_tree(place: Path):
    file = place / "policy" / "trees" / "shop.yaml"
    file.write_text(SHOP.replace("all: [lb1, lb2]", "all: [lb1, lb9]"))
    problem = "keyturn: trees/shop.yaml, line 3: lb9 is not a gate, event or tree"
    for words, status in (
        (["tree", "check"], 2),
        (["tree", "draw", "shop"], 2),
        (["policy", "check"], 1),
    ):
        wrong = CliRunner().invoke(main, words)
        assert wrong.exit_code == status
        assert wrong.stderr.startswith(problem)
