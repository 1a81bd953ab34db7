"""The voice: says things in Slack, with every automatism of Slack's switched off."""

from dataclasses import dataclass, replace
from typing import Any, cast

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.slack.blocks import Message, View
from bot.slack.echo import bears, marked

# Slack's words for a place that we cannot speak in, and that only people can open to us.
CLOSED_PLACES = frozenset(
    {"not_in_channel", "channel_not_found", "is_archived", "restricted_action", "no_permission"}
)
GONE_MESSAGES = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
_NOT_FOR_THEM_THERE = CLOSED_PLACES | {"user_not_in_channel", "messages_tab_disabled"}
_BAD_BLOCKS = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long"}
)
_PAGES, _ON_A_PAGE = 5, 200


@dataclass(frozen=True)
class Place:
    """Where a message stands: a channel or a conversation, and the message's time stamp."""

    channel: str
    ts: str


class Voice:
    """Raises SlackApiError, and what aiohttp raises."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def post(self, channel: str, message: Message, *, thread: str = "") -> Place:
        """Post it, unless it may be there already and is found."""
        if message.posted_since is not None:
            found = await self._found(channel, message, thread)
            if found is not None:
                return found
        try:
            return await self._post(channel, message, thread)
        except SlackApiError as refused:
            if error_of(refused) not in _BAD_BLOCKS:
                raise
            # A message that looks poor is better than none.
            return await self._post(channel, replace(message, blocks=()), thread)

    async def update(self, place: Place, message: Message) -> None:
        await self._client.chat_update(
            channel=place.channel,
            ts=place.ts,
            text=message.text,
            blocks=list(message.blocks),
            parse="none",
            link_names=False,
        )

    async def whisper(self, channel: str, user: str, message: Message, *, thread: str = "") -> str:
        """Tell one person, there if possible, else directly. Returns where it was said."""
        try:
            await self._client.chat_postEphemeral(
                channel=channel,
                user=user,
                text=message.text,
                blocks=list(message.blocks),
                thread_ts=thread or None,
                parse="none",
                link_names=False,
            )
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

    async def _found(self, channel: str, message: Message, thread: str) -> Place | None:
        """Return where the message stands, None if it is not there or we may not look."""
        cursor = ""
        for _ in range(_PAGES):
            try:
                page = await self._page(channel, thread, message.posted_since or 0, cursor)
            except SlackApiError as refused:
                if retry_after(refused) is not None or refused.response.status_code >= 500:
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


def error_of(refused: SlackApiError) -> str:
    """Return Slack's word for what is wrong, such as `not_in_channel`."""
    return str(cast("object", refused.response.get("error", "")))


def retry_after(refused: SlackApiError) -> float | None:
    """Return the seconds that Slack wants to be left in peace, if it does."""
    if refused.response.status_code != 429 and error_of(refused) != "ratelimited":
        return None
    headers = cast("dict[str, str]", refused.response.headers)
    given = next((headers[name] for name in headers if name.lower() == "retry-after"), "")
    return min(float(given), 600.0) if given.isdecimal() else 30.0
