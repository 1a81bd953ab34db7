"""The Slack emulator in its own process: slack.com over HTTPS, reached only by a proxy.

Who is given `environment` speaks to it as to the real one: at its own address, by HTTPS_PROXY, and
trusting the authority of SSL_CERT_FILE. Behind it is the Slack emulator. It answers two calls that
Slack does not have at `KEYTURN_SLACK_STAGE`: `deliver` sends what is posted by Socket Mode, as if
somebody had typed or pressed it, and `limit` has Slack answer 429 so many times.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.slack.manifest import list_scopes as asked
from tests.playground.daemon import Daemon
from tests.playground.proxy import get_port, serve_proxy
from tests.playground.tls import create_certificate
from tests.slack_emulator import EmulatedChannel, EmulatedPerson, Emulator, Installation
from tests.slack_emulator.sockets import NoConnection

TEAM = "T1ACME"
PEOPLE = ("ann", "bea", "carl", "gone")
CHANNEL, ELSEWHERE = "C1OPS", "C1QUIET"
SECRET = "5a2f9c0e1b7d4e6f8a3b2c1d0e9f8a7b"

_ROOT = Path(__file__).parents[2]
_NAMES = ("slack.com", "files.slack.com", "hooks.slack.com", "wss-primary.slack.com")


class SlackOverTls(Daemon):
    """scopes: those that the bot lacks."""

    def __init__(self, *, without: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._without = without

    @property
    def environment(self) -> dict[str, str]:
        """All that who speaks to it needs."""
        return json.loads(self._environment_file.read_text())

    def visited(self) -> list[str]:
        """Return where the proxy was asked to lead to, in order."""
        return (self.directory / "visited").read_text().splitlines()

    @property
    def _environment_file(self) -> Path:
        return self.directory / "environment.json"

    def _choose_ports(self) -> None:
        """Each is bound before it is told."""

    def _configure(self) -> list[str]:
        self._environment_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.playground.slack_over_tls", str(self.directory)]
        return ["/usr/bin/env", f"PYTHONPATH={_ROOT}", *command, *self._without]

    def _answers(self) -> bool:
        return self._environment_file.exists()


def _emulator(without: tuple[str, ...]) -> Emulator:
    people = [EmulatedPerson(f"U1{name.upper()}", name, name.title()) for name in PEOPLE]
    scopes = tuple(scope for scope in asked()["bot"] if scope not in without)
    emulator = Emulator(
        people=people,
        channels=[EmulatedChannel(CHANNEL, "ops"), EmulatedChannel(ELSEWHERE, "quiet")],
        signing_secret=SECRET,
        deliver=None,
        installation=replace(Installation(), team_id=TEAM, team_name="Acme", scopes=scopes),
        url="https://slack.com",
    )
    emulator.workspace.set_active("U1GONE", active=False)
    emulator.workspace.set_bot_inside(ELSEWHERE, inside=False)
    return emulator


def _stage(emulator: Emulator) -> Starlette:
    async def deliver(request: Request) -> Response:
        kind = {"content-type": request.headers["content-type"]}
        try:
            async with asyncio.timeout(10):
                acknowledgement = await emulator.sockets.deliver(await request.body(), kind)
        except NoConnection:
            return Response("the app has no connection open", 503)
        return Response(acknowledgement.content, acknowledgement.status_code)

    async def limit(request: Request) -> Response:
        emulator.workspace.faults.calls_to_limit = int(await request.body())
        return Response()

    methods = ["POST"]
    routes = [Route("/deliver", deliver, methods=methods), Route("/limit", limit, methods=methods)]
    return Starlette(routes=routes)


def _by_its_own_name(emulator: ASGIApp) -> ASGIApp:
    """Let the emulator, which is for this machine's browsers alone, answer to Slack's names."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        others = [(name, value) for name, value in scope["headers"] if name != b"host"]
        named = {**scope, "headers": [*others, (b"host", b"localhost")]}
        await emulator(named, receive, send)

    return app


async def _served(app: ASGIApp, *, chain: Path | None = None) -> int:
    """Serve on a free port, which is returned, for as long as this process lives."""
    config = uvicorn.Config(
        app, port=0, log_level="warning", lifespan="off", ws="wsproto", ssl_certfile=chain
    )
    server = uvicorn.Server(config)
    _tasks.add(asyncio.create_task(server.serve()))
    while not server.started:
        await asyncio.sleep(0.01)
    return int(server.servers[0].sockets[0].getsockname()[1])


_tasks: set[asyncio.Task[None]] = set()


async def _main(directory: Path, without: tuple[str, ...]) -> None:
    emulator = _emulator(without)
    issued = create_certificate(directory, names=_NAMES)
    slack = await _served(_by_its_own_name(emulator.app), chain=issued.chain)
    visited = directory / "visited"
    visited.touch()

    def note(request: str) -> None:
        with visited.open("a") as file:
            file.write(f"{request}\n")

    proxy = await serve_proxy({f"{name}:443": slack for name in _NAMES}, note)
    stage = await _served(_stage(emulator))
    environment: Mapping[str, str] = {
        "HTTPS_PROXY": f"http://127.0.0.1:{get_port(proxy)}",
        "SSL_CERT_FILE": str(issued.authority),
        "KEYTURN_SLACK_BOT_TOKEN": emulator.bot_token,
        "KEYTURN_SLACK_APP_TOKEN": emulator.app_token,
        "KEYTURN_SLACK_SIGNING_SECRET": SECRET,
        "KEYTURN_SLACK_TEAM": TEAM,
        "KEYTURN_SLACK_CHANNEL": CHANNEL,
        "KEYTURN_SLACK_STAGE": f"http://127.0.0.1:{stage}",
    }
    environment_file = directory / "environment.json"
    environment_file.with_suffix(".new").write_text(json.dumps(environment))
    environment_file.with_suffix(".new").rename(environment_file)
    await asyncio.gather(*_tasks)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), tuple(sys.argv[2:])))
