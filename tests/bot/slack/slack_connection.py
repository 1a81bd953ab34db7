"""The Slack service connected to the emulator, over HTTP and Socket Mode."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette

from bot.queries.form_options import FormOptions
from bot.slack.app import SlackService, SlackSettings, create_client
from bot.slack.socket_mode import SocketModeService
from tests.bot.harness import Harness
from tests.bot.slack.payloads import SECRET, signed
from tests.policies import TEAM
from tests.slack_emulator import EmulatedChannel, EmulatedPerson, Emulator
from tests.slack_emulator import Installation as EmulatorInstallation
from tests.slack_emulator.deliveries import Answer, to_url
from tests.slack_emulator.serving import serve, wait_until
from tests.toy import LISTS

OPS = "C0OPS"

# Hands over a body, and returns what the bot answered.
Send = Callable[[bytes, Mapping[str, str]], Awaitable[Answer]]


@dataclass
class SlackConnection:
    """emulator: the Slack. door: ours, with its requests under way in `listening`."""

    harness: Harness
    emulator: Emulator
    door: SlackService
    listening: asyncio.Task[None]

    @property
    def sockets(self) -> SocketModeService:
        assert self.door.socket_mode is not None
        return self.door.socket_mode

    @property
    def calls(self) -> list[str]:
        """The methods of the Web API that we called."""
        return [name for name, _ in self.emulator.web_api.calls]

    async def type(self, text: str, user: str = "U0DORA") -> None:
        await self.emulator.typed_input.say(user, OPS, f"/keyturn {text}")

    def seen_by(self, user: str = "U0DORA") -> str:
        """Return all that somebody sees in the channel."""
        shown = self.emulator.workspace.log(OPS, user)
        return "\n".join(message.text for message in shown)

    async def connected(self) -> None:
        await wait_until(
            lambda: self.sockets.status.open_connections == self.sockets.status.wanted_connections
        )

    async def end(self) -> None:
        """Stop as the service stops."""
        self.listening.cancel()
        await asyncio.gather(self.listening, return_exceptions=True)


def create_emulator() -> Emulator:
    names = {"U0DORA": "dora", "U0OLGA": "olga", "U0ADAM": "adam"}
    return Emulator(
        people=[EmulatedPerson(user, name, name.title()) for user, name in names.items()],
        channels=[EmulatedChannel(OPS, "ops")],
        signing_secret=SECRET,
        deliver=None,
        installation=EmulatorInstallation(team_id=TEAM),
    )


@asynccontextmanager
async def open_connection(
    harness: Harness,
    *,
    ping_seconds: float = 1,
    app_token: str = "",
    signing_secret: str = SECRET,
) -> AsyncGenerator[SlackConnection]:
    """Yield a door that calls Slack. app_token: another one than Slack expects."""
    emulator, app = create_emulator(), Starlette()
    app.mount("/emulator", emulator.app)
    async with serve(app) as url:
        emulator.url = f"{url}/emulator"
        speaker = create_client(emulator.bot_token, emulator.api_url)
        slack = SlackSettings(signing_secret, TEAM, app_token=app_token or emulator.app_token)
        offering = FormOptions(
            harness.fleet.run_query, harness.database, harness.policies, listers=LISTS
        )
        door = SlackService(
            harness.service, harness.database, harness.policies, speaker, slack, offering
        )
        assert door.socket_mode is not None
        door.socket_mode.ping_seconds = ping_seconds
        connection = SlackConnection(
            harness, emulator, door, asyncio.create_task(door.socket_mode.run_until_cancelled())
        )
        yield connection
        await connection.end()
        await door.close_listeners()
        await emulator.courier.settled()


@asynccontextmanager
async def over_http(connection: SlackConnection) -> AsyncGenerator[Send]:
    """Post what Slack signs to the door."""
    async with serve(connection.door.app) as url:
        post = to_url(url)

        async def send(raw: bytes, headers: Mapping[str, str]) -> Answer:
            kind = headers["content-type"].encode()
            signature = {k.decode(): v.decode() for k, v in signed(raw, kind=kind)}
            return await post(raw, {**headers, **signature})

        yield send


@asynccontextmanager
async def over_socket_mode(connection: SlackConnection) -> AsyncGenerator[Send]:
    """Send envelopes by the connections that the door has opened."""
    await connection.connected()

    async def send(raw: bytes, headers: Mapping[str, str]) -> Answer:
        async with asyncio.timeout(30):
            return await connection.emulator.sockets.deliver(raw, headers)

    yield send


TRANSPORTS = {"HTTP": over_http, "Socket Mode": over_socket_mode}
