"""Request again: the button and command that open the form with the values of an earlier run."""

from dataclasses import replace

import pytest

from bot.model.run import State
from bot.slack.blocks import Message
from bot.slack.modals import RequestFormView, render_form
from bot.slack.run_message import render_card
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import walk_objects
from tests.bot.slack.sample_views import build_run_view_of_each_state, replace_facts
from tests.bot.slack.test_form import OpenForm
from tests.toy import TuneSwitch

pytestmark = pytest.mark.anyio
DIM = "toy tune lb1 lamp dim because the cellar is dark"


async def _withdraw_run(chat: Chat, text: str = DIM) -> None:
    await chat.type(text)
    await chat.type("withdraw 1")


async def _get_open_form(chat: Chat, user: str) -> OpenForm:
    [made] = chat.slack.views
    return OpenForm(chat, made, user)


async def test_request_again_button_opens_the_form_with_the_values_of_the_run(chat: Chat):
    await _withdraw_run(chat)
    assert set(chat.slack.card.buttons) == {"again", "commands"}
    assert chat.slack.card.buttons["again"]["text"]["text"] == "Request again"
    await chat.press("again", "U0DORA")
    shown = await _get_open_form(chat, "U0DORA")
    assert shown.view["title"]["text"] == "toy tune"
    chosen = {
        name: shown.inputs[name]["element"]["initial_option"]["value"]
        for name in ("host", "name", "how")
    }
    assert chosen == {"host": "lb1", "name": "lamp", "how": "dim"}
    assert "Needs 1 approval from the owners of the edge" in shown.words
    assert "initial_value" not in shown.inputs["because"]["element"]


async def test_request_again_is_requested_by_the_person_who_clicks(chat: Chat):
    await _withdraw_run(chat)
    await chat.press("again", "U0ADAM")
    shown = await _get_open_form(chat, "U0ADAM")
    answer = await shown.submit(host="lb1", name="lamp", how="dim", because="it still is")
    assert answer.json["response_action"] == "update"
    run = chat.run(2)
    assert (run.request, run.requested_by) == ("toy tune lb1 lamp how=dim", "adam")
    assert (run.reason, run.origin.channel) == ("it still is", "C0OPS")


async def test_request_again_form_leaves_out_a_forbidden_host(chat: Chat):
    await _withdraw_run(chat)
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text()
        + 'forbid (principal == Person::"dora", action == Action::"request", resource)\n'
        + 'when { resource == Host::"lb1" };\n'
    )
    await chat.press("again", "U0DORA")
    assert (await _get_open_form(chat, "U0DORA")).choices("host") == ["lb2"]


async def test_request_again_is_refused_to_an_unknown_account(chat: Chat):
    await _withdraw_run(chat)
    await chat.press("again", "U0NOBODY")
    assert chat.slack.views == {}
    assert "does not know your Slack account" in chat.slack.whispers("U0NOBODY")[0].words


async def test_request_again_form_keeps_other_values_when_the_host_changes(chat: Chat):
    await _withdraw_run(chat)
    await chat.type("again 1")
    shown = await _get_open_form(chat, "U0DORA")
    await shown.choose_host("lb2")
    assert shown.inputs["host"]["element"]["initial_option"]["value"] == "lb2"
    assert shown.inputs["how"]["element"]["initial_option"]["value"] == "dim"


async def test_again_command_explains_why_no_form_opens(chat: Chat):
    await chat.type(DIM)
    assert (await chat.type("again 1")).text == "Run 1 has not ended: it is pending."
    assert "The run number is missing: type /keyturn again N" in (await chat.type("again it")).text
    assert "no run 9" in (await chat.type("again 9")).text
    assert chat.slack.views == {}


@pytest.mark.parametrize("value", ["", "x", "9" * 30, "2"])
async def test_forged_request_again_button_opens_no_form(chat: Chat, value: str):
    await _withdraw_run(chat)
    await chat.press("again", "U0DORA", value=value)
    assert chat.slack.views == {}
    assert chat.slack.whispers("U0DORA")


async def test_request_again_form_shows_the_command_for_several_hosts(chat: Chat):
    await _withdraw_run(chat, "toy set lb* lamp on")
    await chat.press("again", "U0DORA")
    shown = await _get_open_form(chat, "U0DORA")
    assert "initial_option" not in shown.inputs["host"]["element"]
    assert shown.inputs["name"]["element"]["initial_value"] == "lamp"
    typed = "toy set 'host=lb*' name=lamp value=on"
    assert f"Run 1 was for lb*. To request all of them again, type /keyturn {typed}" in shown.words
    await chat.type(typed)
    assert list(chat.run(4).hosts) == ["lb1", "lb2"]
    assert chat.run(4).request == chat.run(1).request


async def test_request_again_shows_command_usage_when_no_form_opens(chat: Chat):
    await _withdraw_run(chat)
    chat.slack.refuse("views.open", "expired_trigger_id")
    await chat.press("again", "U0DORA")
    assert "/keyturn toy tune HOST NAME" in chat.slack.whispers("U0DORA")[0].words


async def test_succeeded_run_has_no_request_again_button(chat: Chat):
    await chat.type(DIM)
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    assert "again" not in chat.slack.card.buttons


@pytest.mark.parametrize("state", State)
def test_request_again_button_is_on_cards_of_unsuccessful_runs_only(state: State):
    run_view = build_run_view_of_each_state()[state.value]
    nothing = {"failed", "refused", "denied", "expired", "withdrawn", "stale", "stopped"}
    assert _has_again_button(render_card(run_view)) == (state.value in nothing)
    assert not _has_again_button(render_card(run_view, buttons=False))
    undo = replace(run_view.run, undo_of=7)
    assert not _has_again_button(render_card(replace_facts(run_view, run=undo)))


def _has_again_button(message: Message) -> bool:
    return any(part.get("action_id") == "again" for part in walk_objects(message.blocks))


def test_form_leaves_out_an_initial_value_that_is_no_longer_an_option():
    given = {"host": "lb1", "name": "x" * 76, "how": "bright"}
    view = render_form(RequestFormView(TuneSwitch, ("lb1",), {}, "lb1", initial_values=given))
    elements = {
        block["block_id"]: block["element"] for block in view["blocks"] if "element" in block
    }
    assert "initial_option" not in elements["name"]
    assert "initial_option" not in elements["how"]
