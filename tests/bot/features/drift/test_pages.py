"""Drift pages: values changed outside Keyturn, restored, adopted or expected."""

import pytest
from sqlalchemy import update

from bot.db import tables
from bot.features.drift import rows as drift
from bot.features.drift.rows import DriftKey
from bot.model.drift_state import DriftState
from bot.model.run import State
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.drift_keys import read_due_keys
from tests.ticket_system import require_unreachable_tickets
from tests.toy import KeepSwitch

HOSTILE = "dim</td><script>alert(1)</script>"


@pytest.fixture
def key(site: Site) -> DriftKey:
    """A switch that someone dimmed by hand."""
    harness = site.harness
    harness.approve(harness.request(KeepSwitch(host="lb1", name="lamp", value="on")))
    harness.fleet.hosts["lb1"]["lamp"] = "dim"
    return read_again(site)


def read_again(site: Site) -> DriftKey:
    with site.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=0, read_at=0))
    read_due_keys(site.harness.service)
    with site.database.reading() as tx:
        return drift.list_keys(tx)[0]


def test_drift_page_is_empty_before_the_first_change(site: Site):
    assert "No values yet" in Page(site.browser("dora").get("/drift").text).text


def test_drift_page_lists_and_filters_watched_values(site: Site, key: DriftKey):
    browser = site.browser("dora")
    page = Page(browser.get("/drift").text)
    assert "switch lamp lb1 Changed outside dim on" in page.text
    assert f"/drift/{key.id}" in page.links
    assert page.strange == []
    assert "1 changed outside Keyturn" in Page(browser.get("/").text).text
    host = browser.get("/hosts/lb1").text
    assert "1 value changed outside Keyturn:" in Page(host).text
    assert f'<a href="/drift/{key.id}">{key.name}</a>' in host
    assert "changed outside Keyturn" not in browser.get("/hosts/web1").text
    assert "switch lamp" in browser.get("/drift?host=LB1&state=changed").text
    for query in ("host=lb2", "state=as_set"):
        assert "No matching values" in browser.get(f"/drift?{query}").text


def test_drift_page_of_a_value_shows_window_causes_and_history(site: Site, key: DriftKey):
    page = Page(site.browser("olga").get(f"/drift/{key.id}").text)
    assert "switch lamp Changed outside Changed between" in page.text
    assert "On the host dim Set to on" in page.text
    assert "Candidates, not a verdict" in page.text
    assert "not readable" in page.text
    assert "Drift found" in page.text
    assert page.strange == []


def test_hostile_watched_value_stays_text_on_drift_pages(site: Site, key: DriftKey):
    with site.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(value=HOSTILE, set_value=HOSTILE))
    for path in ("/drift", f"/drift/{key.id}"):
        text = site.browser("olga").get(path).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text


def test_developer_can_restore_a_changed_value_but_not_adopt_it(site: Site, key: DriftKey):
    browser = site.browser("dora")
    page = Page(browser.get(f"/drift/{key.id}").text)
    assert (
        "Only people who can approve toy keep on lb1 can adopt the value or let it vary"
        in page.text
    )
    answer = browser.post(f"/drift/{key.id}/restore", follow_redirects=False)
    site.harness.run_queued_work()
    number = int(answer.headers["location"].split("/")[2].partition("?")[0])
    run = site.harness.get_run(number)
    assert (run.state, run.plan_only) == (State.PLANNED, True)
    require_unreachable_tickets(site.policy)
    page = Page(browser.get(f"/drift/{key.id}").text)
    assert (page.values["ticket"], page.unlabelled) == ("", [])
    wrong = Page(browser.post(f"/drift/{key.id}/restore", data={"ticket": "CHG 7"}).text)
    assert ("a ticket is letters" in wrong.text.lower(), wrong.values["ticket"]) == (True, "CHG 7")
    browser.post(f"/drift/{key.id}/restore", data={"ticket": "CHG7"})
    assert site.harness.get_run(number + 1).ticket == "CHG7"
    refused = browser.post(f"/drift/{key.id}/adopt", data={"reason": "mine"})
    assert refused.status_code == 403
    assert 'value="mine"' not in refused.text


def test_owner_adopts_a_changed_value_with_a_reason(site: Site, key: DriftKey):
    browser = site.browser("olga")
    missing = browser.post(f"/drift/{key.id}/adopt", data={"reason": ""})
    assert missing.status_code == 422
    assert "Give a reason" in missing.text
    page = site.send(browser, f"/drift/{key.id}/adopt", reason="it is better")
    assert "Adopted. Keyturn watches this value" in page.text
    assert "it is better" in page.text


def test_owner_expects_other_values_until_a_given_time(site: Site, key: DriftKey):
    browser = site.browser("olga")
    typed = {"until": "whenever", "range": "1..2", "reason": "a test"}
    wrong = browser.post(f"/drift/{key.id}/expect", data=typed)
    assert wrong.status_code == 422
    assert 'value="whenever"' in wrong.text
    page = site.send(browser, f"/drift/{key.id}/expect", until="3 days", range="", reason="a test")
    assert "Expected may vary until" in page.text
    assert "As set" in page.text


def test_watched_value_is_read_again_on_demand(site: Site, key: DriftKey):
    with site.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(read_at=0))
    page = site.send(site.browser("dora"), f"/drift/{key.id}/read")
    assert "Keyturn reads the host within seconds" in page.text
    site.harness.fleet.hosts["lb1"]["lamp"] = "on"
    read_due_keys(site.harness.service)
    with site.database.reading() as tx:
        assert drift.get_key(tx, key.id).state is DriftState.AS_SET
