"""Every page for everybody: axe finds nothing, light or dark, and 360 pixels are wide enough."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.acceptance.visiting import Server, Visit, a_visit, chromium
from tests.bot.office import an_office
from tests.bot.web.exhibits import gallery
from tests.bot.web.test_routes import NAMES, ROUTES

pytestmark = pytest.mark.real

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
WIDTH = 360
# What is no page: files, streams, parts of pages, and what only programs look at.
NO_PAGES = {
    "/healthz",
    "/readyz",
    "/runs.csv",
    "/runs.json",
    "/log.csv",
    "/log.json",
    "/runs/{number}/stream",
    "/runs/{number}/live",
    "/oidc/begin",
    "/oidc/back",
}
# Of runs, one that waits, one that is done, one whose end nobody knows.
SHOWN = ("waiting", "succeeded", "unknown", "checked")


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Visit, list[str]]]:
    """Somebody signed in where all kinds of runs are, and the addresses of every page."""
    with chromium() as browser, an_office(tmp_path_factory.mktemp("office")) as office:
        runs = gallery(office.database)
        server = Server(office)
        visit = a_visit(browser, server)
        visit.sign_in("olga")
        numbers = [runs[kind] for kind in SHOWN]
        yield visit, list(_addresses(numbers))
        visit.page.context.close()
        server.stop()


def _addresses(runs: list[int]) -> Iterator[str]:
    for (method, path), (_, status) in ROUTES.items():
        if method != "GET" or path in NO_PAGES or status != 200:
            continue
        if "{number}" in path:
            yield from (path.replace("{number}", str(run)) for run in runs)
        else:
            yield path.format(**NAMES)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(visit: tuple[Visit, list[str]], scheme: Any):
    window, addresses = visit
    window.page.emulate_media(color_scheme=scheme)
    found = {address: _violations(window, address) for address in addresses}
    assert {address: faults for address, faults in found.items() if faults} == {}
    assert len(found) > 15


def test_axe_finds_what_is_wrong_with_a_page(visit: tuple[Visit, list[str]]):
    """The twin: a page with a picture that nobody described, and a field without a name."""
    window, _ = visit
    window.open("/")
    window.page.evaluate("document.querySelector('main').innerHTML += '<img src=x><input>'")
    assert {"image-alt", "label"} <= {name.partition(":")[0] for name in _axe(window.page)}


def test_every_page_fits_a_telephone(visit: tuple[Visit, list[str]]):
    window, addresses = visit
    window.page.set_viewport_size({"width": WIDTH, "height": 740})
    widths: dict[str, int] = {}
    for address in addresses:
        window.open(address)
        widths[address] = window.page.evaluate("document.documentElement.scrollWidth")
    assert {address: width for address, width in widths.items() if width > WIDTH} == {}


def _violations(window: Visit, address: str) -> list[str]:
    window.open(address)
    return _axe(window.page)


def _axe(page: Page) -> list[str]:
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run()).violations")
    return [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"][:3]]
