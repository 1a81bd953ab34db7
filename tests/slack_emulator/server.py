"""Serves the emulator from a thread of this process, for the people of a policy."""

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Self

import uvicorn
from ruamel.yaml import YAML

from bot.policy import Policy
from bot.slack.aliases import ALIASES, COMMAND
from bot.slack.manifest import format_manifest, list_scopes
from tests.slack_emulator.deliveries import to_url
from tests.slack_emulator.directory import (
    EmulatedChannel,
    EmulatedCommand,
    EmulatedPerson,
    EmulatedShortcut,
    Installation,
)
from tests.slack_emulator.emulator import Emulator

CHANNEL = "C0PRODUCTION"


class EmulatorServer:
    """A workspace with one channel and everyone in the policy, on a free loopback port.

    emulator: the workspace itself. settings: what Keyturn's Settings need to connect to it.
    events: the address that the emulator posts to; "" for Socket Mode.
    """

    def __init__(self, policy: Policy, *, events: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        secret = secrets.token_hex(32)
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.emulator = build_emulator(policy, secret, url=url, events=events)
        self.settings: Mapping[str, str] = {
            "slack_api": self.emulator.api_url,
            "slack_bot_token": self.emulator.bot_token,
            "slack_app_token": "" if events else self.emulator.app_token,
            "slack_signing_secret": secret,
            "slack_team": self.emulator.workspace.app.team_id,
            "slack_channel": CHANNEL,
        }
        config = uvicorn.Config(
            self.emulator.app,
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="wsproto",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )

    def start(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the Slack emulator did not start: see above")
            time.sleep(0.01)
        return self

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._listener.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the emulator's own event loop."""
        loop = self._server.servers[0].get_loop()
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)


def build_emulator(policy: Policy, secret: str, *, url: str, events: str) -> Emulator:
    """Return a workspace with the people of the policy.

    secret: signs what is posted to *events*; "" there is Socket Mode. url: of the emulator.
    """
    accounts = [
        (person, account)
        for person in policy.organisation.people.values()
        for account in person.slack
    ]
    team = accounts[0][1].team if accounts else "T0KEYTURN"
    people = [
        EmulatedPerson(
            user_id=account.user,
            name=person.id,
            display=person.name,
            title=", ".join(person.roles),
            email=person.email or "",
        )
        for person, account in accounts
        if account.team == team
    ]
    return Emulator(
        people=people,
        channels=[EmulatedChannel(CHANNEL, "production", "Requests, approvals and results")],
        signing_secret=secret,
        deliver=to_url(events) if events else None,
        installation=Installation(
            team_id=team,
            scopes=tuple(list_scopes()["bot"]),
            # The pages of the demo.
            unfurl_domains=("127.0.0.1",),
            commands=(
                EmulatedCommand(COMMAND, "abusers show lb1, or help", "Request a run"),
                *(
                    EmulatedCommand(name, alias.usage, alias.description)
                    for name, alias in ALIASES.items()
                ),
            ),
            shortcuts=tuple(
                EmulatedShortcut(one["callback_id"], one["name"], on_message=True)
                for one in YAML(typ="safe").load(format_manifest())["features"]["shortcuts"]
            ),
        ),
        url=url,
    )
