"""Groups that a token of a sign-in names: they give roles, and no longer than a session lasts."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from bot.audit import change_log, events
from bot.db import tables
from bot.features.scim.claims import record_claims
from bot.features.scim.rows import CLAIMS_HOLD
from bot.web.id_token import find_person_of_claims
from tests.bot.features.scim.accounts import ISSUER, PROVISIONING, Provider
from tests.bot.harness import Harness


@pytest.fixture
def claiming(company: Harness, tmp_path: Path) -> Harness:
    """A company whose tokens name groups, and people by their oid."""
    file = tmp_path / "policy" / "people.yaml"
    section = PROVISIONING.replace(
        "groups:", "groups_claim: groups, subject_claim: oid, groups:", 1
    )
    file.write_text(file.read_text().replace(PROVISIONING, section))
    return company


def sign_in(harness: Harness, person: str, **claims: Any) -> None:
    policy = harness.policies.get_policy()
    with harness.database.transaction() as tx:
        record_claims(tx, policy, person, {"iss": ISSUER, **claims})


def get_roles(harness: Harness, person: str) -> list[str]:
    found = harness.policies.get_policy().find_person(person)
    assert found is not None
    return list(found.roles)


def test_groups_of_a_token_give_the_mapped_roles_until_the_next_sign_in(
    claiming: Harness,
) -> None:
    sign_in(claiming, "dora", groups=["Night", "Unmapped", 5])
    assert get_roles(claiming, "dora") == ["developer", "night"]
    sign_in(claiming, "dora", groups=["Platform"])
    assert get_roles(claiming, "dora") == ["developer"]
    with claiming.database.reading() as tx:
        last = change_log.get_last_entry_of_kind(tx, events.ClaimedGroupsChanged.kind)
    assert last is not None
    assert last.person == "dora"
    assert last.event.get_fact("groups") == ("Platform",)


@pytest.mark.parametrize("claims", [{}, {"groups": None}, {"groups": {"Night": 1}}, {"groups": 3}])
def test_token_that_names_no_groups_takes_the_roles_away(
    claiming: Harness, claims: dict[str, Any]
) -> None:
    sign_in(claiming, "dora", groups="Night")
    assert "night" in get_roles(claiming, "dora")
    sign_in(claiming, "dora", **claims)
    assert "night" not in get_roles(claiming, "dora")


def test_token_of_another_issuer_gives_nothing(claiming: Harness) -> None:
    sign_in(claiming, "dora", iss="https://other.example.com", groups=["Night"])
    assert "night" not in get_roles(claiming, "dora")


def test_roles_of_a_token_end_twelve_hours_after_the_sign_in(claiming: Harness) -> None:
    sign_in(claiming, "dora", groups=["Night"])
    assert "night" in get_roles(claiming, "dora")
    claimed = tables.claimed_groups
    with claiming.database.transaction() as tx:
        # The row is not as Keyturn wrote it then, but its time alone decides here.
        tx.sql.execute(update(claimed).values(read_at=claimed.c.read_at - CLAIMS_HOLD))
    assert "night" not in get_roles(claiming, "dora")


def test_same_groups_again_are_no_change(claiming: Harness) -> None:
    for _ in range(2):
        sign_in(claiming, "dora", groups=["Night"])
    kinds = claiming.list_entry_kinds()
    assert kinds.count(events.ClaimedGroupsChanged.kind) == 1


def test_provisioned_person_signs_in_by_the_claim_with_the_external_id(
    claiming: Harness,
) -> None:
    ines = Provider(claiming).add("ines@example.com", external_id="object-1")
    organisation = claiming.policies.get_policy().organisation

    def find(**claims: str) -> str:
        found = find_person_of_claims(claims, organisation, issuer=ISSUER, is_slack=False)
        return found.id if found else ""

    assert find(sub="pairwise", oid="object-1") == ines.person
    assert find(sub="object-1", oid="other") == ""
    assert find(sub="object-1") == ""
