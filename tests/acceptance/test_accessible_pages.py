"""Accessibility of every page: axe, telephone width and keyboard."""

from collections.abc import Mapping

import pytest
from playwright.sync_api import expect

from tests.acceptance.accessibility import (
    CHAOS,
    DESK,
    OF_STYLES,
    PLACES,
    TELEPHONE,
    TREE,
    WALK,
    Looks,
    check_page,
    list_addresses,
    list_violations,
    run_axe,
)
from tests.acceptance.browsing import Server, Visit

pytestmark = pytest.mark.real


# No test opens more than a part of the pages, so that none takes long.
_PARTS = 8


@pytest.fixture(scope="module", params=range(_PARTS))
def looks(
    request: pytest.FixtureRequest, visit: Visit, sample_pages: tuple[Server, dict[str, int]]
) -> Mapping[str, Looks]:
    """Each page of a part is opened once, and then looked at in every way."""
    results: dict[str, Looks] = {}
    for address in [*list_addresses(sample_pages[1])][request.param :: _PARTS]:
        visit.open(address)
        # The menu and the foot are those of every page.
        results[address] = check_page(visit, within="main" if results else "body")
    visit.page.set_viewport_size(DESK)
    return results


def test_axe_finds_nothing_on_any_page_light_or_dark(looks: Mapping[str, Looks]):
    results = {address: [*one.light, *one.dark] for address, one in looks.items()}
    assert {address: faults for address, faults in results.items() if faults} == {}
    assert len(results) * _PARTS > 25


def test_axe_looks_at_every_kind_of_page(sample_pages: tuple[Server, dict[str, int]]):
    addresses = [*list_addresses(sample_pages[1])]
    assert {"/", "/changelog", "/changes", f"/redundancy/{TREE}"} <= set(addresses)
    assert len(addresses) > 35


def test_no_style_locks_the_orientation_of_a_telephone(visit: Visit):
    visit.open("/")
    assert list_violations(visit.page, f"runOnly: ['{OF_STYLES}']") == []


def test_axe_finds_planted_faults_of_a_page(visit: Visit):
    """The twin: a picture that nobody described, a field without a name, and grey on grey."""
    visit.open("/")
    visit.page.evaluate(
        "document.querySelector('main').innerHTML += '<img src=x><input><p>pale</p>';"
        "document.querySelector('main p:last-child').style.color = '#777'"
    )
    light, dark = run_axe(visit.page)
    found = {name.partition(":")[0] for name in light}
    assert {"image-alt", "label"} <= found
    assert ("color-contrast" in found) is bool(CHAOS)
    assert [text for text in light if text.endswith("pale")]
    assert [text for text in dark if text.endswith("pale")]


def test_no_page_is_cut_in_a_wide_window(looks: Mapping[str, Looks]):
    results = {address: one.cut for address, one in looks.items()}
    assert {address: cut for address, cut in results.items() if cut} == {}


def test_no_page_reports_an_error_to_the_console(looks: Mapping[str, Looks]):
    results = {address: one.complaints for address, one in looks.items()}
    assert {address: complaints for address, complaints in results.items() if complaints} == {}


def test_pages_follow_the_colour_scheme_of_the_system(visit: Visit):
    visit.open("/")
    for scheme in ("dark", "light"):
        visit.page.emulate_media(color_scheme=scheme)
        expect(visit.page.locator("html")).to_have_attribute("data-bs-theme", scheme)


def test_every_page_fits_a_telephone(looks: Mapping[str, Looks]):
    widths = {address: one.wide for address, one in looks.items()}
    most = TELEPHONE["width"]
    assert {address: width for address, width in widths.items() if width > most} == {}


def test_navigation_menu_fits_a_telephone(visit: Visit):
    visit.page.set_viewport_size(TELEPHONE)
    visit.open("/policy")
    visit.page.get_by_role("button", name="Pages").click()
    boxes = [link.bounding_box() for link in visit.page.locator(".kt-nav a").all()]
    visit.page.set_viewport_size(DESK)
    ends = [box["x"] + box["width"] for box in boxes if box]
    assert len(ends) == len(boxes) > 5
    assert max(ends) <= TELEPHONE["width"]


def test_keyboard_focus_is_visible_on_every_page(looks: Mapping[str, Looks]):
    results = {address: one.lost for address, one in looks.items()}
    assert {address: places for address, places in results.items() if places} == {}


def test_keyboard_focus_that_is_invisible_or_out_of_order_is_found(visit: Visit):
    """The twin: a link without an outline, and one that comes before its turn."""
    visit.open("/")
    visit.press("Tab")
    visit.page.evaluate(
        "document.querySelector('.kt-brand').style.setProperty('outline', 'none', 'important');"
        "document.querySelector('.kt-nav a').tabIndex = 5"
    )
    assert len(visit.page.evaluate(WALK)) == 2


def test_tab_key_moves_through_a_page_in_order(visit: Visit):
    page = visit.page
    visit.open("/changes")
    page.evaluate(PLACES)
    went: list[int] = []
    for _ in range(page.evaluate("window.places.length")):
        visit.press("Tab")
        went.append(page.evaluate("window.places.indexOf(document.activeElement)"))
    assert went == list(range(len(went)))
    assert len(went) > 15


def test_arrow_keys_move_among_the_line_numbers_of_an_output(
    visit: Visit, sample_pages: tuple[Server, dict[str, int]]
):
    page = visit.page
    visit.open(f"/runs/{sample_pages[1]['failed']}#tab-output")
    numbers = page.locator(".kt-line > a")
    expect(numbers.and_(page.locator(":not([tabindex='-1'])"))).to_have_count(1)
    numbers.first.focus()
    visit.press("ArrowDown")
    expect(page.get_by_role("link", name="Line 2")).to_be_focused()
    visit.press("Enter")
    assert page.url.endswith("#output-1-L2")


def test_search_field_suggests_what_the_typed_text_may_mean(visit: Visit):
    visit.open("/")
    visit.page.locator("#search").press_sequentially("lb")
    options = visit.page.locator("#search-suggestions option")
    expect(options.first).to_have_attribute("value", "lb1")


def test_utc_toggle_shows_utc_beside_local_time_on_every_page(visit: Visit):
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
