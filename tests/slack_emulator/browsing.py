"""People with a real browser in front of the emulator's pages."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect

from tests.chromium import EXECUTABLE, FLAGS, PATIENCE_MS
from tests.slack_emulator.serving import serve
from tests.slack_emulator.showcase import Showcase, showcase

expect.set_options(timeout=PATIENCE_MS)

T = TypeVar("T")


@dataclass(frozen=True)
class SharedBrowser:
    """One browser for all scenes of a module, and the event loop that it lives in."""

    runner: asyncio.Runner
    browser: Browser

    def play(self, scene: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(scene)

    @asynccontextmanager
    async def sign_in(
        self,
        *,
        scripts: bool = True,
        width: int = 1200,
        scheme: Literal["light", "dark"] = "light",
    ) -> AsyncGenerator[tuple[Page, Showcase]]:
        """Yield the page of somebody who is signed in to an emulator of its own.

        An error of its scripts or of its content security policy fails the test.
        """
        made = showcase()
        wrong: list[str] = []
        async with (
            serve(made.app) as url,
            await self.browser.new_context(
                java_script_enabled=scripts,
                viewport=ViewportSize(width=width, height=900),
                color_scheme=scheme,
            ) as context,
        ):
            made.point_at(url)
            page = await context.new_page()
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on(
                "console",
                lambda message: wrong.append(message.text) if message.type == "error" else None,
            )
            await page.goto(made.emulator.sign_in_link())
            yield page, made
        assert wrong == []


@contextmanager
def open_shared_browser() -> Generator[SharedBrowser]:
    """Start Debian's Chromium."""
    with asyncio.Runner() as runner:
        playwright = runner.run(async_playwright().start())
        browser = runner.run(playwright.chromium.launch(executable_path=EXECUTABLE, args=FLAGS))
        yield SharedBrowser(runner, browser)
        runner.run(browser.close())
        runner.run(playwright.stop())
