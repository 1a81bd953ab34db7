"""Every page for everybody: to be seen, heard, typed at, on a telephone, and without scripts."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bot.db.database import Database
from bot.model.run import StepState
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.service import Workflow
from bot.workflow.rate_limit import RateLimits
from tests.acceptance.browsing import Server, Visit, a_visit
from tests.bot.authenticator_app import enrol_app
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.web.sample_runs import approved, asked, concluded, gallery, running, waiting
from tests.bot.web.test_routes import NAMES, ROUTES
from tests.toy import ShowSwitches

pytestmark = pytest.mark.real

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
    "/runs/{number}/stream",
    "/stream",
    "/runs/{number}/live",
    "/schedules/timing",
    "/runs/histogram",
    "/changelog/histogram",
    "/runbooks/preview",
    "/oidc/start",
    "/oidc/callback",
}
# Of runs: one that waits, is done, has an end that nobody knows, is a check, says far too much.
SHOWN = ("pending", "succeeded", "unknown", "checked", "long")
# What pages look like where something does not fit, is not there, or is in the way.
STATES = (
    "/nope",
    "/runs?since=soon",
    "/runs?text=nothing+like+it",
    "/changes?at=soon",
    "/changes?host=web1&at=2020-01-01+02:00",
    "/runbooks/form?runbook=abusers+clear&host=lb1",
    "/schedules/1",
    "/schedules/new?name=x&request=zfs+pools+nas1&cron=@daily",
    "/schedules/new?name=x&request=zfs+pools+nas1&cron=often",
    "/runs/compare?a=2&b=6",
    "/policy?show=matrix",
    "/policy?who=dora&what=abusers+clear+lb1",
    "/policy?who=dora&what=nothing",
)
# Where a form that was sent leads to: 403, 409, 410, 422, and the picture of a new second factor.
SENT = (
    "/runs/{pending}/withdraw",
    "/runs/{denied}/approve",
    "/runs/{succeeded}/undo",
    "/tokens",
    "/stop",
    "/bans",
    "/sign-in/" + "x" * 43,
    "/second-factor/app",
)
ASKED = {"runbook": "abusers clear", "field-host": "lb1", "field-address": "203.0.113.9"}
EMPTY = ("/", "/runs", "/changelog", "/hosts", "/schedules", "/changes", "/report", "/access")
# What takes a while to look for, and is in no page but in the styles of all: looked for once.
OF_STYLES = "css-orientation-lock"
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


@dataclass(frozen=True)
class Looks:
    """What is wrong with a page. lost: where the keyboard would not be seen. wide: pixels."""

    light: Sequence[str]
    dark: Sequence[str]
    lost: Sequence[str]
    wide: int

    @property
    def faults(self) -> bool:
        return bool(self.light or self.dark or self.lost or self.wide > TELEPHONE["width"])


@pytest.fixture(scope="module")
def exhibition(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[tuple[Server, dict[str, int]]]:
    """Pages that have all kinds of runs to show, and the number of one of each."""
    with open_harness(tmp_path_factory.mktemp("harness")) as harness:
        runs = gallery(harness.database) | {"long": _long_output(harness.database)}
        _a_schedule(harness)
        server = Server(harness)
        yield server, runs
        server.stop()


@pytest.fixture(scope="module")
def visit(browser: Browser, exhibition: tuple[Server, dict[str, int]]) -> Generator[Visit]:
    """Somebody signed in there."""
    visit = a_visit(browser, exhibition[0], reduced_motion="reduce", viewport=DESK)
    # Once for all pages to come, and not sent anew for each.
    visit.page.context.add_init_script(path=AXE)
    visit.sign_in("olga")
    yield visit
    visit.page.context.close()


@pytest.fixture(scope="module")
def addresses(exhibition: tuple[Server, dict[str, int]]) -> list[str]:
    return [*_addresses([exhibition[1][kind] for kind in SHOWN]), *STATES]


@pytest.fixture(scope="module")
def looks(visit: Visit, addresses: list[str]) -> Mapping[str, Looks]:
    """Each page is opened once, and then looked at in every way."""
    found: dict[str, Looks] = {}
    for address in addresses:
        visit.open(address)
        # The menu and the foot are those of every page.
        found[address] = _looked_at(visit, within="main" if found else "body")
    return found


def test_axe_finds_nothing_on_any_page_light_or_dark(looks: Mapping[str, Looks]):
    found = {address: [*one.light, *one.dark] for address, one in looks.items()}
    assert {address: faults for address, faults in found.items() if faults} == {}
    assert len(found) > 30


def test_no_style_keeps_a_page_upright_on_a_telephone_that_is_turned(visit: Visit):
    visit.open("/")
    assert _violations(visit.page, f"runOnly: ['{OF_STYLES}']") == []


def test_axe_finds_what_is_wrong_with_a_page(visit: Visit):
    """The twin: a picture that nobody described, a field without a name, and grey on grey."""
    visit.open("/")
    visit.page.evaluate(
        "document.querySelector('main').innerHTML += '<img src=x><input><p>pale</p>';"
        "document.querySelector('main p:last-child').style.color = '#777'"
    )
    light, dark = _by_axe(visit.page)
    assert {"image-alt", "label"} <= {name.partition(":")[0] for name in light}
    assert "color-contrast" in {name.partition(":")[0] for name in dark}


def test_axe_finds_nothing_where_a_form_leads_to(
    visit: Visit, exhibition: tuple[Server, dict[str, int]]
):
    found: dict[str, list[str]] = {}
    visit.open("/tokens")
    for pattern in SENT:
        _send(visit, pattern.format(**exhibition[1]))
        found[pattern] = [fault for faults in _by_axe(visit.page) for fault in faults]
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_axe_finds_nothing_where_nothing_is_yet_and_where_a_stranger_comes(
    browser: Browser, tmp_path: Path
):
    with open_harness(tmp_path) as harness:
        server = Server(harness)
        window = a_visit(browser, server, reduced_motion="reduce")
        window.sign_in("dora")
        found = {path: _faults(window, path) for path in EMPTY}
        window.page.context.clear_cookies()
        found |= {f"{path} to a stranger": _faults(window, path) for path in ("/runs", "/nope")}
        window.page.context.close()
        server.stop()
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_pages_that_say_no_and_a_second_factor_are_for_everybody_too(
    browser: Browser, tmp_path: Path
):
    """Too much, a fault of ours, a policy that nobody can read, and the six digits of an app."""
    with open_harness(tmp_path) as harness:
        parts = replace(
            harness.context, rate_limits=RateLimits(per_person=1, per_runbook=9, in_total=9)
        )
        server = Server(replace(harness, context=parts, workflow=Workflow(parts)))
        enrol_app(harness, "olga")
        number = gallery(harness.database)["succeeded"]
        visit = a_visit(browser, server, reduced_motion="reduce", viewport=DESK)
        visit.sign_in("olga")
        looks: dict[str, Looks] = {}

        def look(what: str, title: str) -> None:
            expect(visit.page.get_by_role("heading", level=1)).to_have_text(title)
            looks[what] = _looked_at(visit)

        visit.open("/step-up?next=/runs")
        look("step up", "Confirm with your second factor")
        _send(visit, "/step-up/code", code="000000")
        expect(visit.page.get_by_role("alert")).to_be_visible()
        look("not the digits", "Confirm with your second factor")
        for _ in range(2):
            _send(visit, "/runbooks", **ASKED)
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


def test_every_page_fits_a_telephone(looks: Mapping[str, Looks]):
    widths = {address: one.wide for address, one in looks.items()}
    most = TELEPHONE["width"]
    assert {address: width for address, width in widths.items() if width > most} == {}


def test_a_telephone_shows_every_page_that_there_is(visit: Visit):
    visit.page.set_viewport_size(TELEPHONE)
    visit.open("/policy")
    boxes = [link.bounding_box() for link in visit.page.locator(".kt-nav a").all()]
    visit.page.set_viewport_size(DESK)
    ends = [box["x"] + box["width"] for box in boxes if box]
    assert len(ends) == len(boxes) > 5
    assert max(ends) <= TELEPHONE["width"]


def test_whoever_types_sees_where_they_are(looks: Mapping[str, Looks]):
    found = {address: one.lost for address, one in looks.items()}
    assert {address: places for address, places in found.items() if places} == {}


def test_where_the_keyboard_is_would_be_missed_if_it_could_not_be_seen(visit: Visit):
    """The twin: a link without an outline, and one that comes before its turn."""
    visit.open("/")
    visit.page.keyboard.press("Tab")
    visit.page.evaluate(
        "document.querySelector('.kt-brand').style.setProperty('outline', 'none', 'important');"
        "document.querySelector('.kt-nav a').tabIndex = 5"
    )
    assert len(visit.page.evaluate(WALK)) == 2


def test_tab_goes_through_a_page_in_its_order_and_out_again(visit: Visit):
    page = visit.page
    visit.open("/changes")
    page.evaluate(PLACES)
    went: list[int] = []
    for _ in range(page.evaluate("window.places.length")):
        page.keyboard.press("Tab")
        went.append(page.evaluate("window.places.indexOf(document.activeElement)"))
    assert went == list(range(len(went)))
    assert len(went) > 15


def test_every_page_is_read_without_scripts(browser: Browser, visit: Visit, addresses: list[str]):
    window = a_visit(browser, visit.server, java_script_enabled=False)
    window.sign_in("olga")
    bare: dict[str, str] = {}
    for address in addresses:
        window.open(address)
        told = window.page.locator("main").inner_text()
        times = window.page.locator("main time:visible").all_inner_texts()
        unsent = window.page.locator("main form:visible:not(:has(button:visible))").count()
        if len(told) < 40 or unsent or not all("UTC" in time for time in times):
            bare[address] = f"{len(told)} characters, {times[:3]}, {unsent} forms without a button"
    window.page.context.close()
    assert bare == {}


def test_utc_is_shown_beside_the_readers_own_time_and_stays_so(visit: Visit):
    page = visit.page
    beside = "getComputedStyle(document.querySelector('main td time'), '::after').content"
    visit.open("/runs")
    assert page.evaluate(beside) == "none"
    button = page.get_by_role("button", name="Also show UTC")
    button.press("Space")
    expect(button).to_have_attribute("aria-pressed", "true")
    visit.open("/changelog")
    title = page.locator("main td time").first.get_attribute("title")
    assert page.evaluate(beside) == f'"{title}"'
    button.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")


def _addresses(runs: list[int]) -> Iterator[str]:
    for (method, path), (_, status) in ROUTES.items():
        if method != "GET" or path in NO_PAGES or status != 200:
            continue
        if path == "/runs/{number}":
            yield from (path.replace("{number}", str(run)) for run in runs)
        else:
            yield path.format(number=runs[1], **NAMES)


def _long_output(database: Database) -> int:
    """Put a run on show whose host said far too much, in lines that are far too long."""
    said = "".join(f"{n}: {'x' * 700} </pre><b>\x1b[31m\n" for n in range(300))
    with database.transaction() as tx:
        run = running(tx, approved(tx, waiting(tx, asked(tx))))
        concluded(tx, run, StepState.SUCCEEDED, output=said)
    return run.id


def _a_schedule(harness: Harness) -> None:
    timing = ScheduleTiming("nightly look", parse_cron("0 3 * * *", "Europe/Amsterdam"))
    look = [ShowSwitches(host="lb1")]
    harness.workflow.schedules.request_schedule(
        look, host_pattern="", person="dora", origin=WEB, timing=timing
    )
    harness.run_queued_work()


def _send(visit: Visit, path: str, **fields: str) -> None:
    """Send a form from the page that is open, and see where that leads."""
    with visit.page.expect_navigation():
        visit.page.evaluate(SEND, [path, fields])


def _looked_at(visit: Visit, within: str = "body") -> Looks:
    """Look at the page that is open in every way. within: where the keyboard goes."""
    light, dark = _by_axe(visit.page)
    visit.page.keyboard.press("Tab")
    lost = visit.page.evaluate(WALK, within)
    visit.page.set_viewport_size(TELEPHONE)
    wide = visit.page.evaluate("document.documentElement.scrollWidth")
    visit.page.set_viewport_size(DESK)
    return Looks(light, dark, lost, wide)


def _faults(window: Visit, address: str) -> list[str]:
    window.open(address)
    return [fault for faults in _by_axe(window.page) for fault in faults]


def _by_axe(page: Page) -> tuple[list[str], list[str]]:
    """Return what axe finds when it is light, and which colours it finds too pale in the dark."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    page.emulate_media(color_scheme="light")
    light = _violations(page, f"rules: {{ '{OF_STYLES}': {{ enabled: false }} }}")
    page.emulate_media(color_scheme="dark")
    dark = _violations(page, "runOnly: ['color-contrast']")
    page.emulate_media(color_scheme="light")
    return light, dark


def _violations(page: Page, asked: str) -> list[str]:
    # Of what is as it should be nothing is told, which would take most of the time.
    options = f"{{ resultTypes: ['violations'], {asked} }}"
    found = page.evaluate(f"async () => (await axe.run({options})).violations")
    return [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"][:3]]
