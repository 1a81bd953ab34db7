"""Hostile text in a fault tree, in chat."""

from ruamel.yaml import YAML

from tests.bot.slack.hostile import LOUD
from tests.bot.slack.hostile_walk import Walk


async def show_trees(walk: Walk) -> None:
    trees = walk.chat.harness.policies.path / "trees"
    trees.mkdir()
    says = LOUD[:120]
    events = {host: {"says": says, "leg": host} for host in ("lb1", "lb2")}
    gates = {"top": {"says": says, "all": [*events]}}
    tree = {"says": says, "top": "top", "gates": gates, "events": events}
    YAML().dump(tree, trees / "loud.yaml")
    await walk.each("tree", "tree loud", "tree SAID")
