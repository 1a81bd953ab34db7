"""Live updates of lists, and of the page of a run until it ends, as server-sent events."""

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
from bot.web.auth import NotSignedInError, PassiveUser, User, check_still_signed_in
from bot.web.change_feed import ChangeFeed, Follower
from bot.web.deps import WebDependencies, WebDeps
from bot.web.fanout_chart import render_fanout, render_host_rows
from bot.web.stream_slots import NoFreeSlotError, StreamLimits
from bot.web.terminal_text import remove_escape_sequences
from bot.web.visit import IdPath

# Lines sent per poll in total, and at least per host.
MAX_LINES, MIN_LINES_PER_HOST = 400, 2
# After a reconnect, output of this long before the position is sent again so that none is lost.
_REPLAY_MICROSECONDS = 6_000_000

StreamEvent = tuple[str, Any]


@dataclass
class StreamReader:
    """What one reader has received so far."""

    since: int = 0
    """Time up to which the reader has received output, in microseconds; 0 for none."""
    _last_stamp: str = ""
    _sent_lines: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _sent_versions: dict[int, int] = field(default_factory=dict[int, int])
    _is_first: bool = True

    def list_new_events(self, progress: RunProgress) -> list[StreamEvent]:
        """Return the events that the reader has not received yet, each with its data."""
        stamp = progress.stamp if progress.stamp != self._last_stamp else ""
        self._last_stamp = progress.stamp
        events: list[StreamEvent] = [
            ("updated", stamp),
            ("children", self._list_changed_children(progress.children)),
            ("output", [*self._iterate_new_lines(progress.live_outputs)]),
            ("output_ended", self._remove_finished_outputs(progress.live_outputs)),
        ]
        self._is_first = False
        return [(name, data) for name, data in events if data]

    @staticmethod
    def get_resume_position(progress: RunProgress) -> int:
        """Return the position from which a reader continues after a reconnect."""
        return progress.now - _REPLAY_MICROSECONDS

    def _list_changed_children(
        self, child_runs: Sequence[RunProgressPart]
    ) -> list[RunProgressPart]:
        changed = [
            child for child in child_runs if self._sent_versions.get(child.id) != child.version
        ]
        self._sent_versions = {child.id: child.version for child in child_runs}
        return changed

    def _iterate_new_lines(
        self, live_outputs: Sequence[LiveOutput]
    ) -> Iterator[Mapping[str, Any]]:
        if self._is_first:
            received = [one for one in live_outputs if one.at <= self.since]
            self._sent_lines = {(one.run, one.n): one.total for one in received}
        active = [
            one for one in live_outputs if one.total > self._sent_lines.get((one.run, one.n), 0)
        ]
        limit = max(MIN_LINES_PER_HOST, MAX_LINES // max(len(active), 1))
        for one in active:
            sent = self._sent_lines.get((one.run, one.n))
            new_count = one.total - (sent or 0)
            lines = one.newest[-min(new_count, limit) :]
            self._sent_lines[one.run, one.n] = one.total
            yield {
                "key": f"{one.run}-{one.n}",
                "host": escape_control(one.host),
                "n": one.n,
                "total": one.total,
                "is_new": sent is None,
                "omitted": new_count - len(lines),
                "lines": [escape_control(remove_escape_sequences(line)) for line in lines],
            }

    def _remove_finished_outputs(self, live_outputs: Sequence[LiveOutput]) -> list[str]:
        """Return the keys of outputs that have ended; the full output is now with the step."""
        current = {(one.run, one.n) for one in live_outputs}
        ended = [key for key in self._sent_lines if key not in current]
        for key in ended:
            del self._sent_lines[key]
        return [f"{run}-{n}" for run, n in ended]


router = APIRouter()

# Threads that poll the database for all readers. The limit keeps threads free for pages.
_MAX_READER_THREADS = 2
_ACCESS_ENDED, _NO_SLOT, _RUN_ENDED = "access_ended", "no_slot", "run_ended"

_NO_SLOT_SENTENCE = (
    "Too many pages are open, so this one does not update by itself: close others, or reload it."
)

PositionQuery = Annotated[int, Query(ge=0, le=2**62)]


@router.get("/stream")
async def stream_changes(request: Request, deps: WebDeps, user: PassiveUser) -> Response:
    """Stream that lists may have changed, with the number of runs that await the reader."""
    feed: ChangeFeed = request.app.state.change_feed
    reader = _ChangeReader(feed, Follower(user.id, user.session_token))
    pause = 4 * deps.stream_slots.limits.poll_seconds
    return _respond_with_stream(request, deps, _stream_changes(deps, user, reader, pause))


@dataclass
class _ChangeReader:
    """What one reader of the stream of changes has received so far."""

    feed: ChangeFeed
    follower: Follower
    has_ended: bool = False
    _sent: tuple[str, int] = ("", 0)

    async def read_events(self) -> list[bytes]:
        """Return the event that is new, if any. Raises NotSignedInError."""
        state, person = await self.feed.read(self.follower), self.follower.person
        if self.follower.session not in state.signed_in:
            raise NotSignedInError("Your session has expired.")
        current = state.stamps[person], state.waiting[person]
        if current == self._sent:
            return []
        self._sent = current
        data = {"waiting": current[1], "within": state.reload_seconds}
        return [_encode_event("changed", data)]


async def _stream_changes(
    deps: WebDependencies, user: User, reader: _ChangeReader, pause: float
) -> AsyncGenerator[bytes]:
    with reader.feed.follow(reader.follower):
        async with aclosing(_stream_events(deps, user, reader, reader.feed, pause)) as events:
            async for event in events:
                yield event


@router.get("/runs/{number}/stream")
async def stream_run(
    request: Request,
    deps: WebDeps,
    user: PassiveUser,
    number: IdPath,
    after: PositionQuery = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Stream updates of a run.

    After a reconnect, the position comes in *after* or in the header Last-Event-ID.
    """
    position = last_event_id[:20]
    since = int(position) if position.isascii() and position.isdecimal() else after
    cache: ProgressCache = request.app.state.progress_cache
    await to_thread.run_sync(_require_view, deps, user, number)
    await cache.get_progress(deps.database, number, deps.stream_slots.limits.poll_seconds)
    reader = _RunReader(request, deps, number, StreamReader(since))
    pause = deps.stream_slots.limits.poll_seconds
    feed: ChangeFeed = request.app.state.change_feed
    return _respond_with_stream(request, deps, _stream_events(deps, user, reader, feed, pause))


def _respond_with_stream(
    request: Request, deps: WebDependencies, events: AsyncGenerator[bytes]
) -> Response:
    if request.scope.get("head"):
        return Response(media_type=EventStreamResponse.media_type)
    return EventStreamResponse(events, deps.stream_slots.limits)


class EventStreamResponse(StreamingResponse):
    """Server-sent events to one reader; ends if the reader does not receive them in time."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], limits: StreamLimits) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})
        self._events, self._limits = events, limits

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._limits.send_timeout_seconds):
                await send(message)

        async with aclosing(self._events):
            try:
                await super().stream_response(send_in_time)
            except TimeoutError:
                return


@dataclass
class ProgressCache:
    """The latest progress of each watched run, shared by all readers of the run."""

    _lock: Lock = field(default_factory=Lock)
    _cached: dict[int, tuple[float, RunProgress]] = field(
        default_factory=dict[int, tuple[float, RunProgress]]
    )
    _limiter: CapacityLimiter | None = None

    async def get_progress(self, database: Database, run_id: int, max_age: float) -> RunProgress:
        """Return the progress of a run, at most *max_age* seconds old.

        Raises:
            NoSuchRun: There is no such run.
            StoreUnavailable: The database does not respond.
        """
        if self._limiter is None:
            self._limiter = CapacityLimiter(_MAX_READER_THREADS)
        read = partial(self._read_progress, database, run_id, max_age)
        return await to_thread.run_sync(read, limiter=self._limiter)

    def _read_progress(self, database: Database, run_id: int, max_age: float) -> RunProgress:
        with self._lock:
            read_at, cached = self._cached.get(run_id, (0.0, None))
        if cached is not None and time.monotonic() - read_at < max_age / 2:
            return cached
        with database.reading() as tx:
            progress = run_progress.get_run_progress(tx, run_id)
        now = time.monotonic()
        with self._lock:
            self._cached = {
                n: entry for n, entry in self._cached.items() if now - entry[0] < 2 * max_age
            }
            self._cached[run_id] = (now, progress)
        return progress


@dataclass
class _RunReader:
    """What one reader of the stream of a run has received so far."""

    request: Request
    deps: WebDependencies
    run_id: int
    received: StreamReader
    has_ended: bool = False
    _checked_at: float = field(default_factory=time.monotonic)

    async def read_events(self) -> list[bytes]:
        """Return the new events. Raises NotSignedInError, and NoSuchRun for a run out of view."""
        limits = self.deps.stream_slots.limits
        if time.monotonic() - self._checked_at >= limits.session_check_seconds:
            self._checked_at = time.monotonic()
            await to_thread.run_sync(self._check_access)
        cache: ProgressCache = self.request.app.state.progress_cache
        progress = await cache.get_progress(self.deps.database, self.run_id, limits.poll_seconds)
        self.has_ended = progress.run.is_ended
        events = await to_thread.run_sync(_encode_new_events, self.received, progress)
        return [*events, *([_encode_event(_RUN_ENDED, "")] if self.has_ended else [])]

    def _check_access(self) -> None:
        _require_view(self.deps, check_still_signed_in(self.request), self.run_id)


async def _wait(ends: asyncio.Future[Exception], pause: float) -> None:
    """Wait until the next read; raise as soon as the page has to end."""
    await asyncio.wait([ends], timeout=pause)
    if ends.done():
        raise ends.result()


async def _stream_events(
    deps: WebDependencies,
    user: User,
    reader: _ChangeReader | _RunReader,
    feed: ChangeFeed,
    pause: float,
) -> AsyncGenerator[bytes]:
    """Yield the events of a reader until they end. pause: seconds between two reads."""
    limits, clock = deps.stream_slots.limits, asyncio.get_running_loop().time
    started_at = sent_at = clock()
    try:
        with deps.stream_slots.take_slot(user.id), feed.watch_access(user.id) as ends:
            yield b"retry: 3000\n\n"
            is_over = deps.service.is_closing
            while not is_over:
                events = await reader.read_events()
                if not events and clock() - sent_at >= limits.keepalive_seconds:
                    events = [b": keep-alive\n\n"]
                for event in events:
                    sent_at = clock()
                    yield event
                is_too_long = clock() - started_at >= limits.max_seconds
                is_over = reader.has_ended or deps.service.is_closing or is_too_long
                if not is_over:
                    await _wait(ends, pause)
    except (NotSignedInError, NoSuchRun):
        yield _encode_event(_ACCESS_ENDED, "")
    except NoFreeSlotError:
        yield _encode_event(_NO_SLOT, _NO_SLOT_SENTENCE)
    except (StoreUnavailable, NoPolicyError):
        return


def _require_view(deps: WebDependencies, user: User, run_id: int) -> None:
    """Raise NoSuchRun unless the user may view the run. The shared cache does not check this."""
    with deps.database.reading(user.view_rights) as tx:
        runs.get_run(tx, run_id)


def _encode_new_events(reader: StreamReader, progress: RunProgress) -> list[bytes]:
    position = reader.get_resume_position(progress)
    events: list[bytes] = []
    for name, data in reader.list_new_events(progress):
        if name == "children":
            rows = render_host_rows(data, progress.run.state)
            data = {"chart": render_fanout(progress), "rows": rows}
        events.append(_encode_event(name, data, position))
    return events


def _encode_event(name: str, data: Any, position: int | None = None) -> bytes:
    event_id = "" if position is None else f"id: {position}\n"
    return f"{event_id}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
