"""Who is in force: the rights that a provider can give, and all the ways in which it cannot."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from bot.audit import events
from bot.auth import row_mac
from bot.db import stops, tables
from bot.features.scim import rows
from bot.features.scim.actions import Account, FullError, PeopleChange, TakenError
from bot.features.scim.facts import apply_people
from bot.features.scim.people import BOTH, FILES, PROVIDER, list_people
from bot.features.scim.rows import UserRow
from bot.maintenance import key_rotation
from bot.model import signing
from bot.model.errors import InvalidRequestError
from bot.model.run import State
from bot.policy import NoPolicyError, PolicyDirectory
from bot.queries.banned_people import PolicyWithoutBanned
from tests.bot.features.scim.accounts import (
    ISSUER,
    PROVISIONING,
    Provider,
    bind,
    build_account,
)
from tests.bot.harness import Harness
from tests.toy import SetSwitch


def get_problem(harness: Harness, person: str) -> str:
    found = {one.id: one for one in list_people(harness.policies.get_policy())}
    return found[person].problem


def test_a_provisioned_person_has_no_rights_but_the_mapped_groups(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com", name="Ines Example")
    person = company.policies.get_policy().find_person(ines.person)
    assert person is not None
    assert (person.name, tuple(person.roles), person.slack, person.signing_keys) == (
        "Ines Example",
        (),
        (),
        (),
    )
    group = provider.add_group("Platform", ines)
    provider.add_group("Unmapped", ines)
    run = company.request(SetSwitch(host="lb1", name="lamp", value="on"), ines.person)
    assert run.state is State.PENDING
    provider.set_members(group)
    found = company.policies.get_policy().find_person(ines.person)
    assert found is not None
    assert not found.roles
    # What was requested starts under no approval: the gate asks again who may request it.
    assert company.approve(run).state is State.PENDING
    assert company.fleet.sent == []


def test_provisioning_an_unrelated_person_leaves_a_plan_and_its_approvals_valid(
    company: Harness, provider: Provider
) -> None:
    run = company.request(SetSwitch(host="lb1", name="lamp", value="on"))
    provider.add_group("Platform", provider.add("ines@example.com"))
    company.service.advancer.end_outdated_plans()
    approved = company.approve(company.get_run(run.id))
    assert (approved.state, approved.digest) == (State.SUCCEEDED, run.digest)


@pytest.mark.parametrize("user_name", ["dora@example.com", "DORA@Example.com", "dora"])
def test_an_account_with_the_address_of_a_person_of_people_yaml_has_no_rights(
    company: Harness, provider: Provider, user_name: str
) -> None:
    """One human would be two people, of whom one could approve what the other requests."""
    other = provider.add(user_name, email="else@example.com")
    provider.add_group("Platform", other)
    assert company.policies.get_policy().find_person(other.person) is None
    assert get_problem(company, other.person) == (
        f"may be dora of people.yaml: add provisioned: {other.user_id} there"
    )


def test_an_account_with_only_the_email_of_a_person_of_people_yaml_has_no_rights(
    company: Harness, provider: Provider
) -> None:
    other = provider.add("d.developer@example.com", email="Dora@EXAMPLE.com")
    assert company.policies.get_policy().find_person(other.person) is None


def test_an_account_that_takes_the_address_later_loses_its_rights(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com")
    assert company.policies.get_policy().find_person(ines.person)
    provider.change(ines, build_account("olga@example.com", email="x@example.com"))
    assert company.policies.get_policy().find_person(ines.person) is None


@pytest.mark.parametrize(
    "user_name", ["dоra@example.com", "dora​@example.com", "ｄora", " dora", "a  b", "", "a" * 256]
)
def test_user_name_that_could_be_mistaken_is_refused(user_name: str) -> None:
    with pytest.raises(InvalidRequestError, match="printable ASCII"):
        build_account(user_name)


def test_name_that_looks_like_another_is_shown_with_the_user_name(
    company: Harness, provider: Provider
) -> None:
    names = ["Olga Owner", "ÓLGA  owner", "Оlga Owner", "Ines Example"]
    users = [provider.add(f"u{n}@example.com", name=name) for n, name in enumerate(names)]
    policy = company.policies.get_policy()
    assert [policy.get_person_name(one.person) for one in users] == [
        "Olga Owner (u0@example.com)",
        "ÓLGA owner (u1@example.com)",
        "Оlga Owner (u2@example.com)",
        "Ines Example",
    ]
    assert policy.get_person_name("olga") == "Olga Owner"


def test_accounts_do_not_share_what_identifies_a_person(provider: Provider) -> None:
    ines = provider.add("ines@example.com", external_id="00u1")
    for again in ("Ines@Example.com", "ines@example.com"):
        with pytest.raises(TakenError):
            provider.add(again)
    with pytest.raises(TakenError):
        provider.add("other@example.com", external_id="00u1")
    with pytest.raises(TakenError):
        provider.add("other@example.com", email="INES@example.com")
    other = provider.add("other@example.com")
    with pytest.raises(TakenError):
        provider.change(other, build_account("INES@example.com"))
    provider.delete(ines)
    assert provider.add("ines@example.com", external_id="00u1")


def test_a_bound_person_is_in_force_only_while_the_account_is_active(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    account = provider.add("dora@example.com")
    bind(tmp_path / "policy", "dora", account.user_id)
    assert company.policies.get_policy().find_person("dora")
    assert company.policies.get_policy().find_person(account.person) is None
    provider.set_active(account, is_active=False)
    assert company.policies.get_policy().find_person("dora") is None
    assert get_problem(company, "dora") == "the account is not active"


def test_a_bound_owner_who_is_removed_owns_nothing(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    account = provider.add("olga@example.com")
    bind(tmp_path / "policy", "olga", account.user_id)
    assert "olga" in company.policies.get_policy().organisation.areas["edge"].owners
    provider.delete(account)
    areas = company.policies.get_policy().organisation.areas
    assert (list(areas["edge"].owners), list(areas["web"].owners)) == (["adam"], [])


def test_a_bound_person_is_out_where_no_one_asks_the_provider(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    """Without the database, no one knows whether the account is active."""
    bind(tmp_path / "policy", "dora", provider.add("dora@example.com").user_id)
    policy = PolicyDirectory(tmp_path / "policy").get_policy()
    assert policy.find_person("dora") is None
    assert policy.get_person_name("dora") == "Dora Developer"
    assert company.policies.get_policy().find_person("dora")


def test_a_new_account_with_the_name_of_a_deleted_one_is_another_person(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    first = provider.add("dora@example.com")
    bind(tmp_path / "policy", "dora", first.user_id)
    provider.delete(first)
    second = provider.add("dora@example.com")
    assert second.user_id != first.user_id
    assert second.person != first.person
    policy = company.policies.get_policy()
    assert policy.find_person("dora") is None
    assert policy.find_person(second.person) is None


def test_ids_of_people_are_not_for_the_provider_to_choose(provider: Provider) -> None:
    """A rule or an area that names someone who left must not give their rights to an account."""
    found = [provider.add(name).person for name in ("stan2@example.com", "_@x.example")]
    assert found[0].startswith("stan2-")
    assert len(found[0]) == len("stan2-") + 8
    assert found[1].startswith("person-")


def test_a_banned_person_stays_banned_whatever_the_provider_says(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com")
    with company.database.transaction() as tx:
        stops.add_ban(tx, ines.person, by="olga", why="a stolen laptop")
    active = PolicyWithoutBanned(company.policies, company.database)
    banned = active.get_policy()
    assert banned.find_person(ines.person) is None
    provider.add("other@example.com")
    with company.database.reading() as tx:
        assert apply_people(tx, banned).find_person(ines.person) is None


def test_a_row_that_keyturn_did_not_write_gives_no_rights(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com")
    provider.add_group("Platform", ines)
    with company.database.transaction() as tx:
        values = {"user_id": ines.user_id, "group_id": "x", "mac": "0" * 64}
        tx.sql.execute(tables.provisioned_member.insert().values(values))
        tx.sql.execute(update(tables.provisioned_user).values(name="Olga Owner"))
        tx.sql.execute(update(tables.provisioning_revision).values(revision=99))
    assert company.policies.get_policy().find_person(ines.person) is None


def test_a_restored_row_of_a_removed_account_gives_no_rights(
    company: Harness, provider: Provider
) -> None:
    """The row is one that Keyturn wrote; the change log says that it has ended."""
    ines = provider.add("ines@example.com")
    with company.database.reading() as tx:
        row = dict(tx.sql.execute(select(tables.provisioned_user)).mappings().one())
    provider.set_active(ines, is_active=False)
    with company.database.transaction() as tx:
        tx.sql.execute(update(tables.provisioned_user).values(row))
        tx.sql.execute(update(tables.provisioning_revision).values(revision=99))
    assert company.policies.get_policy().find_person(ines.person) is None


def test_an_account_that_is_active_again_is_the_same_person(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com")
    gone = provider.set_active(ines, is_active=False)
    back = provider.set_active(gone, is_active=True)
    assert back.stay != ines.stay
    assert company.policies.get_policy().find_person(ines.person)


def test_there_are_not_more_accounts_than_keyturn_keeps(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.features.scim.actions.MAX_USERS", 1)
    provider.add("ines@example.com")
    with pytest.raises(FullError):
        provider.add("other@example.com")


def test_groups_have_names_of_their_own_and_members_that_exist(provider: Provider) -> None:
    provider.add_group("Platform")
    with pytest.raises(TakenError):
        provider.add_group("PLATFORM")
    with pytest.raises(InvalidRequestError, match="no user here"):
        provider.actions.change(lambda change: change.create_group("Other", "", ["nobody"]))


def test_every_change_of_people_is_an_entry_of_the_log(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com")
    group = provider.add_group("Platform", ines)
    provider.change(ines, build_account("ines@example.com", name="Ines Other"))
    provider.set_members(group)
    provider.actions.change(lambda change: change.delete_group(group))
    provider.delete(ines)
    wanted = [
        events.PersonProvisioned,
        events.ProvisionedGroupChanged,
        events.ProvisionedPersonChanged,
        events.ProvisionedGroupChanged,
        events.ProvisionedGroupChanged,
        events.PersonDeprovisioned,
    ]
    kinds = company.list_entry_kinds()
    assert kinds[-len(wanted) :] == [one.kind for one in wanted]


def test_people_are_listed_with_where_they_are_from(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    bind(tmp_path / "policy", "dora", provider.add("dora@example.com").user_id)
    ines = provider.add("ines@example.com", name="Ines Example")
    provider.add_group("Platform", ines)
    found = {one.id: one for one in list_people(company.policies.get_policy())}
    assert (found["olga"].source, found["dora"].source) == (FILES, BOTH)
    listed = found[ines.person]
    assert (listed.source, listed.groups, listed.roles) == (
        PROVIDER,
        ("Platform",),
        ("developer",),
    )


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("{groups: {Ops: [administrator]}}", "may not give the role administrator"),
        ("{groups: {Ops: [developer]}, never: [developer]}", "may not give the role developer"),
        ("{groups_claim: groups}", "needs the issuer"),
    ],
)
def test_policy_is_refused_if_a_group_would_give_what_it_never_may(
    company: Harness, tmp_path: Path, section: str, problem: str
) -> None:
    file = tmp_path / "policy" / "people.yaml"
    file.write_text(file.read_text().replace(PROVISIONING, f"provisioning: {section}\n"))
    with pytest.raises(NoPolicyError, match=problem):
        company.policies.get_policy()


def test_with_a_provider_each_person_needs_an_address_or_an_account(
    company: Harness, tmp_path: Path
) -> None:
    file = tmp_path / "policy" / "people.yaml"
    file.write_text(file.read_text().replace("email: dora@example.com, ", ""))
    with pytest.raises(NoPolicyError, match="dora needs an email, or provisioned"):
        company.policies.get_policy()


def test_people_stay_when_the_signing_key_is_rotated(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    provider.add_group("Platform", provider.add("ines@example.com"))
    new = signing.create_signing_key(tmp_path / "new.key")
    of_providers = (
        tables.provisioned_user,
        tables.provisioned_group,
        tables.provisioned_member,
    )
    assert set(of_providers) == set(key_rotation.OF_PROVIDERS)
    with company.database.transaction() as tx:
        for table in of_providers:
            row_mac.remac_rows(tx, table, new)
            row = tx.sql.execute(select(table)).one()
            assert row.mac == row_mac.compute_mac(new, table, row)
            assert not row_mac.is_mac_valid(tx, table, row)


def test_external_id_of_a_person_of_people_yaml_cannot_change(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    """With another, whoever has the token of SCIM alone would sign in as an administrator."""
    account = provider.add("olga@example.com", external_id="subject-of-olga")
    mine = build_account("olga@example.com", external_id="subject-of-mallory")
    changed = provider.change(account, mine)
    assert changed.external_id == "subject-of-mallory"
    account = provider.change(changed, replace(mine, external_id="subject-of-olga"))
    bind(tmp_path / "policy", "olga", account.user_id)
    with pytest.raises(InvalidRequestError, match="externalId cannot change while olga"):
        provider.change(account, mine)
    organisation = company.policies.get_policy().organisation
    assert not organisation.find_by_oidc(issuer=ISSUER, subject="subject-of-mallory")
    assert organisation.find_by_oidc(issuer=ISSUER, subject="subject-of-olga")


def test_without_the_check_whoever_has_the_token_of_scim_signs_in_as_an_administrator(
    company: Harness, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = provider.add("olga@example.com", external_id="subject-of-olga")
    bind(tmp_path / "policy", "olga", account.user_id)

    def take_all(_: PeopleChange, __: UserRow, wanted: Account) -> Account:
        return wanted

    monkeypatch.setattr(PeopleChange, "_keep_sign_in", take_all)
    provider.change(account, build_account("olga@example.com", external_id="subject-of-mallory"))
    organisation = company.policies.get_policy().organisation
    found = organisation.find_by_oidc(issuer=ISSUER, subject="subject-of-mallory")
    assert found is not None
    assert (found.id, "administrator" in found.roles) == ("olga", True)


@pytest.mark.parametrize("external_id", ["", "subject-of-mallory"])
def test_departure_is_not_refused_for_its_external_id(
    company: Harness, provider: Provider, tmp_path: Path, external_id: str
) -> None:
    account = provider.add("olga@example.com", external_id="subject-of-olga")
    bind(tmp_path / "policy", "olga", account.user_id)
    gone = replace(build_account("olga@example.com", is_active=False), external_id=external_id)
    changed = provider.change(account, gone)
    assert (changed.is_active, changed.external_id) == (False, "subject-of-olga")
    assert company.policies.get_policy().find_person("olga") is None


@pytest.mark.parametrize(
    "name", ["OIga Owner", "0lga 0wner", "Olga-Owner", "Olga Ovvner", "Olga Owner (Head)"]
)
def test_a_name_that_reads_like_that_of_another_is_shown_with_the_user_name(
    company: Harness, provider: Provider, name: str
) -> None:
    ines = provider.add("ines@example.com", name=name)
    assert company.policies.get_policy().get_person_name(ines.person) == (
        f"{name} (ines@example.com)"
    )


def test_name_of_a_person_who_is_not_in_force_is_not_taken(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    bind(tmp_path / "policy", "olga", provider.add("olga@example.com").user_id)
    provider.delete(provider.actions.read(lambda tx: rows.find_users(tx)[0]))
    ines = provider.add("ines@example.com", name="Olga Owner")
    policy = company.policies.get_policy()
    assert policy.find_person("olga") is None
    assert policy.get_person_name(ines.person) == "Olga Owner (ines@example.com)"


@pytest.mark.parametrize(
    "email", [" olga@example.com ", "olga\uff20example.com", "OLGA@example.com"]
)
def test_an_address_that_is_written_otherwise_is_still_that_of_another_person(
    company: Harness, provider: Provider, email: str
) -> None:
    ines = provider.add("ines@example.com", email=email)
    assert company.policies.get_policy().find_person(ines.person) is None
    assert get_problem(company, ines.person).startswith("may be olga of people.yaml")


def test_each_address_of_an_account_is_compared_with_those_of_people_yaml(
    company: Harness, provider: Provider
) -> None:
    """Not only the primary one: otherwise Olga would be two people, and approve for herself."""
    emails = [{"value": "o.owner@example.com", "primary": True}, {"value": "Olga@example.com"}]
    account = replace(build_account("o.owner@example.com"), document={"emails": emails})
    second = provider.actions.change(lambda change: change.create_user(account))
    assert company.policies.get_policy().find_person(second.person) is None
    assert get_problem(company, second.person).startswith("may be olga of people.yaml")


def test_a_row_that_was_valid_before_and_is_altered_then_says_nothing(
    company: Harness, provider: Provider
) -> None:
    """Rows that were found valid are remembered; what was changed since is not among them."""
    ines, group = provider.add("ines@example.com"), provider.add_group("Platform")
    assert company.policies.get_policy().find_person(ines.person)
    with company.database.transaction() as tx:
        user = tables.provisioned_user
        tx.sql.execute(update(user).values(person="olga"))
    provider.set_members(group, ines)
    assert company.policies.get_policy().find_person(ines.person) is None
