"""A small company: its people and areas, with the starter policy."""

from pathlib import Path

from bot.policy import starter
from bot.policy.loader import REQUIRED_FILES
from tests.policies import AREAS, PEOPLE

FAULT_TREE = """\
# The service is down when both balancers are.
says: The balancers
top: no-balancer
gates:
  no-balancer: {says: No balancer is left, all: [lb1, lb2]}
events:
  lb1: {says: lb1 does not balance, leg: lb1}
  lb2: {says: lb2 does not balance, leg: lb2}
"""


def create_policy(directory: Path) -> None:
    """Write the policy directory of the company; its inventory is the fleet's to write."""
    directory.mkdir(parents=True)
    starter.write_starter_policy(directory)
    (directory / "people.yaml").write_text(PEOPLE)
    (directory / "areas.yaml").write_text(AREAS)
    assert set(REQUIRED_FILES) <= {path.name for path in directory.iterdir()}


def add_fault_tree(directory: Path) -> Path:
    """Replace the example in `policy/trees` by a tree of lb1 and lb2, and return *directory*.

    The inventory must have both.
    """
    trees = directory / "policy" / "trees"
    (trees / "example.yaml").unlink()
    (trees / "balancers.yaml").write_text(FAULT_TREE)
    return directory
