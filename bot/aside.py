"""Aside: what waits for the database is done in a thread of a pool, a step from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def done_in(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Have a thread do it, in the context of whoever waits for it here."""
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, work)
