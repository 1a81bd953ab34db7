"""Logs without secrets, and traces."""

import hashlib
import os
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bot.model.redaction import Redactor
from bot.model.text import escape_to_one_line
from connectors.inventory import Inventory

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


def set_tracer(tracer: Tracer | None) -> None:
    """Have spans exported from now on, or not any more."""
    _tracer[0] = tracer or _Nobody()


def current_context() -> dict[str, Fact]:
    """Return what is known of the work that this thread is at, with the id of its trace."""
    found = dict(_belongs.get() or {})
    trace = _tracer[0].current()
    return {**found, "trace_id": trace} if trace else found


def add_context(**what: Fact) -> None:
    """Note something about what this thread is at, if anything; what came first stays."""
    found = _belongs.get()
    if found is not None:
        found.update({name: value for name, value in what.items() if name not in found})


@contextmanager
def trace_span(name: str, **what: Fact) -> Generator[Callable[[Mapping[str, Fact]], None]]:
    """Note what happens within as belonging together. what: never anything secret."""
    kept = _belongs.set({**(_belongs.get() or {}), **what})
    try:
        with _tracer[0].span(name, what) as more:
            yield more
    finally:
        _belongs.reset(kept)


def trace_run(
    name: str,
) -> Callable[[Callable[[Any, int], None]], Callable[[Any, int], None]]:
    """Make a span of each call of a method that is given the number of a run."""

    def around(method: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        @wraps(method)
        def called(self: Any, number: int) -> None:
            with trace_span(name, run=number):
                method(self, number)

        return called

    return around


def route_name(path: str) -> str:
    """Return the first word of a path, and no more of it: the rest may open something.

    It may be without any slash: `OPTIONS *` is a request, too.
    """
    first = path.partition("/")[2].partition("/")[0]
    return f"/{first}" if _ROOM.fullmatch(first) else "/"


class TraceMiddleware:
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

        where = route_name(str(scope["path"]))
        method = str(scope["method"])
        method = method if method in _METHODS else "_OTHER"
        about: dict[str, Fact] = {"http.request.method": method, "http.route": where}
        with trace_span(f"{method} {where}", **about) as more:
            await self._app(scope, receive, sent)


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class NotInstalled(ValueError):
    """Spans are to be sent and what sends them is not there. The message says what to do."""


def is_tracing_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether the variables name a collector, and do not say to send it nothing."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    none = environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    return not off and not none and any(environment.get(name) for name in _ENDPOINTS)


class OtlpTracer:
    """Sends spans from a thread of its own. place: of this installation, such as its address.

    All spans of a run are of one trace, whichever process makes them and however long after it was
    asked for: the trace's id is made of the run's number and the place.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._provider = _provider()
        self._tracer = self._provider.get_tracer("keyturn")

    @contextmanager
    def span(
        self, name: str, facts: Mapping[str, Fact]
    ) -> Generator[Callable[[Mapping[str, Fact]], None]]:
        from opentelemetry.trace import Status, StatusCode

        with self._tracer.start_as_current_span(
            name,
            context=self._of_run(facts),
            attributes=_attributes(facts),
            # What an exception says may hold what a host said: only that there was one is told.
            record_exception=False,
            set_status_on_exception=False,
        ) as made:
            try:
                yield lambda more: made.set_attributes(_attributes(more))
            except BaseException as trouble:
                made.set_status(Status(StatusCode.ERROR, type(trouble).__name__))
                raise

    def current(self) -> str:
        from opentelemetry import trace

        found = trace.get_current_span().get_span_context()
        return f"{found.trace_id:032x}" if found.is_valid else ""

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _of_run(self, facts: Mapping[str, Fact]) -> Any:
        """Return the trace of the run that is named, unless a span of it is open already."""
        from opentelemetry import trace
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

        number = facts.get("run")
        if number is None:
            return None
        digest = hashlib.sha256(f"{self._place} run {number}".encode()).digest()
        whole = SpanContext(
            trace_id=int.from_bytes(digest[:16], "big"),
            span_id=int.from_bytes(digest[16:24], "big"),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        if trace.get_current_span().get_span_context().trace_id == whole.trace_id:
            return None
        return trace.set_span_in_context(NonRecordingSpan(whole))


def _provider() -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise NotInstalled(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not installed: "
            "pip install 'keyturn[otel]', or take the variable away"
        ) from None
    name = os.environ.get("OTEL_SERVICE_NAME", "keyturn")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Name our own facts as ours; others have the names of OpenTelemetry's conventions."""
    return {
        name if "." in name else f"keyturn.{name}": value
        for name, value in facts.items()
        if value != ""
    }


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# What anybody who connects can have them write. Each message is passed so often within a minute.
_CAUSED_BY_STRANGERS = frozenset({"asyncio", "uvicorn.error"})
_MOST_A_MINUTE = 10

_ABOUT = frozenset({"run", "person", "host", "trace_id"})

# Every key of OpenSSH begins with this, so it tells nothing.
_HEAD_OF_ANY_KEY = "b3BlbnNzaC1rZXktdjEA"
_SHORTEST_LINE = 40


class RedactingFormatter(logging.Formatter):
    """Formats a record on one line, its trace below it, and takes out what is secret."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return escape_to_one_line(self._redactor.redact_text(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact_text(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on a line, with what it is about, and without secrets.

    time: UTC. trouble: the trace of an exception. run, person, trace_id: where it has them.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, str | int] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor.redact_text(record.getMessage()),
        }
        if record.exc_info:
            told["trouble"] = self._redactor.redact_text(self.formatException(record.exc_info))
        # Each text by itself: once it is JSON, a secret with a quote in it looks different.
        about = {
            name: self._redactor.redact_text(fact) if isinstance(fact, str) else fact
            for name, fact in current_context().items()
            if name in _ABOUT
        }
        return json.dumps({**told, **about})


class NoFlood(logging.Filter):
    """Passes what strangers can cause ten times a minute, so that they cannot fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._passed = 0.0, Counter[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in _CAUSED_BY_STRANGERS:
            return True
        if not 0 <= record.created - self._since < 60:
            self._since, self._passed = record.created, Counter()
        about = str(record.msg).partition("\n")[0]
        self._passed[about] += 1
        if self._passed[about] == _MOST_A_MINUTE:
            record.msg = f"{record.msg} (further ones are left out for a minute)"
        return self._passed[about] <= _MOST_A_MINUTE


def set_up_logging(redactor: Redactor, form: Literal["text", "json"] = "text") -> None:
    """Log to standard error, secrets left out."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter(redactor) if form == "json" else RedactingFormatter(redactor)
    )
    handler.addFilter(NoFlood())
    logging.basicConfig(handlers=[handler], force=True)


def list_login_secrets(inventory: Inventory, keys: Path) -> Iterator[str]:
    """Yield what we log in to hosts with. keys: the directory that the files are relative to."""
    for host in inventory.hosts.values():
        for file in (host.password_file, host.enable_file, host.key):
            if file is not None:
                yield from _lines(keys / file)


def _lines(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return  # whoever logs in with it will say what is wrong
    if any("PRIVATE KEY" in line for line in lines):
        lines = [line for line in lines if len(line) >= _SHORTEST_LINE and "--" not in line]
    yield from (line for line in lines if not line.startswith(_HEAD_OF_ANY_KEY))


log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_LATE_SECONDS = 1.0
# Who reads the log has understood it the first time.
_QUIET_SECONDS = 60.0


async def warn_when_loop_blocks() -> None:
    """Write into the log, once a minute at most, that nobody was answered for a second or more."""
    said = float("-inf")
    while True:
        asked = time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.monotonic()
        late = now - asked - _LOOK_SECONDS
        if late >= _LATE_SECONDS and now - said >= _QUIET_SECONDS:
            said = now
            log.warning(
                "nobody was answered for %.1f s, and Slack waits for 3 s at the most: this "
                "machine is short of processors, or something waits where it may not",
                late,
            )
