"""Long polling: respond when a run has ended or waits for people, if the caller wants that.

A waiting caller occupies one place in a counter, and neither a thread nor a transaction.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import Query, Request, Response

from bot.api.deps import ApiParts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas import OutputModel
from bot.db import runs
from bot.db.database import StoreUnavailable
from bot.model.run import State, is_at_rest

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 30
# Callers beyond these numbers get a response immediately.
_MAX_WAITING, MAX_WAITING_OF_PERSON, _MAX_READERS = 200, 20, 4
# Pause between reads of the state, which another process may change; the first reads come sooner
# where workers run in other processes.
_POLL_SECONDS, _FIRST_POLL_SECONDS = 0.5, 0.03
_WAIT_DESCRIPTION = (
    "Seconds to wait for the run to end or to need people; less while many callers wait. A "
    "repeat with the same Idempotency-Key does not wait again."
)

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, description=_WAIT_DESCRIPTION)]


@dataclass(frozen=True)
class PendingResponse:
    """A response that is sent when a run is at rest."""

    run: int
    seconds: float
    build_response: Callable[[], OutputModel]
    """Reads the run again and builds the response."""


class Waiters:
    """The callers that wait for runs, in the event loop of the web server."""

    def __init__(self, parts: ApiParts, *, max_waiting: int = _MAX_WAITING) -> None:
        self._parts, self._max_waiting = parts, max_waiting
        self._waiting = Counter[str]()
        self._readers = CapacityLimiter(_MAX_READERS)

    async def wait_for_response(
        self, pending: PendingResponse, *, person: str = ""
    ) -> OutputModel | None:
        """Wait, and return the new response; None to send the one that was built before.

        person: who waits, so that no one takes all places; "" for none in particular.
        """
        is_excess = bool(person) and self._waiting[person] >= MAX_WAITING_OF_PERSON
        if is_excess or self._waiting.total() >= self._max_waiting:
            return None
        self._waiting[person] += 1
        try:
            response = await self._wait_until_at_rest(
                pending, min(pending.seconds, self._parts.longest_wait)
            )
            return response or await to_thread.run_sync(
                pending.build_response, limiter=self._readers
            )
        except StoreUnavailable as error:
            # The request is recorded already: send the response that was built before.
            log.warning("cannot wait for run %d: %s", pending.run, error)
            return None
        finally:
            self._waiting[person] -= 1
            # Not one count for each person who ever waited.
            self._waiting += Counter()

    async def _wait_until_at_rest(
        self, pending: PendingResponse, seconds: float
    ) -> OutputModel | None:
        """Wait at most so many seconds; return the response if it was built on the way."""
        loop, at_rest = asyncio.get_running_loop(), asyncio.Event()
        responses: list[OutputModel] = []
        loop_thread, few = threading.get_ident(), self._waiting.total() <= _MAX_READERS

        def on_state(state: State) -> None:
            if not is_at_rest(state):
                return
            # The thread that changed the run has its rows in cache, but must not serve many
            # callers. If it fails, the response is built below, where its error is raised.
            with suppress(Exception):
                if few and threading.get_ident() != loop_thread:
                    responses.append(pending.build_response())
            loop.call_soon_threadsafe(at_rest.set)

        end = loop.time() + seconds
        pauses = iterate_pauses(single_process=self._parts.database.embedded)
        with self._parts.database.run_events.listen(pending.run, on_state):
            # Changes of this process arrive by on_state, earlier ones too: poll only later.
            while (left := end - loop.time()) > 0 and not self._parts.service.is_closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, next(pauses))):
                        await at_rest.wait()
                        break
                state = await to_thread.run_sync(
                    self._read_state, pending.run, limiter=self._readers
                )
                if is_at_rest(state):
                    break
        return responses[-1] if responses else None

    def _read_state(self, run: int) -> State:
        with self._parts.database.reading() as tx:
            return runs.get_run(tx, run).state


class LongPollRoute(IdempotentRoute):
    """A route whose handler may call `wait_for_run`; its first response is stored by then."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_and_wait(request: Request) -> Response:
            first = await handle(request)
            pending: PendingResponse | None = getattr(request.state, "pending", None)
            waiters: Waiters = request.app.state.waiters
            body = None
            if pending is not None:
                person = request.state.caller.id
                body = await waiters.wait_for_response(pending, person=person)
            return first if body is None else _replace_body(first, body)

        return handle_and_wait


def iterate_pauses(*, single_process: bool) -> Iterator[float]:
    """Yield the seconds to wait before each read of the state.

    Args:
        single_process: Whether everything that changes runs is in this process.
    """
    pause = _POLL_SECONDS if single_process else _FIRST_POLL_SECONDS
    while True:
        yield min(pause, _POLL_SECONDS)
        pause *= 2


def wait_for_run(request: Request, pending: PendingResponse) -> None:
    """Delay the response to this request until the run is at rest."""
    if pending.seconds:
        request.state.pending = pending


def render_response(body: OutputModel, status: int, headers: Mapping[str, str]) -> Response:
    """Return a model as a JSON response."""
    return Response(body.model_dump_json(), status, headers, "application/json")


def _replace_body(first: Response, body: OutputModel) -> Response:
    headers = {name: first.headers[name] for name in ("location",) if name in first.headers}
    return render_response(body, first.status_code, headers)
