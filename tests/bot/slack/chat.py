"""A Slack chat for tests: commands and clicks reach the Slack service as signed requests."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bot.features import load_chat
from bot.model.run import Run
from bot.queries.form_options import FormOptions
from bot.slack import actions
from bot.slack.app import SlackService, SlackSettings
from bot.slack.app import create_client as speaker
from bot.slack.client import MessageSender
from bot.slack.features import ListStartedDuties
from bot.slack.outbox import Outbox
from bot.slack.run_facts import SlackRunViewBuilder
from tests.bot.harness import Harness
from tests.bot.slack import payloads, schema_check
from tests.bot.slack.asgi import Answer, post
from tests.bot.slack.json_walk import list_texts
from tests.bot.slack.payloads import SECRET, signed
from tests.bot.slack.web_api import Posted, WebApi, serve_web_api
from tests.policies import TEAM
from tests.toy import LISTS

PAGES = "https://keyturn.example.com"
# The buttons of a card that needs approval.
PENDING_BUTTONS = frozenset(
    {"approve", "approve-later", "deny", "question", "reassign", "withdraw", "commands"}
)


@dataclass
class Chat:
    """acknowledged: what each delivery was answered with."""

    harness: Harness
    door: SlackService
    slack: WebApi
    acknowledged: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def type(self, text: str, user: str = "U0DORA", channel: str = "C0OPS") -> Answer:
        """Type /keyturn, and let all that follows from it happen."""
        answer = await self.send(payloads.slash(text, user, channel))
        await self.settle()
        return answer

    async def read(self, text: str, user: str = "U0DORA") -> str:
        """Type /keyturn, and return the words of the answer."""
        answer = await self.type(text, user)
        return " ".join(list_texts(answer.json["blocks"]))

    async def press(
        self, action: str, user: str, *, message: Posted | None = None, value: str | None = None
    ) -> Answer:
        """Click a button of a message, the card if none is given."""
        shown = message or self.slack.card
        value_sent = value if value is not None else shown.buttons[action]["value"]
        payload = payloads.click(action, value_sent, user, channel=shown.channel, ts=shown.ts)
        response = f"/actions/{shown.channel}/{shown.ts}"
        if menu := shown.buttons.get(action, {}).get("menu"):
            chosen = {"text": shown.buttons[action]["text"], "value": f"{action}:{value_sent}"}
            payload["actions"][0] |= {
                "type": "overflow",
                "action_id": menu,
                "selected_option": chosen,
            }
            del payload["actions"][0]["value"], payload["actions"][0]["text"]
        payload["container"]["is_ephemeral"] = bool(shown.seen_by)
        payload["response_url"] = self.slack.url.replace("/api/", response)
        answer = await self.send(payloads.interaction(payload))
        await self.settle()
        return answer

    async def deny(
        self, user: str, reason: str = "not today", *, message: Posted | None = None
    ) -> Answer:
        """Press Deny and hand in its form, which opens last."""
        await self.press("deny", user, message=message)
        return await self.submit({"because": reason}, user)

    async def submit(self, values: dict[str, str], user: str) -> Answer:
        """Hand in the text fields of the form that opened last."""
        state = {
            block: {"form-value": {"type": "plain_text_input", "value": value}}
            for block, value in values.items()
        }
        return await self.submit_state(state, user)

    async def submit_state(self, state: dict[str, Any], user: str) -> Answer:
        """Hand in the form that opened last. state: by block and action, as Slack sends it."""
        name, view = list(self.slack.views.items())[-1]
        shown = {"id": name, "hash": "1.a", **view, "state": {"values": state}}
        payload = payloads.in_view("view_submission", shown, user)
        answer = await self.send(payloads.interaction(payload))
        await self.settle()
        return answer

    async def send(self, raw: bytes) -> Answer:
        body = schema_check.parse_delivery(raw)
        schema_check.violations.extend(schema_check.list_faults_of_delivery(body))
        answer = await post(self.door.app, raw, signed(raw))
        schema_check.violations.extend(
            schema_check.list_faults_of_acknowledgement(body, answer.json)
        )
        self.acknowledged.append(answer.json)
        return answer

    async def settle(self) -> None:
        """Let runs advance and news be told."""
        await self._advance()
        # A form or a message may wait for the plan of a run.
        answering = asyncio.create_task(self.door.close_listeners())
        while not (await asyncio.wait([answering], timeout=0.01))[0]:
            await self._advance()
        await self._advance()
        await answering

    async def _advance(self) -> None:
        await asyncio.to_thread(self.harness.run_queued_work)
        await self.door.outbox.deliver_due()

    def run(self, number: int = 1) -> Run:
        return self.harness.get_run(number)


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """Have answers come with their acknowledgement, on a busy machine, too."""
    for name in ("_ACKNOWLEDGED_SECONDS", "_FORM_SECONDS"):
        patch.setattr(actions, name, 20.0)
    patch.setattr(actions, "_PLACEHOLDER_SECONDS", 0.0)


@asynccontextmanager
async def open_chat(
    harness: Harness,
    *,
    default_channel: str = "",
    clock: Callable[[], float] = time.monotonic,
    duties: Sequence[ListStartedDuties] = (),
):
    """Serve chat with all features. duties: that have begun, beside those of features."""
    async with serve_web_api() as slack:
        client = speaker("xoxb-1", slack.url)
        installation = SlackSettings(SECRET, TEAM, PAGES, default_channel)
        offering = FormOptions(
            harness.fleet.run_query, harness.database, harness.policies, listers=LISTS
        )
        features = load_chat()
        duties = [*features.list_started_duties, *duties]
        features = replace(features, list_started_duties=duties)
        door = SlackService(
            harness.service,
            harness.database,
            harness.policies,
            client,
            installation,
            offering,
            features,
        )
        run_views = SlackRunViewBuilder(
            harness.policies, team=TEAM, base_url=PAGES, features=features
        )
        door.outbox = Outbox(
            harness.database,
            run_views,
            MessageSender(client),
            default_channel=default_channel,
            home_tabs=door.home_tabs,
            clock=clock,
        )
        yield Chat(harness, door, slack)
        await door.close_listeners()
        assert slack.faults == []
