"""A small company: its people and areas, with the rules that everybody starts with."""

from pathlib import Path

from bot.policy import starter
from bot.policy.loader import POLICY_FILES
from tests.policies import AREAS, PEOPLE


def found(directory: Path) -> None:
    """Write the policy directory of the company; its inventory is the fleet's to write."""
    directory.mkdir(parents=True)
    starter.write_starter_policy(directory)
    (directory / "people.yaml").write_text(PEOPLE)
    (directory / "areas.yaml").write_text(AREAS)
    assert set(POLICY_FILES) <= {path.name for path in directory.iterdir()}
