"""What came to nothing is asked for again by a button, in a form with the same values."""

from dataclasses import replace

import pytest

from bot.model.run import State
from bot.slack.blocks import Message
from bot.slack.modals import RequestFormView, render_form
from bot.slack.run_message import render_card
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import parts
from tests.bot.slack.sample_views import every_story
from tests.bot.slack.test_form import Open
from tests.toy import TuneSwitch

pytestmark = pytest.mark.anyio
DIM = "toy tune lb1 lamp dim because the cellar is dark"


async def _withdrawn(chat: Chat, text: str = DIM) -> None:
    await chat.type(text)
    await chat.type("withdraw 1")


async def _form(chat: Chat, user: str) -> Open:
    [made] = chat.slack.views
    return Open(chat, made, user)


async def test_the_card_of_what_came_to_nothing_opens_its_form_with_its_values(chat: Chat):
    await _withdrawn(chat)
    assert set(chat.slack.card.buttons) == {"again", "commands"}
    assert chat.slack.card.buttons["again"]["text"]["text"] == "Request again"
    await chat.press("again", "U0DORA")
    shown = await _form(chat, "U0DORA")
    assert shown.view["title"]["text"] == "toy tune"
    chosen = {
        name: shown.inputs[name]["element"]["initial_option"]["value"]
        for name in ("host", "name", "how")
    }
    assert chosen == {"host": "lb1", "name": "lamp", "how": "dim"}
    assert "Needs 1 approval from the owners of the edge" in shown.words
    assert "initial_value" not in shown.inputs["because"]["element"]


async def test_whoever_presses_it_asks_in_their_own_name(chat: Chat):
    await _withdrawn(chat)
    await chat.press("again", "U0ADAM")
    shown = await _form(chat, "U0ADAM")
    answer = await shown.submit(host="lb1", name="lamp", how="dim", because="it still is")
    assert answer.json["response_action"] == "update"
    run = chat.run(2)
    assert (run.request, run.requested_by) == ("toy tune lb1 lamp how=dim", "adam")
    assert (run.reason, run.origin.channel) == ("it still is", "C0OPS")


async def test_a_host_on_which_one_may_not_ask_is_not_filled_in(chat: Chat):
    await _withdrawn(chat)
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text()
        + 'forbid (principal == Person::"dora", action == Action::"request", resource)\n'
        + 'when { resource == Host::"lb1" };\n'
    )
    await chat.press("again", "U0DORA")
    assert (await _form(chat, "U0DORA")).choices("host") == ["lb2"]


async def test_someone_whom_no_one_knows_opens_nothing(chat: Chat):
    await _withdrawn(chat)
    await chat.press("again", "U0NOBODY")
    assert chat.slack.views == {}
    assert "does not know your Slack account" in chat.slack.whispers("U0NOBODY")[0].words


async def test_another_host_leaves_the_other_values_as_they_are(chat: Chat):
    await _withdrawn(chat)
    await chat.type("again 1")
    shown = await _form(chat, "U0DORA")
    await shown.choose_host("lb2")
    assert shown.inputs["host"]["element"]["initial_option"]["value"] == "lb2"
    assert shown.inputs["how"]["element"]["initial_option"]["value"] == "dim"


async def test_the_words_say_why_a_form_is_not_opened(chat: Chat):
    await chat.type(DIM)
    assert (await chat.type("again 1")).text == "Run 1 has not ended: it is pending."
    assert "The run number is missing: type /keyturn again N" in (await chat.type("again it")).text
    assert "no run 9" in (await chat.type("again 9")).text
    assert chat.slack.views == {}


@pytest.mark.parametrize("value", ["", "x", "9" * 30, "2"])
async def test_a_button_that_is_not_ours_opens_nothing(chat: Chat, value: str):
    await _withdrawn(chat)
    await chat.press("again", "U0DORA", value=value)
    assert chat.slack.views == {}
    assert chat.slack.whispers("U0DORA")


async def test_for_several_hosts_the_form_says_what_to_type(chat: Chat):
    await _withdrawn(chat, "toy set lb* lamp on")
    await chat.press("again", "U0DORA")
    shown = await _form(chat, "U0DORA")
    assert "initial_option" not in shown.inputs["host"]["element"]
    assert shown.inputs["name"]["element"]["initial_value"] == "lamp"
    typed = "toy set 'host=lb*' name=lamp value=on"
    assert f"Run 1 was for lb*. To request all of them again, type /keyturn {typed}" in shown.words
    await chat.type(typed)
    assert list(chat.run(4).hosts) == ["lb1", "lb2"]
    assert chat.run(4).request == chat.run(1).request


async def test_where_no_form_can_be_opened_it_is_explained_how_to_type_it(chat: Chat):
    await _withdrawn(chat)
    chat.slack.refuse("views.open", "expired_trigger_id")
    await chat.press("again", "U0DORA")
    assert "/keyturn toy tune HOST NAME" in chat.slack.whispers("U0DORA")[0].words


async def test_what_was_done_has_no_such_button(chat: Chat):
    await chat.type(DIM)
    await chat.press("approve", "U0OLGA")
    assert chat.run().state is State.SUCCEEDED
    assert "again" not in chat.slack.card.buttons


@pytest.mark.parametrize("state", State)
def test_what_came_to_nothing_is_asked_for_again_on_its_card(state: State):
    story = every_story()[state.value]
    nothing = {"failed", "refused", "denied", "expired", "withdrawn", "stale", "stopped"}
    assert _has_it(render_card(story)) == (state.value in nothing)
    assert not _has_it(render_card(story, buttons=False))
    undo = replace(story.run, undo_of=7)
    assert not _has_it(render_card(replace(story, run=undo)))


def _has_it(message: Message) -> bool:
    return any(part.get("action_id") == "again" for part in parts(message.blocks))


def test_a_value_that_cannot_be_chosen_any_more_is_left_open():
    given = {"host": "lb1", "name": "x" * 76, "how": "bright"}
    view = render_form(RequestFormView(TuneSwitch, ("lb1",), {}, "lb1", initial_values=given))
    elements = {
        block["block_id"]: block["element"] for block in view["blocks"] if "element" in block
    }
    assert "initial_option" not in elements["name"]
    assert "initial_option" not in elements["how"]
