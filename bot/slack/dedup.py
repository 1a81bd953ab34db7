"""Deliveries: what reached the Slack door before, by whichever transport and at which replica."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bot.db import dedup
from bot.db.database import Database
from bot.slack import payloads, threads
from bot.slack.request_body import Body

STORE_UNAVAILABLE_MESSAGE = (
    "Nothing was done: the change log cannot be written. Try again in a minute."
)


@dataclass(frozen=True)
class _PendingDelivery:
    """A delivery that is yet to be written down, and where it is waited for."""

    keys: Sequence[str]
    is_first: asyncio.Future[bool]


class DeliveryRegister:
    """Remembers each delivery before anything is done with it.

    What arrives while the disk is busy is written down together: one commit does for all of it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: list[_PendingDelivery] = []
        self._write_task: asyncio.Task[None] | None = None

    async def is_first_delivery(self, body: Body, *, key: str) -> bool:
        """Return whether neither this delivery nor its meaning is known. Raises StoreUnavailable.

        key: names this one delivery, such as its signature.
        """
        # It changes nothing, and whoever types the same twice in a second asks the same twice.
        if body.get("type") == "block_suggestion":
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
            together, self._pending = self._pending, []
            try:
                firsts = await threads.run_urgently(self._store_deliveries, together)
            except Exception as trouble:  # noqa: BLE001 - whoever waits is told
                _fail_deliveries(together, trouble)
            else:
                for one, is_first in zip(together, firsts, strict=True):
                    if not one.is_first.done():
                        one.is_first.set_result(is_first)

    def _store_deliveries(self, deliveries: Sequence[_PendingDelivery]) -> list[bool]:
        names = [name for one in deliveries for name in one.keys]
        with self._database.transaction() as tx:
            # By one statement: for each, a thread that is not the loop's would wait its turn.
            new = dedup.remember_first_of(tx, names)
        return [_claim_keys(new, one.keys) for one in deliveries]


def _build_keys(key: str, deduplication_key: str) -> Sequence[str]:
    """Return by what a delivery is known: itself, and what it means if it says that."""
    digest = hashlib.sha256(deduplication_key.encode()).hexdigest()
    return [f"slack {key}", *([f"slack meaning {digest}"] if deduplication_key else [])]


def _claim_keys(new_keys: set[str], keys: Sequence[str]) -> bool:
    """Return whether all of a delivery is new, and have it new for nobody else."""
    is_first = new_keys.issuperset(keys)
    new_keys.difference_update(keys)
    return is_first


def _fail_deliveries(deliveries: Sequence[_PendingDelivery], trouble: Exception) -> None:
    for one in deliveries:
        if not one.is_first.done():
            one.is_first.set_exception(trouble)
