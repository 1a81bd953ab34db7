"""The page Policy says where each person comes from."""

import html
import re

from tests.bot.features.scim.accounts import Provider
from tests.bot.harness import Harness
from tests.bot.web.conftest import create_site


def read_text(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_policy_page_shows_where_people_are_from_and_why_one_has_no_rights(
    company: Harness, provider: Provider
) -> None:
    ines = provider.add("ines@example.com", name="<b>Ines</b>")
    provider.add_group("Platform", ines)
    other = provider.add("dora@example.com")
    page = create_site(company).browser("olga").get("/policy")
    assert page.status_code == 200
    text = read_text(page.text)
    assert f"{ines.person} identity provider {ines.user_id} ines@example.com Platform" in text
    assert f"may be dora of people.yaml: add provisioned: {other.user_id} there" in text
    assert "&lt;b&gt;Ines&lt;/b&gt;" in page.text


def test_policy_page_has_no_such_section_without_a_provider(harness: Harness) -> None:
    page = create_site(harness).browser("olga").get("/policy")
    assert 'id="people"' not in page.text
