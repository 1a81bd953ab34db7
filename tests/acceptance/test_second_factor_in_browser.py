"""A security key in a real browser: enrolment, approval and break-glass."""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from bot.auth import second_factors
from bot.model.run import State
from bot.queries.second_factor import is_factor_valid
from tests.acceptance.browsing import CONTRAST, Server, Visit, open_window
from tests.bot.authenticator_app import enrol_and_step_up, enrol_app
from tests.bot.harness import Harness, open_harness
from tests.policies import get_starter_rules
from tests.toy import SetSwitch

pytestmark = pytest.mark.real

STRICT = get_starter_rules().replace('@approvals("1")', '@approvals("1")\n@stepup', 1)


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    # Keys are bound to a name, and to no bare address.
    with open_harness(tmp_path, rules=STRICT) as harness:
        harness.fleet.hosts["web1"] = {"lamp": "off"}
        server = Server(harness, "localhost")
        yield server
        server.stop()


def add_virtual_security_key(page: Page) -> CDPSession:
    """Give the browser a security key that is touched as soon as it blinks."""
    devices = page.context.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    devices.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                "protocol": "ctap2",
                "transport": "usb",
                "hasResidentKey": False,
                "hasUserVerification": False,
                "automaticPresenceSimulation": True,
            }
        },
    )
    return devices


def add_confirmed_key(visit: Visit, person: str) -> None:
    """Add a key on the page, and have somebody vouch for it."""
    harness, page = visit.server.harness, visit.page
    visit.open("/second-factor")
    page.get_by_role("button", name="Add a key").click()
    expect(page.get_by_text("Not confirmed")).to_be_visible()
    with harness.database.transaction() as tx:
        [factor] = second_factors.list_factors(tx, person)
        assert not is_factor_valid(harness.policies.get_policy(), factor)
        second_factors.confirm_factor(tx, harness.context.secret_box, factor, confirmed_by="stan")


def test_security_key_approves_a_run_that_requires_a_second_factor(
    browser: Browser, server: Server
) -> None:
    visit = open_window(browser, server)
    page, harness = visit.page, server.harness
    visit.sign_in("olga")
    add_virtual_security_key(page)
    add_confirmed_key(visit, "olga")
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    visit.open(f"/runs/{run.id}")
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Confirm with your second factor").click()
    page.get_by_role("button", name="Use your security key").click()
    page.wait_for_url(f"**/runs/{run.id}")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("Your approval is recorded.")).to_be_visible()
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert visit.complaints == []
    page.context.close()


def test_missing_security_key_is_reported_on_the_step_up_page(
    browser: Browser, server: Server
) -> None:
    visit = open_window(browser, server)
    page = visit.page
    visit.sign_in("olga")
    devices = add_virtual_security_key(page)
    add_confirmed_key(visit, "olga")
    devices.send("WebAuthn.disable")
    devices.send("WebAuthn.enable")
    # Another key than the one that was enrolled.
    add_virtual_security_key(page)
    visit.open("/step-up?next=/runs")
    page.get_by_role("button", name="Use your security key").click()
    expect(page.get_by_role("alert")).to_contain_text("No response from the key", timeout=70_000)
    assert page.url.endswith("/step-up?next=/runs")
    page.context.close()


_IS_ON_TOP = """field => {
    const box = field.getBoundingClientRect();
    const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return top === field;
}"""


def test_no_bar_covers_the_reason_for_break_glass(browser: Browser, server: Server) -> None:
    visit = open_window(browser, server)
    page = visit.page
    visit.sign_in("adam")
    run = server.harness.request(SetSwitch(host="web1", name="lamp", value="on"), person="adam")
    visit.open(f"/runs/{run.id}")
    page.set_viewport_size({"width": 1440, "height": 480})
    page.get_by_text("Break-glass: emergency access").click()
    reason = page.get_by_label("Reason (at least 20 characters)")
    reason.focus()
    assert reason.evaluate(_IS_ON_TOP)
    page.context.close()


def test_break_glass_is_used_with_a_security_key(browser: Browser, server: Server) -> None:
    visit = open_window(browser, server)
    page, harness = visit.page, server.harness
    visit.sign_in("adam")
    add_virtual_security_key(page)
    add_confirmed_key(visit, "adam")
    run = harness.request(SetSwitch(host="web1", name="lamp", value="on"), person="adam")
    visit.open(f"/runs/{run.id}")
    page.get_by_text("Break-glass: emergency access").click()
    page.get_by_label("Reason (at least 20 characters)").fill("all customers see an error page")
    page.get_by_role("button", name="Confirm with your second factor").click()
    page.get_by_role("button", name="Use your security key").click()
    page.wait_for_url(f"**/runs/{run.id}")
    expect(page.get_by_label("Reason (at least 20 characters)")).to_have_value(
        "all customers see an error page"
    )
    page.get_by_role("button", name="Use break-glass").click()
    expect(page.get_by_role("heading", name="Break-glass was used")).to_be_visible()
    harness.run_queued_work()
    assert harness.get_run(run.id).state is State.SUCCEEDED
    assert visit.complaints == []
    page.context.close()


def test_second_factor_pages_fit_every_screen_width(browser: Browser, server: Server) -> None:
    visit = open_window(browser, server)
    harness = server.harness
    visit.sign_in("olga")
    enrol_app(harness, "olga")
    enrol_app(harness, "olga", confirmed_by="")
    enrol_app(harness, "dora", confirmed_by="")
    begun = harness.service.factor_enrolment.begin_app_enrolment("stan").id
    waiting = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), person="dora").id
    broken = _activate_break_glass(harness)
    pages = {
        "second-factor": ("olga", "/second-factor"),
        "step-up": ("olga", "/step-up?next=/runs"),
        "step-up-wanted": ("olga", f"/runs/{waiting}"),
        "glass-broken": ("olga", f"/runs/{broken}"),
        "glass": ("adam", f"/runs/{_request_break_glass(harness)}"),
        "second-factor-app": ("stan", f"/second-factor/app/{begun}"),
    }
    who = "olga"
    for name, (person, path) in pages.items():
        if person != who:
            visit.sign_in(person)
            who = person
        visit.open(path)
        for screen, width in visit.iterate_screens():
            visit.keep(f"{name}-{screen}")
            wide = visit.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} wide on {screen}"
            assert visit.page.evaluate(CONTRAST) == [], f"{name} on {screen}"
    assert visit.complaints == []
    visit.page.context.close()


def _activate_break_glass(harness: Harness) -> int:
    app = enrol_and_step_up(harness, "adam")
    run = harness.request(SetSwitch(host="web1", name="lamp", value="on"), person="adam")
    why = "all customers see an error page"
    harness.service.break_glass.activate_break_glass(
        run.id, person="adam", session=app.session, digest=run.digest, reason=why
    )
    harness.run_queued_work()
    return run.id


def _request_break_glass(harness: Harness) -> int:
    run = harness.request(SetSwitch(host="web1", name="lamp", value="off"), person="adam")
    why = "all customers see an error page"
    harness.service.break_glass.request_break_glass(run.id, person="adam", reason=why)
    return run.id
