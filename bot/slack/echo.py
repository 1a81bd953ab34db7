"""Echoes: a message that Slack took while its answer was lost is found again, not posted again.

Slack has no key for what may be posted once only. So each message bears a name, as the id of its
first block, and before a second attempt the channel is looked through for it. Pure, but for the
way in which the client tries again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler
from slack_sdk.http_retry.request import HttpRequest
from slack_sdk.http_retry.response import HttpResponse
from slack_sdk.http_retry.state import RetryState

from bot.digest import sha256
from bot.slack.blocks import Block, Message
from bot.slack.story import Story

# Slack's clock and the database's may be apart.
_SKEW_SECONDS = 300
_POSTS = ("/chat.postMessage", "/chat.postEphemeral")


def named(message: Message, story: Story, slot: str) -> Message:
    """Return the message with its name: it is looked for if telling the story failed before."""
    run = story.run
    name = sha256({"run": run.id, "asked": run.asked, "slot": slot})[:32]
    since = run.asked / 1_000_000 - _SKEW_SECONDS if story.tries else None
    return replace(message, name=name, posted_since=since)


def marked(message: Message) -> list[Block]:
    """Return its blocks, with its name on the first."""
    blocks = list(message.blocks)
    if message.name and blocks:
        blocks[0] = blocks[0] | {"block_id": message.name}
    return blocks


def bears(said: Mapping[str, Any], name: str) -> bool:
    """Return whether what Slack has in a channel is the message of that name."""
    return any(block.get("block_id") == name for block in said.get("blocks") or ())


class Retry(AsyncConnectionErrorRetryHandler):
    """Tries once more when a connection breaks, as the stock one, but posts nothing twice."""

    async def _can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if request.url.endswith(_POSTS):
            return False
        return await super()._can_retry_async(
            state=state, request=request, response=response, error=error
        )
