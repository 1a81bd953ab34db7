"""Signed Slack payloads of unexpected shapes cause no internal error."""

import copy
import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest

from bot.slack import modals
from bot.slack.run_buttons import APPROVE
from tests.bot.slack import payloads
from tests.bot.slack.asgi import post
from tests.bot.slack.chat import Chat
from tests.bot.slack.payloads import signed

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
STRANGE: tuple[Any, ...] = ([], None, "", 0, [None], {"id": 7})


def _view() -> Json:
    return {
        "id": "V1",
        "type": "modal",
        "callback_id": modals.FORM,
        "private_metadata": json.dumps({"words": "toy set", "channel": "C0OPS"}),
        "blocks": [],
        "state": {"values": {"host": {"h": {"type": "static_select", "selected_option": None}}}},
    }


SOUND: dict[str, Json] = {
    "click": payloads.click(APPROVE.id, "1 0123456789", "U0OLGA", channel="C0OPS", ts="1.1"),
    "submission": payloads.in_view("view_submission", _view(), "U0DORA"),
    "suggestion": payloads.in_view(
        "block_suggestion",
        _view(),
        "U0DORA",
        action_id=modals.VALUE,
        block_id="host",
        value="l",
    ),
    "choice": payloads.in_view(
        "block_actions",
        _view(),
        "U0DORA",
        actions=[{"type": "static_select", "action_id": modals.HOST, "block_id": "host"}],
    ),
    "shortcut": payloads.message_action(modals.ABOUT_HOST, "lb1 is slow", "U0DORA"),
    "event": json.loads(payloads.event("Ev1", tab="home")),
    "mention": json.loads(payloads.mention("<@U0KEYTURN> toy set lb1 lamp on", thread_ts="1.1")),
}


def _paths(value: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every part of a payload."""
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        parts = cast("Json", value).items()
    elif isinstance(value, list):
        parts = enumerate(cast("list[Any]", value))
    for name, part in parts:
        yield (*before, name)
        yield from _paths(part, (*before, name))


def _mutated(sound: Json) -> Iterator[Json]:
    """Yield the payload with each part gone, and with each third strange thing in its place."""
    for number, path in enumerate(_paths(sound)):
        for strange in ("gone", *STRANGE[number % 3 :: 3]):
            made = copy.deepcopy(sound)
            place: Any = made
            for name in path[:-1]:
                place = place[name]
            if strange == "gone":
                del place[path[-1]]
            else:
                place[path[-1]] = strange
            yield made


@pytest.mark.parametrize("kind", SOUND)
async def test_mutated_slack_payload_causes_no_server_error(
    chat: Chat, kind: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    for payload in _mutated(SOUND[kind]):
        raw = payloads.interaction(payload)
        if kind in {"event", "mention"}:
            raw = json.dumps(payload).encode()
        answer = await post(chat.door.app, raw, signed(raw))
        assert answer.status in {200, 400}, payload
        traces = [record.exc_info for record in caplog.records if record.exc_info]
        assert traces == [], payload
    await chat.door.close_listeners()
    assert [record.exc_info for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("actions", [[], None, {}, [None], [{}], "x"])
async def test_click_payload_without_an_action_gets_400(chat: Chat, actions: object):
    payload = SOUND["click"] | {"actions": actions}
    raw = payloads.interaction(payload)
    answer = await post(chat.door.app, raw, signed(raw))
    assert (answer.status, answer.json) == (400, {"error": "the body is malformed"})
