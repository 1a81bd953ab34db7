"""The run page in a real browser: live output, fan-out chart, search, comparison."""

import re
import time
from collections.abc import Generator
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bot.audit import verification
from bot.auth import sessions
from bot.db import live_output, runs
from bot.db.live_output import NewestLines
from bot.model.run import Run, State, StepState
from tests.acceptance.browsing import CONTRAST, Server, Visit, open_window
from tests.acceptance.noisy_hosts import HOSTS, request_on_many_hosts, stream_output
from tests.bot.harness import open_harness
from tests.bot.web.sample_runs import (
    add_ended_run,
    add_pending_run,
    add_requested_run,
    add_succeeded_run,
    approve,
    end_run,
    start_run,
)

pytestmark = pytest.mark.real

# Counts what is made anew where what hosts say is shown; words in the place of words are not.
COUNT = """() => {
  window.made = 0;
  new MutationObserver(changes => { window.made += changes.length; })
    .observe(document.getElementById("live-output"), { childList: true, subtree: true });
}"""


@pytest.fixture
def server(tmp_path: Path) -> Generator[Server]:
    with open_harness(tmp_path) as harness:
        server = Server(harness)
        yield server
        server.stop()


@pytest.fixture
def visit(browser: Browser, server: Server) -> Generator[Visit]:
    visit = open_window(browser, server)
    visit.sign_in("dora")
    yield visit
    visit.page.context.close()


def start_new_run(server: Server) -> Run:
    with server.harness.database.transaction() as tx:
        return start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))


def store_newest_lines(server: Server, run: int, total: int, *newest: str) -> None:
    with server.harness.database.transaction() as tx:
        live_output.store_lines(tx, [NewestLines(run, 1, total, "\n".join(newest))])


def get_scroll_position(page: Page) -> float:
    return page.evaluate("document.querySelector('#live-output pre').scrollTop")


def test_live_output_appears_as_escaped_text(visit: Visit) -> None:
    run = start_new_run(visit.server)
    visit.open(f"/runs/{run.id}")
    page = visit.page
    expect(page.locator("#live-status")).to_have_text("Live")
    expect(page.locator("#live-output")).to_be_hidden()
    store_newest_lines(visit.server, run.id, 2, "<img src=x onerror=alert(1)>", "\x1b[31mred‮")
    lines = page.locator("#live-output pre")
    expect(lines).to_have_text("<img src=x onerror=alert(1)>\nred\\u202e")
    assert page.locator("#live-output img").count() == 0
    store_newest_lines(visit.server, run.id, 3, "red", "and the third")
    expect(lines).to_contain_text("and the third")
    expect(page.locator("#live-output [data-total]")).to_have_text("3 lines")
    visit.keep("live-light-1280")

    with visit.server.harness.database.transaction() as tx:
        live_output.delete_lines(tx, run.id)
        add_ended_run(tx, runs.get_run(tx, run.id), State.SUCCEEDED, "Verified")
    expect(page.locator(".kt-headline")).to_contain_text("Succeeded")
    expect(page.locator("#live-output")).to_be_hidden()
    expect(page.locator("#live-status")).to_be_hidden()
    assert visit.complaints == []


def test_live_output_keeps_the_scroll_position_of_the_reader(visit: Visit) -> None:
    run = start_new_run(visit.server)
    store_newest_lines(visit.server, run.id, 90, *[f"line {n}" for n in range(90)])
    visit.open(f"/runs/{run.id}")
    page = visit.page
    expect(page.locator("#live-output pre")).to_contain_text("line 89")
    assert get_scroll_position(page) > 100
    page.evaluate("document.querySelector('#live-output pre').scrollTop = 10")
    store_newest_lines(visit.server, run.id, 95, *[f"line {n}" for n in range(95)])
    expect(page.locator("#live-output [data-total]")).to_have_text("95 lines")
    expect(page.locator("#live-output pre")).to_contain_text("line 94")
    assert get_scroll_position(page) == 10


def test_reopened_live_output_shows_the_newest_lines(visit: Visit) -> None:
    run = start_new_run(visit.server)
    visit.open(f"/runs/{run.id}")
    page = visit.page
    expect(page.locator("#live-status")).to_have_text("Live")
    store_newest_lines(visit.server, run.id, 90, *[f"line {n}" for n in range(90)])
    expect(page.locator("#live-output pre")).to_contain_text("line 89")
    page.locator("#live-output summary").click()
    store_newest_lines(visit.server, run.id, 190, *[f"line {n}" for n in range(190)])
    expect(page.locator("#live-output [data-last]")).to_have_text("line 189")
    page.locator("#live-output summary").click()
    expect(page.locator("#live-output pre")).to_contain_text("line 189")
    assert page.evaluate(
        "(pre => pre.scrollHeight - pre.clientHeight - pre.scrollTop < 8)"
        "(document.querySelector('#live-output pre'))"
    )


def test_run_page_reconnects_its_event_stream_after_an_outage(
    browser: Browser, server: Server
) -> None:
    run = start_new_run(server)
    visit = open_window(browser, server)
    visit.sign_in("dora", f"/runs/{run.id}")
    page = visit.page
    expect(page.locator("#live-status")).to_have_text("Live")
    page.context.set_offline(True)
    page.evaluate("window.dispatchEvent(new Event('offline'))")
    store_newest_lines(server, run.id, 1, "said meanwhile")
    page.context.set_offline(False)
    expect(page.locator("#live-output pre")).to_have_text("said meanwhile")
    page.context.close()


def test_run_page_asks_to_sign_in_when_the_session_ended(visit: Visit) -> None:
    run = start_new_run(visit.server)
    visit.open(f"/runs/{run.id}")
    expect(visit.page.locator("#live-status")).to_have_text("Live")
    cookies = {one.get("name"): one.get("value", "") for one in visit.page.context.cookies()}
    token = cookies["keyturn"]
    with visit.server.harness.database.transaction() as tx:
        sessions.end_session(tx, token)
    expect(visit.page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=30_000)


def test_run_page_stays_responsive_with_live_output_of_200_hosts(visit: Visit) -> None:
    """Each host says 50 lines a second, which is 10,000 in all; the page still answers."""
    with visit.server.harness.database.transaction() as tx:
        whole, parts = request_on_many_hosts(tx)
    page = visit.page
    visit.open(f"/runs/{whole.id}")
    expect(page.locator("#live-status")).to_have_text("Live")
    with stream_output(visit.server.harness.database, parts):
        expect(page.locator("#live-output details")).to_have_count(HOSTS)
        newest = page.locator("#live-output [data-last]").last
        expect(newest).to_contain_text("what a host has to say")
        page.evaluate(COUNT)
        counted = page.locator("#live-output [data-total]").last
        before = counted.inner_text()
        # Whoever clicks is answered, and what is shown grows no further.
        slowest = 0.0
        for _ in range(10):
            begun = time.monotonic()
            page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
            slowest = max(slowest, time.monotonic() - begun)
        assert slowest < 2.0
        expect(counted).not_to_have_text(before)
        # Each part of a page that is made anew has the styles of all others looked up.
        assert page.evaluate("window.made") == 0
        page.locator("#live-output summary").first.click()
        expect(page.locator("#live-output pre").first).to_contain_text("of what a host has to say")
        assert page.evaluate("document.querySelectorAll('#live-output *').length") < 8 * HOSTS
        begun = time.monotonic()
        other = page.context.request.get(f"{visit.server.address}/runs")
        assert other.ok
        assert time.monotonic() - begun < 5
    assert visit.complaints == []


def test_parent_run_page_shows_a_chart_and_counts_of_its_hosts(visit: Visit) -> None:
    with visit.server.harness.database.transaction() as tx:
        whole, parts = request_on_many_hosts(tx, 60)
        add_ended_run(tx, parts[0], State.SUCCEEDED, "Verified")
        add_ended_run(tx, parts[1], State.FAILED, "Step 1 of 1 failed: the disk is full.")
        add_ended_run(tx, parts[2], State.UNKNOWN, "The outcome of step 1 of 1 is unknown")
        live_output.store_lines(tx, [NewestLines(parts[3].id, 1, 2, "one\ntwo")])
    visit.open(f"/runs/{whole.id}")
    page = visit.page
    counts = "1 succeeded, 1 failed, 1 with an unknown outcome, 27 in progress, 30 not started"
    words = f"2 of 60 hosts done: {counts}"
    expect(page.locator("#fanout strong")).to_have_text(words)
    end = page.locator(".kt-fanout-text").filter(has_text="expected to end").locator("time")
    expect(end).to_have_attribute("title", re.compile(r" UTC$"))
    expect(end).not_to_contain_text("UTC")
    for screen, width in visit.iterate_screens():
        expect(page.get_by_role("img", name=words)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        visit.keep(f"fan-{screen}")
    with visit.server.harness.database.transaction() as tx:
        add_ended_run(tx, parts[4], State.SUCCEEDED, "Verified, too")
    expect(page.locator("#fanout strong")).to_contain_text("2 succeeded")
    expect(page.locator(f"#child-{parts[4].id}")).to_contain_text("Verified, too")
    expect(page.locator("#announce")).to_contain_text("2 succeeded")
    assert visit.complaints == []


def test_run_page_without_scripts_shows_live_output_with_a_refresh_link(
    browser: Browser, server: Server
) -> None:
    run = start_new_run(server)
    store_newest_lines(server, run.id, 1, "as it was then")
    visit = open_window(browser, server, java_script_enabled=False)
    visit.sign_in("dora", f"/runs/{run.id}")
    page = visit.page
    expect(page.locator("#live-output pre")).to_have_text("as it was then")
    store_newest_lines(server, run.id, 2, "as it was then", "and now")
    page.get_by_role("link", name="Refresh").click()
    expect(page.locator("#live-output pre")).to_contain_text("and now")
    page.context.close()


def test_output_lines_are_linked_and_searched(visit: Visit) -> None:
    with visit.server.harness.database.transaction() as tx:
        run = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))
        output = "\n".join(f"line {n}" for n in range(1, 101))
        end_run(tx, run, StepState.SUCCEEDED, output=output)
        add_ended_run(tx, run, State.SUCCEEDED, "Verified")
    page = visit.page
    visit.open(f"/runs/{run.id}#output-1-L90")
    expect(page.locator("#output-1-L90")).to_be_in_viewport()
    expect(page.locator("#plan")).to_be_hidden()
    page.get_by_placeholder("Search output").fill("LINE 1")
    expect(page.locator("[data-count]")).to_have_text("1 of 12")
    visit.press("Enter")
    expect(page.locator("[data-count]")).to_have_text("2 of 12")
    expect(page.locator("#output-1-L10")).to_be_in_viewport()
    page.get_by_role("link", name="Plan", exact=True).click()
    expect(page.locator("#plan")).to_be_visible()
    expect(page.locator("#output-1")).to_be_hidden()
    assert visit.complaints == []


def test_page_of_an_ended_run_opens_no_event_stream(visit: Visit) -> None:
    with visit.server.harness.database.transaction() as tx:
        run = add_succeeded_run(tx, add_requested_run(tx))
    asked_for: list[str] = []
    visit.page.on("request", lambda request: asked_for.append(request.url))
    visit.open(f"/runs/{run.id}")
    # The number of pending approvals in the navigation is updated by the stream of all pages.
    assert not [url for url in asked_for if f"/runs/{run.id}/" in url]


def test_two_runs_are_compared_side_by_side(visit: Visit) -> None:
    with visit.server.harness.database.transaction() as tx:
        for output in (
            "table http1: 3 keys\nno such key\n",
            "table http1: 2 keys\nremoved\ndone\n",
        ):
            run = start_run(
                tx,
                approve(tx, add_pending_run(tx, add_requested_run(tx)), reason="known customer"),
            )
            end_run(tx, run, StepState.SUCCEEDED, output=output)
            add_ended_run(tx, run, State.SUCCEEDED, "Verified: 203.0.113.9 is not marked")
    visit.open(f"/runs/{run.id}")
    page = visit.page
    page.get_by_role("link", name="Previous run of this command").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare runs 1 and 2")
    row = page.get_by_role("row", name="Differs table http1: 3 keys table http1: 2 keys")
    for screen, width in visit.iterate_screens():
        expect(row).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        visit.keep(f"compared-{screen}")
    assert visit.complaints == []


def test_change_log_of_a_run_is_verified_by_keyboard(visit: Visit) -> None:
    with visit.server.harness.database.transaction() as tx:
        verification.open_log(tx)
        run = add_succeeded_run(tx, add_requested_run(tx))
    visit.open(f"/runs/{run.id}")
    visit.page.get_by_role("link", name="Change log").last.focus()
    visit.press("Enter")
    visit.page.get_by_role("button", name="Verify").focus()
    visit.press("Enter")
    expect(visit.page.locator("#proof")).to_contain_text("are intact")
    visit.keep("verified-light-1280")
    assert visit.complaints == []


def test_page_of_an_ended_run_shows_the_end_although_a_refresh_is_lost(visit: Visit) -> None:
    run = start_new_run(visit.server)
    page, lost, ended = visit.page, list[str](), Event()

    def lose_first_refresh(route: Route) -> None:
        if lost:
            route.continue_()
            return
        # One from before could show the end already, and none would be lost.
        if ended.is_set():
            lost.append(route.request.url)
        route.abort()

    page.route(re.compile(rf"/runs/{run.id}/live\?"), lose_first_refresh)
    visit.open(f"/runs/{run.id}")
    expect(page.locator("#live-status")).to_have_text("Live")
    with visit.server.harness.database.transaction() as tx:
        add_ended_run(tx, runs.get_run(tx, run.id), State.SUCCEEDED, "Verified")
        ended.set()
    expect(page.locator("#live-status")).to_be_hidden()
    expect(page.locator(".kt-headline")).to_contain_text("Succeeded")
    assert len(lost) == 1
