"""A declined erasure is told to its requester in chat."""

from bot.features.erasure.actions import ErasureActions
from tests.bot.slack.chat import Chat
from tests.bot.slack.json_walk import list_mentions


async def test_declined_erasure_is_sent_once_to_its_requester_with_the_reason(chat: Chat) -> None:
    await chat.type("toy show lb1")
    erasing, why = chat.harness.service.bind(ErasureActions), "we <@U0DORA> need it for the audit"
    erasing.request_erasure(1, person="adam", reason="it names a customer", source="web")
    erasing.decline_erasure(1, person="olga", reason=why)
    for _ in range(2):
        await chat.settle()
    messages = [one for one in chat.slack.posted if one.channel == "D0ADAM"]
    assert len(messages) == 1
    assert "Olga Owner declined to erase the output of run 1" in messages[0].words
    assert why in messages[0].words
    assert list_mentions(messages[0].blocks) == []
