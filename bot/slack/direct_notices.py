"""Messages to single people, such as the handover and those of features, each sent once."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from bot.db import dedup
from bot.db.database import Database, StoreUnavailable
from bot.policy import NoPolicyError
from bot.slack.blocks import Message
from bot.slack.client import CALL_ERRORS, MessageSender, get_error_cause
from bot.slack.features import DirectNotice, ListDirectNotices
from bot.slack.run_facts import SlackRunViewBuilder

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 20


class DirectNotices:
    """Sends the notices that are due. Each is claimed, so one process sends it."""

    def __init__(
        self,
        database: Database,
        view_builder: SlackRunViewBuilder,
        sender: MessageSender,
        list_notices: Sequence[ListDirectNotices],
    ) -> None:
        self._database, self._view_builder, self._sender = database, view_builder, sender
        self._list_notices = list_notices

    async def run_until_cancelled(self) -> None:
        """Send what is due until cancelled; return at once if no feature has notices."""
        while self._list_notices:
            await self.send_due()
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def send_due(self) -> None:
        """Send each notice that was not sent yet, to people who have an account."""
        for list_notices in self._list_notices:
            # One by one: what the notices of one feature need may not be readable.
            try:
                for notice, user in await asyncio.to_thread(self._list_due, list_notices):
                    await self._send(notice, user)
            except (NoPolicyError, StoreUnavailable) as error:
                _log.warning("notices are not sent: %s", error)

    def _list_due(self, list_notices: ListDirectNotices) -> Sequence[tuple[DirectNotice, str]]:
        policy = self._view_builder.get_policy()
        with self._database.reading() as tx:
            due = list_notices(tx, policy)
        if not due:
            return []
        accounts = self._view_builder.get_person_ids_by_account()
        users = {person: user for user, person in accounts.items()}
        return [(one, users[one.person]) for one in due if one.person in users]

    async def _send(self, notice: DirectNotice, user: str) -> None:
        """Send a notice that is not sent yet. Raises StoreUnavailable."""
        key = f"notice {notice.key} {notice.person}"
        build = await asyncio.to_thread(self._claim, notice, key)
        if build is None:
            return
        message = build(self._view_builder.base_url)
        try:
            await self._sender.send_direct_message(user, message)
        except CALL_ERRORS as error:
            _log.warning("cannot send a notice to %s: %s", user, get_error_cause(error))
            await asyncio.to_thread(self._release, key)

    def _claim(self, notice: DirectNotice, key: str) -> Callable[[str], Message] | None:
        """Return what builds the message; None if it is claimed already."""
        with self._database.transaction() as tx:
            # What follows may fail: then it is not claimed.
            return notice.read(tx) if dedup.remember_first(tx, key) else None

    def _release(self, key: str) -> None:
        with self._database.transaction() as tx:
            dedup.forget_key(tx, key)
