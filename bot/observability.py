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
from bot.model.run import State, StepState
from bot.model.text import escape_to_one_line
from connectors.errors import DomainError
from connectors.inventory import Inventory

Fact = str | int
_ROUTE_PATTERN = re.compile(r"[a-z-]{1,20}", re.ASCII)
# Clients can send any method. Source: OpenTelemetry's conventions for HTTP spans
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Shared by all threads that work on one request.
_context: ContextVar[dict[str, Fact] | None] = ContextVar("belongs", default=None)
AddFacts = Callable[[Mapping[str, Fact]], None]
# The run that is advanced here, and what adds attributes to its span.
_run_span: ContextVar[tuple[int, AddFacts] | None] = ContextVar("run_span", default=None)


class Tracer(Protocol):
    def span(
        self, name: str, facts: Mapping[str, Fact]
    ) -> AbstractContextManager[Callable[[Mapping[str, Fact]], None]]:
        """Record a span around the block. Yields a function that adds attributes later."""
        ...

    def current(self) -> str:
        """Return the id of the current trace, 32 hex digits, or ""."""
        ...


class _NoTracer:
    def span(
        self, name: str, facts: Mapping[str, Fact]
    ) -> AbstractContextManager[Callable[[Mapping[str, Fact]], None]]:
        del name, facts
        return nullcontext(_ignore_facts)

    def current(self) -> str:
        return ""


def _ignore_facts(_facts: Mapping[str, Fact]) -> None: ...


_tracer: list[Tracer] = [_NoTracer()]


def set_tracer(tracer: Tracer | None) -> None:
    """Set the tracer that exports spans; None stops the export."""
    _tracer[0] = tracer or _NoTracer()


def current_context() -> dict[str, Fact]:
    """Return the context of the current work, with the id of its trace."""
    found = dict(_context.get() or {})
    trace = _tracer[0].current()
    return {**found, "trace_id": trace} if trace else found


def add_context(**what: Fact) -> None:
    """Add to the context of the current work, if any, without replacing values."""
    found = _context.get()
    if found is not None:
        found.update({name: value for name, value in what.items() if name not in found})


@contextmanager
def trace_span(name: str, **what: Fact) -> Generator[Callable[[Mapping[str, Fact]], None]]:
    """Record the block as one span and one context. what: attributes, never secrets."""
    kept = _context.set({**(_context.get() or {}), **what})
    try:
        with _tracer[0].span(name, what) as more:
            yield more
    finally:
        _context.reset(kept)


def trace_run(
    name: str,
) -> Callable[[Callable[[Any, int], None]], Callable[[Any, int], None]]:
    """Decorate a method that takes the number of a run, so that each call is a span."""

    def around(method: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        @wraps(method)
        def called(self: Any, number: int) -> None:
            with trace_span(name, run=number) as more:
                kept = _run_span.set((number, more))
                try:
                    method(self, number)
                finally:
                    _run_span.reset(kept)

        return called

    return around


def get_run_span(number: int) -> AddFacts:
    """Return what adds attributes to the span in which this run is advanced here, if it is."""
    found = _run_span.get()
    return found[1] if found is not None and found[0] == number else _ignore_facts


def route_name(path: str) -> str:
    """Return only the first part of a path: the rest can contain secrets.

    A path can lack a slash, as in `OPTIONS *`.
    """
    first = path.partition("/")[2].partition("/")[0]
    return f"/{first}" if _ROUTE_PATTERN.fullmatch(first) else "/"


class TraceMiddleware:
    """ASGI middleware that records each HTTP request as a span."""

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
                about = _context.get() or {}
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


def is_tracing_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the variables name a collector and do not disable the export."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    none = environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    return not off and not none and any(environment.get(name) for name in _ENDPOINTS)


class OtlpTracer:
    """Exports spans by OTLP from a background thread.

    All spans of a run belong to one trace, whichever process records them and whenever: the id of
    the trace is computed from the number of the run and *place*, such as the address of the
    installation.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._provider = _create_provider()
        self._tracer = self._provider.get_tracer("keyturn")

    @contextmanager
    def span(
        self, name: str, facts: Mapping[str, Fact]
    ) -> Generator[Callable[[Mapping[str, Fact]], None]]:
        from opentelemetry.trace import Status, StatusCode

        with self._tracer.start_as_current_span(
            name,
            context=self._get_run_context(facts),
            attributes=self._build_attributes(facts),
            # The message of an exception can contain output of a host: only its class is sent.
            record_exception=False,
            set_status_on_exception=False,
        ) as made:
            try:
                yield lambda more: made.set_attributes(self._build_attributes(more))
            except BaseException as error:
                made.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise

    def current(self) -> str:
        from opentelemetry import trace

        found = trace.get_current_span().get_span_context()
        return f"{found.trace_id:032x}" if found.is_valid else ""

    def close(self) -> None:
        """Export the remaining spans and stop."""
        self._provider.shutdown()

    def _build_attributes(self, facts: Mapping[str, Fact]) -> dict[str, Fact]:
        """Prefix names with `keyturn.`, except OpenTelemetry's, and add those of its CI/CD."""
        own = {
            name if "." in name else f"keyturn.{name}": value
            for name, value in facts.items()
            if value != ""
        }
        return own | dict(_list_cicd_attributes(facts, self._place))

    def _get_run_context(self, facts: Mapping[str, Fact]) -> Any:
        """Return the trace of the run in *facts*, unless a span of that trace is open."""
        from opentelemetry import trace
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

        number = facts.get("run")
        if number is None:
            return None
        digest = hashlib.sha256(f"{self._place} run {number}".encode()).digest()
        run_context = SpanContext(
            trace_id=int.from_bytes(digest[:16], "big"),
            span_id=int.from_bytes(digest[16:24], "big"),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        if trace.get_current_span().get_span_context().trace_id == run_context.trace_id:
            return None
        return trace.set_span_in_context(NonRecordingSpan(run_context))


_PIPELINE_RESULTS = {
    State.SUCCEEDED: "success",
    State.NO_CHANGES: "success",
    State.FAILED: "failure",
    State.STOPPED: "cancellation",
    State.WITHDRAWN: "cancellation",
}
_TASK_RESULTS = {StepState.SUCCEEDED: "success", StepState.FAILED: "failure"}


def _list_cicd_attributes(facts: Mapping[str, Fact], address: str) -> Iterator[tuple[str, Fact]]:
    """Yield the attributes of a run as a pipeline run, and of a step as one of its tasks.

    Source: https://github.com/open-telemetry/semantic-conventions/blob/main/docs/cicd/cicd-spans.md
    """
    result = ""
    if run := facts.get("run"):
        yield "cicd.pipeline.run.id", str(run)
        yield "cicd.pipeline.run.url.full", f"{address}/runs/{run}"
    if runbook := facts.get("runbook"):
        yield "cicd.pipeline.name", runbook
    if step := facts.get("step"):
        yield "cicd.pipeline.task.name", f"step {step}"
        yield "cicd.pipeline.task.run.id", f"{run}-{step}"
        yield "cicd.pipeline.task.run.url.full", f"{address}/runs/{run}"
    if outcome := facts.get("outcome"):
        # A custom value is allowed: an outcome that is unknown is neither a success nor a failure.
        result = _TASK_RESULTS.get(StepState(outcome), "unknown")
        yield "cicd.pipeline.task.run.result", result
    if state := facts.get("state"):
        # Denied, expired and the like: nothing was executed.
        result = _PIPELINE_RESULTS.get(State(state), "skip")
        result = result if facts.get("healthy", True) else "failure"
        yield "cicd.pipeline.result", result
    if result == "failure":
        yield "error.type", "_OTHER"


def _create_provider() -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME", "keyturn")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

# Loggers whose messages any client can cause, and how often each message passes in a minute.
_CLIENT_CAUSED_LOGGERS = frozenset({"asyncio", "uvicorn.error"})
_MAX_MESSAGES_PER_MINUTE = 10

_CONTEXT_FIELDS = frozenset({"run", "person", "host", "trace_id"})

# Every OpenSSH key begins with this, so it is not secret.
_KEY_PREFIX = "b3BlbnNzaC1rZXktdjEA"
_MIN_LINE_LENGTH = 40


class RedactingFormatter(logging.Formatter):
    """Formats a record on one line, with the traceback below it, and redacts secrets."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return escape_to_one_line(self._redactor.redact_text(super().formatMessage(record)))

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact_text(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on a line, and redacts secrets.

    time: UTC. error: the traceback of an exception. run, person, host, trace_id: if known.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, str | int] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor.redact_text(record.getMessage()),
        }
        if record.exc_info:
            fields["error"] = self._redactor.redact_text(self.formatException(record.exc_info))
        # Redacted before JSON escapes it: a secret with a quotation mark would not match.
        about = {
            name: self._redactor.redact_text(fact) if isinstance(fact, str) else fact
            for name, fact in current_context().items()
            if name in _CONTEXT_FIELDS
        }
        return json.dumps({**fields, **about})


class NoFlood(logging.Filter):
    """Limits messages that clients can cause to ten a minute, so that they cannot fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._passed = 0.0, Counter[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name not in _CLIENT_CAUSED_LOGGERS:
            return True
        if not 0 <= record.created - self._since < 60:
            self._since, self._passed = record.created, Counter()
        about = str(record.msg).partition("\n")[0]
        self._passed[about] += 1
        if self._passed[about] == _MAX_MESSAGES_PER_MINUTE:
            record.msg = f"{record.msg} (further messages like this are suppressed for a minute)"
        return self._passed[about] <= _MAX_MESSAGES_PER_MINUTE


def set_up_logging(redactor: Redactor, form: Literal["text", "json"] = "text") -> None:
    """Log to standard error, with secrets redacted."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter(redactor) if form == "json" else RedactingFormatter(redactor)
    )
    handler.addFilter(NoFlood())
    logging.basicConfig(handlers=[handler], force=True)


def list_login_secrets(inventory: Inventory, keys: Path) -> Iterator[str]:
    """Yield the passwords and private keys for hosts. keys: the directory of relative files."""
    for host in inventory.hosts.values():
        of_bmc = host.bmc.password_file if host.bmc and not host.bmc.ipmi_from else None
        of_msa = host.msa.password_file if host.msa else None
        for file in (host.password_file, of_msa, host.enable_file, of_bmc, host.key):
            if file is not None:
                yield from _read_secret_lines(keys / file)


def _read_secret_lines(file: Path) -> Iterator[str]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return  # the login with this file reports the error
    if any("PRIVATE KEY" in line for line in lines):
        lines = [line for line in lines if len(line) >= _MIN_LINE_LENGTH and "--" not in line]
    yield from (line for line in lines if not line.startswith(_KEY_PREFIX))


log = logging.getLogger(__name__)


def explain_error(error: DomainError, source: str) -> str:
    """Return the message for the person, as a clause.

    What the installation is at fault for is logged, with the details that only administrators
    may read. source: where it came up, such as a route.
    """
    if error.status >= 500:
        log.critical("%s: %s", source, error)
    return error.public_message


_INTERVAL_SECONDS = 0.5
_MIN_DELAY_SECONDS = 1.0
# How long the warning is not repeated.
_REPEAT_SECONDS = 60.0


async def warn_when_loop_blocks() -> None:
    """Log a warning, at most once a minute, when the event loop blocks for a second or more."""
    warned_at = float("-inf")
    while True:
        started_at = time.monotonic()
        await asyncio.sleep(_INTERVAL_SECONDS)
        now = time.monotonic()
        late = now - started_at - _INTERVAL_SECONDS
        if late >= _MIN_DELAY_SECONDS and now - warned_at >= _REPEAT_SECONDS:
            warned_at = now
            log.warning(
                "no request was handled for %.1f s, and Slack waits at most 3 s: the machine is "
                "overloaded, or a blocking call runs in the event loop",
                late,
            )
