"""The search of all pages."""

from pathlib import Path

import pytest

from tests.bot.harness import Harness
from tests.bot.restricted_view import open_restricted_harness
from tests.bot.web.conftest import Site, create_site
from tests.bot.web.parsed_page import Page
from tests.toy import SetSwitch

FORM = "/runbooks/form?runbook=abusers+clear"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("1", "/runs/1"),
        ("run 1", "/runs/1"),
        ("#1", "/runs/1"),
        ("lb1", "/hosts/lb1"),
        ("  LB1 ", "/hosts/lb1"),
        ("nas", "/hosts/nas1"),
        ("dora", "/policy/dora"),
        ("Dora Dev", "/policy/dora"),
        ("abusers clear", FORM),
        ("/keyturn abusers clear lb1", f"{FORM}&host=lb1"),
        ("abusers clear lb* 203.0.113.9", f"{FORM}&host=lb%2A&address=203.0.113.9"),
        ("abusers clear lb1 table=http", f"{FORM}&table=http&host=lb1"),
        ("abusers clear lb1 because it called", f"{FORM}&host=lb1&reason=it+called"),
    ],
)
def test_site_search_redirects_to_the_only_result(
    harness: Harness, site: Site, text: str, url: str
) -> None:
    harness.request(SetSwitch(host="lb2", name="lamp", value="on"), reason="it is dark")
    response = site.browser("dora").get("/search", params={"q": text})
    assert (response.status_code, response.headers.get("location")) == (303, url)


def test_site_search_fills_in_the_form_of_a_typed_request(site: Site) -> None:
    browser = site.browser("dora")
    response = browser.get(
        "/search", params={"q": "abusers clear lb1 203.0.113.9 because it called"}
    )
    values = Page(browser.get(response.headers["location"]).text).values
    assert values["field-host"] == "lb1"
    assert values["field-address"] == "203.0.113.9"
    assert values["reason"] == "it called"


def test_site_search_lists_several_results(harness: Harness, site: Site) -> None:
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), reason="zfs is slow")
    page = Page(site.browser("dora").get("/search", params={"q": "zfs"}).text)
    assert f"/runs/{run.id}" in page.links
    assert "/runbooks/form?runbook=zfs+scrub+start" in page.links
    assert "/runs?search=zfs" in page.links
    assert page.strange == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("abusers clear lb1 203.0.113.9 http on x", "is one word too many"),
        ('abusers clear "lb1', "A quotation mark is not closed"),
        ("<b>nothing</b>", "No results"),
        ("99999", "No results"),
        ("", "Nothing to search for"),
    ],
)
def test_site_search_without_results_says_why(site: Site, text: str, problem: str) -> None:
    response = site.browser("dora").get("/search", params={"q": text})
    page = Page(response.text)
    assert response.status_code == 200
    assert problem in page.text
    assert page.strange == []


def test_site_search_does_not_find_a_hidden_run(tmp_path: Path) -> None:
    with open_restricted_harness(tmp_path) as restricted:
        site = create_site(restricted.harness)
        number = restricted.hidden["done"].id
        answers = [
            site.browser(one).get("/search", params={"q": f"run {number}"})
            for one in ("dora", "adam")
        ]
        suggested = [
            site.browser(one).get("/search/suggestions", params={"q": f"run {number}"}).text
            for one in ("dora", "adam")
        ]
        assert [f'value="run {number}"' in text for text in suggested] == [False, True]
        assert "No results" in answers[0].text
        assert answers[1].headers["location"] == f"/runs/{number}"
        for browser in site.browsers:
            browser.close()
