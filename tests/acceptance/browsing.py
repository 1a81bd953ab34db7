"""A server for the pages of a harness, and real browsers that visit it."""

import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright
from starlette.types import ASGIApp

from bot.auth import sessions
from bot.features import load_pages
from bot.web import WebDependencies, build_app
from tests.bot.harness import Harness
from tests.campaigns import CHAOS
from tests.chromium import EXECUTABLE, FLAGS, PATIENCE_MS, get_picture_file

expect.set_options(timeout=PATIENCE_MS)

CONTRAST = Path(__file__).with_name("contrast.js").read_text()
# Colour scheme and width of the window. `make chaos` tries each scheme at each width.
_MORE = [("dark", 1280), ("light", 360)] if CHAOS else []
SCREENS: list[tuple[Any, int]] = [("light", 1280), ("dark", 360), *_MORE]


@contextmanager
def chromium() -> Generator[Browser]:
    """Start Debian's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS)
        yield browser
        browser.close()


class Server:
    """The pages of a harness on a free loopback port. name: how browsers reach it."""

    def __init__(self, harness: Harness, name: str = "127.0.0.1") -> None:
        self.harness = harness
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://{name}:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(self.app(), log_level="critical", timeout_graceful_shutdown=2)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))
        self._thread.start()

    def app(self) -> ASGIApp:
        """Return what is served."""
        harness = self.harness
        return build_app(
            WebDependencies(
                harness.service,
                harness.database,
                harness.policies,
                self.address,
                secure_cookies=False,
                pages=load_pages(),
            )
        )

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._listener.close()

    def link(self, person: str) -> str:
        with self.harness.database.transaction() as tx:
            return f"{self.address}/sign-in/{sessions.create_sign_in_link(tx, person)}"


@dataclass
class Visit:
    """One person's browser window. complaints: what its console said."""

    server: Server
    page: Page
    complaints: list[str]

    def sign_in(self, person: str, path: str = "") -> None:
        """Sign in without the page of a sign-in link, and open a page if one is given."""
        # Another person's page would still ask for its news, and be refused.
        self.page.goto("about:blank")
        origin = {"Origin": self.server.address}
        link = self.server.link(person)
        answer = self.page.context.request.post(link, headers=origin, max_redirects=0)
        assert answer.status == 303, answer.text()
        if path:
            self.open(path)

    def sign_in_by_link(self, person: str) -> None:
        self.page.goto(self.server.link(person))
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.server.address}/")

    def open(self, path: str) -> None:
        self.page.goto(self.server.address + path)

    # What a page shows is there before its deferred scripts have run: a test that got there by a
    # link, and sees what belongs to the new page, may still be too early for what they do.

    def follow(self, link: Locator) -> None:
        """Click a link or a form's button, and wait for the page that it leads to."""
        with self.page.expect_navigation():
            link.click()

    def press(self, *keys: str) -> None:
        """Press keys once the page's scripts listen to them."""
        self.page.wait_for_load_state()
        for key in keys:
            self.page.keyboard.press(key)

    def iterate_screens(self) -> Iterator[tuple[str, int]]:
        """Show the page on each of SCREENS in turn; yield a name of the screen, and its width."""
        for scheme, width in SCREENS:
            self.page.set_viewport_size({"width": width, "height": 900})
            # Colours would otherwise take a moment to change.
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            yield f"{scheme}-{width}", width

    def keep(self, name: str) -> None:
        keep_picture(self.page, name)


def keep_picture(page: Page, name: str) -> None:
    """Keep a picture of the whole page, if somebody wants to look at it."""
    # To hide the caret, Playwright gives fields a style. htmx copies it to those of an answer
    # that arrives meanwhile, which the content security policy reports as an error.
    if file := get_picture_file(f"web-{name}"):
        page.screenshot(path=file, full_page=True, caret="initial")


def open_window(browser: Browser, server: Server, **options: Any) -> Visit:
    options = {"timezone_id": "Asia/Tokyo", "locale": "en-GB"} | options
    context = browser.new_context(**options)
    page = context.new_page()
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    page.on("console", listen)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return Visit(server, page, complaints)
