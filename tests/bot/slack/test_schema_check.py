"""The check against Slack's types detects mistakes in both directions."""

import copy
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from bot.slack.run_message import render_card
from tests.bot.slack import payloads, schema_check
from tests.bot.slack.sample_views import build_run_view, build_run_view_of_each_state
from tests.bot.slack.slack_connection import OPS, create_emulator
from tests.slack_emulator.emulator import Emulator
from tests.slack_emulator.page_client import run
from tests.slack_emulator.serving import serve

Json = dict[str, Any]


def build_call() -> Json:
    message = render_card(build_run_view())
    return {"channel": "C0OPS", "text": message.text, "blocks": list(message.blocks)}


def actions(call: Json) -> Json:
    return next(block for block in call["blocks"] if block["type"] == "actions")


MISTAKES: dict[str, Callable[[Json], object]] = {
    "no channel": lambda call: call.pop("channel"),
    "an argument that is none": lambda call: call.update(chanel="C0OPS"),
    "a kind of block that is none": lambda call: call["blocks"].append({"type": "sektion"}),
    "a field that is none": lambda call: actions(call).update(blockid="x"),
    "a button without words": lambda call: actions(call)["elements"][0].pop("text"),
    "a button that says too much": lambda call: actions(call)["elements"][0]["text"].update(
        text="x" * 76
    ),
    "a value that is too long": lambda call: actions(call)["elements"][0].update(value="x" * 2001),
    "a style that is none": lambda call: actions(call)["elements"][0].update(style="green"),
    "too many buttons": lambda call: actions(call).update(elements=actions(call)["elements"] * 20),
    "an id that is too long": lambda call: actions(call).update(block_id="x" * 256),
    "mrkdwn where plain text belongs": lambda call: actions(call)["elements"][0]["text"].update(
        type="mrkdwn"
    ),
}


@pytest.mark.parametrize("state", build_run_view_of_each_state())
def test_every_card_passes_the_slack_schema(state: str):
    message = render_card(build_run_view_of_each_state()[state])
    call = {"channel": "C0OPS", "text": message.text, "blocks": list(message.blocks)}
    assert schema_check.list_faults_of_call("chat.postMessage", call) == []


@pytest.mark.parametrize("slip", MISTAKES)
def test_slack_schema_detects_a_typing_error_in_a_call(slip: str):
    call = copy.deepcopy(build_call())
    assert schema_check.list_faults_of_call("chat.postMessage", call) == []
    MISTAKES[slip](call)
    assert schema_check.list_faults_of_call("chat.postMessage", call) != []


def test_slack_schema_checks_deliveries_of_slack():
    typed = schema_check.parse_delivery(payloads.slash("help"))
    assert schema_check.list_faults_of_delivery(typed) == []
    del typed["trigger_id"]
    assert schema_check.list_faults_of_delivery(typed) != []
    click = payloads.click("approve", "1", "U0OLGA", channel="C0OPS", ts="1.1")
    assert schema_check.list_faults_of_delivery(click) == []
    del click["actions"][0]["action_ts"]
    assert schema_check.list_faults_of_delivery(click) != []


def test_slack_schema_describes_every_method_of_the_emulator():
    for method in sorted(schema_check.KNOWN):
        assert schema_check.list_faults_of_answer(method, {"ok": True}) == []
        assert schema_check.list_faults_of_answer(method, {"ok": "yes"}) != []


async def _post_message(emulator: Emulator, **given: object) -> list[str]:
    app = Starlette()
    app.mount("/emulator", emulator.app)
    async with serve(app) as url:
        emulator.url = f"{url}/emulator"
        headers = {"authorization": f"Bearer {emulator.bot_token}"}
        async with httpx2.AsyncClient(base_url=emulator.api_url, headers=headers) as client:
            await client.post("chat.postMessage", json={"channel": OPS, **given})
    return [*schema_check.violations]


def test_valid_slack_call_to_the_emulator_passes_the_schema():
    assert run(_post_message(create_emulator(), text="all is well")) == []


@pytest.mark.malformed
def test_invalid_slack_call_that_the_emulator_accepts_is_a_schema_violation():
    emulator = create_emulator()
    result = run(_post_message(emulator, text="all is well", link_names="perhaps"))
    assert [message.text for message in emulator.workspace.log(OPS, "")] == ["all is well"]
    assert ["link_names" in one for one in result] == [True]
