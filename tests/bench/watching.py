"""Watching: a page that shows what two hundred hosts say, and how long it ever does not answer."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.acceptance.loud import HOSTS, a_fan, speaking
from tests.acceptance.visiting import Server, a_visit, chromium
from tests.bench.measuring import Figure, Part, at_least, at_most, table, told
from tests.bot.office import an_office

_OPEN = 5
# A long task is one of over 50 ms (https://w3c.github.io/longtasks/): until it is over, a page
# answers nobody. Between two frames lies what somebody who looks at it sees stand still.
_LISTEN = """() => {
  window.tasks = [];
  window.frames = [];
  new PerformanceObserver(list => {
    window.tasks.push(...list.getEntries().map(entry => entry.duration));
  }).observe({ type: "longtask" });
  let last = performance.now();
  const frame = now => {
    window.frames.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""

_UNFOLD = """count => {
  const each = [...document.querySelectorAll("#said details")];
  each.slice(0, count).forEach(one => { one.open = true; });
}"""


def measured(seconds: int) -> Part:
    """Look on for so long while 200 hosts say 10,000 lines a second, five of them unfolded."""
    with (
        tempfile.TemporaryDirectory() as place,
        an_office(Path(place)) as office,
        chromium() as browser,
    ):
        with office.database.transaction() as tx:
            whole, parts = a_fan(tx)
        server = Server(office)
        visit = a_visit(browser, server)
        try:
            visit.sign_in("dora")
            visit.open(f"/runs/{whole.id}")
            with speaking(office.database, parts) as said:
                expect(visit.page.locator("#said details")).to_have_count(HOSTS, timeout=60_000)
                visit.page.evaluate(_UNFOLD, _OPEN)
                visit.page.evaluate(_LISTEN)
                before, spent, began = said.lines, _spent(browser), time.perf_counter()
                visit.page.wait_for_timeout(1000 * seconds)
                took = time.perf_counter() - began
                shares = [
                    100 * (n - m) / took for m, n in zip(spent, _spent(browser), strict=True)
                ]
                figures = _told(visit.page, (said.lines - before) / took, shares, seconds)
        finally:
            server.stop()
    return Part(table(figures), [figure for figure in figures if figure.met is not None])


def _spent(browser: Browser) -> tuple[float, float]:
    """Return the seconds of a core that the service and that pages have taken up to now.

    The service's are those of all threads but this one, which only drives the browser.
    """
    return time.process_time() - time.thread_time(), _busy(browser)


def _busy(browser: Browser) -> float:
    """Return the seconds of a core that pages have taken up to now."""
    # Playwright does not say what stands in an answer of the browser's own protocol.
    session = browser.new_browser_cdp_session()
    told: Any = session.send("SystemInfo.getProcessInfo")  # pyright: ignore[reportUnknownVariableType]
    return sum(one["cpuTime"] for one in told["processInfo"] if one["type"] == "renderer")


def _told(page: Page, rate: float, shares: Sequence[float], seconds: int) -> list[Figure]:
    tasks: list[float] = page.evaluate("window.tasks")
    frames: list[float] = page.evaluate("window.frames")
    unfolded = page.locator("#said details[open]").count()
    return [
        at_least(9_000, f"lines that {HOSTS} hosts say in a second", rate, "lines"),
        at_least(_OPEN, "of them unfolded on the page", unfolded, "hosts"),
        at_most(200, "the longest that the page answers nobody", max(tasks, default=0.0), "ms"),
        at_most(50, "of a core, that hearing, keeping and telling it takes", shares[0], "%"),
        told("of a core, that the page takes", shares[1], "%"),
        told("tasks of over 50 ms in a minute", 60 * len(tasks) / seconds, "tasks"),
        told("the longest between two frames", max(frames, default=0.0), "ms"),
    ]
