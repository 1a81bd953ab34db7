"""Every page is complete without scripts; `make chaos` also looks where something is wrong."""

import pytest
from playwright.sync_api import Browser

from tests.acceptance.accessibility import STATES, list_addresses
from tests.acceptance.browsing import Server, open_window
from tests.campaigns import CHAOS

pytestmark = pytest.mark.real


def test_every_page_is_complete_without_scripts(
    browser: Browser, sample_pages: tuple[Server, dict[str, int]]
):
    server, runs = sample_pages
    window = open_window(browser, server, java_script_enabled=False)
    window.sign_in_by_link("olga")
    bare: dict[str, str] = {}
    for address in (*list_addresses(runs), *(STATES if CHAOS else STATES[:1])):
        window.open(address)
        text = window.page.locator("main").inner_text()
        times = window.page.locator("main time:visible").all_inner_texts()
        unsent = window.page.locator("main form:visible:not(:has(button:visible))").count()
        if len(text) < 40 or unsent or not all("UTC" in time for time in times):
            bare[address] = f"{len(text)} characters, {times[:3]}, {unsent} forms without a button"
    window.page.context.close()
    assert bare == {}
