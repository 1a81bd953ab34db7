"""The emulator in a real browser: commands, clicks and forms."""

import asyncio

import pytest
from playwright.async_api import Locator, Page, expect

from tests.chromium import PATIENCE_MS, get_picture_file
from tests.slack_emulator.browsing import SharedBrowser

pytestmark = pytest.mark.real


async def picture(page: Page, name: str) -> None:
    if file := get_picture_file(f"console-{name}"):
        await page.screenshot(path=file)


async def type_in(page: Page, words: str) -> None:
    await page.locator("#composer").fill(words)
    await page.locator("#composer").press("Enter")


def test_browser_types_a_command_and_approves_its_run(shared_browser: SharedBrowser) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in() as (page, made):
            await type_in(page, "/keyturn hello")
            await expect(page.locator(".private")).to_contain_text("You said hello")
            await type_in(page, "/keyturn restart web-3")
            await page.get_by_role("button", name="Approve Restart").click()
            await expect(page.get_by_text("Approved by @dora")).to_be_visible()
            await expect(page.get_by_role("button", name="Approve Restart")).to_have_count(0)
            await page.get_by_role("link", name="1 reply").click()
            await expect(page.get_by_role("complementary", name="Thread")).to_contain_text(
                "api is active again"
            )
            await picture(page, "thread")
            assert len(made.of_type("block_actions")) == 1

    shared_browser.play(scene())


def test_new_message_appears_in_the_browser_without_losing_typed_text(
    shared_browser: SharedBrowser,
) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in() as (page, made):
            await page.locator("#composer").fill("half a sen")
            await made.bolt.client.chat_postMessage(channel="C0OPS", text="News for all")
            await expect(page.get_by_text("News for all")).to_be_visible()
            await expect(page.locator("#composer")).to_have_value("half a sen")
            await expect(page.locator("#composer")).to_be_focused()

    shared_browser.play(scene())


def test_browser_shows_a_confirmation_dialog_for_a_danger_button(
    shared_browser: SharedBrowser,
) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in() as (page, made):
            await type_in(page, "/keyturn restart web-3")
            await page.get_by_role("button", name="Deny").click()
            await expect(page.get_by_role("dialog")).to_contain_text("Deny this run?")
            await picture(page, "confirm")
            await page.get_by_role("button", name="Keep it").click()
            assert made.of_type("block_actions") == []
            await page.get_by_role("button", name="Deny").click()
            await page.get_by_role("dialog").get_by_role("button", name="Deny").click()
            await expect(page.get_by_text("Denied.")).to_be_visible()

    shared_browser.play(scene())


def test_modal_form_is_filled_in_with_the_keyboard(shared_browser: SharedBrowser) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in() as (page, made):
            await type_in(page, "/keyturn ask")
            search = page.get_by_role("combobox", name="Host")
            await expect(search).to_be_focused()
            # At once: each letter would draw the list again, and take the choice back.
            await page.keyboard.insert_text("web")
            await expect(page.get_by_role("option", name="web-2")).to_be_visible()
            await expect(page.get_by_role("option", name="db-1")).to_have_count(0)
            await picture(page, "form")
            await page.keyboard.press("ArrowDown")
            await page.keyboard.press("ArrowDown")
            await page.keyboard.press("Enter")
            await expect(search).to_have_value("web-2")
            await page.get_by_role("button", name="Show the Plan").click()
            await expect(page.get_by_role("alert")).to_contain_text("required")
            await page.get_by_label("Urgency").select_option("high")
            await page.get_by_role("button", name="Show the Plan").click()
            await expect(page.locator("#modal")).to_be_hidden()
            (handed_in,) = made.of_type("view_submission")
            values = handed_in["view"]["state"]["values"]
            assert values["host"]["host"]["selected_option"]["value"] == "web-2"

    shared_browser.play(scene())


def test_composer_hints_completes_and_recalls_slash_commands(
    shared_browser: SharedBrowser,
) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in() as (page, _):
            composer = page.locator("#composer")
            await composer.press_sequentially("/key")
            await expect(page.get_by_text("Ask for a run, or see")).to_be_visible()
            await composer.press("Tab")
            await expect(composer).to_have_value("/keyturn ")
            await type_in(page, "/keyturn hello")
            await expect(composer).to_have_value("")
            await composer.press("ArrowUp")
            await expect(composer).to_have_value("/keyturn hello")

    shared_browser.play(scene())


async def submit(page: Page, button: Locator) -> None:
    """Click a button that submits a form, and wait for the page that follows."""
    async with page.expect_navigation():
        await button.click()


async def reload_until_visible(page: Page, expected: Locator) -> None:
    """Load a page without scripts again until the bot has answered."""
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not await expected.is_visible():
            await page.reload()


def test_emulator_works_without_javascript(shared_browser: SharedBrowser) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in(scripts=False) as (page, made):
            send, deny = (page.get_by_role("button", name=name) for name in ("Send", "Deny"))
            await page.locator("#composer").fill("/keyturn restart web-3")
            await submit(page, send)
            await reload_until_visible(page, deny)
            await submit(page, deny)
            await submit(page, deny)
            assert len(made.of_type("block_actions")) == 1
            await page.locator("#composer").fill("/keyturn ask")
            await submit(page, send)
            await reload_until_visible(page, page.get_by_role("searchbox"))
            await page.get_by_role("searchbox").fill("nfs")
            await submit(page, page.get_by_role("button", name="Find"))
            await page.locator("select.holder").select_option("nfs-1")
            await page.get_by_label("Urgency").select_option("low")
            await picture(page, "without-scripts")
            await submit(page, page.get_by_role("button", name="Show the Plan").last)
            assert len(made.of_type("view_submission")) == 1

    shared_browser.play(scene())


def test_emulator_fits_a_screen_of_360_pixels(shared_browser: SharedBrowser) -> None:
    async def scene() -> None:
        async with shared_browser.sign_in(width=360, scheme="dark") as (page, _):
            await type_in(page, "/keyturn restart web-3")
            await expect(page.get_by_role("button", name="Approve Restart")).to_be_visible()
            await picture(page, "small-dark")
            widest = await page.locator("body").bounding_box()
            assert widest is not None
            assert widest["width"] <= 360
            await page.get_by_role("link", name="Show the list of conversations").click()
            await page.get_by_role("link", name="Home").click()
            await expect(page.get_by_text("Nothing waits for you")).to_be_visible()

    shared_browser.play(scene())
