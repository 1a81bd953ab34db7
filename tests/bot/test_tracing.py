"""Traces: what a collector receives of a request and its run, and nothing else."""

import asyncio
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import cicd_attributes
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot import observability
from bot.model.run import State
from bot.observability import OtlpTracer, TraceMiddleware, is_tracing_configured
from connectors.errors import HostError
from tests.bot.harness import Harness
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@dataclass
class Span:
    name: str
    trace: str
    parent: str
    id: str
    failed: bool
    events: int
    facts: dict[str, Any]


@dataclass
class Collector:
    """An OTLP receiver over HTTP: takes what a real one takes."""

    url: str = ""
    spans: list[Span] = field(default_factory=list[Span])
    raw: bytes = b""
    services: set[str] = field(default_factory=set[str])

    def take(self, body: bytes) -> None:
        self.raw += body
        request: Any = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self.services |= {
                a.value.string_value
                for a in resource.resource.attributes
                if a.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans += [_convert_span(one) for one in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def _convert_span(one: Any) -> Span:
    facts = {a.key: a.value.string_value or a.value.int_value for a in one.attributes}
    return Span(
        one.name,
        one.trace_id.hex(),
        one.parent_span_id.hex(),
        one.span_id.hex(),
        one.status.code == 2,
        len(one.events),
        facts,
    )


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Generator[Collector]:
    started = Collector()

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path == "/v1/traces":
                started.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        started.url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        yield started
        server.shutdown()
        thread.join()


@pytest.fixture
def sending(collector: Collector) -> Generator[OtlpTracer]:
    made = OtlpTracer("http://keyturn.test")
    observability.set_tracer(made)
    yield made
    observability.set_tracer(None)
    made.close()


def test_run_is_one_trace_from_plan_to_verification(
    harness: Harness, collector: Collector, sending: OtlpTracer
) -> None:
    run = harness.approve(harness.request(LAMP_ON))
    sending.close()
    ours = [span for span in collector.spans if span.facts.get("keyturn.run") == run.id]
    assert {span.name for span in ours} == {"run", "plan", "gate", "step", "verify"}
    assert len({span.trace for span in ours}) == 1
    (step,) = collector.named("step")
    assert step.facts == {
        "keyturn.run": run.id,
        "keyturn.host": "lb1",
        "keyturn.step": 1,
        "keyturn.outcome": "succeeded",
        cicd_attributes.CICD_PIPELINE_RUN_ID: str(run.id),
        cicd_attributes.CICD_PIPELINE_RUN_URL_FULL: f"http://keyturn.test/runs/{run.id}",
        cicd_attributes.CICD_PIPELINE_TASK_NAME: "step 1",
        cicd_attributes.CICD_PIPELINE_TASK_RUN_ID: f"{run.id}-1",
        cicd_attributes.CICD_PIPELINE_TASK_RUN_URL_FULL: f"http://keyturn.test/runs/{run.id}",
        cicd_attributes.CICD_PIPELINE_TASK_RUN_RESULT: "success",
    }
    inside = {span.id for span in collector.named("run")}
    for name in ("plan", "gate", "step", "verify"):
        assert {span.parent for span in collector.named(name)} <= inside
    assert collector.services == {"keyturn"}


RESULTS = {one.value for one in cicd_attributes.CicdPipelineResultValues}


@pytest.mark.parametrize(
    ("runbook", "fails", "state", "result", "task_result"),
    [
        (LAMP_ON, "", "succeeded", "success", "success"),
        (LAMP_ON, "failed", "failed", "failure", "failure"),
        (LAMP_ON, "unknown", None, None, "unknown"),
        (SetSwitch(host="lb1", name="lamp", value="off"), "", "no_changes", "success", None),
    ],
)
def test_end_of_a_run_is_told_in_the_words_of_cicd_conventions(
    harness: Harness,
    collector: Collector,
    sending: OtlpTracer,
    runbook: SetSwitch,
    fails: str,
    state: str | None,
    result: str | None,
    task_result: str | None,
) -> None:
    started = {"failed": False, "unknown": None}

    def fail(_host: str, _words: str) -> None:
        if fails:
            error = HostError("the connection broke")
            error.started = started[fails]
            raise error

    harness.fleet.before_send = fail
    run = harness.request(runbook)
    if run.state is State.PENDING:
        run = harness.approve(run)
    sending.close()
    ends = [one.facts for one in collector.named("run") if "keyturn.state" in one.facts]
    if state is None:
        assert ends == []
    else:
        (end,) = ends
        assert end["keyturn.state"] == state
        assert end[cicd_attributes.CICD_PIPELINE_NAME] == run.runbook
        assert end[cicd_attributes.CICD_PIPELINE_RESULT] == result
        assert result in RESULTS
        assert end.get("error.type") == ("_OTHER" if result == "failure" else None)
    steps = [one.facts for one in collector.named("step")]
    assert [one[cicd_attributes.CICD_PIPELINE_TASK_RUN_RESULT] for one in steps] == (
        [task_result] if task_result else []
    )


def test_two_runs_are_two_traces(
    harness: Harness, collector: Collector, sending: OtlpTracer
) -> None:
    harness.request(LAMP_ON)
    harness.request(SetSwitch(host="lb2", name="lamp", value="on"))
    sending.close()
    assert len({span.trace for span in collector.named("plan")}) == 2


def test_traces_hold_no_text_of_people_or_hosts(
    harness: Harness, collector: Collector, sending: OtlpTracer
) -> None:
    harness.approve(harness.request(LAMP_ON, reason="because of the canary 4711"))
    with pytest.raises(ValueError), observability.trace_span("step", run=1):  # noqa: PT011 - any will do
        raise ValueError("what a host said: canary 4712")
    sending.close()
    assert b"canary" not in collector.raw
    (failed,) = [span for span in collector.spans if span.failed]
    assert failed.events == 0


@pytest.mark.parametrize("path", ["*", "host:443", ""])
def test_request_path_without_a_slash_is_answered_and_traced_as_other(
    collector: Collector, sending: OtlpTracer, path: str
) -> None:
    responses: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        responses.append(message)

    app = Starlette(middleware=[Middleware(TraceMiddleware)])
    scope: dict[str, Any] = {
        "type": "http",
        "path": path,
        "method": "CANARY-4716",
        "headers": [],
    }
    asyncio.run(app(scope, receive, send))
    assert responses[0]["status"] == 404
    sending.close()
    (span,) = collector.named("_OTHER /")
    assert span.facts["http.request.method"] == "_OTHER"
    assert b"4716" not in collector.raw


def test_http_request_span_contains_the_route_and_no_token_of_its_path(
    collector: Collector, sending: OtlpTracer
) -> None:
    async def page(request: Request) -> Response:
        observability.add_context(run=12, person="dora")
        observability.add_context(run=13)
        return PlainTextResponse(observability.current_context()["trace_id"])

    app = Starlette(
        routes=[Route("/sign-in/{token}", page)], middleware=[Middleware(TraceMiddleware)]
    )
    with TestClient(app) as client:
        trace = client.get("/sign-in/canary-4713").text
        assert client.get("/%1b[31m/canary-4714").status_code == 404
    sending.close()
    (span,) = collector.named("GET /sign-in")
    assert span.facts == {
        "http.request.method": "GET",
        "http.route": "/sign-in",
        "http.response.status_code": 200,
        "keyturn.run": 12,
        "keyturn.person": "dora",
        "cicd.pipeline.run.id": "12",
        "cicd.pipeline.run.url.full": "http://keyturn.test/runs/12",
    }
    assert span.trace == trace
    assert collector.named("GET /")
    assert b"canary" not in collector.raw


def test_run_ends_when_the_trace_collector_is_unreachable(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    made = OtlpTracer("here")
    observability.set_tracer(made)
    try:
        run = harness.approve(harness.request(LAMP_ON))
    finally:
        observability.set_tracer(None)
        made.close()
    assert run.is_ended


@pytest.mark.parametrize(
    ("environment", "yes"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_tracing_is_enabled_by_the_standard_otel_variables(
    environment: dict[str, str], *, yes: bool
) -> None:
    assert is_tracing_configured(environment) is yes
