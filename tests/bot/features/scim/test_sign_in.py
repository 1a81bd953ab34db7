"""Provisioned people sign in with a real OpenID Connect provider, whose tokens name groups."""

from collections.abc import Generator
from pathlib import Path

import pytest
from httpx2 import Response

from bot.audit import change_log, events
from bot.auth import sessions
from bot.features import load_pages
from bot.model.signing import SigningKey
from bot.model.times import HOUR
from bot.policy import NoPolicyError
from bot.web import WebDependencies, build_app
from bot.web.provider import ClientRegistration, IdentityProvider
from tests.bot.clock import Clock
from tests.bot.features.scim.accounts import Provider, add_provisioning
from tests.bot.harness import Harness, open_harness
from tests.bot.web.conftest import ORIGIN, Site
from tests.playground.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider

pytestmark = pytest.mark.real

CALLBACK = f"{ORIGIN}/oidc/callback"
# One person, as her tokens name her at one time and another.
ACCOUNTS = {
    "ines-with-night": {"oid": "object-1", "groups": ["Night", "Everyone"]},
    "ines-without": {"oid": "object-1", "groups": ["Everyone"]},
    "ines-as-administrator": {"oid": "object-1", "groups": ["administrator", "Administrators"]},
}


@pytest.fixture(scope="module")
def login() -> Generator[OidcProvider]:
    with OidcProvider(ACCOUNTS, back=CALLBACK) as running:
        yield running


class Company:
    """A company whose people sign in with the provider that provisions them."""

    def __init__(self, harness: Harness, clock: Clock, login: OidcProvider) -> None:
        self.harness, self.clock, self._login = harness, clock, login
        issuer = login.issuer
        add_provisioning(
            harness.policies.path,
            f'provisioning: {{issuer: "{issuer}", subject_claim: oid, groups_claim: groups, '
            "groups: {Night: [night]}}\n",
        )
        registration = ClientRegistration(
            issuer,
            CLIENT_ID,
            CLIENT_SECRET,
            "Example",
            is_slack=False,
            discovery_url=f"{issuer}/.well-known/openid-configuration",
            endpoints={},
        )
        parts = WebDependencies(
            harness.service,
            harness.database,
            harness.policies,
            ORIGIN,
            secure_cookies=False,
            identity_provider=IdentityProvider(registration),
            pages=load_pages(),
        )
        self._site = Site(harness, parts, build_app(parts))
        self.scim = Provider(harness)
        self.ines = self.scim.add("ines@example.com", name="Ines Example", external_id="object-1")

    def sign_in(self, account: str) -> Response:
        with self._site.browser() as browser:
            start = browser.get("/oidc/start").headers["location"]
            back = self._login.sign_in(start, account)
            return browser.get(back.removeprefix(ORIGIN))

    @property
    def roles(self) -> list[str]:
        found = self.harness.policies.get_policy().find_person(self.ines.person)
        assert found is not None
        return list(found.roles)


@pytest.fixture
def company(tmp_path: Path, login: OidcProvider) -> Generator[Company]:
    clock = Clock(f"sqlite:///{tmp_path / 'keyturn.db'}", SigningKey.create())
    with open_harness(tmp_path, database=clock) as harness:
        yield Company(harness, clock, login)


def test_a_group_of_the_token_gives_its_role_until_the_next_sign_in_without_it(
    company: Company,
) -> None:
    assert company.roles == []
    assert company.sign_in("ines-with-night").status_code == 303
    assert company.roles == ["night"]
    assert company.sign_in("ines-without").status_code == 303
    assert company.roles == []


def test_a_group_of_the_token_gives_its_role_for_twelve_hours(company: Company) -> None:
    company.clock.stop()
    company.sign_in("ines-with-night")
    company.clock.ahead = 12 * HOUR - 1
    assert company.roles == ["night"]
    company.clock.ahead = 12 * HOUR
    assert company.roles == []


def test_a_token_gives_no_role_by_the_name_of_a_role_or_of_a_group_that_is_not_mapped(
    company: Company,
) -> None:
    assert company.sign_in("ines-as-administrator").status_code == 303
    assert company.roles == []
    company.sign_in("ines-with-night")
    with company.clock.reading() as tx:
        last = change_log.get_last_entry_of_kind(tx, events.ClaimedGroupsChanged.kind)
    assert last is not None
    assert last.event.get_fact("groups") == ("Night",)


def test_a_role_that_no_group_may_give_any_more_is_lost_without_a_sign_in(
    company: Company,
) -> None:
    company.sign_in("ines-with-night")
    assert company.roles == ["night"]
    people = company.harness.policies.path / "people.yaml"
    text = people.read_text()
    people.write_text(text.replace("groups: {Night", "never: [night], groups: {Night"))
    with pytest.raises(NoPolicyError, match="group Night may not give the role night"):
        company.harness.policies.get_policy()
    people.write_text(text.replace("groups: {Night: [night]}", "never: [night]"))
    assert company.roles == []


def test_whom_scim_removed_cannot_sign_in_with_a_provider_that_still_knows_them(
    company: Company,
) -> None:
    assert company.sign_in("ines-with-night").status_code == 303
    company.scim.delete(company.ines)
    refused = company.sign_in("ines-with-night")
    assert refused.status_code == 403
    assert "account is not in the policy of Keyturn" in refused.text
    with company.clock.reading() as tx:
        assert not sessions.list_sessions(tx, company.ines.person)
        assert change_log.list_newest_entries(tx, limit=1)[0].kind == "sign-in refused"
