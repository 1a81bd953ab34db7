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
from bot.slack.run_facts import SlackRunView

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

# Slack's words for a place that we cannot speak in, and that only people can open to us.
CLOSED_CHANNEL_ERRORS = frozenset(
    {"not_in_channel", "channel_not_found", "is_archived", "restricted_action", "no_permission"}
)
GONE_MESSAGE_ERRORS = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
# Slack's words for somebody who cannot be written to.
UNREACHABLE_USER_ERRORS = CLOSED_CHANNEL_ERRORS | frozenset(
    {"user_disabled", "user_not_found", "account_inactive", "cannot_dm_bot", "user_not_visible"}
)
# Slack's words for what went wrong with itself.
_SLACK_FAILURES = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)
_NO_EPHEMERAL_ERRORS = CLOSED_CHANNEL_ERRORS | {"user_not_in_channel", "messages_tab_disabled"}
# Slack's words for what it does not take of how a message looks.
_INVALID_BLOCKS_ERRORS = frozenset(
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
class MessageLocation:
    """Where a message stands: a channel or a conversation, and the message's time stamp."""

    channel: str
    ts: str


class MessageSender:
    """Posts, updates and finds messages. Raises SlackApiError, and what aiohttp raises."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def post_message(
        self, channel: str, message: Message, *, thread: str = ""
    ) -> MessageLocation:
        """Post it, unless it may be there already and is found."""
        if message.search_since is not None:
            found = await self._find_message(channel, message, thread)
            if found is not None:
                return found
        return await _send_with_fallback(
            message, lambda shown: self._post_chat_message(channel, shown, thread)
        )

    async def update_message(self, place: MessageLocation, message: Message) -> None:
        """Show this in place of what stands there."""
        await _send_with_fallback(message, lambda shown: self._update_chat_message(place, shown))

    async def send_ephemeral(
        self, channel: str, user: str, message: Message, *, thread: str = ""
    ) -> str:
        """Tell one person, there if possible, else directly. Returns where it was said."""
        try:
            await _send_with_fallback(
                message, lambda shown: self._post_ephemeral(channel, user, shown, thread)
            )
        except SlackApiError as refused:
            if get_error_code(refused) not in _NO_EPHEMERAL_ERRORS:
                raise
            return (await self.send_direct_message(user, message)).channel
        return channel

    async def send_direct_message(self, user: str, message: Message) -> MessageLocation:
        """Write to one person directly."""
        return await self.post_message(await self.open_conversation(user), message)

    async def open_conversation(self, user: str) -> str:
        """Return the conversation with one person, D…."""
        opened = await self._client.conversations_open(users=user)
        channel: dict[str, str] = opened.get("channel") or {}
        return channel.get("id", user)

    async def upload_file(
        self, place: MessageLocation, *, name: str, title: str, content: str
    ) -> None:
        """Put a text file into the thread of a message."""
        await self._client.files_upload_v2(
            channel=place.channel,
            thread_ts=place.ts,
            filename=name,
            title=title,
            content=content,
            request_file_info=False,
        )

    async def publish_home_tab(self, user: str, view: View) -> None:
        """Draw somebody's Home tab."""
        await self._client.views_publish(user_id=user, view=view)

    async def _post_ephemeral(
        self, channel: str, user: str, message: Message, thread: str
    ) -> None:
        await self._client.chat_postEphemeral(
            channel=channel,
            user=user,
            text=message.text,
            blocks=list(message.blocks),
            thread_ts=thread or None,
            parse="none",
            link_names=False,
        )

    async def _update_chat_message(self, place: MessageLocation, message: Message) -> None:
        # Without any blocks, an empty list takes away those that stood there.
        await self._client.chat_update(
            channel=place.channel,
            ts=place.ts,
            text=message.text,
            blocks=list(message.blocks),
            parse="none",
            link_names=False,
        )

    async def _find_message(
        self, channel: str, message: Message, thread: str
    ) -> MessageLocation | None:
        """Return where the message stands, None if it is not there or we may not look."""
        cursor = ""
        for _ in range(_PAGES):
            try:
                page = await self._fetch_page(channel, thread, message.search_since or 0, cursor)
            except SlackApiError as refused:
                if is_retryable(refused):
                    raise
                return None
            said = cast("list[dict[str, Any]]", page.get("messages") or [])
            if stamp := next(
                (one["ts"] for one in said if has_message_name(one, message.name)), ""
            ):
                return MessageLocation(channel, stamp)
            more = cast("dict[str, str]", page.get("response_metadata") or {})
            cursor = more.get("next_cursor", "")
            if not cursor:
                break
        return None

    async def _fetch_page(
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

    async def _post_chat_message(
        self, channel: str, message: Message, thread: str
    ) -> MessageLocation:
        posted = await self._client.chat_postMessage(
            channel=channel,
            text=message.text,
            blocks=build_named_blocks(message) or None,
            thread_ts=thread or None,
            parse="none",
            link_names=False,
            unfurl_links=False,
            unfurl_media=False,
        )
        return MessageLocation(posted.get("channel", channel), posted.get("ts", ""))


async def _send_with_fallback(
    message: Message, send: Callable[[Message], Awaitable[Result]]
) -> Result:
    """Show a message, without its blocks if Slack does not take those.

    One that looks poor is better than none, and than buttons that decide nothing any more.
    """
    try:
        return await send(message)
    except SlackApiError as refused:
        if get_error_code(refused) not in _INVALID_BLOCKS_ERRORS or not message.blocks:
            raise
        _log.error("a message is shown without its blocks: Slack said %s", get_error_code(refused))
        return await send(replace(message, blocks=()))


def get_error_code(refused: SlackApiError) -> str:
    """Return Slack's word for what is wrong, such as `not_in_channel`; without one, the status."""
    return _get_slack_error(refused) or f"status {refused.response.status_code}"


def is_retryable(refused: SlackApiError) -> bool:
    """Return whether Slack could not answer, or has had enough of us: it is to be asked again.

    What stands in front of Slack answers without a word of Slack's, by a text or a page.
    """
    status = cast("int", refused.response.status_code)
    word = _get_slack_error(refused)
    return (
        get_retry_seconds(refused) is not None
        or status >= 500
        or not word
        or word in _SLACK_FAILURES
    )


def _get_slack_error(refused: SlackApiError) -> str:
    body = cast("object", refused.response.data)
    word = cast("dict[str, object]", body).get("error") if isinstance(body, dict) else None
    return word if isinstance(word, str) else ""


def get_retry_seconds(refused: SlackApiError) -> float | None:
    """Return the seconds that Slack wants to be left in peace, if it does."""
    if refused.response.status_code != 429 and get_error_code(refused) != "ratelimited":
        return None
    headers = cast("dict[str, str]", refused.response.headers)
    given = next((headers[name] for name in headers if name.lower() == "retry-after"), "")
    return min(float(given), 600.0) if given.isdecimal() else 30.0


# Slack's clock and the database's may be apart.
_CLOCK_TOLERANCE_SECONDS = 300
_POST_PATHS = ("/chat.postMessage", "/chat.postEphemeral")


def with_message_name(message: Message, story: SlackRunView, slot: str) -> Message:
    """Return the message with its name: it is looked for if telling the story failed before."""
    run = story.run
    name = hash_canonical({"run": run.id, "requested": run.requested_at, "slot": slot})[:32]
    since = run.requested_at / 1_000_000 - _CLOCK_TOLERANCE_SECONDS if story.attempts else None
    return replace(message, name=name, search_since=since)


def build_named_blocks(message: Message) -> list[Block]:
    """Return its blocks, with its name on the first."""
    blocks = list(message.blocks)
    if message.name and blocks:
        blocks[0] = blocks[0] | {"block_id": message.name}
    return blocks


def has_message_name(slack_message: Mapping[str, Any], name: str) -> bool:
    """Return whether what Slack has in a channel is the message of that name."""
    return any(block.get("block_id") == name for block in slack_message.get("blocks") or ())


class ConnectionRetryHandler(AsyncConnectionErrorRetryHandler):
    """Tries once more when a connection breaks, as the stock one, but posts nothing twice."""

    async def can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if request.url.endswith(_POST_PATHS):
            return False
        return await super().can_retry_async(
            state=state, request=request, response=response, error=error
        )
