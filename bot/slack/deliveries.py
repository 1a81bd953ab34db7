"""Deliveries: what reached the Slack door before, by whichever transport and at which replica."""

import asyncio
import hashlib

from bot.slack import payloads
from bot.slack.body import Body
from bot.store import seen
from bot.store.database import Database

NOT_TAKEN = "Nothing was done: the change log cannot be written. Try again in a minute."


class Deliveries:
    """Remembers each delivery before anything is done with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def first_time(self, body: Body, *, key: str) -> bool:
        """Return whether neither this delivery nor its meaning is known. Raises StoreUnavailable.

        key: names this one delivery, such as its signature.
        """
        # It changes nothing, and whoever types the same twice in a second asks the same twice.
        if body.get("type") == "block_suggestion":
            return True
        return await asyncio.to_thread(self._remember, f"slack {key}", payloads.meaning(body))

    def _remember(self, key: str, meaning: str) -> bool:
        with self._database.transaction() as tx:
            if not seen.first_time(tx, key):
                return False
            if not meaning:
                return True
            return seen.first_time(
                tx, f"slack meaning {hashlib.sha256(meaning.encode()).hexdigest()}"
            )
