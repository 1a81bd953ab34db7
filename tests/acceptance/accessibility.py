"""Accessibility of every page: axe, contrast in light and dark, keyboard focus, telephone width.

`make test` measures the contrast of each text itself, and looks at runs and states that differ
most. `make chaos` has axe judge contrast as well, which takes a tenfold time, and looks at all.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from bot.db.database import Database
from bot.features.drift import rows as drift
from bot.features.drift.state import Candidate
from bot.model.drift_state import DriftState
from bot.model.run import RequestTerms, StepState
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.acceptance.browsing import CONTRAST, Server, Visit, open_window
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    approve,
    end_run,
    start_run,
)
from tests.bot.web.test_routes import NAMES, ROUTES
from tests.campaigns import CHAOS
from tests.playground.sample_company import FAULT_TREE
from tests.toy import ShowSwitches

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
DESK: Any = {"width": 1280, "height": 800}
TELEPHONE: Any = {"width": 360, "height": 740}
# What is no page: files, streams, parts of pages, and what only programs look at.
NO_PAGES = {
    "/healthz",
    "/readyz",
    "/runs.csv",
    "/runs.json",
    "/changelog.csv",
    "/changelog.json",
    "/changelog/entries/{number}/proof",
    "/runs/{number}/proof",
    "/runs/{number}/stream",
    "/stream",
    "/runs/{number}/live",
    "/schedules/timing",
    "/runbooks/preview",
    "/search/suggestions",
    "/oidc/start",
    "/oidc/callback",
}
TREE = "balancers"
# Its name stands in labels, where it must fit.
LONGEST_ZONE = "America/North_Dakota/New_Salem"
# What pages look like where something does not fit, is not there, or is in the way. Those that
# differ from one of these in their words only come after them.
_ALIKE = (
    "/runs?search=nothing+like+it",
    "/changes?at=soon",
    "/schedules/1",
    "/schedules/new?name=x&request=zfs+pools+nas1&cron=@daily",
    "/policy?who=dora&what=nothing",
)
STATES = (
    "/nope",
    "/runs?since=soon",
    "/runs?chart=yes",
    "/changes?host=web1&at=2020-01-01+02:00",
    "/runbooks/form?runbook=abusers+clear&host=lb1",
    "/drift/1",
    "/schedules/new?name=x&request=zfs+pools+nas1&cron=often",
    "/runs/compare?a=2&b=6",
    "/policy?who=dora&what=abusers+clear+lb1",
    *(_ALIKE if CHAOS else ()),
)
# What takes a while to look for, and is in no page but in the styles of all: looked for once.
OF_STYLES = "css-orientation-lock"
# Kinds of runs whose pages have each part that there is: what is decided, asked and resolved,
# output, live output, undo.
KINDS = ("pending", "failed", "unknown", "running", "succeeded", "long")
# The menu and the foot, which `make chaos` has axe judge on every page.
OF_EVERY_PAGE = () if CHAOS else (".kt-top", ".kt-foot")
# What can be reached by Tab, and can be seen.
PLACES = """within => {
  const some = "a[href], button, input, select, textarea, summary, [tabindex='0']";
  window.places = [...document.querySelector(within || "body").querySelectorAll(some)].filter(
    one => !one.disabled && one.type !== "hidden" && one.checkVisibility() && one.tabIndex >= 0);
}"""
# Goes to each of them, and tells where one cannot see that, or comes there out of turn.
WALK = f"""within => {{
  ({PLACES})(within);
  return window.places.flatMap(one => {{
    one.focus({{ focusVisible: true }});
    const style = getComputedStyle(one), box = one.getBoundingClientRect();
    const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return seen && box.width && one.tabIndex === 0 ? [] : [one.outerHTML.slice(0, 120)];
  }});
}}"""
# What is cut in a wide window: a header of two lines, a name, a label, a table that scrolls.
CUT = """() => [
  ...[...document.querySelectorAll(".kt-top")].filter(one => one.offsetHeight > 60),
  ...[...document.querySelectorAll(".kt-account-name, .kt-filters label, .kt-scroll")].filter(
    one => one.scrollWidth > one.clientWidth),
].map(one => one.outerHTML.slice(0, 120))"""


@dataclass(frozen=True)
class Looks:
    """What is wrong with a page.

    cut: what a window of 1280 pixels cuts off. lost: where the keyboard would not be seen.
    wide: pixels that it takes on a telephone. complaints: what the console said.
    """

    light: Sequence[str]
    dark: Sequence[str]
    cut: Sequence[str]
    lost: Sequence[str]
    wide: int
    complaints: Sequence[str]

    @property
    def faults(self) -> bool:
        too_wide = self.wide > TELEPHONE["width"]
        return bool(self.light or self.dark or self.cut or self.lost or too_wide)


@contextmanager
def open_sample_pages(directory: Path) -> Generator[tuple[Server, dict[str, int]]]:
    """Serve pages that have all kinds of runs to show; yield the number of a run of each kind."""
    with open_harness(directory) as harness:
        _add_fault_tree(harness)
        runs = add_sample_runs(harness.database) | {
            "long": _add_run_with_long_output(harness.database)
        }
        _request_schedule(harness)
        _record_drift(harness, runs["succeeded"])
        server = Server(harness)
        yield server, runs
        server.stop()


@contextmanager
def open_visit(browser: Browser, server: Server) -> Generator[Visit]:
    """Sign an owner in, in a window that loads axe with every page."""
    visit = open_window(
        browser, server, reduced_motion="reduce", viewport=DESK, timezone_id=LONGEST_ZONE
    )
    # Once for all pages to come, and not sent anew for each.
    visit.page.context.add_init_script(path=AXE)
    visit.sign_in("olga")
    yield visit
    visit.page.context.close()


def list_addresses(runs: Mapping[str, int]) -> Iterator[str]:
    """Yield the address of every page; for runs, one page for each of KINDS, or for each kind."""
    for (method, path), (_, status) in ROUTES.items():
        if method != "GET" or path in NO_PAGES or status != 200:
            continue
        if path == "/runs/{number}":
            for kind in runs if CHAOS else KINDS:
                yield path.replace("{number}", str(runs[kind]))
        else:
            yield path.format(number=runs["succeeded"], **NAMES)
    yield f"/redundancy/{TREE}"


def check_page(visit: Visit, within: str = "body") -> Looks:
    """Look at the page that is open in every way. within: where the keyboard goes, and axe looks.

    The window may be as narrow as a telephone afterwards.
    """
    complaints = [*visit.complaints]
    visit.complaints.clear()
    # The width that it has comes first: to draw all anew takes a while.
    is_narrow = visit.page.viewport_size == TELEPHONE
    wide = _measure_on_telephone(visit.page) if is_narrow else 0
    visit.page.set_viewport_size(DESK)
    cut = visit.page.evaluate(CUT)
    light, dark = run_axe(visit.page, without=() if within == "body" else OF_EVERY_PAGE)
    visit.press("Tab")
    lost = visit.page.evaluate(WALK, within)
    if not is_narrow:
        wide = _measure_on_telephone(visit.page)
    return Looks(light, dark, cut, lost, wide, complaints)


def _measure_on_telephone(page: Page) -> int:
    """Return how many pixels the page takes in a window as narrow as a telephone."""
    page.set_viewport_size(TELEPHONE)
    return page.evaluate("document.documentElement.scrollWidth")


def run_axe(page: Page, without: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return what is wrong when it is light, and what is too pale in the dark.

    without: selectors of parts that axe need not look at, as it has on another page.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    unused = [OF_STYLES] if CHAOS else [OF_STYLES, "color-contrast"]
    disabled = ", ".join(f"'{rule}': {{ enabled: false }}" for rule in unused)
    rules = {
        "light": f"rules: {{ {disabled} }}",
        "dark": "runOnly: ['color-contrast']",
    }
    # The one that it has comes first: to draw all anew takes a while.
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    schemes: list[Any] = ["dark", "light"] if is_dark else ["light", "dark"]
    faults: dict[str, list[str]] = {}
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        faults[scheme] = page.evaluate(CONTRAST)
        if scheme == "light" or CHAOS:
            faults[scheme] += list_violations(page, rules[scheme], without)
    return faults["light"], faults["dark"]


def list_violations(page: Page, rules: str, without: Sequence[str] = ()) -> list[str]:
    # Of what is as it should be nothing is told, which would take most of the time.
    options = f"{{ resultTypes: ['violations'], {rules} }}"
    look = f"async without => (await axe.run({{ exclude: without }}, {options})).violations"
    violations = page.evaluate(look, [[selector] for selector in without])
    return [
        f"{each['id']}: {node['html'][:160]}" for each in violations for node in each["nodes"][:3]
    ]


def _add_fault_tree(harness: Harness) -> None:
    directory = harness.policies.path / "trees"
    directory.mkdir()
    (directory / f"{TREE}.yaml").write_text(FAULT_TREE)


def _record_drift(harness: Harness, run: int) -> None:
    """Have a value that a run has set be changed outside, on a host where people have worked."""
    with harness.database.transaction() as tx:
        name = "agent nginx EvilBot/2"
        drift.set_key(tx, "web1", name, run=run, set_value="answered with 403", next_at=tx.now)
        key = drift.find_key(tx, "web1", name)
        assert key
        commands = ("login", "logged in on pts/0 198.51.100.7"), ("sudo", f"/bin/{'x' * 150}")
        candidates = [Candidate(tx.now, kind, "stan", words) for kind, words in commands]
        unread = Candidate(0, "unread", "", "packages: the host printed nothing")
        changed = replace(
            key, state=DriftState.CHANGED, value="allowed", candidates=[*candidates, unread]
        )
        drift.store_key(tx, changed)


def _add_run_with_long_output(database: Database) -> int:
    """Put a run on show whose host said far too much, in lines that are far too long."""
    output = "".join(f"{n}: {'x' * 700} </pre><b>\x1b[31m\n" for n in range(300))
    with database.transaction() as tx:
        run = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))
        end_run(tx, run, StepState.SUCCEEDED, output=output)
    return run.id


def _request_schedule(harness: Harness) -> None:
    timing = ScheduleTiming("nightly look", parse_cron("0 3 * * *", "Europe/Amsterdam"))
    look = [ShowSwitches(host="lb1")]
    harness.service.request_on_hosts(
        look, RequestTerms("dora", WEB, timing=timing), host_pattern=""
    )
    harness.run_queued_work()
