"""Keyturn itself, built as `keyturn serve` builds it, served from a thread of this process."""

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any, Literal, Self

import httpx2
import uvicorn

from bot import app
from bot.auth import sessions
from bot.policy import PolicyDirectory
from bot.settings import Settings
from tests.empty_database import create_empty_database
from tests.slack_emulator.emulator import Emulator
from tests.slack_emulator.server import EmulatorServer


class Service:
    """The embedded default on a free loopback port, with a Slack emulator beside it.

    directory: holds the policy in `policy`; the data goes to `var`. slack: how the emulator
    reaches the service, "" without chat. more: other settings.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        slack: Literal["", "http", "socket"] = "http",
        **more: Any,
    ) -> None:
        listener = app.open_listener("127.0.0.1", port)
        port = listener.getsockname()[1]
        self.slack: EmulatorServer | None = None
        if slack:
            policy = PolicyDirectory(directory / "policy").get_policy()
            events = f"http://127.0.0.1:{port}/slack/events" if slack == "http" else ""
            self.slack = EmulatorServer(policy, events=events)
            more = {**self.slack.settings, **more}
        data = directory / "var"
        if "database" not in more and not data.exists():
            data.mkdir(mode=0o700)
            create_empty_database(data / "keyturn.db")
        self._build(Settings(data=data, policy=directory / "policy", port=port, **more), listener)

    def _build(self, settings: Settings, listener: socket.socket) -> None:
        self._listener = listener
        self.keyturn = app.build_service(settings)
        config = app.create_server_config(self.keyturn)
        config.timeout_graceful_shutdown = 2
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )

    @property
    def address(self) -> str:
        return self.keyturn.settings.address

    def start(self) -> Self:
        if self.slack is not None:
            self.slack.start()
        self._start()
        return self

    def _start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("Keyturn did not start: see above")
            time.sleep(0.01)

    def close(self) -> None:
        self._stop()
        if self.slack is not None:
            self.slack.close()

    def _stop(self) -> None:
        self.keyturn.service.close()
        self._server.should_exit = True
        self._thread.join(20)
        self._listener.close()

    def restart(self) -> None:
        """End Keyturn and start it again, at the same address; the chat goes on."""
        self._stop()
        settings = self.keyturn.settings
        self._build(settings, app.open_listener("127.0.0.1", settings.port))
        self._start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def sign_in_link(self, person: str, *, seconds: int = sessions.LINK_SECONDS) -> str:
        """Return a one-time link to the pages for *person*."""
        with self.keyturn.database.transaction() as tx:
            token = sessions.create_sign_in_link(tx, person, seconds=seconds)
            return f"{self.address}/sign-in/{token}"

    @property
    def emulator(self) -> Emulator:
        if self.slack is None:
            raise RuntimeError("the service was started without chat")
        return self.slack.emulator


class Chat:
    """A browser at the emulator: types and presses as one person or another, over HTTP."""

    def __init__(self, service: Service) -> None:
        self._emulator = service.emulator
        self._at = self._emulator.workspace.channels_of("U0DORA")[0].id
        self._client = httpx2.Client(
            base_url=self._emulator.url,
            headers={"Origin": self._emulator.url},
            follow_redirects=True,
            timeout=30,
        )
        self._client.get(self._emulator.sign_in_link()).raise_for_status()

    def close(self) -> None:
        self._client.close()

    def say(self, user: str, text: str) -> None:
        """Type into the channel."""
        self._post(user, "say", {"text": text})

    def press(self, user: str, ts: str, where: str) -> None:
        """Press a button of a message; where: its block and action, joined by a slash."""
        self._post(user, "act", {"channel": self._at, "ts": ts, "press": where, "confirmed": "1"})

    def page(self, user: str) -> str:
        """Return the channel as one person sees it."""
        return self._client.get(f"/as/{user}/c/{self._at}").raise_for_status().text

    def buttons(self) -> dict[str, tuple[str, str]]:
        """Return the newest card's buttons by their label: the message's ts, and where it is."""
        for message in self._history():
            by_label = {
                element["text"]["text"]: (
                    message["ts"],
                    f"{block['block_id']}/{element['action_id']}",
                )
                for block in message.get("blocks", [])
                if block["type"] == "actions"
                for element in block["elements"]
                if "url" not in element and "text" in element
            }
            if by_label:
                return by_label
        return {}

    def shows(self, text: str) -> bool:
        """Return whether a card holds a text."""
        cards = (message.get("blocks", []) for message in self._history())
        return any(text in json.dumps(blocks, ensure_ascii=False) for blocks in cards)

    def button(self, label: str) -> tuple[str, str] | None:
        """Return the newest card's first button whose label begins so; None if there is none."""
        return next((at for text, at in self.buttons().items() if text.startswith(label)), None)

    def _history(self) -> list[dict[str, Any]]:
        answer = self._client.post(
            "/api/conversations.history",
            data={"channel": self._at},
            headers={"Authorization": f"Bearer {self._emulator.bot_token}"},
        )
        return answer.raise_for_status().json()["messages"]

    def _post(self, user: str, do: str, fields: dict[str, str]) -> None:
        answer = self._client.post(f"/as/{user}/{do}", data={"at": self._at, **fields})
        answer.raise_for_status()
