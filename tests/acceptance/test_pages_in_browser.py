"""The pages in a real browser: changes, saved views, hosts, request form, schedules, search."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, expect

from bot.db import locks
from bot.model.run import RequestTerms
from bot.model.schedule import ScheduleTiming, parse_cron
from runbooks import load_catalogue
from tests.acceptance.browsing import Server, Visit, open_window
from tests.bot.harness import WEB, open_harness
from tests.bot.host_contacts import store_contact
from tests.bot.web.sample_runs import add_sample_runs
from tests.runbooks.pages import CHANGE
from tests.toy import RUNBOOKS, SetSwitch, ShowSwitches

pytestmark = pytest.mark.real

NIGHTLY = ScheduleTiming("nightly look", parse_cron("0 3 * * *", "Europe/Amsterdam"))


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Server]:
    known = cast("dict[str, Any]", load_catalogue())
    for words, runbook in RUNBOOKS.items():
        monkeypatch.setitem(known, words, runbook)
    with open_harness(tmp_path) as harness:
        _fill_database(harness)
        server = Server(harness)
        yield server
        server.stop()


def _fill_database(harness: Any) -> None:
    numbers = add_sample_runs(harness.database)
    with harness.database.transaction() as tx:
        locks.take_lock(tx, "lb2", numbers["unknown"])
        store_contact(tx, "lb1", tried_at=tx.now, answered_at=tx.now)
        store_contact(
            tx, "nas1", tried_at=tx.now, answered_at=None, kind="key", error="another key"
        )
    look = [ShowSwitches(host="lb1")]
    harness.service.request_on_hosts(
        look, RequestTerms("dora", WEB, timing=NIGHTLY), host_pattern=""
    )
    harness.run_queued_work()


@pytest.fixture
def visit(browser: Browser, server: Server) -> Generator[Visit]:
    visit = open_window(browser, server)
    visit.sign_in("dora")
    yield visit
    visit.page.context.close()


def test_changes_page_shows_who_changed_a_host_and_who_approved_it(visit: Visit) -> None:
    page = visit.page
    visit.open("/")
    visit.follow(page.get_by_role("link", name="Changes in the last hour"))
    page.get_by_role("combobox", name="Hosts").fill("lb1")
    expect(page.get_by_role("heading", name="on lb1")).to_be_visible()
    first = page.locator("#results tbody tr").first
    expect(first).to_contain_text("abusers clear lb1 203.0.113.9")
    expect(first).to_contain_text("Dora Developer")
    expect(first).to_contain_text("Olga Owner")
    expect(page.locator("#results")).not_to_contain_text("lb2")
    assert "host=lb1" in page.url
    visit.keep("around")
    assert visit.complaints == []


def test_saved_view_keeps_filters_and_its_link_works_for_others(
    browser: Browser, visit: Visit
) -> None:
    page = visit.page
    visit.open("/runs")
    page.get_by_label("Host", exact=True).fill("lb2")
    expect(page.locator("#results")).not_to_contain_text("abusers clear lb1")
    page.get_by_label("Name of the view").fill("what became of lb2")
    page.get_by_role("button", name="Save view").click()
    link = page.get_by_role("link", name="/views/1", exact=True)
    expect(link).to_be_visible()
    path = link.inner_text()
    # The chart arrives after the page.
    expect(page.locator(".kt-histogram figure")).to_be_visible()
    visit.keep("view")
    other = open_window(browser, visit.server)
    other.sign_in("olga", path)
    expect(other.page.get_by_text("View “what became of lb2” of Dora")).to_be_visible()
    expect(other.page.locator("#results")).not_to_contain_text("abusers clear lb1")
    other.page.context.close()
    assert visit.complaints == []


def test_host_list_is_filtered_live(visit: Visit) -> None:
    page = visit.page
    visit.open("/")
    visit.follow(page.get_by_role("link", name="Hosts"))
    expect(page.locator("#results")).to_contain_text("web1")
    page.get_by_label("Status").select_option("host key mismatch")
    expect(page.locator("#results")).not_to_contain_text("web1")
    page.locator("#results").get_by_role("link", name="nas1", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Host key mismatch")).to_be_visible()
    assert visit.complaints == []


def test_request_form_reports_invalid_fields_and_plans_after_correction(visit: Visit) -> None:
    page = visit.page
    visit.open("/runbooks/form?runbook=toy+set&host=lb1")
    expect(page.get_by_text("1 approval from")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("two words\u202e")
    page.get_by_label("Value").fill("on")
    page.get_by_label("Host").fill("lb7")
    page.get_by_label("Reason").fill("it is")
    page.get_by_role("button", name="Plan").click()
    for label, typed in (("Host", "lb7"), ("Name", "two words\\u202e")):
        field = page.get_by_label(label, exact=True)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_value(typed)
        expect(page.locator(f"#h-{label.lower()} .kt-error")).to_be_visible()
    expect(page.get_by_label("Host", exact=True)).to_be_focused()
    expect(page.get_by_label("Reason (optional)")).to_have_value("it is")
    expect(page.get_by_label("Value")).to_have_value("on")
    page.get_by_label("Host").fill("lb1")
    page.get_by_label("Name", exact=True).fill("lamp")
    page.get_by_label("Reason").fill("it is dark")
    visit.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("toy set lb1 lamp on")

    # The plan is shown, and runs nothing until it is requested.
    visit.server.harness.run_queued_work()
    bar = page.get_by_role("region", name="Nothing has run yet")
    expect(bar).to_contain_text("It needs 1 approval from the owners of the edge")
    expect(bar).to_be_in_viewport()
    visit.keep("plan")
    assert visit.server.harness.fleet.sent == []
    bar.get_by_role("button", name="Request approval").click()
    expect(page.get_by_role("status").filter(has_text="Your request is recorded.")).to_be_visible()
    expect(page.get_by_text("Someone else has to approve it.")).to_be_visible()


def test_schedule_is_suspended_by_keyboard_and_leaves_the_calendar(visit: Visit) -> None:
    page = visit.page
    visit.open("/schedules")
    days = page.locator(".kt-calendar td:not(.kt-blank)")
    expect(days).to_have_count(30)
    expect(days.nth(5)).to_contain_text("nightly look")
    visit.keep("calendar")
    page.get_by_role("button", name="Suspend nightly look").focus()
    visit.press("Enter")
    expect(page.get_by_text("The schedule is suspended.")).to_be_visible()
    visit.open("/schedules")
    expect(page.locator(".kt-calendar")).not_to_contain_text("nightly look")
    assert visit.complaints == []


def test_live_list_keeps_open_details_typed_text_and_focus(visit: Visit) -> None:
    page, harness = visit.page, visit.server.harness
    visit.sign_in("olga", "/")
    page.locator("details[id^=plan-of-] summary").first.click()
    link = page.locator("main a.kt-title").first
    link.focus()
    # The first event of the stream only counts: a list follows what changes after it.
    expect(page.locator(".kt-nav [data-waiting]")).to_be_visible()
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), reason="it is dusk")
    expect(page.get_by_role("link", name=f"Review run {run.id}")).to_be_visible(timeout=15_000)
    assert page.locator("details[id^=plan-of-][open]").count() == 1
    expect(page.locator("main a.kt-title:focus")).to_have_count(1)

    visit.open("/runs?state=pending")
    expect(page.locator(".kt-nav [data-waiting]")).to_be_visible()
    page.get_by_label("Name of the view").type("my vi")
    run = harness.request(SetSwitch(host="lb2", name="lamp", value="on"), reason="it is dark")
    page.get_by_label("Name of the view").type("ew")
    expect(page.get_by_label("Name of the view")).to_have_value("my view")
    page.get_by_role("heading", level=1).click()
    expect(page.locator(f"main a[href='/runs/{run.id}']").first).to_be_visible(timeout=15_000)
    assert visit.complaints == []


def test_pages_are_searched_and_opened_by_keyboard(visit: Visit) -> None:
    page, address = visit.page, visit.server.address
    visit.open("/")
    visit.press("Control+k")
    expect(page.get_by_label("Search or request")).to_be_focused()
    page.keyboard.type("?gh abusers")
    page.get_by_label("Search or request").fill("toy set lb1 lamp on")
    visit.press("Enter")
    expect(page.locator("[name=field-value]")).to_have_value("on")
    visit.press("g", "r")
    page.wait_for_url(f"{address}/runs")
    rows = page.locator("main a.kt-title")
    visit.press("j")
    expect(rows.nth(0)).to_be_focused()
    visit.press("j", "j", "k")
    expect(rows.nth(1)).to_be_focused()
    expect(page.locator("main td time").first).to_have_text(re.compile(r"just now|\d+ min ago"))
    target = rows.nth(1).get_attribute("href")
    visit.press("o")
    page.wait_for_url(f"{address}{target}")

    visit.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Use shortcuts of single keys").uncheck()
    visit.press("Escape")
    expect(dialog).to_be_hidden()
    visit.press("/")
    expect(page.get_by_label("Search or request")).not_to_be_focused()
    visit.press("Control+k")
    expect(page.get_by_label("Search or request")).to_be_focused()

    page.locator("details.kt-account summary").click()
    page.get_by_role("button", name="Dark").click()
    visit.open("/hosts")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    page.locator("details.kt-account summary").click()
    page.get_by_role("button", name="System").click()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")
    # Where the header is narrow, its links are behind a button.
    page.set_viewport_size({"width": 1000, "height": 800})
    expect(page.get_by_role("link", name="Change log")).to_be_hidden()
    page.get_by_role("button", name="Pages").click()
    page.get_by_role("link", name="Change log").click()
    page.wait_for_url(f"{address}/changelog")
    assert visit.complaints == []


def test_runbook_that_is_written_is_previewed_as_it_is_typed(visit: Visit):
    visit.sign_in("olga", "/draft")
    page = visit.page
    source = page.get_by_label("Page", exact=True).last
    source.fill(CHANGE.replace("now != value", "now != valu"))
    problem = page.locator("#preview .kt-error")
    expect(problem).to_contain_text("Line 17, column 5: character 8: nothing has the name valu")
    expect(page.locator("#announce")).to_have_text("1 problem, the first on line 17")
    source.press("Control+End")
    source.fill(CHANGE)
    expect(page.locator("#announce")).to_have_text("No problems")
    expect(problem).to_have_count(0)
    expect(page.locator("#preview")).to_contain_text("/keyturn swappiness set HOST VALUE")
    expect(page.get_by_label("Value", exact=True)).to_be_visible()
    # What is typed stays, with the cursor in it.
    expect(source).to_be_focused()
    assert source.input_value() == CHANGE
    for name, width in visit.iterate_screens():
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        visit.keep(f"draft-{name}")
    assert visit.complaints == []
