"""Every API route, for each scope of a token and for none. Enter new routes here."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from bot.api.app import build_api
from bot.auth.tokens import SCOPES
from tests.agents import add_agent
from tests.bot.api.conftest import API, ApiHarness, create_api_harness
from tests.bot.features.tables import collect
from tests.bot.harness import Harness, open_harness
from tests.bot.web.sample_runs import add_sample_runs
from tests.bot.web.test_routes import everything

READERS = ("read", "request", "approve")
DIGEST = {"digest": "0" * 10}
# method, path → the scopes that open it, the status that they then get, and what is sent.
ROUTES: dict[tuple[str, str], tuple[tuple[str, ...], int, dict[str, Any] | None]] = {
    ("GET", "/me"): (READERS, 200, None),
    ("GET", "/runbooks"): (READERS, 200, None),
    ("GET", "/hosts"): (READERS, 200, None),
    ("GET", "/hosts/{name}"): (READERS, 200, None),
    ("GET", "/hosts/{name}/options"): (READERS, 200, None),
    ("GET", "/pending"): (READERS, 200, None),
    ("GET", "/access"): (READERS, 200, None),
    ("GET", "/policy"): (READERS, 200, None),
    ("GET", "/locks"): (READERS, 200, None),
    ("GET", "/changes"): (READERS, 200, None),
    ("GET", "/views"): (READERS, 200, None),
    ("GET", "/views/{number}"): (READERS, 404, None),
    ("POST", "/views"): (("request",), 201, {"name": "mine", "filters": {"host": "lb*"}}),
    ("POST", "/views/{number}/delete"): (("request",), 404, None),
    ("GET", "/log"): (READERS, 200, None),
    ("GET", "/log/{number}/proof"): (READERS, 200, None),
    ("POST", "/log/verify"): (READERS, 200, None),
    ("GET", "/policy/preview"): (READERS, 200, None),
    ("GET", "/runs"): (READERS, 200, None),
    ("GET", "/runs/{number}"): (READERS, 200, None),
    ("GET", "/runs/{number}/document"): (READERS, 200, None),
    ("GET", "/runs/{number}/progress"): (READERS, 200, None),
    ("POST", "/runs/{number}/verify"): (READERS, 200, None),
    ("GET", "/runs/{number}/proof"): (READERS, 200, None),
    ("POST", "/runs"): (("request",), 202, {"request": "toy show lb1"}),
    ("POST", "/runs/{number}/approve"): (("approve",), 409, DIGEST),
    ("POST", "/runs/{number}/sign"): (("request",), 409, {**DIGEST, "signature": "none"}),
    ("POST", "/runs/{number}/hold"): (("request",), 409, {"reason": "not today"}),
    ("POST", "/runs/{number}/deny"): (("approve",), 409, {"reason": "not today"}),
    ("POST", "/runs/{number}/question"): (("approve",), 409, {"text": "which ticket?"}),
    ("POST", "/runs/{number}/answer"): (("request",), 409, {"text": "4711"}),
    ("POST", "/runs/{number}/reassign"): (("approve",), 409, {"person": "adam"}),
    ("POST", "/runs/{number}/counter"): (("approve",), 409, {"values": {"table": "http"}}),
    ("POST", "/runs/{number}/accept"): (("request",), 403, DIGEST),
    ("POST", "/runs/{number}/withdraw"): (("request",), 403, None),
    ("POST", "/runs/{number}/stop"): (("request", "approve"), 409, {}),
    ("POST", "/runs/{number}/undo"): (("request",), 422, {}),
    ("POST", "/runs/{number}/replan"): (("request",), 403, {}),
    ("POST", "/runs/{number}/request"): (("request",), 403, {"digest": "0" * 64}),
    ("POST", "/plans"): (("request",), 422, {"request": "uptime check lb1"}),
    ("POST", "/runs/{number}/again"): (("request",), 202, {}),
    ("POST", "/runs/{number}/resolve"): (
        ("approve",),
        409,
        {"succeeded": True, "reason": "I looked at it"},
    ),
    ("POST", "/runs/{number}/review"): (("approve",), 422, {"findings": "I looked at it"}),
    ("POST", "/undo"): (("request",), 422, {"person": "nobody", "since": "2026-01-01T00:00:00Z"}),
    ("GET", "/health"): (READERS, 200, None),
    **collect("ROUTES"),
}
QUERY: dict[str, dict[str, Any]] = {
    "/policy/preview": {"request": "toy set lb1"},
    "/hosts/{name}/options": {"runbook": "toy set"},
    **collect("QUERY"),
}


# What does nothing that another test could notice: it only reads, or is refused.
HARMLESS = [
    route for route, (_, status, _) in ROUTES.items() if route[0] == "GET" or status >= 400
]


@dataclass(frozen=True)
class Shown:
    """An API with a run of each kind. numbers: theirs. programs: by the scopes of their tokens."""

    harness: Harness
    numbers: Mapping[str, int]
    programs: Mapping[tuple[str, ...], TestClient]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shown]:
    """One for all tests that change nothing: to fill it takes longer than to ask."""
    with open_harness(tmp_path_factory.mktemp("harness")) as harness:
        api_harness = create_api_harness(harness)
        yield Shown(harness, add_sample_runs(harness.database), _start_programs(api_harness))
        for program in api_harness.programs:
            program.close()


def _start_programs(api_harness: ApiHarness) -> dict[tuple[str, ...], TestClient]:
    scopes = [*((scope,) for scope in SCOPES), ("request", "approve")]
    return {
        (): api_harness.program(),
        **{given: api_harness.program("olga", *given) for given in scopes},
    }


def test_every_api_route_is_in_the_table(api_harness: ApiHarness):
    routes = [route for route in everything(api_harness.api.routes) if isinstance(route, APIRoute)]
    served = {(method, route.path) for route in routes for method in route.methods or ()}
    assert served == set(ROUTES)


def test_api_serves_only_routes_and_the_openapi_document(api_harness: ApiHarness):
    others = [
        route for route in everything(api_harness.api.routes) if not isinstance(route, APIRoute)
    ]
    assert [getattr(route, "path", route) for route in others] == ["/openapi.json"]


def test_api_route_missing_from_the_table_is_detected(api_harness: ApiHarness):
    @api_harness.api.get("/backdoor")
    def backdoor() -> None: ...

    with pytest.raises(AssertionError):
        test_every_api_route_is_in_the_table(api_harness)


def test_no_api_route_runs_in_the_event_loop(api_harness: ApiHarness):
    routes = [route for route in everything(api_harness.api.routes) if isinstance(route, APIRoute)]
    assert [route.path for route in routes if iscoroutinefunction(route.endpoint)] == []


def test_api_routes_are_shared_by_all_api_instances(api_harness: ApiHarness):
    again = build_api(api_harness.api.state.parts).routes
    made = {id(route) for route in api_harness.api.routes if isinstance(route, APIRoute)}
    assert made == {id(route) for route in again if isinstance(route, APIRoute)}
    assert len(made) > 30


def _check_scopes(
    programs: Mapping[tuple[str, ...], TestClient], number: int, method: str, path: str
) -> None:
    opens, status, body = ROUTES[method, path]

    def ask(*scopes: str) -> int:
        address = path.format(number=number, name="lb1")
        answer = programs[scopes].request(method, address, json=body, params=QUERY.get(path))
        assert answer.headers["cache-control"] == "no-store"
        return answer.status_code

    expected = {scope: status if scope in opens else 403 for scope in SCOPES}
    assert {scope: ask(scope) for scope in SCOPES} == expected
    assert ask() == 401


@pytest.mark.parametrize(("method", "path"), HARMLESS)
def test_api_route_needs_one_of_its_scopes(shown: Shown, method: str, path: str):
    _check_scopes(shown.programs, shown.numbers["denied"], method, path)


@pytest.mark.parametrize(("method", "path"), sorted(ROUTES.keys() - HARMLESS))
def test_api_route_that_acts_needs_one_of_its_scopes(
    api_harness: ApiHarness, method: str, path: str
):
    number = add_sample_runs(api_harness.database)["denied"]
    _check_scopes(_start_programs(api_harness), number, method, path)


def test_no_api_route_accepts_the_token_of_an_agent(api_harness: ApiHarness):
    add_agent(api_harness.harness)
    _, secret = api_harness.harness.service.agents.create_token(
        "triage-bot", behalf="olga", days=1
    )
    program = api_harness.program()
    program.headers["Authorization"] = f"Bearer {secret}"
    routes = [route for route in everything(api_harness.api.routes) if isinstance(route, APIRoute)]
    statuses = {
        (method, route.path): program.request(
            method,
            route.path.format(number=1, name="lb1"),
            json=ROUTES[method, route.path][2],
            params=QUERY.get(route.path),
        ).status_code
        for route in routes
        for method in route.methods or ()
    }
    assert len(statuses) > 30
    assert set(statuses.values()) == {403}


@pytest.mark.parametrize("path", sorted({path for method, path in ROUTES if method == "GET"}))
def test_get_and_head_api_requests_change_nothing(shown: Shown, path: str):
    program = shown.programs["request", "approve"]
    address = path.format(number=shown.numbers["pending"], name="lb1")
    before = shown.harness.list_entry_kinds()
    for method in ("GET", "HEAD"):
        program.request(method, address, params=QUERY.get(path))
    assert shown.harness.list_entry_kinds() == before


@pytest.mark.parametrize(
    "path", ["/nope", "/runs/0", "/runs/x", "/runs/9999", f"/runs/{2**70}", "/hosts/nope"]
)
def test_unknown_api_address_gets_a_problem_with_404(api_harness: ApiHarness, path: str):
    answer = api_harness.program("olga").get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["title"] == "Not found"
    assert answer.json()["instance"] == f"{API}{path}"


def test_unsupported_api_method_gets_a_problem_with_405(api_harness: ApiHarness):
    answer = api_harness.program("olga", "request").delete("/runs/1")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert answer.headers["content-type"] == "application/problem+json"


def test_every_openapi_operation_has_an_id_and_problem_responses(api_harness: ApiHarness):
    description = api_harness.program().get("/openapi.json").json()
    assert description["openapi"].startswith("3.1")
    assert description["servers"] == [{"url": API}]
    operations = [op for path in description["paths"].values() for op in path.values()]
    names = [op["operationId"] for op in operations]
    assert len(set(names)) == len(names) == len(ROUTES)
    for operation in operations:
        assert operation["security"]
        for status in ("401", "403", "422", "429", "503"):
            assert list(operation["responses"][status]["content"]) == ["application/problem+json"]


def test_api_has_no_route_for_break_glass_tokens_grants_or_bans(api_harness: ApiHarness):
    paths = " ".join(path for _, path in ROUTES)
    for word in ("glass", "token", "grant", "delegat", "factor", "ban", "sign-in"):
        assert word not in paths
