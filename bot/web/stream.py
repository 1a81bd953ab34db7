"""A run's stream: what moves on its page, as server-sent events, until it is over."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from bot.policy import NoPolicy
from bot.store import glances, runs
from bot.store.database import Database, StoreUnavailable
from bot.store.glances import Glance
from bot.store.runs import NoSuchRun
from bot.web.fan import drawn, rows
from bot.web.parts import Here, WebParts
from bot.web.run_page import Number
from bot.web.seats import Full, Terms
from bot.web.visitor import Onlooking, SignedOut, Visitor, still_there
from bot.web.watching import Watching

router = APIRouter(prefix="/runs/{number}")

# So many threads at once look at the database for all who watch: pages find others free.
_LOOKERS = 2
_GONE, _FULL, _OVER = "gone", "full", "over"

Position = Annotated[int, Query(ge=0, le=2**62)]


@router.get("/stream")
async def stream(
    request: Request,
    parts: Here,
    visitor: Onlooking,
    number: Number,
    after: Position = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Tell what moves. after, or the header Last-Event-ID: from where to go on after a break."""
    known = last_event_id[:20]
    since = int(known) if known.isascii() and known.isdecimal() else after
    looks: Looks = request.app.state.looks
    await to_thread.run_sync(_require_view, parts, visitor, number)
    await looks.at(parts.database, number, parts.seats.terms.look)
    if request.scope.get("head"):
        return Response(media_type=Events.media_type)
    told = _told(request, parts, visitor, number, since=since)
    return Events(told, parts.seats.terms)


class Events(StreamingResponse):
    """Server-sent events to one reader, who is given up when nothing gets through to them."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], terms: Terms) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})
        self._events, self._terms = events, terms

    async def stream_response(self, send: Send) -> None:
        async def patiently(message: Message) -> None:
            async with asyncio.timeout(self._terms.patience):
                await send(message)

        async with aclosing(self._events):
            try:
                await super().stream_response(patiently)
            except TimeoutError:
                return


@dataclass
class Looks:
    """The newest look at each run that somebody watches: all of them share it."""

    _lock: Lock = field(default_factory=Lock)
    _kept: dict[int, tuple[float, Glance]] = field(default_factory=dict[int, tuple[float, Glance]])
    _limiter: CapacityLimiter | None = None

    async def at(self, database: Database, number: int, fresh: float) -> Glance:
        """Raises NoSuchRun and StoreUnavailable. fresh: seconds that a look is good for."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(_LOOKERS)
        look = partial(self._look, database, number, fresh)
        return await to_thread.run_sync(look, limiter=self._limiter)

    def _look(self, database: Database, number: int, fresh: float) -> Glance:
        with self._lock:
            at, known = self._kept.get(number, (0.0, None))
        if known is not None and time.monotonic() - at < fresh / 2:
            return known
        with database.reading() as tx:
            seen = glances.of_run(tx, number)
        now = time.monotonic()
        with self._lock:
            self._kept = {n: kept for n, kept in self._kept.items() if now - kept[0] < 2 * fresh}
            self._kept[number] = (now, seen)
        return seen


async def _told(
    request: Request, parts: WebParts, visitor: Visitor, number: int, *, since: int
) -> AsyncGenerator[bytes]:
    try:
        with parts.seats.taken(visitor.id):
            yield b"retry: 3000\n\n"
            async with aclosing(_news(request, parts, number, Watching(since))) as news:
                async for told in news:
                    yield told
    except Full:
        yield _event(_FULL, "")


async def _news(
    request: Request, parts: WebParts, number: int, watching: Watching
) -> AsyncGenerator[bytes]:
    terms, looks = parts.seats.terms, request.app.state.looks
    clock = asyncio.get_running_loop().time
    begun = checked = beaten = clock()
    while not parts.workflow.closing and clock() - begun < terms.longest:
        try:
            if clock() - checked >= terms.check:
                checked = clock()
                if not await _there(request, parts, number):
                    yield _event(_GONE, "")
                    return
            glance = await looks.at(parts.database, number, terms.look)
        except (StoreUnavailable, NoPolicy):
            return
        for told in await to_thread.run_sync(lambda look=glance: [*_events(watching, look)]):
            beaten = clock()
            yield told
        if glance.whole.over:
            yield _event(_OVER, "")
            return
        if clock() - beaten >= terms.beat:
            beaten = clock()
            yield b": still here\n\n"
        await asyncio.sleep(terms.look)


async def _there(request: Request, parts: WebParts, number: int) -> bool:
    """Say whether the reader is still signed in, among the people, and may still view the run."""

    def look() -> None:
        _require_view(parts, still_there(request, parts), number)

    try:
        await to_thread.run_sync(look)
    except (SignedOut, NoSuchRun):
        return False
    return True


def _require_view(parts: WebParts, visitor: Visitor, number: int) -> None:
    """Raise NoSuchRun unless the visitor may view it: looks are shared by all who watch."""
    with parts.database.reading(visitor.sight) as tx:
        runs.get(tx, number)


def _events(watching: Watching, glance: Glance) -> Iterator[bytes]:
    position = watching.position(glance)
    for name, told in watching.news(glance):
        if name == "parts":
            yield _event(
                name,
                {
                    "drawn": drawn(glance),
                    "rows": rows(told, begun=glance.whole.started is not None),
                },
                position,
            )
        else:
            yield _event(name, told, position)


def _event(name: str, told: Any, position: int | None = None) -> bytes:
    known = "" if position is None else f"id: {position}\n"
    return f"{known}event: {name}\ndata: {json.dumps(told, ensure_ascii=False)}\n\n".encode()
