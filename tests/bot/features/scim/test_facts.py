"""How soon a change of people is known, and what that takes."""

from pathlib import Path

import pytest

from bot.audit import events
from bot.db import stops
from bot.db.database import StoreUnavailable
from bot.features.scim.facts import FACTS
from bot.policy import PolicyDirectory
from bot.queries.banned_people import PolicyWithoutBanned
from bot.queries.policy_facts import PolicyWithFacts
from tests.bot.features.scim.accounts import Provider, bind
from tests.bot.harness import Harness


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_another_process_knows_of_a_removal_within_half_a_second(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    clock = Clock()
    files = PolicyDirectory(tmp_path / "policy")
    other = PolicyWithFacts(files, company.database, [FACTS], clock=clock)
    ines = provider.add("ines@example.com")
    assert other.get_policy().find_person(ines.person)
    provider.delete(ines)
    assert other.get_policy().find_person(ines.person)
    clock.now = 0.5
    assert other.get_policy().find_person(ines.person) is None


def test_the_process_that_removes_a_person_knows_it_at_once(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    files = PolicyDirectory(tmp_path / "policy")
    known = PolicyWithFacts(files, company.database, [FACTS], clock=Clock())
    active = PolicyWithoutBanned(known, company.database, clock=Clock())
    ines = provider.add("ines@example.com")
    assert active.get_policy().find_person(ines.person)
    provider.delete(ines)
    active.forget_facts()
    assert active.get_policy().find_person(ines.person) is None


def test_policy_is_the_same_object_while_no_person_changes(
    company: Harness, provider: Provider
) -> None:
    """Rulings are cached for each policy: a new one each time would compute them all again."""
    provider.add("ines@example.com")
    policy = PolicyDirectory(company.policies.path).get_policy()
    with company.database.reading() as tx:
        first = FACTS.apply(tx, policy, None)
        assert FACTS.apply(tx, policy, None) is first
        assert FACTS.apply(tx, first, None) is first


def test_without_the_database_provisioned_people_are_out(
    company: Harness, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind(tmp_path / "policy", "dora", provider.add("dora@example.com").user_id)
    files = PolicyDirectory(tmp_path / "policy")
    other = PolicyWithFacts(files, company.database, [FACTS])

    def fail(*_: object) -> None:
        raise StoreUnavailable("no database")

    monkeypatch.setattr(company.database, "reading", fail)
    policy = other.get_policy()
    assert policy.find_person("dora") is None
    assert policy.find_person("olga")


def test_nothing_is_read_without_a_section_provisioning(harness: Harness) -> None:
    assert not FACTS.matter_to(harness.policies.get_policy())
    assert events.PersonDeprovisioned.revokes == "stay"
    with harness.database.reading() as tx:
        assert not stops.list_bans(tx)
