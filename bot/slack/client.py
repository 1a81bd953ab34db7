"""Send messages by slack_sdk's Web API client, and post none of them twice.

Slack has no key for what may be posted once only. So each message bears a name, as the id of its
first block, and before a second attempt the channel is searched for it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler
from slack_sdk.http_retry.request import HttpRequest
from slack_sdk.http_retry.response import HttpResponse
from slack_sdk.http_retry.state import RetryState
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.model.canonical import hash_canonical
from bot.slack.blocks import Block, Message, View
from bot.slack.run_facts import Story

log = logging.getLogger(__name__)

Shown = TypeVar("Shown")

# Slack's words for a place that we cannot speak in, and that only people can open to us.
CLOSED_PLACES = frozenset(
    {"not_in_channel", "channel_not_found", "is_archived", "restricted_action", "no_permission"}
)
GONE_MESSAGES = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
# Slack's words for somebody who cannot be written to.
UNREACHABLE = CLOSED_PLACES | frozenset(
    {"user_disabled", "user_not_found", "account_inactive", "cannot_dm_bot", "user_not_visible"}
)
# Slack's words for what went wrong with itself.
_OF_ITS_OWN = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)
_NOT_FOR_THEM_THERE = CLOSED_PLACES | {"user_not_in_channel", "messages_tab_disabled"}
# Slack's words for what it does not take of how a message looks.
_BAD_BLOCKS = frozenset(
    {
        "block_mismatch",
        "invalid_arguments",
        "invalid_blocks",
        "invalid_blocks_format",
        "msg_blocks_too_long",
        "msg_too_long",
    }
)
_PAGES, _ON_A_PAGE = 5, 200


@dataclass(frozen=True)
class Place:
    """Where a message stands: a channel or a conversation, and the message's time stamp."""

    channel: str
    ts: str


class Voice:
    """Posts, updates and finds messages. Raises SlackApiError, and what aiohttp raises."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def post(self, channel: str, message: Message, *, thread: str = "") -> Place:
        """Post it, unless it may be there already and is found."""
        if message.posted_since is not None:
            found = await self._found(channel, message, thread)
            if found is not None:
                return found
        return await _shown(message, lambda shown: self._post(channel, shown, thread))

    async def update(self, place: Place, message: Message) -> None:
        """Show this in place of what stands there."""
        await _shown(message, lambda shown: self._update(place, shown))

    async def whisper(self, channel: str, user: str, message: Message, *, thread: str = "") -> str:
        """Tell one person, there if possible, else directly. Returns where it was said."""
        try:
            await _shown(message, lambda shown: self._whisper(channel, user, shown, thread))
        except SlackApiError as refused:
            if error_of(refused) not in _NOT_FOR_THEM_THERE:
                raise
            return (await self.tell(user, message)).channel
        return channel

    async def tell(self, user: str, message: Message) -> Place:
        """Write to one person directly."""
        return await self.post(await self.conversation(user), message)

    async def conversation(self, user: str) -> str:
        """Return the conversation with one person, D…."""
        opened = await self._client.conversations_open(users=user)
        channel: dict[str, str] = opened.get("channel") or {}
        return channel.get("id", user)

    async def share(self, place: Place, *, name: str, title: str, content: str) -> None:
        """Put a text file into the thread of a message."""
        await self._client.files_upload_v2(
            channel=place.channel,
            thread_ts=place.ts,
            filename=name,
            title=title,
            content=content,
            request_file_info=False,
        )

    async def publish(self, user: str, view: View) -> None:
        """Draw somebody's Home tab."""
        await self._client.views_publish(user_id=user, view=view)

    async def _whisper(self, channel: str, user: str, message: Message, thread: str) -> None:
        await self._client.chat_postEphemeral(
            channel=channel,
            user=user,
            text=message.text,
            blocks=list(message.blocks),
            thread_ts=thread or None,
            parse="none",
            link_names=False,
        )

    async def _update(self, place: Place, message: Message) -> None:
        # Without any blocks, an empty list takes away those that stood there.
        await self._client.chat_update(
            channel=place.channel,
            ts=place.ts,
            text=message.text,
            blocks=list(message.blocks),
            parse="none",
            link_names=False,
        )

    async def _found(self, channel: str, message: Message, thread: str) -> Place | None:
        """Return where the message stands, None if it is not there or we may not look."""
        cursor = ""
        for _ in range(_PAGES):
            try:
                page = await self._page(channel, thread, message.posted_since or 0, cursor)
            except SlackApiError as refused:
                if is_away(refused):
                    raise
                return None
            said = cast("list[dict[str, Any]]", page.get("messages") or [])
            if stamp := next((one["ts"] for one in said if bears(one, message.name)), ""):
                return Place(channel, stamp)
            more = cast("dict[str, str]", page.get("response_metadata") or {})
            cursor = more.get("next_cursor", "")
            if not cursor:
                break
        return None

    async def _page(
        self, channel: str, thread: str, since: float, cursor: str
    ) -> AsyncSlackResponse:
        oldest, onwards = f"{since:.6f}", cursor or None
        if thread:
            return await self._client.conversations_replies(
                channel=channel, ts=thread, oldest=oldest, limit=_ON_A_PAGE, cursor=onwards
            )
        return await self._client.conversations_history(
            channel=channel, oldest=oldest, limit=_ON_A_PAGE, cursor=onwards
        )

    async def _post(self, channel: str, message: Message, thread: str) -> Place:
        posted = await self._client.chat_postMessage(
            channel=channel,
            text=message.text,
            blocks=marked(message) or None,
            thread_ts=thread or None,
            parse="none",
            link_names=False,
            unfurl_links=False,
            unfurl_media=False,
        )
        return Place(posted.get("channel", channel), posted.get("ts", ""))


async def _shown(message: Message, show: Callable[[Message], Awaitable[Shown]]) -> Shown:
    """Show a message, without its blocks if Slack does not take those.

    One that looks poor is better than none, and than buttons that decide nothing any more.
    """
    try:
        return await show(message)
    except SlackApiError as refused:
        if error_of(refused) not in _BAD_BLOCKS or not message.blocks:
            raise
        log.error("a message is shown without its blocks: Slack said %s", error_of(refused))
        return await show(replace(message, blocks=()))


def error_of(refused: SlackApiError) -> str:
    """Return Slack's word for what is wrong, such as `not_in_channel`; without one, the status."""
    return _word(refused) or f"status {refused.response.status_code}"


def is_away(refused: SlackApiError) -> bool:
    """Return whether Slack could not answer, or has had enough of us: it is to be asked again.

    What stands in front of Slack answers without a word of Slack's, by a text or a page.
    """
    status = cast("int", refused.response.status_code)
    word = _word(refused)
    return retry_after(refused) is not None or status >= 500 or not word or word in _OF_ITS_OWN


def _word(refused: SlackApiError) -> str:
    body = cast("object", refused.response.data)
    word = cast("dict[str, object]", body).get("error") if isinstance(body, dict) else None
    return word if isinstance(word, str) else ""


def retry_after(refused: SlackApiError) -> float | None:
    """Return the seconds that Slack wants to be left in peace, if it does."""
    if refused.response.status_code != 429 and error_of(refused) != "ratelimited":
        return None
    headers = cast("dict[str, str]", refused.response.headers)
    given = next((headers[name] for name in headers if name.lower() == "retry-after"), "")
    return min(float(given), 600.0) if given.isdecimal() else 30.0


# Slack's clock and the database's may be apart.
_SKEW_SECONDS = 300
_POSTS = ("/chat.postMessage", "/chat.postEphemeral")


def named(message: Message, story: Story, slot: str) -> Message:
    """Return the message with its name: it is looked for if telling the story failed before."""
    run = story.run
    name = hash_canonical({"run": run.id, "asked": run.asked, "slot": slot})[:32]
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

    async def can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if request.url.endswith(_POSTS):
            return False
        return await super().can_retry_async(
            state=state, request=request, response=response, error=error
        )
