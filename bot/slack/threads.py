"""The threads that answer people in chat: what else there is to do stands in none of their ways.

A thread of its own notes what has arrived, since Slack waits for that.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from bot.aside import done_in
from bot.db.write_lock import urgent_write

P = ParamSpec("P")
T = TypeVar("T")

_NOTING = ThreadPoolExecutor(1, thread_name_prefix="slack-noting")
_ANSWERING = ThreadPoolExecutor(4, thread_name_prefix="slack-answering")


async def noted(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Note what has arrived, before anything is done about it, and before others write."""

    def hurried() -> T:
        with urgent_write():
            return work(*given, **named)

    return await done_in(_NOTING, hurried)


async def answered(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Do what somebody waits for."""
    return await done_in(_ANSWERING, partial(work, *given, **named))
