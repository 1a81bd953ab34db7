"""Requests generated from the OpenAPI document, valid and invalid.

Every response is checked for a server error, an undescribed status, content type or body, an
unsupported method that is accepted, and access without a token. `make test` tries random requests;
`make chaos` also tries every value of note in every field.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
import schemathesis
from fastapi import Response
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.run import PhaseName
from schemathesis.specs.openapi.schemas import OpenApiSchema as OpenApi

from tests.bot.api.conftest import API, ApiHarness
from tests.bot.api.test_routes import ROUTES
from tests.bot.web.sample_runs import add_sample_runs
from tests.campaigns import CHAOS

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "unsupported_method",
)
PHASES = {PhaseName.EXAMPLES, PhaseName.FUZZING, PhaseName.STATEFUL_TESTING}
if CHAOS:
    PHASES.add(PhaseName.COVERAGE)


@dataclass
class Findings:
    """failures: what the checks say. statuses: how often each came. phases: gone through.

    tried: operations that were asked for, such as `GET /runs`.
    """

    failures: list[str] = field(default_factory=list[str])
    statuses: Counter[int] = field(default_factory=Counter[int])
    phases: set[PhaseName] = field(default_factory=set[PhaseName])
    tried: set[str] = field(default_factory=set[str])


def _build_headers(api_harness: ApiHarness) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_harness.token('olga', 'request', 'approve')}"}


def _describe_api(api_harness: ApiHarness, headers: dict[str, str], examples: int) -> OpenApi:
    coverage = {"enabled": bool(CHAOS), "unexpected-methods": ["delete", "put"]}
    config = SchemathesisConfig.from_dict(
        {
            "headers": headers,
            "seed": 1,
            "generation": {"max-examples": examples, "database": "none"},
            "phases": {"coverage": coverage},
            "checks": {"enabled": False} | {check: {"enabled": True} for check in CHECKS},
        }
    )
    return schemathesis.openapi.from_asgi(f"{API}/openapi.json", api_harness.app, config=config)


def _run_schemathesis(api_harness: ApiHarness, *, examples: int) -> Findings:
    """Go through all phases. The requests are the same every time."""
    add_sample_runs(api_harness.database)
    findings = Findings()
    described = _describe_api(api_harness, _build_headers(api_harness), examples)
    for event in from_schema(described).execute():
        if isinstance(event, events.PhaseFinished):
            findings.phases.add(event.phase.name)
        if isinstance(event, (events.NonFatalError, events.FatalError)):
            findings.failures.append(str(event))
        if isinstance(event, events.ScenarioFinished):
            _note(event, findings)
    return findings


def _note(event: events.ScenarioFinished, findings: Findings) -> None:
    recorder = event.recorder
    findings.tried |= {case.value.operation.label for case in recorder.cases.values()}
    for exchange in recorder.interactions.values():
        if exchange.response is not None:
            findings.statuses[exchange.response.status_code] += 1
    findings.failures += [
        f"{event.label}: {check.failure_info}"
        for checks in recorder.checks.values()
        for check in checks
        if check.failure_info is not None
    ]


@pytest.mark.timeout(240)
def test_every_response_matches_the_api_description(api_harness: ApiHarness):
    findings = _run_schemathesis(api_harness, examples=1 if CHAOS else 4)
    assert findings.failures == []
    assert findings.phases >= PHASES
    assert findings.tried == {f"{method} {path}" for method, path in ROUTES}
    assert {200, 202, 401, 404, 422} <= set(findings.statuses)
    assert sum(findings.statuses.values()) > (1000 if CHAOS else 200)


def test_conflict_matches_the_api_description(api_harness: ApiHarness):
    """Random requests meet a run that is in another state by luck only."""
    ended = add_sample_runs(api_harness.database)["succeeded"]
    headers = _build_headers(api_harness)
    described: Any = _describe_api(api_harness, headers, 1)
    case = described["/runs/{number}/approve"]["POST"].Case(
        path_parameters={"number": ended}, body={"digest": "0" * 64}
    )
    assert case.call_and_validate(headers=headers).status_code == 409


@pytest.mark.timeout(240)
@pytest.mark.parametrize("status", [500, 418])
def test_undescribed_api_response_is_detected(api_harness: ApiHarness, status: int):
    routes = api_harness.api.router.routes
    routes[:] = [one for one in routes if getattr(one, "path", "") == "/openapi.json"]

    @api_harness.api.get("/odd")
    def odd() -> Response:
        return Response(status_code=status)

    assert len(_run_schemathesis(api_harness, examples=1).failures) > 0
