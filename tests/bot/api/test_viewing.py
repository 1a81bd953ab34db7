"""The right to view, at every API route. Enter new routes here, with a decision."""

from collections.abc import Generator

import pytest
from fastapi.testclient import TestClient

from tests.bot.api.conftest import ApiHarness, create_api_harness
from tests.bot.api.test_routes import QUERY
from tests.bot.api.test_routes import ROUTES as ALL
from tests.bot.features.tables import collect
from tests.bot.restricted_view import (
    HIDDEN,
    SHOWN,
    RestrictedHarness,
    mask_number,
    open_restricted_harness,
)

# What a route does with what the caller may not view.
#   run, schedule, value: one that may not be viewed answers as one that does not exist
#   leaves out: tells of others alone
#   refuses: it needs the right to view every run
#   tells of none: no run, entry or schedule is in it
ROUTES = {
    ("GET", "/me"): "tells of none",
    ("GET", "/runbooks"): "tells of none",
    ("GET", "/hosts"): "leaves out",
    ("GET", "/hosts/{name}"): "leaves out",
    ("GET", "/hosts/{name}/options"): "tells of none",
    ("GET", "/pending"): "leaves out",
    ("GET", "/access"): "tells of none",
    ("GET", "/policy"): "tells of none",
    ("GET", "/locks"): "leaves out",
    ("GET", "/changes"): "leaves out",
    ("GET", "/views"): "tells of none",
    ("GET", "/views/{number}"): "tells of none",
    ("POST", "/views"): "tells of none",
    ("POST", "/views/{number}/delete"): "tells of none",
    ("GET", "/log"): "leaves out",
    ("GET", "/log/{number}/proof"): "leaves out",
    ("POST", "/log/verify"): "refuses",
    ("GET", "/policy/preview"): "tells of none",
    ("GET", "/runs"): "leaves out",
    ("GET", "/runs/{number}"): "run",
    ("GET", "/runs/{number}/document"): "run",
    ("GET", "/runs/{number}/progress"): "run",
    ("POST", "/runs/{number}/verify"): "run",
    ("GET", "/runs/{number}/proof"): "run",
    ("POST", "/runs"): "tells of none",
    ("POST", "/runs/{number}/approve"): "run",
    ("POST", "/runs/{number}/sign"): "run",
    ("POST", "/runs/{number}/hold"): "run",
    ("POST", "/runs/{number}/deny"): "run",
    ("POST", "/runs/{number}/question"): "run",
    ("POST", "/runs/{number}/answer"): "run",
    ("POST", "/runs/{number}/reassign"): "run",
    ("POST", "/runs/{number}/counter"): "run",
    ("POST", "/runs/{number}/accept"): "run",
    ("POST", "/runs/{number}/withdraw"): "run",
    ("POST", "/runs/{number}/stop"): "run",
    ("POST", "/runs/{number}/undo"): "run",
    ("POST", "/runs/{number}/request"): "run",
    ("POST", "/runs/{number}/replan"): "run",
    ("POST", "/plans"): "tells of none",
    ("POST", "/runs/{number}/again"): "run",
    ("POST", "/runs/{number}/resolve"): "run",
    ("POST", "/runs/{number}/review"): "run",
    ("GET", "/health"): "tells of none",
    ("POST", "/undo"): "tells of none",
    **collect("ROUTES_VIEWING"),
}
# Nothing that it leaves out has words of its own: see the test of its counts, and of what is held.
WORDLESS = {
    *("/report/waiting", "/locks", "/hosts", "/hosts/{name}", "/hosts/{name}/rebuild"),
    "/log/{number}/proof",
}
ABSENT = 987_654
# What features keep, by what the tables call it.
RECORDS = sorted(collect("RECORDS"))


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Generator[RestrictedHarness]:
    """One harness for all tests that only read: to fill it takes longer than any of them."""
    with open_restricted_harness(tmp_path_factory.mktemp("harness")) as restricted:
        yield restricted


@pytest.fixture(scope="module")
def restricted_desk(restricted: RestrictedHarness) -> Generator[ApiHarness]:
    yield from _a_desk(restricted)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Generator[RestrictedHarness]:
    """Another harness, for tests that also send forms or orders."""
    with open_restricted_harness(tmp_path_factory.mktemp("used")) as restricted:
        yield restricted


@pytest.fixture(scope="module")
def used_desk(used: RestrictedHarness) -> Generator[ApiHarness]:
    yield from _a_desk(used)


@pytest.fixture(scope="module")
def program(used_desk: ApiHarness) -> TestClient:
    """Of Dora. She has one token: how many a person may have is limited."""
    return used_desk.program("dora", "read", "request", "approve")


def _a_desk(restricted: RestrictedHarness) -> Generator[ApiHarness]:
    api_harness = create_api_harness(restricted.harness)
    yield api_harness
    for program in api_harness.programs:
        program.close()


def _of(decision: str) -> list[tuple[str, str]]:
    return [route for route, decided in ROUTES.items() if decided == decision]


def _ask(program: TestClient, method: str, path: str, number: int) -> tuple[int, str]:
    """Return the status and the text, in which the number is left out."""
    query = QUERY.get(path)
    if path == "/log":
        query = {"limit": 500}
    answer = program.request(
        method,
        path.format(number=number, name="web1" if "choices" in path else "lb2"),
        json=ALL[method, path][2],
        params=query,
    )
    return answer.status_code, mask_number(number, answer.text)


def test_viewing_test_covers_every_api_route():
    assert set(ROUTES) == set(ALL)


@pytest.mark.parametrize(("method", "path"), _of("run"))
def test_api_answers_for_a_hidden_run_as_for_a_missing_run(
    used: RestrictedHarness, program: TestClient, method: str, path: str
):
    absent = _ask(program, method, path, ABSENT)
    assert absent[0] == 404
    for run in used.hidden.values():
        assert _ask(program, method, path, run.id) == absent
    assert _ask(program, method, path, used.shown.id)[0] != 404


@pytest.mark.parametrize(
    ("method", "path", "kind"), [(*route, kind) for kind in RECORDS for route in _of(kind)]
)
def test_api_answers_for_a_hidden_record_as_for_a_missing_one(
    used: RestrictedHarness, program: TestClient, method: str, path: str, kind: str
):
    hidden, shown = used.records[kind]
    absent = _ask(program, method, path, ABSENT)
    assert absent[0] == 404
    assert _ask(program, method, path, hidden) == absent
    assert _ask(program, method, path, shown)[0] != 404


@pytest.mark.parametrize(("method", "path"), _of("leaves out"))
def test_api_lists_leave_out_hidden_runs(
    restricted: RestrictedHarness, restricted_desk: ApiHarness, method: str, path: str
):
    _, text = _ask(restricted_desk.program("dora", "read"), method, path, restricted.shown.id)
    assert HIDDEN not in text
    _, whole = _ask(restricted_desk.program("adam", "read"), method, path, restricted.shown.id)
    if path not in WORDLESS:
        assert HIDDEN in whole


@pytest.mark.parametrize("path", ["/runs", "/log"])
def test_api_lists_show_runs_with_the_right_to_view(
    restricted: RestrictedHarness, restricted_desk: ApiHarness, path: str
):
    _, text = _ask(restricted_desk.program("dora", "read"), "GET", path, restricted.shown.id)
    assert SHOWN in text


@pytest.mark.parametrize(("method", "path"), _of("tells of none"))
def test_api_routes_about_no_run_show_no_hidden_run(
    used: RestrictedHarness, program: TestClient, method: str, path: str
):
    assert HIDDEN not in _ask(program, method, path, used.hidden["done"].id)[1]


@pytest.mark.parametrize(("method", "path"), _of("refuses"))
def test_api_change_log_verification_needs_the_right_to_view_every_run(
    used: RestrictedHarness, used_desk: ApiHarness, program: TestClient, method: str, path: str
):
    status, text = _ask(program, method, path, used.shown.id)
    assert status == 403
    assert "needs the right to view every run" in text
    assert _ask(used_desk.program("adam", "read"), method, path, used.shown.id)[0] == 200


def test_entry_of_a_hidden_run_is_proved_only_with_the_right_to_view_it(
    restricted: RestrictedHarness, restricted_desk: ApiHarness
):
    dora, adam = (restricted_desk.program(person, "read") for person in ("dora", "adam"))
    run = restricted.hidden["done"].id
    entries = adam.get("/log", params={"limit": 500}).json()["entries"]
    number = next(entry["seq"] for entry in entries if entry["run"] == run)
    assert adam.get(f"/log/{number}/proof").json()["proof"].startswith("c2sp.org/tlog-proof@v1")
    absent, hidden = (dora.get(f"/log/{each}/proof") for each in (ABSENT, number))
    assert absent.status_code == hidden.status_code == 404
    assert absent.json()["type"] == hidden.json()["type"]


def test_host_lock_shows_its_run_only_with_the_right_to_view_it(
    restricted: RestrictedHarness, restricted_desk: ApiHarness
):
    def holders(person: str) -> list[int]:
        body = restricted_desk.program(person, "read").get("/locks").json()
        return [one["run"] for one in body["locks"]]

    assert holders("adam") == [restricted.hidden["pending"].id]
    assert holders("dora") == []


def test_run_filters_match_no_hidden_run(restricted_desk: ApiHarness):
    """A name that only hidden runs have is as one that never was."""
    program = restricted_desk.program("dora", "read")
    for filters in ({"search": HIDDEN}, {"host": "lb1"}, {"area": "edge"}, {"person": "adam"}):
        body = program.get("/runs", params=filters).json()
        assert (body["runs"], body["next"]) == ([], None)


def test_change_log_shows_entries_of_the_caller_without_view_rights(
    restricted: RestrictedHarness, restricted_desk: ApiHarness
):
    body = restricted_desk.program("dora", "read").get("/log", params={"limit": 500}).json()
    others = [one for one in body["entries"] if one["person"] != "dora"]
    assert {restricted.harness.get_run(one["run"]).area for one in others} == {"web"}
    assert "token created" in {one["kind"] for one in body["entries"]}
