"""Deliveries: what reached the Slack door before, by whichever transport and at which replica."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bot.db import dedup
from bot.db.database import Database
from bot.slack import payloads, threads
from bot.slack.request_body import Body

NOT_TAKEN = "Nothing was done: the change log cannot be written. Try again in a minute."


@dataclass(frozen=True)
class _Arrived:
    """A delivery that is yet to be written down, and where it is waited for."""

    names: Sequence[str]
    first: asyncio.Future[bool]


class Deliveries:
    """Remembers each delivery before anything is done with it.

    What arrives while the disk is busy is written down together: one commit does for all of it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._arrived: list[_Arrived] = []
        self._writing: asyncio.Task[None] | None = None

    async def first_time(self, body: Body, *, key: str) -> bool:
        """Return whether neither this delivery nor its meaning is known. Raises StoreUnavailable.

        key: names this one delivery, such as its signature.
        """
        # It changes nothing, and whoever types the same twice in a second asks the same twice.
        if body.get("type") == "block_suggestion":
            return True
        first = asyncio.get_running_loop().create_future()
        self._arrived.append(_Arrived(_names(key, payloads.meaning(body)), first))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_down())
        return await first

    async def _write_down(self) -> None:
        while self._arrived:
            together, self._arrived = self._arrived, []
            try:
                firsts = await threads.noted(self._remember, together)
            except Exception as trouble:  # noqa: BLE001 - whoever waits is told
                _tell(together, trouble)
            else:
                for one, is_first in zip(together, firsts, strict=True):
                    if not one.first.done():
                        one.first.set_result(is_first)

    def _remember(self, together: Sequence[_Arrived]) -> list[bool]:
        names = [name for one in together for name in one.names]
        with self._database.transaction() as tx:
            # By one statement: for each, a thread that is not the loop's would wait its turn.
            new = dedup.remember_first_of(tx, names)
        return [_claimed(new, one.names) for one in together]


def _names(key: str, meaning: str) -> Sequence[str]:
    """Return by what a delivery is known: itself, and what it means if it says that."""
    digest = hashlib.sha256(meaning.encode()).hexdigest()
    return [f"slack {key}", *([f"slack meaning {digest}"] if meaning else [])]


def _claimed(new: set[str], names: Sequence[str]) -> bool:
    """Return whether all of a delivery is new, and have it new for nobody else."""
    is_first = new.issuperset(names)
    new.difference_update(names)
    return is_first


def _tell(together: Sequence[_Arrived], trouble: Exception) -> None:
    for one in together:
        if not one.first.done():
            one.first.set_exception(trouble)
