"""Hostile text in alerts, and in what hosts return to their checks."""

from typing import cast

from bot.features.alerts.answers import AlertAnswers
from bot.features.alerts.chat import SHORTCUT
from tests.bot.slack import payloads
from tests.bot.slack.chat import Chat
from tests.bot.slack.hostile import SAID
from tests.bot.slack.hostile_walk import Walk


async def post_answers(chat: Chat) -> None:
    """Post the answers that are ready."""
    for part in chat.door.parts:
        assert part.run is not None
        await cast("AlertAnswers", getattr(part.run, "__self__", None)).post_ready()


async def use_alerts(walk: Walk) -> None:
    """Have alerts checked whose title, labels and fields are hostile, and whose host is."""
    texts = (f"[FIRING:1] ToySay (lb1) {SAID}", f"[FIRING:1] ToyEcho (lb1)\n - service = {SAID}")
    for number, text in enumerate((*texts, SAID)):
        field = {"title": SAID, "value": SAID, "short": True}
        message = {"text": text, "attachments": [{"title": text, "fields": [field]}]}
        ts = f"1700000000.00000{number}"
        chosen = payloads.message_action(SHORTCUT, "", "U0DORA", ts=ts, message=message)
        await walk.chat.send(payloads.interaction(chosen))
        await walk.chat.settle()
        await post_answers(walk.chat)
        await walk.chat.send(payloads.app_message(message))
        await walk.chat.settle()
