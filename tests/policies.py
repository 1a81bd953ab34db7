"""A small company's policy, with the rules that every installation starts with."""

from importlib.resources import files
from pathlib import Path

from bot.policy import PolicyDirectory

TEAM = "T0KEYTURN"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH7t6nQXigwqwusKH3uT3PYKTDtbrb5hSxj2fDDGmZZP"

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
  web: {title: the web servers, owners: [olga]}
  storage: {title: storage, owners: [stan]}
"""
INVENTORY = f"""\
defaults:
  address: 127.0.0.1
  user: keyturn
  host_key: {HOST_KEY}
hosts:
  lb1: {{area: edge, tags: [haproxy]}}
  lb2: {{area: edge, tags: [haproxy]}}
  web1: {{area: web, tags: [nginx]}}
  nas1: {{area: storage, tags: [nfs, zfs]}}
"""


def write_policy(directory: Path, *, rules: str | None = None) -> PolicyDirectory:
    """Write a policy directory and return it. rules: other rules than the starter's."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "people.yaml").write_text(PEOPLE)
    (directory / "areas.yaml").write_text(AREAS)
    (directory / "inventory.yaml").write_text(INVENTORY)
    (directory / "policy.cedar").write_text(rules or get_starter_rules())
    return PolicyDirectory(directory)


def get_starter_rules() -> str:
    return (files("bot.policy") / "starter" / "policy.cedar").read_text()


def get_signed_rules(who: str) -> str:
    """Return the starter's rules whose first approval is signed. who: approver or both."""
    signed = f'@approvals("1")\n@signed("{who}")'
    return get_starter_rules().replace('@approvals("1")', signed, 1)


def give_signing_key(policy: Path, person: str, line: str) -> None:
    """Add a signing key of a person of PEOPLE to a policy directory."""
    file = policy / "people.yaml"
    text, place = file.read_text(), f"  {person}: {{"
    assert place in text
    file.write_text(text.replace(place, f'{place}signing_keys: ["{line}"], '))
