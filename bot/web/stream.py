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
from bot.policy import NoPolicyError
from bot.web.auth import NotSignedInError, PassiveVisitor, Visitor, check_still_signed_in
from bot.web.deps import WebDependencies, WebDeps
from bot.web.fanout_chart import render_fanout, render_host_rows
from bot.web.run import RunIdPath
from bot.web.stream_slots import NoFreeSlotError, StreamLimits

# Lines of one look that a reader is sent in all, however many hosts speak; and of each at least.
MOST_LINES, LEAST_LINES = 400, 2
# As a position is handed back after a break, so much is told again: it may have come meanwhile.
_REPLAY_MICROSECONDS = 6_000_000

StreamEvent = tuple[str, Any]


@dataclass
class StreamReader:
    """since: up to when the reader knows what was said; 0 if nothing of it."""

    since: int = 0
    _last_stamp: str = ""
    _sent_lines: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _sent_versions: dict[int, int] = field(default_factory=dict[int, int])
    _is_first: bool = True

    def list_new_events(self, progress: RunProgress) -> list[StreamEvent]:
        """Return the events that a reader has not had yet, each with what it tells."""
        moved = progress.stamp if progress.stamp != self._last_stamp else ""
        self._last_stamp = progress.stamp
        told: list[StreamEvent] = [
            ("moved", moved),
            ("parts", self._list_changed_children(progress.parts)),
            ("said", [*self._iterate_new_lines(progress.heard)]),
            ("silent", self._remove_finished_outputs(progress.heard)),
        ]
        self._is_first = False
        return [(name, what) for name, what in told if what]

    @staticmethod
    def get_resume_position(progress: RunProgress) -> int:
        """Return from where a reader that broke off goes on."""
        return progress.now - _REPLAY_MICROSECONDS

    def _list_changed_children(
        self, child_runs: Sequence[RunProgressPart]
    ) -> list[RunProgressPart]:
        changed = [part for part in child_runs if self._sent_versions.get(part.id) != part.version]
        self._sent_versions = {part.id: part.version for part in child_runs}
        return changed

    def _iterate_new_lines(
        self, live_outputs: Sequence[LiveOutput]
    ) -> Iterator[Mapping[str, Any]]:
        if self._is_first:
            known = [one for one in live_outputs if one.at <= self.since]
            self._sent_lines = {(one.run, one.n): one.total for one in known}
        speaking = [
            one for one in live_outputs if one.total > self._sent_lines.get((one.run, one.n), 0)
        ]
        most = max(LEAST_LINES, MOST_LINES // max(len(speaking), 1))
        for one in speaking:
            had = self._sent_lines.get((one.run, one.n))
            fresh = one.total - (had or 0)
            lines = one.newest[-min(fresh, most) :]
            self._sent_lines[one.run, one.n] = one.total
            yield {
                "key": f"{one.run}-{one.n}",
                "host": escape_control(one.host),
                "n": one.n,
                "total": one.total,
                "anew": had is None,
                "left_out": fresh - len(lines),
                "lines": [escape_control(line) for line in lines],
            }

    def _remove_finished_outputs(self, live_outputs: Sequence[LiveOutput]) -> list[str]:
        """Return those of which no more is heard: what they said is with their step."""
        there = {(one.run, one.n) for one in live_outputs}
        gone = [key for key in self._sent_lines if key not in there]
        for key in gone:
            del self._sent_lines[key]
        return [f"{run}-{n}" for run, n in gone]


router = APIRouter(prefix="/runs/{number}")

# So many threads at once look at the database for all who watch: pages find others free.
_MAX_READER_THREADS = 2
_GONE, _FULL, _OVER = "gone", "full", "over"

PositionQuery = Annotated[int, Query(ge=0, le=2**62)]


@router.get("/stream")
async def stream_run(
    request: Request,
    parts: WebDeps,
    visitor: PassiveVisitor,
    number: RunIdPath,
    after: PositionQuery = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Tell what moves. after, or the header Last-Event-ID: from where to go on after a break."""
    known = last_event_id[:20]
    since = int(known) if known.isascii() and known.isdecimal() else after
    looks: ProgressCache = request.app.state.looks
    await to_thread.run_sync(_require_view, parts, visitor, number)
    await looks.get_progress(parts.database, number, parts.stream_slots.limits.poll_seconds)
    if request.scope.get("head"):
        return Response(media_type=EventStreamResponse.media_type)
    told = _stream_in_slot(request, parts, visitor, number, since=since)
    return EventStreamResponse(told, parts.stream_slots.limits)


class EventStreamResponse(StreamingResponse):
    """Server-sent events to one reader, who is given up when nothing gets through to them."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], limits: StreamLimits) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})
        self._events, self._limits = events, limits

    async def stream_response(self, send: Send) -> None:
        async def patiently(message: Message) -> None:
            async with asyncio.timeout(self._limits.send_timeout_seconds):
                await send(message)

        async with aclosing(self._events):
            try:
                await super().stream_response(patiently)
            except TimeoutError:
                return


@dataclass
class ProgressCache:
    """The newest look at each run that somebody watches: all of them share it."""

    _lock: Lock = field(default_factory=Lock)
    _cached: dict[int, tuple[float, RunProgress]] = field(
        default_factory=dict[int, tuple[float, RunProgress]]
    )
    _limiter: CapacityLimiter | None = None

    async def get_progress(self, database: Database, run_id: int, max_age: float) -> RunProgress:
        """Raises NoSuchRun and StoreUnavailable. fresh: seconds that a look is good for."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(_MAX_READER_THREADS)
        look = partial(self._read_progress, database, run_id, max_age)
        return await to_thread.run_sync(look, limiter=self._limiter)

    def _read_progress(self, database: Database, run_id: int, max_age: float) -> RunProgress:
        with self._lock:
            at, known = self._cached.get(run_id, (0.0, None))
        if known is not None and time.monotonic() - at < max_age / 2:
            return known
        with database.reading() as tx:
            seen = run_progress.get_run_progress(tx, run_id)
        now = time.monotonic()
        with self._lock:
            self._cached = {
                n: kept for n, kept in self._cached.items() if now - kept[0] < 2 * max_age
            }
            self._cached[run_id] = (now, seen)
        return seen


async def _stream_in_slot(
    request: Request, parts: WebDependencies, visitor: Visitor, run_id: int, *, since: int
) -> AsyncGenerator[bytes]:
    try:
        with parts.stream_slots.take_slot(visitor.id):
            yield b"retry: 3000\n\n"
            async with aclosing(
                _stream_events(request, parts, run_id, StreamReader(since))
            ) as news:
                async for told in news:
                    yield told
    except NoFreeSlotError:
        yield _encode_event(_FULL, "")


async def _stream_events(
    request: Request, parts: WebDependencies, run_id: int, reader: StreamReader
) -> AsyncGenerator[bytes]:
    terms = parts.stream_slots.limits
    looks: ProgressCache = request.app.state.looks
    clock = asyncio.get_running_loop().time
    begun = checked = beaten = clock()
    while not parts.workflow.is_closing and clock() - begun < terms.max_seconds:
        try:
            if clock() - checked >= terms.session_check_seconds:
                checked = clock()
                if not await _can_still_view(request, parts, run_id):
                    yield _encode_event(_GONE, "")
                    return
            glance = await looks.get_progress(parts.database, run_id, terms.poll_seconds)
        except (StoreUnavailable, NoPolicyError):
            return
        for told in await to_thread.run_sync(
            lambda look=glance: [*_encode_new_events(reader, look)]
        ):
            beaten = clock()
            yield told
        if glance.whole.is_ended:
            yield _encode_event(_OVER, "")
            return
        if clock() - beaten >= terms.keepalive_seconds:
            beaten = clock()
            yield b": still here\n\n"
        await asyncio.sleep(terms.poll_seconds)


async def _can_still_view(request: Request, parts: WebDependencies, run_id: int) -> bool:
    """Say whether the reader is still signed in, among the people, and may still view the run."""

    def look() -> None:
        _require_view(parts, check_still_signed_in(request, parts), run_id)

    try:
        await to_thread.run_sync(look)
    except (NotSignedInError, NoSuchRun):
        return False
    return True


def _require_view(parts: WebDependencies, visitor: Visitor, run_id: int) -> None:
    """Raise NoSuchRun unless the visitor may view it: looks are shared by all who watch."""
    with parts.database.reading(visitor.view_rights) as tx:
        runs.get_run(tx, run_id)


def _encode_new_events(reader: StreamReader, progress: RunProgress) -> Iterator[bytes]:
    position = reader.get_resume_position(progress)
    for name, told in reader.list_new_events(progress):
        if name == "parts":
            yield _encode_event(
                name,
                {
                    "drawn": render_fanout(progress),
                    "rows": render_host_rows(
                        told, has_started=progress.whole.started_at is not None
                    ),
                },
                position,
            )
        else:
            yield _encode_event(name, told, position)


def _encode_event(name: str, data: Any, position: int | None = None) -> bytes:
    known = "" if position is None else f"id: {position}\n"
    return f"{known}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
