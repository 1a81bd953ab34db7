"""Accessibility of empty pages, error pages and the pages that forms lead to."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from bot.service import KeyturnService
from bot.workflow.rate_limit import RateLimits
from tests.acceptance.accessibility import DESK, STATES, Looks, check_page, run_axe
from tests.acceptance.browsing import Server, Visit, open_window
from tests.bot.authenticator_app import enrol_app
from tests.bot.harness import open_harness
from tests.bot.web.sample_runs import add_sample_runs
from tests.campaigns import CHAOS

pytestmark = pytest.mark.real

# Where a form that was sent leads to: 403, 409, 410, 422, and the picture of a new second factor.
SENT = (
    "/runs/{pending}/withdraw",
    "/runs/{denied}/approve",
    "/sign-in/" + "x" * 43,
    "/bans",
    "/second-factor/app",
    *(("/runs/{succeeded}/undo", "/tokens", "/stop") if CHAOS else ()),
)
ASKED = {"runbook": "abusers clear", "field-host": "lb1", "field-address": "203.0.113.9"}
# Each says in its own way that there is nothing yet; the others as /runs does.
EMPTY = (
    *("/", "/runs", "/schedules", "/report"),
    *(("/changelog", "/hosts", "/changes", "/access") if CHAOS else ()),
)
# Sends a form there, as a page of ours would.
SEND = """([path, fields]) => {
  const form = document.createElement("form");
  form.method = "post";
  form.action = path;
  for (const name in fields) {
    const field = document.createElement("input");
    field.name = name;
    field.value = fields[name];
    form.append(field);
  }
  document.body.append(form);
  form.submit();
}"""


def test_pages_with_missing_or_invalid_values_are_accessible(visit: Visit):
    looks: dict[str, Looks] = {}
    for address in STATES:
        visit.open(address)
        looks[address] = check_page(visit, within="main")
    assert {address: one for address, one in looks.items() if one.faults} == {}
    # The browser itself says that an error page is one.
    said = {line for one in looks.values() for line in one.complaints}
    assert {line for line in said if not line.startswith("Failed to load resource")} == set()
    assert not looks["/runs?since=soon"].complaints
    assert not looks["/runs/compare?a=2&b=6"].complaints


def test_axe_finds_nothing_on_pages_that_forms_lead_to(
    visit: Visit, sample_pages: tuple[Server, dict[str, int]]
):
    faults_by_page: dict[str, list[str]] = {}
    visit.open("/tokens")
    for pattern in SENT:
        _submit_form(visit, pattern.format(**sample_pages[1]))
        faults_by_page[pattern] = [fault for faults in run_axe(visit.page) for fault in faults]
    assert {path: faults for path, faults in faults_by_page.items() if faults} == {}


def test_axe_finds_nothing_on_empty_pages_and_without_a_session(browser: Browser, tmp_path: Path):
    with open_harness(tmp_path) as harness:
        server = Server(harness)
        window = open_window(browser, server, reduced_motion="reduce")
        window.sign_in("dora")
        faults_by_page = {path: _list_axe_violations(window, path) for path in EMPTY}
        window.page.context.clear_cookies()
        faults_by_page |= {
            f"{path} to a stranger": _list_axe_violations(window, path)
            for path in ("/runs", "/nope")
        }
        window.page.context.close()
        server.stop()
    assert {path: faults for path, faults in faults_by_page.items() if faults} == {}


def test_error_pages_and_second_factor_pages_are_accessible(browser: Browser, tmp_path: Path):
    """Too much, a fault of ours, a policy that nobody can read, and the six digits of an app."""
    with open_harness(tmp_path) as harness:
        parts = replace(
            harness.context, rate_limits=RateLimits(per_person=1, per_runbook=9, in_total=9)
        )
        server = Server(replace(harness, context=parts, service=KeyturnService(parts)))
        enrol_app(harness, "olga")
        number = add_sample_runs(harness.database)["succeeded"]
        visit = open_window(browser, server, reduced_motion="reduce", viewport=DESK)
        visit.sign_in("olga")
        looks: dict[str, Looks] = {}

        def look(what: str, title: str) -> None:
            expect(visit.page.get_by_role("heading", level=1)).to_have_text(title)
            looks[what] = check_page(visit)

        visit.open("/step-up?next=/runs")
        look("step up", "Confirm with your second factor")
        _submit_form(visit, "/step-up/code", code="000000")
        expect(visit.page.get_by_role("alert")).to_be_visible()
        look("not the digits", "Confirm with your second factor")
        for _ in range(2):
            _submit_form(visit, "/runbooks", **ASKED)
        expect(visit.page.get_by_role("alert")).to_contain_text("within a minute")
        look("429", "abusers clear")
        with harness.database.transaction() as tx:
            broken = "UPDATE run SET state = 'upside down' WHERE id = ?"
            tx.sql.exec_driver_sql(broken, (number,))
        visit.open(f"/runs/{number}")
        look("500", "Internal error")
        expect(visit.page.get_by_role("navigation", name="Pages")).to_be_visible()
        (harness.policies.path / "people.yaml").write_text("people: [")
        visit.open("/runs")
        look("503", "Service unavailable")
        visit.page.context.close()
        server.stop()
    assert {what: one for what, one in looks.items() if one.faults} == {}
    assert len(looks) == 5


def _submit_form(visit: Visit, path: str, **fields: str) -> None:
    """Send a form from the page that is open, and see where that leads."""
    with visit.page.expect_navigation():
        visit.page.evaluate(SEND, [path, fields])


def _list_axe_violations(window: Visit, address: str) -> list[str]:
    window.open(address)
    return [fault for faults in run_axe(window.page) for fault in faults]
