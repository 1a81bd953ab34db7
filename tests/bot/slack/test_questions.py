"""Questions, answers and reassignments in Slack: card, thread, direct messages and commands."""

import pytest

from tests.bot.slack.chat import PENDING_BUTTONS, Chat
from tests.bot.slack.json_walk import list_mentions
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio
LAMP_ON = "toy set lb1 lamp on"


def _words(message: Posted) -> str:
    """Return all words of a message with single spaces."""
    return " ".join(message.words.split())


async def _ask_question(chat: Chat, text: str = "Which ticket?", user: str = "U0OLGA") -> None:
    await chat.press("question", user)
    await chat.submit({"because": text}, user)


async def test_question_is_answered_in_its_thread_and_shown_on_the_card(chat: Chat):
    await chat.type(LAMP_ON)
    await _ask_question(chat)
    card, question = chat.slack.posted
    assert question.thread == card.ts
    assert list_mentions(question.blocks) == ["U0DORA"]
    assert "Run 1 · Olga Owner asked about toy set lb1 lamp on: Which ticket?" in _words(question)
    assert "Olga Owner asked: Which ticket?" in _words(card)
    assert set(card.buttons) == PENDING_BUTTONS | {"answer"}
    await chat.press("answer", "U0DORA", message=question)
    await chat.submit({"because": "4711 <!channel>"}, "U0DORA")
    card, question, answer = chat.slack.posted
    assert question.buttons == {}
    assert list_mentions(answer.blocks) == ["U0OLGA"]
    assert "Dora Developer answered: 4711 <!channel>" in _words(card)
    assert set(card.buttons) == PENDING_BUTTONS
    await chat.press("approve", "U0OLGA")
    assert chat.run().is_ended
    assert "Dora Developer answered" in _words(card)


@pytest.mark.parametrize(
    ("action", "user", "text", "error"),
    [
        ("question", "U0DORA", "why?", "You cannot decide run 1: you requested it."),
        ("question", "U0STAN", "why?", "Those who can: Adam Admin, Olga Owner."),
        ("question", "U0OLGA", "a\u202eb", "The question "),
        ("answer", "U0OLGA", "because", "Only Dora Developer, who answers for run 1, can answer."),
    ],
)
async def test_question_or_answer_form_shows_why_it_is_refused(
    chat: Chat, action: str, user: str, text: str, error: str
):
    await chat.type(LAMP_ON)
    await _ask_question(chat)
    await chat.press(action, user)
    await chat.submit({"because": text}, user)
    assert error in chat.acknowledged[-1]["errors"]["because"]


async def test_reassigned_run_is_sent_to_the_assignee_with_its_card(chat: Chat):
    await chat.type(LAMP_ON)
    await chat.press("reassign", "U0OLGA")
    view = list(chat.slack.views.values())[-1]
    [choice] = [one["element"] for one in view["blocks"] if one.get("block_id") == "assignee"]
    assert [(one["value"], one["text"]["text"]) for one in choice["options"]] == [
        ("adam", "Adam Admin"),
        ("olga", "Olga Owner"),
    ]
    await chat.submit({"assignee": "adam", "because": "your balancer"}, "U0OLGA")
    card = chat.slack.posted[0]
    assert "Assigned to Adam Admin by Olga Owner: your balancer" in _words(card)
    [copy] = chat.slack.seen_in("D0ADAM")
    assert set(copy.buttons) == PENDING_BUTTONS
    assert chat.slack.seen_in("D0OLGA") == []
    await chat.press("approve", "U0ADAM", message=copy)
    assert chat.harness.fleet.sent == [("lb1", "set lamp on")]


async def test_question_answer_and_reassign_commands_are_shown_on_the_card(chat: Chat):
    await chat.type(LAMP_ON)
    answer = await chat.type("question 1 why now because of the sale?", "U0OLGA")
    assert answer.text == "You asked about run 1. It stays pending."
    assert (await chat.type("answer 1 it is dark")).text == "You answered about run 1."
    answer = await chat.type("reassign 1 <@U0ADAM|x> because your balancer", "U0OLGA")
    assert answer.text == "You assigned run 1 to Adam Admin."
    for line in (
        "Olga Owner asked: why now because of the sale?",
        "Dora Developer answered: it is dark",
        "Assigned to Adam Admin by Olga Owner: your balancer",
    ):
        assert line in _words(chat.slack.posted[0])
    refused = await chat.type("reassign 1 stan", "U0OLGA")
    assert "cannot be assigned to 'stan'" in refused.text
