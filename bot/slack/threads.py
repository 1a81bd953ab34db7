"""The threads that answer people in chat: what else there is to do stands in none of their ways.

A thread of its own notes what has arrived, since Slack waits for that.
"""

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from bot.db.write_lock import urgent_write

P = ParamSpec("P")
T = TypeVar("T")

_NOTING = CapacityLimiter(1)
_ANSWERING = CapacityLimiter(4)


async def noted(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Note what has arrived, before anything is done about it, and before others write."""

    def hurried() -> T:
        with urgent_write():
            return work(*given, **named)

    return await to_thread.run_sync(hurried, limiter=_NOTING)


async def answered(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Do what somebody waits for."""
    return await to_thread.run_sync(partial(work, *given, **named), limiter=_ANSWERING)
