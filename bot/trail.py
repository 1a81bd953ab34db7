"""The trail: which run, person and trace the work of a thread belongs to, for logs and spans.

Nothing is exported here: whoever exports spans is handed in.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import Any, Protocol

Fact = str | int
_ROOM = re.compile(r"[a-z-]{1,20}", re.ASCII)
# Anybody can write any word there. Source: OpenTelemetry's conventions for HTTP spans
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Shared by all that one request does, in whichever thread: what one part notes the others know.
_belongs: ContextVar[dict[str, Fact] | None] = ContextVar("belongs", default=None)


class Tracer(Protocol):
    def span(
        self, name: str, facts: Mapping[str, Fact]
    ) -> AbstractContextManager[Callable[[Mapping[str, Fact]], None]]:
        """Time what happens within; what is yielded adds facts that are known later."""
        ...

    def current(self) -> str:
        """Return the id of the trace that is being made, 32 hex digits; "" if there is none."""
        ...


class _Nobody:
    def span(
        self, name: str, facts: Mapping[str, Fact]
    ) -> AbstractContextManager[Callable[[Mapping[str, Fact]], None]]:
        del name, facts
        return nullcontext(_nothing)

    def current(self) -> str:
        return ""


def _nothing(_facts: Mapping[str, Fact]) -> None: ...


_tracer: list[Tracer] = [_Nobody()]


def export_to(tracer: Tracer | None) -> None:
    """Have spans exported from now on, or not any more."""
    _tracer[0] = tracer or _Nobody()


def facts() -> dict[str, Fact]:
    """Return what is known of the work that this thread is at, with the id of its trace."""
    found = dict(_belongs.get() or {})
    trace = _tracer[0].current()
    return {**found, "trace_id": trace} if trace else found


def note(**what: Fact) -> None:
    """Note something about what this thread is at, if anything; what came first stays."""
    found = _belongs.get()
    if found is not None:
        found.update({name: value for name, value in what.items() if name not in found})


@contextmanager
def span(name: str, **what: Fact) -> Generator[Callable[[Mapping[str, Fact]], None]]:
    """Note what happens within as belonging together. what: never anything secret."""
    kept = _belongs.set({**(_belongs.get() or {}), **what})
    try:
        with _tracer[0].span(name, what) as more:
            yield more
    finally:
        _belongs.reset(kept)


def of_run(
    name: str,
) -> Callable[[Callable[[Any, int], None]], Callable[[Any, int], None]]:
    """Make a span of each call of a method that is given the number of a run."""

    def around(method: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        @wraps(method)
        def called(self: Any, number: int) -> None:
            with span(name, run=number):
                method(self, number)

        return called

    return around


def room(path: str) -> str:
    """Return the first word of a path, and no more of it: the rest may open something.

    It may be without any slash: `OPTIONS *` is a request, too.
    """
    first = path.partition("/")[2].partition("/")[0]
    return f"/{first}" if _ROOM.fullmatch(first) else "/"


class Trail:
    """ASGI middleware: each HTTP request is a span, named for its method alone."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Any, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                about = _belongs.get() or {}
                known = {name: about[name] for name in ("run", "person") if name in about}
                more({**known, "http.response.status_code": message["status"]})
            await send(message)

        where = room(str(scope["path"]))
        method = str(scope["method"])
        method = method if method in _METHODS else "_OTHER"
        about: dict[str, Fact] = {"http.request.method": method, "http.route": where}
        with span(f"{method} {where}", **about) as more:
            await self._app(scope, receive, sent)
