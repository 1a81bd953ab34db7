"""A small bot of its own, made with the real Bolt, that uses all that the emulator offers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.slack_emulator.deliveries import to_app
from tests.slack_emulator.directory import (
    EmulatedChannel,
    EmulatedCommand,
    EmulatedGroup,
    EmulatedPerson,
    EmulatedShortcut,
    Installation,
)
from tests.slack_emulator.emulator import Emulator

SECRET = "a-signing-secret-of-the-test"

DORA = EmulatedPerson("U0DORA", "dora", "Dora Dev", "developer", "dora@example.org")
ALICE = EmulatedPerson("U0ALICE", "alice", "Alice Ops", "owner of web", "alice@example.org")
BOB = EmulatedPerson("U0BOB", "bob", "Bob Net", "network", "bob@example.org")

OPS = EmulatedChannel("C0OPS", "ops", "Changes in production, for everyone to see")
ALARMS = EmulatedChannel("C0ALARMS", "alarms", "What woke us", bot_inside=False)
DESK = EmulatedChannel("C0DESK", "desk", private=True, members=frozenset({"U0ALICE"}))

INSTALLATION = Installation(
    commands=(
        EmulatedCommand("/keyturn", "help", "Ask for a run, or see what is going on"),
        EmulatedCommand("/slow", "", "Answers too late"),
    ),
    shortcuts=(
        EmulatedShortcut("ask", "Ask for a run"),
        EmulatedShortcut("explain", "Explain", on_message=True),
    ),
    groups=(EmulatedGroup("S0LEADS", "oncall-leads", "On-call leads", ("U0ALICE", "U0BOB")),),
)

Payload = dict[str, Any]


def mrkdwn(words: str) -> Payload:
    return {"type": "mrkdwn", "text": words}


def plain(words: str) -> Payload:
    return {"type": "plain_text", "text": words}


def option(value: str) -> Payload:
    return {"text": plain(value), "value": value}


CARD: list[Payload] = [
    {"type": "section", "text": mrkdwn("*Restart api on web-3* in prod")},
    {
        "type": "section",
        "fields": [
            mrkdwn("*Asked by*\n<@U0DORA>"),
            mrkdwn("*Reason*\nStuck since the deploy of 14:02"),
            mrkdwn("*Policy*\n0 of 1 · <!subteam^S0LEADS>"),
            mrkdwn("*Expires*\n<!date^1763721000^{date_short_pretty} at {time}|14:30>"),
        ],
    },
    {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_preformatted",
                "elements": [{"type": "text", "text": "web-3  systemctl restart api.service"}],
            }
        ],
    },
    {
        "type": "actions",
        "block_id": "decide",
        "elements": [
            {
                "type": "button",
                "text": plain("Approve Restart"),
                "style": "primary",
                "action_id": "approve",
                "value": "run-7",
            },
            {
                "type": "button",
                "text": plain("Deny"),
                "style": "danger",
                "action_id": "deny",
                "value": "run-7",
                "confirm": {
                    "title": plain("Deny this run?"),
                    "text": plain("The run ends at once, and Dora is told."),
                    "confirm": plain("Deny"),
                    "deny": plain("Keep it"),
                    "style": "danger",
                },
            },
        ],
    },
    {"type": "context", "elements": [mrkdwn("Run `7Q2K` · digest `4f1c9a2b7e`")]},
]

FORM: Payload = {
    "type": "modal",
    "callback_id": "ask",
    "title": plain("Ask for a run"),
    "submit": plain("Show the Plan"),
    "close": plain("Cancel"),
    "notify_on_close": True,
    "private_metadata": "from-the-test",
    "blocks": [
        {
            "type": "input",
            "block_id": "host",
            "label": plain("Host"),
            "hint": plain("Type a part of its name"),
            "element": {
                "type": "external_select",
                "action_id": "host",
                "min_query_length": 0,
                "placeholder": plain("Choose a host"),
            },
        },
        {
            "type": "input",
            "block_id": "urgency",
            "label": plain("Urgency"),
            "element": {
                "type": "static_select",
                "action_id": "urgency",
                "options": [option("low"), option("high")],
            },
        },
        {
            "type": "input",
            "block_id": "reason",
            "label": plain("Reason"),
            "optional": True,
            "element": {"type": "plain_text_input", "action_id": "reason", "multiline": True},
        },
    ],
}

HOSTS = ("web-1", "web-2", "web-3", "db-1", "nfs-1")


def _home(user: str) -> Payload:
    words = f"Nothing waits for you, <@{user}>."
    return {
        "type": "home",
        "blocks": [
            {"type": "header", "text": plain("Waiting for you")},
            {"type": "section", "text": mrkdwn(words)},
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "text": plain("Ask for a Run"),
                        "action_id": "open",
                        "style": "primary",
                    }
                ],
            },
        ],
    }


@dataclass
class Showcase:
    """The bot, the emulator in front of it, and what it sent to the bot."""

    emulator: Emulator
    bolt: AsyncApp
    app: Starlette
    payloads: list[Payload] = field(default_factory=list[Payload])
    release: asyncio.Event = field(default_factory=asyncio.Event)

    def of_type(self, kind: str) -> list[Payload]:
        return [body for body in self.payloads if body.get("type", "command") == kind]

    def point_at(self, url: str) -> None:
        """Tell emulator and bot where they are served."""
        self.emulator.url = f"{url}/emulator"
        self.bolt.client.base_url = self.emulator.api_url


def showcase(url: str = "http://127.0.0.1:1") -> Showcase:
    """Return the bot and the emulator, built but not served."""
    outer = Starlette()
    emulator = Emulator(
        people=[DORA, ALICE, BOB],
        channels=[OPS, ALARMS, DESK],
        signing_secret=SECRET,
        deliver=to_app(outer),
        installation=INSTALLATION,
        url=f"{url}/emulator",
    )
    client = AsyncWebClient(token=emulator.bot_token, base_url=emulator.api_url)
    bolt = AsyncApp(name="showcase", signing_secret=SECRET, client=client)
    handler = AsyncSlackRequestHandler(bolt)

    async def events(request: Request) -> Response:
        return await handler.handle(request)

    outer.router.routes.append(Route("/slack/events", events, methods=["POST"]))
    outer.router.routes.append(Mount("/emulator", emulator.app))
    made = Showcase(emulator, bolt, outer)
    _listen(made)
    return made


def _listen(made: Showcase) -> None:
    bolt, received = made.bolt, made.payloads

    @bolt.middleware
    async def note(body: Payload, next: Callable[[], Awaitable[None]]) -> None:  # noqa: A002 - Bolt's name
        received.append(body)
        await next()

    _command(made)
    _act(bolt)
    _fill_in(bolt)
    _hear(bolt)


def _command(made: Showcase) -> None:
    bolt = made.bolt

    @bolt.command("/keyturn")
    async def command(ack: Any, body: Payload, client: AsyncWebClient, respond: Any) -> None:
        words = body["text"]
        if words == "ask":
            await ack()
            await client.views_open(trigger_id=body["trigger_id"], view=FORM)
        elif words.startswith("restart"):
            await ack()
            await client.chat_postMessage(
                channel=body["channel_id"], text="Needs approval: restart api", blocks=CARD
            )
        elif words == "shout":
            await ack(text="Heard by all", response_type="in_channel")
        elif words == "later":
            await ack()
            await respond("Answered through the response URL")
        else:
            await ack(f"You said *{words}*. Try `restart web-3` or `ask`.")

    @bolt.command("/slow")
    async def slow(ack: Any) -> None:
        await made.release.wait()
        await ack()


def _act(bolt: AsyncApp) -> None:
    @bolt.action("approve")
    async def approve(ack: Any, body: Payload, client: AsyncWebClient) -> None:
        await ack()
        done = mrkdwn(f"Approved by <@{body['user']['id']}> · running")
        message = body["message"]
        await client.chat_update(
            channel=body["channel"]["id"],
            ts=message["ts"],
            text="Approved: restart api",
            blocks=[*CARD[:3], {"type": "context", "elements": [done]}],
        )
        await client.chat_postMessage(
            channel=body["channel"]["id"], thread_ts=message["ts"], text="api is *active* again"
        )

    @bolt.action("deny")
    async def deny(ack: Any, respond: Any) -> None:
        await ack()
        await respond("Denied.", replace_original=False)

    @bolt.action("open")
    async def open_form(ack: Any, body: Payload, client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=FORM)


def _fill_in(bolt: AsyncApp) -> None:
    @bolt.options("host")
    async def hosts(ack: Any, payload: Payload) -> None:
        matching = [option(host) for host in HOSTS if payload["value"] in host]
        await ack(options=matching)

    @bolt.view("ask")
    async def asked(ack: Any, view: Payload, body: Payload, client: AsyncWebClient) -> None:
        values = view["state"]["values"]
        if values["reason"]["reason"]["value"] == "because":
            await ack(response_action="errors", errors={"reason": "Say more than that."})
            return
        await ack()
        host = values["host"]["host"]["selected_option"]["value"]
        await client.chat_postMessage(channel=body["user"]["id"], text=f"Planned for {host}")

    @bolt.view_closed("ask")
    async def closed(ack: Any) -> None:
        await ack()

    @bolt.shortcut("ask")
    async def shortcut(ack: Any, body: Payload, client: AsyncWebClient) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=FORM)

    @bolt.shortcut("explain")
    async def explain(ack: Any, respond: Any) -> None:
        await ack()
        await respond("It was a message.")


def _hear(bolt: AsyncApp) -> None:
    @bolt.event("app_home_opened")
    async def home(event: Payload, client: AsyncWebClient) -> None:
        if event["tab"] == "home":
            await client.views_publish(user_id=event["user"], view=_home(event["user"]))

    @bolt.event("app_mention")
    async def mention(event: Payload, say: Any) -> None:
        await say(text=f"Here, <@{event['user']}>", thread_ts=event["ts"])

    @bolt.event("message")
    async def message(event: Payload, say: Any) -> None:
        if event.get("channel_type") == "im":
            await say("Type `/keyturn help`.")

    for name in ("user_change", "member_joined_channel"):

        @bolt.event(name)
        async def noted(event: Payload) -> None:
            del event
