"""Sign-in with a real browser by a real OpenID provider, and sign-out everywhere."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.browsing import chromium, keep_picture
from tests.playground import sample_company
from tests.playground.daemon import find_free_port
from tests.playground.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider
from tests.playground.service import Service
from tests.policies import INVENTORY

pytestmark = pytest.mark.real

ACCOUNTS = {
    "dora": {"https://slack.com/team_id": "T0KEYTURN", "https://slack.com/user_id": "U0DORA"},
    "mallory": {"https://slack.com/team_id": "T0KEYTURN", "https://slack.com/user_id": "U0MAL"},
}


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    port = find_free_port("127.0.0.1")
    with (
        OidcProvider(ACCOUNTS, back=f"http://127.0.0.1:{port}/oidc/callback") as provider,
        Service(
            tmp_path,
            port=port,
            slack="",
            oidc_issuer=provider.issuer,
            oidc_client_id=CLIENT_ID,
            oidc_client_secret=CLIENT_SECRET,
            oidc_claims="slack",
        ) as service,
    ):
        yield service


@pytest.fixture
def page() -> Generator[Page]:
    with chromium() as browser:
        yield browser.new_page(color_scheme="dark")


def test_person_signs_in_with_slack_and_out_everywhere(service: Service, page: Page) -> None:
    page.goto(f"{service.address}/runs")
    keep_picture(page, "sign-in")
    page.get_by_role("link", name="Sign in with Slack").click()
    page.get_by_role("button", name="Sign in as mallory").click()
    expect(page.get_by_role("heading")).to_have_text("Sign-in failed")
    expect(page.get_by_text("account is not in the policy")).to_contain_text("U0MAL")
    keep_picture(page, "not-signed-in")

    page.context.clear_cookies()
    page.goto(f"{service.address}/runs")
    page.get_by_role("link", name="Sign in with Slack").click()
    page.get_by_role("button", name="Sign in as dora").click()
    page.wait_for_url(f"{service.address}/runs")
    expect(page.locator("details.kt-account summary")).to_have_text("Dora Developer")
    page.locator("details.kt-account summary").click()
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_text("Signed in with Slack")).to_be_visible()
    keep_picture(page, "sessions")
    page.get_by_role("button", name="Sign out everywhere").click()
    expect(page.get_by_text("You are signed out everywhere")).to_be_visible()
    page.goto(f"{service.address}/runs")
    expect(page.get_by_role("link", name="Sign in with Slack")).to_be_visible()
