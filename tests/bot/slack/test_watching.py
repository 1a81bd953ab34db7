"""Watching a run: a direct message at its end, once, to who may view it."""

import pytest

from bot.model.run import State
from tests.bot.restricted_view import restricted_rules
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.web_api import Posted

pytestmark = pytest.mark.anyio


async def _approve(chat: Chat) -> None:
    """Request a change and approve it, and show its card before it starts."""
    await chat.type("toy set lb1 lamp on because it is dark")
    run = chat.run()
    chat.harness.service.approve_run(run.id, person="olga", digest=run.digest)
    await chat.door.outbox.deliver_due()


async def test_person_who_watches_a_run_is_told_once_how_it_ended(chat: Chat) -> None:
    await _approve(chat)
    payload = chat.slack.card.buttons["watch"]
    assert payload["menu"] == "more"
    await chat.press("watch", "U0STAN")
    [note] = chat.slack.whispers("U0STAN")
    assert note.text == "You get a direct message when run 1 ends."
    assert chat.run().state is State.SUCCEEDED
    [told] = chat.slack.seen_in("D0STAN")
    assert told.text.startswith("Run 1 · Succeeded: toy set lb1 lamp on (the edge) – Verified")
    assert "it is dark" not in told.words
    [card] = chat.slack.seen_in("C0OPS")[:1]
    value = f"1:{chat.run().short_digest}"
    await chat.press("watch", "U0ADAM", message=card, value=value)
    assert len(chat.slack.seen_in("D0STAN")) == 1
    [late] = chat.slack.whispers("U0ADAM")
    assert late.text.startswith("Run 1 has ended: ")
    assert chat.slack.seen_in("D0ADAM") == []


async def test_run_that_a_person_may_not_view_cannot_be_watched(chat: Chat) -> None:
    await chat.send(payloads.slash("toy set lb1 lamp on", "U0OLGA"))
    rules = chat.harness.policies.path / "policy.cedar"
    rules.write_text(restricted_rules())
    card = Posted("C0OPS", "1.1", "", [])
    await chat.press("watch", "U0DORA", message=card, value="1:0123456789")
    assert chat.run().state is State.SUCCEEDED
    assert [one.text for one in chat.slack.whispers("U0DORA")] == ["There is no run 1."]
    assert chat.slack.seen_in("D0DORA") == []
