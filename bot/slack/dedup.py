"""Deduplicate what Slack delivers, across transports and replicas."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bot.db import dedup
from bot.db.database import Database
from bot.slack import payloads, threads
from bot.slack.payloads import Body

STORE_UNAVAILABLE_MESSAGE = (
    "Nothing was done: the change log cannot be written. Try again in a minute."
)


@dataclass(frozen=True)
class _PendingDelivery:
    """A delivery that is not yet stored, and the future that waits for it."""

    keys: Sequence[str]
    is_first: asyncio.Future[bool]


class DeliveryRegister:
    """Stores each delivery before it is handled.

    Deliveries that arrive while the disk is busy are stored together, in one commit.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: list[_PendingDelivery] = []
        self._write_task: asyncio.Task[None] | None = None

    async def is_first_delivery(self, body: Body, *, key: str) -> bool:
        """Return whether this delivery and its meaning are new. Raises StoreUnavailable.

        key: identifies this one delivery, such as its signature.
        """
        # It changes nothing, and a person may type the same text twice in a second.
        if body.get("type") == "block_suggestion" or payloads.is_for_no_one(body):
            return True
        first = asyncio.get_running_loop().create_future()
        self._pending.append(
            _PendingDelivery(_build_keys(key, payloads.build_deduplication_key(body)), first)
        )
        if self._write_task is None or self._write_task.done():
            self._write_task = asyncio.create_task(self._write_pending())
        return await first

    async def _write_pending(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                firsts = await threads.run_urgently(self._store_deliveries, batch)
            except Exception as error:  # noqa: BLE001 - passed on to those who wait
                _fail_deliveries(batch, error)
            else:
                for one, is_first in zip(batch, firsts, strict=True):
                    if not one.is_first.done():
                        one.is_first.set_result(is_first)

    def _store_deliveries(self, deliveries: Sequence[_PendingDelivery]) -> list[bool]:
        names = [name for one in deliveries for name in one.keys]
        with self._database.transaction() as tx:
            # One statement for all: this thread waits its turn for each statement.
            new = dedup.remember_first_of(tx, names)
        return [_claim_keys(new, one.keys) for one in deliveries]


def _build_keys(key: str, deduplication_key: str) -> Sequence[str]:
    """Return the keys of a delivery: its own, and that of its meaning if it has one."""
    digest = hashlib.sha256(deduplication_key.encode()).hexdigest()
    return [f"slack {key}", *([f"slack meaning {digest}"] if deduplication_key else [])]


def _claim_keys(new_keys: set[str], keys: Sequence[str]) -> bool:
    """Return whether all keys of a delivery are new, and remove them from the new ones."""
    is_first = new_keys.issuperset(keys)
    new_keys.difference_update(keys)
    return is_first


def _fail_deliveries(deliveries: Sequence[_PendingDelivery], error: Exception) -> None:
    for one in deliveries:
        if not one.is_first.done():
            one.is_first.set_exception(error)
