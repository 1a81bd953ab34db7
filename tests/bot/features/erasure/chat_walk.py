"""Hostile text in a declined erasure, whose requester is notified in chat."""

from bot.features.erasure.actions import ErasureActions
from tests.bot.slack.hostile import LOUD
from tests.bot.slack.hostile_walk import Walk


async def decline_erasure(walk: Walk) -> None:
    actions = walk.chat.harness.service.bind(ErasureActions)
    await walk.say("toy say lb1")
    run = walk.find_newest("toy say lb1")
    actions.request_erasure(run.id, person="dora", reason=LOUD, source="web")
    actions.decline_erasure(run.id, person="olga", reason=LOUD)
    await walk.chat.settle()
