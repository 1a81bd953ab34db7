"""Awaiting: a caller who says so gets the answer when a run is over, or waits for people.

Nothing is held meanwhile but a place among those who wait: no thread, and no transaction.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Query, Request, Response

from bot.api.deps import ApiParts
from bot.api.idempotency import Once
from bot.api.schemas import Shape
from bot.db import runs
from bot.db.database import StoreUnavailable
from bot.model.run import ENDED_STATES, State

log = logging.getLogger(__name__)

LONGEST = 30
# Whoever comes when so many wait already is answered at once.
_MOST, _LOOKERS = 200, 4
# How often one looks, for what another process did; sooner at first, where workers are elsewhere.
_LOOK_SECONDS, _FIRST_LOOK_SECONDS = 0.5, 0.03
_WITH_PEOPLE = frozenset({State.PENDING, State.COUNTER_PROPOSED, State.UNKNOWN})
_SAID = (
    "Answer when the run is over, or waits for people, or after so many seconds; sooner where "
    "many wait already. The same request by its Idempotency-Key is not waited for again."
)

Wait = Annotated[float, Query(ge=0, le=LONGEST, description=_SAID)]


def rests(state: State) -> bool:
    """Say whether a run in this state goes no further by itself."""
    return state in ENDED_STATES or state in _WITH_PEOPLE


@dataclass(frozen=True)
class Wish:
    """What a handler leaves to be waited for. told: what to answer then, read anew."""

    run: int
    seconds: float
    told: Callable[[], Shape]


class Waiters:
    """Those who wait for runs, in the event loop of the web server."""

    def __init__(self, parts: ApiParts, *, most: int = _MOST) -> None:
        self._parts, self._most = parts, most
        self._waiting = 0
        self._lookers = CapacityLimiter(_LOOKERS)

    async def answer(self, wish: Wish) -> Shape | None:
        """Return what to answer by now; None to leave it at what was answered before."""
        if self._waiting >= self._most:
            return None
        self._waiting += 1
        try:
            told = await self._rested(wish, min(wish.seconds, self._parts.longest_wait))
            return told or await to_thread.run_sync(wish.told, limiter=self._lookers)
        except StoreUnavailable as trouble:
            # What was recorded is so, whoever cannot be told how it went on.
            log.warning("run %d is not waited for: %s", wish.run, trouble)
            return None
        finally:
            self._waiting -= 1

    async def _rested(self, wish: Wish, seconds: float) -> Shape | None:
        """Wait for it, or for as long; return what is to be told, if that was found on the way."""
        loop, resting = asyncio.get_running_loop(), asyncio.Event()
        found: list[Shape] = []
        here, few = threading.get_ident(), self._waiting <= _LOOKERS

        def hear(state: State) -> None:
            if not rests(state):
                return
            # Who moved it has all of it at hand, but more to do than to look for many. Whatever
            # it cannot look up is looked up again below, and whose trouble that is hears of it.
            with suppress(Exception):
                if few and threading.get_ident() != here:
                    found.append(wish.told())
            loop.call_soon_threadsafe(resting.set)

        end = loop.time() + seconds
        pauses = pauses_between(alone=self._parts.database.embedded)
        with self._parts.database.run_events.listen(wish.run, hear):
            # What was moved in this process is heard of, before we came too: only later one looks.
            while (left := end - loop.time()) > 0 and not self._parts.workflow.is_closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, next(pauses))):
                        await resting.wait()
                        break
                state = await to_thread.run_sync(self._state, wish.run, limiter=self._lookers)
                if rests(state):
                    break
        return found[-1] if found else None

    def _state(self, run: int) -> State:
        with self._parts.database.reading() as tx:
            return runs.get_run(tx, run).state


class Awaiting(Once):
    """A route whose handler may leave a wish. By then its answer is kept by its key."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def awaited(request: Request) -> Response:
            given = await handle(request)
            wish: Wish | None = getattr(request.state, "wish", None)
            waiters: Waiters = request.app.state.waiters
            told = None if wish is None else await waiters.answer(wish)
            return given if told is None else _instead(given, told)

        return awaited


def pauses_between(*, alone: bool) -> Iterator[float]:
    """Yield how long to wait before each look. alone: all that moves runs is in this process."""
    pause = _LOOK_SECONDS if alone else _FIRST_LOOK_SECONDS
    while True:
        yield min(pause, _LOOK_SECONDS)
        pause *= 2


def leave(request: Request, wish: Wish) -> None:
    """Have it waited for what is wished, if there is anything to wait for."""
    if wish.seconds:
        request.state.wish = wish


def write_response(told: Shape, status: int, headers: Mapping[str, str]) -> Response:
    """Return the answer as JSON with its status and headers."""
    return Response(told.model_dump_json(), status, headers, "application/json")


def _instead(given: Response, told: Shape) -> Response:
    kept = {name: given.headers[name] for name in ("location",) if name in given.headers}
    return write_response(told, given.status_code, kept)
