"""What is made once the port answers: whoever comes earlier waits, and a fault is told."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp

from bot.later import Later
from tests.policies import a_policy

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


def _missing() -> ASGIApp:
    raise ImportError("cannot import name 'runs'")


async def test_what_cannot_be_made_is_told_instead(caplog: pytest.LogCaptureFixture):
    told: list[object] = []
    later = Later(_missing)
    later.then, later.instead = lambda: told.append("made"), told.append
    await later.prepare()
    assert [str(trouble) for trouble in told] == ["cannot import name 'runs'"]
    assert "cannot be made" in caplog.text


async def test_what_cannot_be_made_is_never_kept_quiet():
    with pytest.raises(ImportError, match="runs"):
        await Later(_missing).prepare()


# Nobody answers there: a part that cannot be made is told before anything is sent.
CHAT = {
    "KEYTURN_SLACK_API": "http://127.0.0.1:9/api/",
    "KEYTURN_SLACK_BOT_TOKEN": "xoxb-1",
    "KEYTURN_SLACK_SIGNING_SECRET": "s",
    "KEYTURN_SLACK_TEAM": "T0KEYTURN",
}


def _serve(
    place: Path, missing: str, *, chat: Mapping[str, str] = CHAT
) -> subprocess.CompletedProcess[str]:
    """Serve until it ends by itself, where a module cannot be loaded."""
    a_policy(place / "policy")
    script = f"import sys; sys.modules[{missing!r}] = None; from bot.__main__ import main; main()"
    told = {
        "KEYTURN_DATA": str(place / "var"),
        "KEYTURN_POLICY": str(place / "policy"),
        "KEYTURN_PORT": "0",
        **chat,
    }
    return subprocess.run(
        [sys.executable, "-c", script, "serve"],
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("missing", ["bot.api.app", "bot.slack.app"])
def test_a_service_without_one_of_its_parts_fails_and_says_why_in_one_line(
    tmp_path: Path, missing: str
):
    ended = _serve(tmp_path, missing)
    assert ended.returncode == 1
    assert ended.stdout.startswith("Keyturn is ready")
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("keyturn: a part of the service cannot be made")
    assert missing in last
    assert last.endswith("install this version anew")


def test_a_service_without_chat_says_how_one_signs_in(tmp_path: Path):
    ended = _serve(tmp_path, "bot.api.app", chat={})
    said = ended.stdout.splitlines()[-1]
    assert said == "To sign in:       keyturn sign-in PERSON prints a link"
