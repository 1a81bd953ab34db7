"""The threads that answer people in chat, so that no other work delays an answer.

One more thread records what has arrived, since Slack waits for that.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from bot.db.database import Database, StoreUnavailable, Transaction
from bot.db.write_lock import urgent_write

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_DELIVERY_LIMITER = CapacityLimiter(1)
_ANSWER_LIMITER = CapacityLimiter(4)


async def run_urgently(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run *work* in the thread that records deliveries, ahead of all other writes."""

    def run_first() -> T:
        with urgent_write():
            return work(*args, **kwargs)

    return await to_thread.run_sync(run_first, limiter=_DELIVERY_LIMITER)


async def run_in_answer_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run *work* that a person waits for."""
    return await to_thread.run_sync(partial(work, *args, **kwargs), limiter=_ANSWER_LIMITER)


async def write_or_log(database: Database, write: Callable[[Transaction], None]) -> None:
    """Write what was sent to Slack; if that fails, log it: a message may then be sent twice."""

    def in_transaction() -> None:
        with database.transaction() as tx:
            write(tx)

    try:
        await asyncio.to_thread(in_transaction)
    except StoreUnavailable as error:
        _log.warning("cannot store what was sent: %s", error)
