"""Tracing: spans sent to an OpenTelemetry collector, where the standard variables name one.

Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

import hashlib
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bot.trail import Fact

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class NotInstalled(ValueError):
    """Spans are to be sent and what sends them is not there. The message says what to do."""


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether the variables name a collector, and do not say to send it nothing."""
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    none = environment.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() == "none"
    return not off and not none and any(environment.get(name) for name in _ENDPOINTS)


class Tracing:
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
