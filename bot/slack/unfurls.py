"""Unfurl links to runs: a summary below the message that contains the link, kept up to date.

A message with a link is stored like a message of the run, and the outbox adds the summary to it.
`chat.unfurl` with the same channel and timestamp replaces what it added before.
Source: https://docs.slack.dev/reference/methods/chat.unfurl
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from slack_sdk.errors import SlackApiError

from bot.db import outbox, runs
from bot.db.database import Database, Transaction
from bot.db.outbox import PostedMessage
from bot.db.runs import NoSuchRun
from bot.model.run import State
from bot.policy import NoPolicyError
from bot.slack import routing
from bot.slack.blocks import Message, context, escape_mrkdwn, section
from bot.slack.client import MessageLocation, MessageSender, get_error_cause, is_retryable
from bot.slack.labels import build_run_label
from bot.slack.payloads import SharedLinks
from bot.slack.run_facts import SlackRunView, SlackRunViewBuilder
from bot.slack.run_message import format_approvals, format_coloured_heading
from bot.slack.run_posts import CARD, RunPosts
from bot.slack.threads import write_or_log

_log = logging.getLogger(__name__)

# The slot of an unfurl: `unfurl CHANNEL TS USER PATH`, where USER posted the link.
_UNFURL, _MAX_SLOT_LENGTH = "unfurl ", 96
# Of each run, the newest are kept up to date.
_MAX_UNFURLS = 5


def record_links(database: Database, links: SharedLinks, *, base_url: str) -> None:
    """Store the links to runs in a message, and have the outbox unfurl them.

    A link to a child run shows its parent, which is what chat shows of it.
    """
    pattern = re.compile(re.escape(base_url) + r"(/runs/(\d{1,9})(?![\w/])\S*)", re.ASCII)
    for link in filter(None, map(pattern.fullmatch, links.urls if base_url else ())):
        slot = f"{_UNFURL}{links.channel} {links.ts} {links.account.user} {link[1]}"
        if len(slot) <= _MAX_SLOT_LENGTH:
            with database.transaction() as tx:
                _store_unfurl(tx, int(link[2]), slot, links)


def _store_unfurl(tx: Transaction, number: int, slot: str, links: SharedLinks) -> None:
    try:
        run = runs.get_run(tx, number)
    except NoSuchRun:
        return
    shown = run.id if run.parent is None else run.parent
    stored = _list_unfurls(outbox.list_messages(tx, shown))
    outbox.delete_messages(tx, shown, [one.slot for one in stored[: 1 - _MAX_UNFURLS]])
    outbox.store_message(tx, PostedMessage(shown, slot, links.channel, links.ts, ""))
    outbox.announce_run(tx, shown)


class Unfurls:
    """Adds and updates the summaries of a run below messages with its link."""

    def __init__(
        self,
        database: Database,
        view_builder: SlackRunViewBuilder,
        sender: MessageSender,
        *,
        default_channel: str,
    ) -> None:
        self._database, self._view_builder, self._sender = database, view_builder, sender
        self._default_channel = default_channel

    async def update_unfurls(self, posts: RunPosts) -> None:
        """Update the unfurls that are out of date. Raises SlackApiError if Slack fails itself."""
        message = render_unfurl(posts.run_view)
        for unfurl in _list_unfurls(posts.posted):
            if unfurl.digest != message.digest:
                await self._update_unfurl(posts, unfurl, message)

    async def _update_unfurl(
        self, posts: RunPosts, unfurl: PostedMessage, message: Message
    ) -> None:
        _, _, _, user, path = unfurl.slot.split(" ", 4)
        if unfurl.channel.startswith("D"):
            is_allowed = await asyncio.to_thread(self._can_view, user, unfurl.run)
        else:
            card = posts.posted.get(CARD)
            is_allowed = routing.can_unfurl_in(
                posts.run_view,
                unfurl.channel,
                card_channel=card.channel if card else "",
                default_channel=self._default_channel,
            )
        if is_allowed and await self._try_unfurl(unfurl, path, message):
            stored = replace(unfurl, digest=message.digest)
            await write_or_log(self._database, lambda tx: outbox.store_message(tx, stored))
        else:
            await write_or_log(
                self._database,
                lambda tx: outbox.delete_messages(tx, unfurl.run, [unfurl.slot]),
            )

    def _can_view(self, user: str, run_id: int) -> bool:
        try:
            person = self._view_builder.get_person_ids_by_account().get(user)
        except NoPolicyError:
            return False
        if person is None:
            return False
        with self._database.reading(self._view_builder.get_view_rights(person)) as tx:
            try:
                runs.get_run(tx, run_id)
            except NoSuchRun:
                return False
        return True

    async def _try_unfurl(self, unfurl: PostedMessage, path: str, message: Message) -> bool:
        """Unfurl a link; return False if Slack refuses it, as after its message is deleted."""
        location = MessageLocation(unfurl.channel, unfurl.ts)
        try:
            await self._sender.unfurl_link(
                location, f"{self._view_builder.base_url}{path}", message
            )
        except SlackApiError as error:
            if is_retryable(error):
                raise
            _log.warning("cannot unfurl run %d: %s", unfurl.run, get_error_cause(error))
            return False
        return True


def _list_unfurls(posted_messages: Mapping[str, PostedMessage]) -> list[PostedMessage]:
    """Return the unfurls among the messages of a run, the oldest first."""
    unfurls = [one for slot, one in posted_messages.items() if slot.startswith(_UNFURL)]
    return sorted(unfurls, key=lambda one: one.ts)


def render_unfurl(run_view: SlackRunView) -> Message:
    """Render what a link to a run shows: request, state, host, requester and approvals."""
    run = run_view.run
    hosts = f"{run.host} and {len(run.hosts) - 1} more" if len(run.hosts) > 1 else run.host
    facts = [
        f"Run {run.id}",
        hosts,
        run_view.area_title,
        f"requested by {run_view.requester_name}",
    ]
    lines = [escape_mrkdwn(" · ".join(filter(None, facts)))]
    if run.state is State.PENDING:
        lines.append(escape_mrkdwn(build_run_label(run_view).text))
    if run_view.approvals:
        lines.append(format_approvals(run_view))
    return Message("", [section(format_coloured_heading(run_view)), *map(context, lines)])
