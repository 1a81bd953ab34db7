"""The pages in a real browser: sign-in, filters, live updates, approval."""

import re
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from bot.model.errors import NotAllowed
from bot.model.run import Run, State
from tests.acceptance.browsing import Server, Visit, open_window
from tests.bot.harness import open_harness
from tests.bot.web.sample_runs import add_sample_runs
from tests.toy import BreakSwitch, SetAll

pytestmark = pytest.mark.real


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    with open_harness(tmp_path) as harness:
        server = Server(harness)
        yield server
        server.stop()


@pytest.fixture
def visit(browser: Browser, server: Server) -> Generator[Visit]:
    visit = open_window(browser, server)
    yield visit
    visit.page.context.close()


def request_both_lamps(server: Server) -> Run:
    return server.harness.request(SetAll(host="lb1", value="on"), reason="the cellar is dark")


# Whether what has the focus is what is seen there: WCAG 2.2, 2.4.11.
_IS_FOCUS_SEEN = """() => {
    const focus = document.activeElement, box = focus.getBoundingClientRect();
    const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return top !== null && (focus.contains(top) || top.contains(focus));
}"""


def test_bar_of_a_run_covers_nothing_that_gets_the_focus(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    page = visit.page
    visit.sign_in("olga")
    page.set_viewport_size({"width": 1440, "height": 480})
    visit.open(f"/runs/{run.id}")
    visit.press("Tab")
    seen: list[str] = []
    while "Copy: undo of step 2" not in seen and len(seen) < 80:
        page.keyboard.press("Tab")
        page.wait_for_function(_IS_FOCUS_SEEN)  # the page may still scroll to it
        seen.append(page.evaluate("document.activeElement.getAttribute('aria-label') || ''"))
    assert "Copy: undo of step 2" in seen


def test_pending_run_is_opened_and_approved_in_the_browser(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    page = visit.page
    visit.sign_in_by_link("olga")
    page.get_by_role("link", name="Review run 1").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("toy set all lb1 on")
    expect(page.locator("#command-1")).to_have_text("set fan on")
    page.get_by_label("Reason (optional)").fill("go on")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Your approval is recorded.")).to_be_visible()
    expect(page.locator(".kt-headline")).to_contain_text("Queued")

    visit.server.harness.run_queued_work()

    # The page follows by itself, and then stops asking.
    expect(page.locator(".kt-headline")).to_contain_text("Succeeded")
    expect(page).to_have_title(re.compile("^Succeeded: toy set all"))
    expect(page.locator("#announce")).to_have_text("Run 1: Succeeded")
    assert page.locator("#live").get_attribute("hx-get") is None
    assert visit.server.harness.get_run(run.id).state is State.SUCCEEDED
    assert visit.complaints == []


def test_run_history_is_filtered_live(visit: Visit) -> None:
    add_sample_runs(visit.server.harness.database)
    page = visit.page
    visit.sign_in("dora", "/")
    visit.follow(page.get_by_role("link", name="Runs", exact=True))
    rows = page.locator("#results tbody tr")
    expect(rows).to_have_count(12)
    page.evaluate("window.untouched = true")

    page.get_by_label("Host").fill("lb2")
    expect(rows).to_have_count(4)
    page.get_by_label("Requested by").select_option("adam")
    expect(rows).to_have_count(1)
    expect(page.locator("#announce")).to_have_text("1 run shown")
    assert page.url.endswith("/runs?host=lb2&person=adam")
    assert page.evaluate("window.untouched") is True

    page.get_by_label("Since").fill("soon")
    expect(page.get_by_role("alert")).to_contain_text("“soon” is not a time")
    page.get_by_label("Since").fill("1 h")
    expect(rows).to_have_count(1)

    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Host")).to_have_value("lb2")
    page.go_back()
    page.get_by_role("link", name="Clear", exact=True).click()
    expect(rows).to_have_count(12)
    assert visit.complaints == []


def test_live_update_of_a_run_page_keeps_typed_text_and_focus(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    page = visit.page
    visit.sign_in("olga", f"/runs/{run.id}#tab-timeline")
    page.get_by_text("Deny…").click()
    page.get_by_label("Reason (optional)").type("half a sen")
    with pytest.raises(NotAllowed):
        visit.server.harness.service.approve_run(run.id, person="stan", digest=run.digest)

    expect(page.get_by_text("Approval refused for Stan Storage")).to_be_visible(timeout=10_000)

    expect(page.get_by_label("Reason (optional)")).to_be_focused()
    page.keyboard.type("tence")
    expect(page.get_by_label("Reason (optional)")).to_have_value("half a sentence")
    assert page.locator("#live details[open]").count() == 1
    assert visit.complaints == []


def test_times_are_shown_in_local_time_with_utc_in_the_title(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    visit.sign_in("olga", f"/runs/{run.id}")
    time = visit.page.locator(".kt-approvals time").first
    at = datetime.fromtimestamp(run.requested_at // 1_000_000, UTC)
    assert time.get_attribute("datetime") == at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert time.get_attribute("title") == at.strftime("%Y-%m-%d %H:%M:%S UTC")
    expect(time).to_have_text(f"{(at.hour + 9) % 24:02}:{at:%M:%S}")
    expect(visit.page.locator("[data-zone]")).to_contain_text("Asia/Tokyo")


def test_freeze_is_named_on_the_run_that_it_holds_and_in_the_calendar(visit: Visit) -> None:
    harness, page = visit.server.harness, visit.page
    end = (datetime.now(UTC) + timedelta(days=10)).replace(hour=20, minute=0, second=0)
    (harness.policies.path / "freezes.yaml").write_text(
        f'freezes: [{{name: fair, from: "1999-01-01 00:00", until: "{end:%Y-%m-%d %H:%M}"}}]'
    )
    held = harness.approve(request_both_lamps(visit.server))
    visit.sign_in("olga", f"/runs/{held.id}")
    expect(page.locator(".kt-headline")).to_contain_text("On hold")
    expect(page.locator(".kt-summary")).to_contain_text("The edge is frozen until")
    # 20:00 UTC is 05:00 of the next day in Tokyo.
    time = page.locator(".kt-summary time")
    expect(time).to_contain_text("05:00")
    expect(time).to_have_attribute("title", f"{end:%Y-%m-%d %H:%M} UTC")
    visit.open("/schedules")
    last = page.locator(".kt-calendar .kt-freeze").last
    expect(last).to_contain_text("fair 00:00–05:00")
    expect(last.get_by_title(f"{end:%Y-%m-%d %H:%M:%S} UTC")).to_have_text("05:00")
    assert visit.complaints == []


def test_incomplete_decisions_are_refused_at_their_fields(visit: Visit) -> None:
    harness, page = visit.server.harness, visit.page
    run = harness.request(BreakSwitch(host="lb1", name="lamp"))
    visit.sign_in("olga", f"/runs/{run.id}")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#confirm-irreversible:invalid")).to_be_focused()
    page.get_by_text("Deny…").click()
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.locator("#deny-reason:invalid")).to_be_focused()
    assert harness.get_run(run.id).state is State.PENDING
    page.get_by_label("“Break it” cannot be undone: gone").check()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Your approval is recorded.")).to_be_visible()
    assert visit.complaints == []


def test_outdated_plan_is_replanned_on_its_page(visit: Visit) -> None:
    harness, page = visit.server.harness, visit.page
    run = request_both_lamps(visit.server)
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(rules.read_text().replace("owner of the area approves", "owner approves"))
    visit.sign_in("dora", f"/runs/{run.id}")
    expect(page.get_by_role("heading", name="The plan is not current any more")).to_be_visible()
    page.get_by_role("button", name="Re-plan").click()
    page.wait_for_url(f"**/runs/{run.id + 1}?done=replanned")
    assert harness.get_run(run.id).state is State.SUPERSEDED
    assert visit.complaints == []


def test_typed_times_use_the_zone_of_the_browser(visit: Visit) -> None:
    request_both_lamps(visit.server)
    page = visit.page
    visit.sign_in("olga", "/runs")
    expect(page.get_by_text("Since (Asia/Tokyo)")).to_be_visible()
    page.get_by_label("Host").fill("lb1")
    expect(page).to_have_url(re.compile(r"/runs\?host=lb1$"))
    # The row shows how long ago it was; its attribute is the time in UTC.
    at = page.locator("#results tbody time").first.get_attribute("datetime")
    assert at
    shown = f"{datetime.fromisoformat(at).astimezone(ZoneInfo('Asia/Tokyo')):%H:%M:%S}"
    page.get_by_label("Since").fill(shown)
    expect(page).to_have_url(re.compile(r"since=[^&]+&zone=Asia%2FTokyo$"))
    expect(page.locator("#results tbody tr")).to_have_count(1)
    # A link made without scripts has times in UTC, and so are those that are typed there.
    visit.open(f"/runs?since={shown}")
    expect(page.get_by_text("Since (UTC)")).to_be_visible()
    assert visit.complaints == []


def test_command_of_a_step_can_be_copied(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.sign_in("olga", f"/runs/{run.id}")
    visit.page.get_by_role("button", name="Copy: command of step 2").click()
    expect(visit.page.locator("#announce")).to_have_text("Copied")
    assert visit.page.evaluate("navigator.clipboard.readText()") == "set lamp on"


def test_skip_link_moves_keyboard_focus_to_the_content(visit: Visit) -> None:
    visit.sign_in("olga", "/")
    visit.press("Tab")
    expect(visit.page.get_by_role("link", name="Skip to content")).to_be_focused()
    visit.press("Enter")
    expect(visit.page.locator("main")).to_be_focused()


def test_run_page_of_a_removed_person_asks_to_sign_in(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    visit.sign_in("olga", f"/runs/{run.id}")
    people = visit.server.harness.policies.path / "areas.yaml"
    people.write_text(people.read_text().replace("olga, ", "").replace("[olga]", "[adam]"))
    people = people.with_name("people.yaml")
    kept = [line for line in people.read_text().splitlines(keepends=True) if "olga" not in line]
    people.write_text("".join(kept))
    expect(visit.page.get_by_role("heading", name="Sign in from Slack")).to_be_visible()


def test_typed_text_is_in_the_form_again_after_a_session_has_ended(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    page = visit.page
    # Without them the page would notice by itself that the session has ended, now and then first.
    page.route(re.compile(r"/(stream|live)\b"), lambda route: route.abort())
    for path, button, fields in (
        (f"/runs/{run.id}", "Deny", {"deny-reason": "not before the fair"}),
        ("/access", "Delegate", {"delegate-reason": "on leave", "delegate-until": "4 hours"}),
    ):
        visit.sign_in("olga", path)
        page.evaluate("document.querySelectorAll('main details').forEach(one => one.open = true)")
        for field, text in fields.items():
            page.locator(f"#{field}").fill(text)
        if path == "/access":
            page.locator("#delegate-person").select_option("adam")
        page.context.clear_cookies()
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_text("Nothing was sent.")).to_be_visible()
        # The text is there before the script that stores what was typed has run.
        page.wait_for_function(
            "path => (localStorage.getItem('keyturn-typed') || '').includes(path)", arg=path
        )
        visit.sign_in("olga", path)
        for field, text in fields.items():
            expect(page.locator(f"#{field}")).to_have_value(text)
            expect(page.locator(f"#{field}")).to_be_visible()
    expect(page.locator("#delegate-person")).to_have_value("adam")
    assert visit.server.harness.get_run(run.id).state is State.PENDING


def test_run_page_reports_a_lost_server_connection(visit: Visit) -> None:
    run = request_both_lamps(visit.server)
    visit.sign_in("olga", f"/runs/{run.id}")
    expect(visit.page.locator("#lost")).to_be_hidden()
    visit.server.stop()
    expect(visit.page.locator("#lost")).to_be_visible(timeout=10_000)


def test_filtering_and_approving_work_without_scripts(browser: Browser, server: Server) -> None:
    run = request_both_lamps(server)
    add_sample_runs(server.harness.database)
    visit = open_window(browser, server, java_script_enabled=False)
    page = visit.page
    visit.sign_in("olga", "/runs")
    page.get_by_label("Runbook").select_option(index=0)
    page.get_by_label("Host").fill("lb2")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("#results tbody tr")).to_have_count(4)
    visit.open(f"/runs/{run.id}")
    expect(page.locator("#live time").first).to_contain_text("UTC")
    expect(page.locator("[data-copy]").first).to_be_hidden()
    visit.follow(page.get_by_role("button", name="Approve"))
    assert server.harness.get_run(run.id).state is State.QUEUED
    page.context.close()


def test_account_menu_works_by_keyboard(visit: Visit):
    visit.sign_in("olga", "/")
    menu = visit.page.locator("details.kt-account")
    menu.locator("summary").focus()
    visit.press("Enter")
    expect(menu.get_by_role("link", name="Sessions")).to_be_visible()
    visit.press("Escape")
    expect(menu.get_by_role("link", name="Sessions")).to_be_hidden()
    menu.locator("summary").click()
    menu.get_by_role("button", name="Sign out").click()
    expect(visit.page.get_by_text("You are signed out.")).to_be_visible()
