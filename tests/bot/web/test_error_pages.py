"""Error pages, with the menu for people who are signed in."""

from dataclasses import replace

from bot.service import KeyturnService
from bot.workflow.rate_limit import RateLimits
from tests.bot.harness import Harness
from tests.bot.web.conftest import Site, create_site
from tests.bot.web.sample_runs import add_sample_runs

MENU = 'aria-label="Pages"'
CLEAR = {"runbook": "abusers clear", "field-host": "lb1", "field-address": "203.0.113.9"}


def test_not_found_page_has_the_menu_for_signed_in_people_only(site: Site) -> None:
    answer = site.browser("dora").get("/nope")
    assert answer.status_code == 404
    assert MENU in answer.text
    assert MENU not in site.browser().get("/nope").text


def test_not_found_page_without_a_valid_policy_has_no_menu(site: Site) -> None:
    browser = site.browser("dora")
    (site.policy / "people.yaml").write_text("people: [")
    answer = browser.get("/nope")
    assert answer.status_code == 404
    assert MENU not in answer.text


def test_internal_error_page_keeps_the_menu(site: Site) -> None:
    number = add_sample_runs(site.database)["succeeded"]
    with site.database.transaction() as tx:
        tx.sql.exec_driver_sql("UPDATE run SET state = 'upside down' WHERE id = ?", (number,))
    answer = site.browser("dora").get(f"/runs/{number}")
    assert answer.status_code == 500
    assert MENU in answer.text


def test_request_over_the_rate_limit_gets_429_with_the_waiting_time(harness: Harness) -> None:
    parts = replace(
        harness.context, rate_limits=RateLimits(per_person=1, per_runbook=9, in_total=9)
    )
    site = create_site(replace(harness, context=parts, service=KeyturnService(parts)))
    browser = site.browser("dora")
    assert browser.post("/runbooks", data=CLEAR).status_code == 303
    answer = browser.post("/runbooks", data=CLEAR)
    assert answer.status_code == 429
    assert MENU in answer.text
    assert "within a minute" in answer.text
