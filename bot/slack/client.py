"""Send messages by slack_sdk's Web API client, each of them once.

Slack has no idempotency key for posts. So each message has a name, as the id of its first block,
and before a second attempt the channel is searched for it.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar, cast

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler
from slack_sdk.http_retry.request import HttpRequest
from slack_sdk.http_retry.response import HttpResponse
from slack_sdk.http_retry.state import RetryState
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.model.canonical import hash_canonical
from bot.slack.blocks import Block, Message, View
from bot.slack.run_facts import SlackRunView

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

# What a call raises: Slack refuses it, or there is no connection to Slack.
CALL_ERRORS = (SlackClientError, ClientError, TimeoutError)
# Slack's error codes for a channel that the bot cannot post in until a person changes that.
CLOSED_CHANNEL_ERRORS = frozenset(
    {"not_in_channel", "channel_not_found", "is_archived", "restricted_action", "no_permission"}
)
GONE_MESSAGE_ERRORS = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
# Slack's error codes for people who cannot receive a direct message.
UNREACHABLE_USER_ERRORS = CLOSED_CHANNEL_ERRORS | frozenset(
    {"user_disabled", "user_not_found", "account_inactive", "cannot_dm_bot", "user_not_visible"}
)
# Slack's error codes for its own failures.
_SLACK_FAILURES = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable"}
)
_NO_EPHEMERAL_ERRORS = CLOSED_CHANNEL_ERRORS | {"user_not_in_channel", "messages_tab_disabled"}
# Slack's error codes for blocks that it does not accept.
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
_NEWER_BLOCKS = frozenset({"table"})
_MAX_PAGES, _PAGE_SIZE = 5, 200
_WEBHOOK_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class MessageLocation:
    """Channel or conversation of a message, and its timestamp."""

    channel: str
    ts: str


class MessageSender:
    """Posts, updates and finds messages. Raises SlackApiError, and what aiohttp raises."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def post_message(
        self, channel: str, message: Message, *, thread: str = ""
    ) -> MessageLocation:
        """Post a message; one that an earlier attempt has posted is updated instead."""
        if message.search_since is not None:
            found = await self._find_message(channel, message, thread)
            if found is not None:
                # The run may have changed since.
                await self.update_message(found, message)
                return found

        async def post(shown: Message) -> MessageLocation:
            posted = await self._client.chat_postMessage(
                channel=channel,
                text=shown.text,
                blocks=build_named_blocks(shown) or None,
                thread_ts=thread or None,
                parse="none",
                link_names=False,
                unfurl_links=False,
                unfurl_media=False,
            )
            return MessageLocation(posted.get("channel", channel), posted.get("ts", ""))

        return await _send_with_fallback(message, post)

    async def update_message(self, location: MessageLocation, message: Message) -> None:
        """Replace the message at *location*."""

        async def update(shown: Message) -> None:
            # An empty list removes the previous blocks.
            await self._client.chat_update(
                channel=location.channel,
                ts=location.ts,
                text=shown.text,
                blocks=build_named_blocks(shown),
                parse="none",
                link_names=False,
            )

        await _send_with_fallback(message, update)

    async def unfurl_link(self, location: MessageLocation, url: str, message: Message) -> None:
        """Show the blocks of *message* below a message that contains *url*."""
        await self._client.chat_unfurl(
            channel=location.channel,
            ts=location.ts,
            unfurls={url: {"blocks": list(message.blocks)}},
        )

    async def replace_clicked_message(self, response_url: str, message: Message) -> bool:
        """Replace the message of a click, also if only one person sees it; return whether done."""
        webhook = AsyncWebhookClient(response_url, timeout=_WEBHOOK_TIMEOUT_SECONDS)
        webhook.proxy = self._client.proxy
        answer = await webhook.send(
            text=message.text, blocks=list(message.blocks), replace_original=True
        )
        return answer.status_code == HTTPStatus.OK

    async def send_ephemeral(
        self, channel: str, user: str, message: Message, *, thread: str = ""
    ) -> str:
        """Show a message to one person, in *channel* or else directly; return its channel."""

        async def post(shown: Message) -> None:
            await self._client.chat_postEphemeral(
                channel=channel,
                user=user,
                text=shown.text,
                blocks=list(shown.blocks),
                thread_ts=thread or None,
                parse="none",
                link_names=False,
            )

        try:
            await _send_with_fallback(message, post)
        except SlackApiError as error:
            if get_error_cause(error) not in _NO_EPHEMERAL_ERRORS:
                raise
            return (await self.send_direct_message(user, message)).channel
        return channel

    async def send_direct_message(self, user: str, message: Message) -> MessageLocation:
        """Send a direct message to one person."""
        return await self.post_message(await self.open_conversation(user), message)

    async def open_conversation(self, user: str) -> str:
        """Open the direct messages with one person and return their id, D…."""
        opened = await self._client.conversations_open(users=user)
        channel: dict[str, str] = opened.get("channel") or {}
        return channel.get("id", user)

    async def upload_file(
        self, location: MessageLocation, *, name: str, title: str, content: str
    ) -> None:
        """Post a text file in the thread of a message."""
        await self._client.files_upload_v2(
            channel=location.channel,
            thread_ts=location.ts,
            filename=name,
            title=title,
            content=content,
            request_file_info=False,
        )

    async def publish_home_tab(self, user: str, view: View) -> None:
        """Replace a person's Home tab."""
        await self._client.views_publish(user_id=user, view=view)

    async def _find_message(
        self, channel: str, message: Message, thread: str
    ) -> MessageLocation | None:
        """Return the location of a posted message; None if absent or if the bot may not search."""
        cursor = ""
        for _ in range(_MAX_PAGES):
            try:
                page = await self._fetch_page(channel, thread, message.search_since or 0, cursor)
            except SlackApiError as error:
                if is_retryable(error):
                    raise
                return None
            posted = cast("list[dict[str, Any]]", page.get("messages") or [])
            if stamp := next(
                (one["ts"] for one in posted if has_message_name(one, message.name)), ""
            ):
                return MessageLocation(channel, stamp)
            metadata = cast("dict[str, str]", page.get("response_metadata") or {})
            cursor = metadata.get("next_cursor", "")
            if not cursor:
                break
        return None

    async def _fetch_page(
        self, channel: str, thread: str, since: float, cursor: str
    ) -> AsyncSlackResponse:
        oldest, next_cursor = f"{since:.6f}", cursor or None
        if thread:
            return await self._client.conversations_replies(
                channel=channel, ts=thread, oldest=oldest, limit=_PAGE_SIZE, cursor=next_cursor
            )
        return await self._client.conversations_history(
            channel=channel, oldest=oldest, limit=_PAGE_SIZE, cursor=next_cursor
        )


async def _send_with_fallback(
    message: Message, send: Callable[[Message], Awaitable[Result]]
) -> Result:
    """Send a message, without its blocks if Slack does not accept those.

    A plain text is better than no message, and than outdated buttons.
    """
    try:
        return await send(message)
    except SlackApiError as error:
        if get_error_cause(error) not in _INVALID_BLOCKS_ERRORS or not message.blocks:
            raise
        # Not every workspace takes the newer blocks.
        plain = [block for block in message.blocks if block["type"] not in _NEWER_BLOCKS]
        left = "newer blocks" if len(plain) < len(message.blocks) else "blocks"
        _log.error(
            "sent a message without its %s: Slack returned %s", left, get_error_cause(error)
        )
        if left == "newer blocks":
            return await _send_with_fallback(replace(message, blocks=plain), send)
        text = f"{message.text} {message.place}".rstrip()
        return await send(replace(message, text=text, blocks=()))


def get_error_cause(error: Exception) -> str:
    """Return Slack's error code, such as `not_in_channel`, or the kind of another failure.

    The texts of aiohttp can contain the password of a proxy.
    """
    if isinstance(error, SlackApiError):
        return _get_slack_error(error) or f"status {error.response.status_code}"
    return type(error).__name__


def is_retryable(error: SlackApiError) -> bool:
    """Return whether to retry: Slack failed itself, or limits our rate.

    Proxies in front of Slack answer with text or HTML, without an error code.
    """
    status = cast("int", error.response.status_code)
    code = _get_slack_error(error)
    return (
        get_retry_seconds(error) is not None
        or status >= 500
        or not code
        or code in _SLACK_FAILURES
    )


def is_unreachable(error: Exception) -> bool:
    """Return whether a call failed because Slack is away, and not because of what was called."""
    if isinstance(error, SlackApiError):
        return is_retryable(error) and get_retry_seconds(error) is None
    return True


def _get_slack_error(error: SlackApiError) -> str:
    body = cast("object", error.response.data)
    code = cast("dict[str, object]", body).get("error") if isinstance(body, dict) else None
    return code if isinstance(code, str) else ""


def get_retry_seconds(error: Exception) -> float | None:
    """Return how many seconds Slack asks to wait; None if it does not limit our rate."""
    if not isinstance(error, SlackApiError):
        return None
    if error.response.status_code != 429 and get_error_cause(error) != "ratelimited":
        return None
    headers = cast("dict[str, str]", error.response.headers)
    retry_after = next((headers[name] for name in headers if name.lower() == "retry-after"), "")
    return min(float(retry_after), 600.0) if retry_after.isdecimal() else 30.0


# Slack's clock and the database's may differ.
_CLOCK_TOLERANCE_SECONDS = 300
_POST_PATHS = ("/chat.postMessage", "/chat.postEphemeral")


def with_message_name(message: Message, run_view: SlackRunView, slot: str) -> Message:
    """Return the message with its name; it is searched for if a delivery has failed before."""
    run = run_view.run
    name = hash_canonical({"run": run.id, "requested": run.requested_at, "slot": slot})[:32]
    since = run.requested_at / 1_000_000 - _CLOCK_TOLERANCE_SECONDS if run_view.attempts else None
    return replace(message, name=name, search_since=since)


def build_named_blocks(message: Message) -> list[Block]:
    """Return the blocks of a message, with its name as the id of the first."""
    blocks = list(message.blocks)
    if message.name and blocks:
        blocks[0] = blocks[0] | {"block_id": message.name}
    return blocks


def has_message_name(slack_message: Mapping[str, Any], name: str) -> bool:
    """Return whether a message from a channel's history has that name."""
    return any(block.get("block_id") == name for block in slack_message.get("blocks") or ())


class ConnectionRetryHandler(AsyncConnectionErrorRetryHandler):
    """Retries once after a broken connection, as slack_sdk's own, but never repeats a post."""

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
