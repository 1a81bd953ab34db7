"""A small company: its people and areas, with the rules that everybody starts with."""

from pathlib import Path

from bot.policy import starter
from bot.policy.directory import FILES

PEOPLE = """\
people:
  dora: {name: Dora Developer, roles: [developer], slack: [{team: T0KEYTURN, user: U0DORA}]}
  olga: {name: Olga Owner, roles: [administrator], slack: [{team: T0KEYTURN, user: U0OLGA}]}
  adam: {name: Adam Admin, roles: [administrator], slack: [{team: T0KEYTURN, user: U0ADAM}]}
  stan: {name: Stan Storage, roles: [administrator], slack: [{team: T0KEYTURN, user: U0STAN}]}
"""
AREAS = """\
areas:
  edge: {title: the edge, owners: [olga, adam]}
  web: {title: the web servers, owners: [adam]}
  storage: {title: storage, owners: [stan]}
"""


def found(directory: Path) -> None:
    """Write the policy directory of the company; its inventory is the fleet's to write."""
    directory.mkdir(parents=True)
    starter.write(directory)
    (directory / "people.yaml").write_text(PEOPLE)
    (directory / "areas.yaml").write_text(AREAS)
    assert set(FILES) <= {path.name for path in directory.iterdir()}
