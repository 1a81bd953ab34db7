"""What is made once the port answers: whoever comes earlier waits, and a fault is told."""

import asyncio
import os
import signal
import threading

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from bot.later import Later

pytestmark = pytest.mark.anyio


async def _asked(later: Later) -> str:
    transport = httpx2.ASGITransport(later)
    async with httpx2.AsyncClient(transport=transport, base_url="http://keyturn.test") as browser:
        return (await browser.get("/")).text


async def test_whoever_comes_early_waits_for_it_and_it_is_made_once():
    may, made = threading.Event(), list[str]()

    def make() -> ASGIApp:
        assert may.wait(20)
        made.append("made")
        return PlainTextResponse("here")

    later = Later(make)
    later.then = lambda: made.append("and then")
    early = [asyncio.create_task(_asked(later)) for _ in range(3)]
    prepared = asyncio.create_task(later.prepare())
    await asyncio.sleep(0)
    assert made == []
    may.set()
    assert await asyncio.gather(*early) == ["here"] * 3
    await prepared
    assert made == ["made", "and then"]


async def test_what_cannot_be_made_ends_the_process_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    sent: list[tuple[int, int]] = []

    def kill(process: int, number: int) -> None:
        sent.append((process, number))

    def make() -> ASGIApp:
        raise ImportError("cannot import name 'runs'")

    monkeypatch.setattr(os, "kill", kill)
    later = Later(make)
    later.then = lambda: sent.append((0, 0))
    await later.prepare()
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert "cannot be made" in caplog.text
    assert "cannot import name 'runs'" in caplog.text
