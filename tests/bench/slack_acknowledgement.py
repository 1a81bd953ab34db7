"""How fast Slack requests are acknowledged: verified, deduplicated, committed, then answered.

A bare Bolt app that only checks the signature and says nothing stands beside it. Each serves in a
process of its own, and gets the same slash commands by the same connections.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.queries.form_options import FormOptions
from bot.slack.app import SlackService, SlackSettings, create_client
from runbooks import load_catalogue
from tests.bench.measurements import Part, set_maximum, table
from tests.bot.harness import open_harness
from tests.bot.slack import payloads
from tests.bot.slack.payloads import SECRET, signed
from tests.bot.slack.web_api import serve_web_api
from tests.policies import TEAM

_RATE, _REQUESTS = 200, 50
_AT_ONCE = 64
_LOOK, _ASK = "who lb1", "abusers clear lb1 203.0.113.9 because a customer called"


def measure(seconds: float) -> Part:
    """Measure for so many seconds each: at a pace, then as fast as it goes, by turns."""
    with _served("door") as door, _served("bare") as bare:
        for port in (door, bare):
            asyncio.run(at_a_pace(port, lambda _: _LOOK, _RATE, 0.5))
        ours, theirs = (_p99(port, _LOOK, _RATE, seconds) for port in (door, bare))
    what = f"slash commands acknowledged at {_RATE} /s"
    figures = [set_maximum(25, f"{what}, p99", ours * 1000, "ms", theirs * 1000)]
    return Part(table(figures, beside="bare Bolt"), figures)


def _p99(port: int, words: str, rate: int, seconds: float) -> float:
    took = sorted(asyncio.run(at_a_pace(port, lambda _: words, rate, seconds)))
    return took[int(0.99 * (len(took) - 1))]


# --- who asks ---


async def at_a_pace(
    port: int, words: Callable[[int], str], rate: float, seconds: float
) -> list[float]:
    """Return how long each answer took from when it was due: who is late keeps nobody waiting.

    words: what is typed, by the number of the request.
    """
    free: asyncio.Queue[Line] = asyncio.Queue()
    took: list[float] = []
    async with lines(port, _AT_ONCE) as kept:
        for line in kept:
            free.put_nowait(line)

        async def ask(number: int, due: float) -> None:
            line = await free.get()
            await line.ask(words(number))
            took.append(time.perf_counter() - due)
            free.put_nowait(line)

        began = time.perf_counter()
        requests: list[asyncio.Task[None]] = []
        for number in range(round(seconds * rate)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            requests.append(asyncio.create_task(ask(number, due)))
        await asyncio.gather(*requests)
    return took


class Line:
    """One connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, words: str) -> None:
        raw = payloads.slash(words)
        head = [b"POST /slack/events HTTP/1.1", b"host: localhost"]
        head += [name + b": " + value for name, value in signed(raw)]
        head.append(b"content-length: %d" % len(raw))
        self._writer.write(b"\r\n".join(head) + b"\r\n\r\n" + raw)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"it answered {answer[:40]!r}")
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        body = await self._reader.readexactly(int(length or b"0"))
        if b"Nothing was done" in body:
            raise RuntimeError(f"it said {body[:200]!r}")

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def lines(port: int, count: int) -> AsyncGenerator[list[Line]]:
    kept = [Line(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(count)]
    yield kept
    for line in kept:
        line.close()


# --- who answers ---


@contextmanager
def _served(what: str) -> Generator[int]:
    """Yield the port at which another process of ours serves: the door, or a bare Bolt."""
    command = [sys.executable, "-m", "tests.bench.slack_acknowledgement", what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _serve(app: ASGIApp) -> None:
    config = uvicorn.Config(app, port=0, log_level="critical", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving


async def _door(place: Path) -> None:
    with open_harness(place) as harness:
        async with serve_web_api() as slack:
            speaker = create_client("xoxb-1", slack.url)
            offering = FormOptions(
                harness.fleet.run_query, harness.database, harness.policies, listers={}
            )
            door = SlackService(
                harness.service,
                harness.database,
                harness.policies,
                speaker,
                SlackSettings(SECRET, TEAM),
                offering,
            )
            # What the stand-in for Slack judges us by is large, and none of ours.
            await speaker.users_info(user="U0DORA")
            # The service has all runbooks once it is built.
            load_catalogue()
            await _serve(door.app)


async def _bare() -> None:
    async def authorize(enterprise_id: str | None, team_id: str | None) -> AuthorizeResult:
        return AuthorizeResult(enterprise_id=enterprise_id, team_id=team_id, bot_token="xoxb-1")

    bolt = AsyncApp(signing_secret=SECRET, authorize=authorize, process_before_response=True)

    @bolt.command("/keyturn")
    async def acknowledge(ack: AsyncAck) -> None:
        await ack()

    handler = AsyncSlackRequestHandler(bolt)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler.handle(Request(scope, receive))
        await response(scope, receive, send)

    await _serve(app)


if __name__ == "__main__":
    os.environ.pop("HTTPS_PROXY", None)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_door(Path(directory)) if sys.argv[1] == "door" else _bare())
