"""A run's stream: what moves on its page, as server-sent events, until it is over."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from bot.db import run_progress, runs
from bot.db.database import Database, StoreUnavailable
from bot.db.live_output import LiveOutput
from bot.db.run_progress import RunProgress, RunProgressPart
from bot.db.runs import NoSuchRun
from bot.model.text import escape_control
from bot.policy import NoPolicy
from bot.web.auth import Onlooking, SignedOut, Visitor, still_there
from bot.web.deps import Here, WebParts
from bot.web.fanout_chart import render_fanout, rows
from bot.web.run import Number
from bot.web.stream_slots import Full, Terms

# Lines of one look that a reader is sent in all, however many hosts speak; and of each at least.
MOST_LINES, LEAST_LINES = 400, 2
# As a position is handed back after a break, so much is told again: it may have come meanwhile.
_AGAIN = 6_000_000

News = tuple[str, Any]


@dataclass
class Watching:
    """since: up to when the reader knows what was said; 0 if nothing of it."""

    since: int = 0
    _stamp: str = ""
    _said: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _parts: dict[int, int] = field(default_factory=dict[int, int])
    _first: bool = True

    def news(self, glance: RunProgress) -> list[News]:
        """Return the events that a reader has not had yet, each with what it tells."""
        moved = glance.stamp if glance.stamp != self._stamp else ""
        self._stamp = glance.stamp
        told: list[News] = [
            ("moved", moved),
            ("parts", self._changed(glance.parts)),
            ("said", [*self._new_lines(glance.heard)]),
            ("silent", self._silent(glance.heard)),
        ]
        self._first = False
        return [(name, what) for name, what in told if what]

    @staticmethod
    def position(glance: RunProgress) -> int:
        """Return from where a reader that broke off goes on."""
        return glance.now - _AGAIN

    def _changed(self, parts: Sequence[RunProgressPart]) -> list[RunProgressPart]:
        changed = [part for part in parts if self._parts.get(part.id) != part.version]
        self._parts = {part.id: part.version for part in parts}
        return changed

    def _new_lines(self, heard: Sequence[LiveOutput]) -> Iterator[Mapping[str, Any]]:
        if self._first:
            known = [one for one in heard if one.at <= self.since]
            self._said = {(one.run, one.n): one.total for one in known}
        speaking = [one for one in heard if one.total > self._said.get((one.run, one.n), 0)]
        most = max(LEAST_LINES, MOST_LINES // max(len(speaking), 1))
        for one in speaking:
            had = self._said.get((one.run, one.n))
            fresh = one.total - (had or 0)
            lines = one.newest[-min(fresh, most) :]
            self._said[one.run, one.n] = one.total
            yield {
                "key": f"{one.run}-{one.n}",
                "host": escape_control(one.host),
                "n": one.n,
                "total": one.total,
                "anew": had is None,
                "left_out": fresh - len(lines),
                "lines": [escape_control(line) for line in lines],
            }

    def _silent(self, heard: Sequence[LiveOutput]) -> list[str]:
        """Return those of which no more is heard: what they said is with their step."""
        there = {(one.run, one.n) for one in heard}
        gone = [key for key in self._said if key not in there]
        for key in gone:
            del self._said[key]
        return [f"{run}-{n}" for run, n in gone]


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
    _kept: dict[int, tuple[float, RunProgress]] = field(
        default_factory=dict[int, tuple[float, RunProgress]]
    )
    _limiter: CapacityLimiter | None = None

    async def at(self, database: Database, number: int, fresh: float) -> RunProgress:
        """Raises NoSuchRun and StoreUnavailable. fresh: seconds that a look is good for."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(_LOOKERS)
        look = partial(self._look, database, number, fresh)
        return await to_thread.run_sync(look, limiter=self._limiter)

    def _look(self, database: Database, number: int, fresh: float) -> RunProgress:
        with self._lock:
            at, known = self._kept.get(number, (0.0, None))
        if known is not None and time.monotonic() - at < fresh / 2:
            return known
        with database.reading() as tx:
            seen = run_progress.get_run_progress(tx, number)
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
        runs.get_run(tx, number)


def _events(watching: Watching, glance: RunProgress) -> Iterator[bytes]:
    position = watching.position(glance)
    for name, told in watching.news(glance):
        if name == "parts":
            yield _event(
                name,
                {
                    "drawn": render_fanout(glance),
                    "rows": rows(told, begun=glance.whole.started is not None),
                },
                position,
            )
        else:
            yield _event(name, told, position)


def _event(name: str, told: Any, position: int | None = None) -> bytes:
    known = "" if position is None else f"id: {position}\n"
    return f"{known}event: {name}\ndata: {json.dumps(told, ensure_ascii=False)}\n\n".encode()
