"""The right to view, on every page. Enter new routes here, with a decision."""

from collections.abc import Generator

import pytest
from fastapi.testclient import TestClient

from tests.bot.features.tables import collect
from tests.bot.restricted_view import (
    HIDDEN,
    SHOWN,
    RestrictedHarness,
    mask_number,
    open_restricted_harness,
)
from tests.bot.web.conftest import Site, create_site
from tests.bot.web.test_routes import NAMES
from tests.bot.web.test_routes import ROUTES as ALL

# What a page does with what the visitor may not view; see the table of the API's routes.
ROUTES = {
    ("GET", "/"): "leaves out",
    ("GET", "/runs"): "leaves out",
    ("GET", "/runs.csv"): "leaves out",
    ("GET", "/runs.json"): "leaves out",
    ("GET", "/search"): "leaves out",
    ("GET", "/search/suggestions"): "leaves out",
    ("GET", "/runs/{number}"): "run",
    ("GET", "/runs/{number}/live"): "run",
    ("GET", "/runs/{number}/output/{step}.txt"): "run",
    ("GET", "/runs/compare"): "run",
    ("GET", "/runs/{number}/stream"): "run",
    ("GET", "/stream"): "leaves out",
    ("POST", "/runs/{number}/verify"): "run",
    ("GET", "/runs/{number}/proof"): "run",
    ("POST", "/runs/{number}/approve"): "run",
    ("GET", "/runs/{number}/sign"): "run",
    ("GET", "/sign"): "tells of none",
    ("GET", "/signatures/next"): "tells of none",
    ("POST", "/signatures"): "tells of none",
    ("POST", "/runs/{number}/hold"): "run",
    ("POST", "/runs/{number}/deny"): "run",
    ("POST", "/runs/{number}/withdraw"): "run",
    ("POST", "/runs/{number}/stop"): "run",
    ("POST", "/runs/{number}/undo"): "run",
    ("POST", "/runs/{number}/request"): "run",
    ("POST", "/runs/{number}/replan"): "run",
    ("POST", "/runs/{number}/resolve"): "run",
    ("POST", "/runs/{number}/break-glass"): "run",
    ("POST", "/runs/{number}/review"): "run",
    ("POST", "/runs/{number}/question"): "run",
    ("POST", "/runs/{number}/answer"): "run",
    ("POST", "/runs/{number}/reassign"): "run",
    ("POST", "/runs/{number}/counter"): "run",
    ("POST", "/runs/{number}/accept"): "run",
    ("GET", "/second-factor"): "tells of none",
    ("POST", "/second-factor/app"): "tells of none",
    ("GET", "/second-factor/app/{number}"): "tells of none",
    ("POST", "/second-factor/app/{number}"): "tells of none",
    ("POST", "/second-factor/key/options"): "tells of none",
    ("POST", "/second-factor/key"): "tells of none",
    ("POST", "/second-factor/{number}/confirm"): "tells of none",
    ("POST", "/second-factor/{number}/remove"): "tells of none",
    ("GET", "/step-up"): "tells of none",
    ("POST", "/step-up/code"): "tells of none",
    ("POST", "/step-up/options"): "tells of none",
    ("POST", "/step-up/key"): "tells of none",
    ("GET", "/access"): "tells of none",
    ("POST", "/access/delegations"): "tells of none",
    ("POST", "/access/delegations/{number}/end"): "tells of none",
    ("POST", "/access/grants"): "tells of none",
    ("POST", "/access/grants/{number}/end"): "tells of none",
    ("GET", "/tokens"): "tells of none",
    ("POST", "/tokens"): "tells of none",
    ("POST", "/tokens/{number}/confirm"): "tells of none",
    ("POST", "/tokens/{number}/revoke"): "tells of none",
    ("GET", "/hosts"): "leaves out",
    ("GET", "/hosts/{name}"): "leaves out",
    ("GET", "/changes"): "leaves out",
    ("GET", "/health"): "tells of none",
    ("GET", "/runbooks"): "tells of none",
    ("GET", "/runbooks/form"): "tells of none",
    ("GET", "/runbooks/options"): "tells of none",
    ("GET", "/runbooks/preview"): "tells of none",
    ("POST", "/runbooks"): "tells of none",
    ("GET", "/views/{number}"): "tells of none",
    ("POST", "/views"): "tells of none",
    ("POST", "/views/{number}/delete"): "tells of none",
    ("GET", "/changelog"): "leaves out",
    ("GET", "/changelog.csv"): "leaves out",
    ("GET", "/changelog.json"): "leaves out",
    ("GET", "/changelog/entries/{number}/proof"): "tells of none",
    ("POST", "/changelog/verify"): "refuses",
    ("GET", "/policy"): "tells of none",
    ("GET", "/policy/{person}"): "tells of none",
    ("GET", "/sign-in/{token}"): "tells of none",
    ("POST", "/sign-in/{token}"): "tells of none",
    ("POST", "/sign-out"): "tells of none",
    ("GET", "/oidc/start"): "tells of none",
    ("GET", "/oidc/callback"): "tells of none",
    ("GET", "/sessions"): "tells of none",
    ("POST", "/sessions/{session}/end"): "tells of none",
    ("POST", "/sessions/end-all"): "tells of none",
    ("GET", "/bans"): "tells of none",
    ("POST", "/bans"): "tells of none",
    ("POST", "/bans/lift"): "tells of none",
    ("GET", "/stop"): "tells of none",
    ("POST", "/stop"): "tells of none",
    ("POST", "/stop/resume"): "tells of none",
    ("GET", "/healthz"): "tells of none",
    ("GET", "/readyz"): "tells of none",
    **collect("PAGES_VIEWING"),
}
# What they leave out has no words of its own: numbers, and the runs that hold a host.
WORDLESS = {"/hosts", "/report", "/stream", "/search/suggestions"}
ABSENT = 987_654
# What features keep, by what the tables call it.
RECORDS = sorted(collect("RECORDS"))


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Generator[RestrictedHarness]:
    """One harness for all tests that only read: to fill it takes longer than any of them."""
    with open_restricted_harness(tmp_path_factory.mktemp("harness")) as restricted:
        yield restricted


@pytest.fixture(scope="module")
def restricted_site(restricted: RestrictedHarness) -> Generator[Site]:
    yield from _a_site(restricted)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Generator[RestrictedHarness]:
    """Another harness, for tests that also send forms or orders."""
    with open_restricted_harness(tmp_path_factory.mktemp("used")) as restricted:
        yield restricted


@pytest.fixture(scope="module")
def used_site(used: RestrictedHarness) -> Generator[Site]:
    yield from _a_site(used)


def _a_site(restricted: RestrictedHarness) -> Generator[Site]:
    site = create_site(restricted.harness)
    yield site
    for browser in site.browsers:
        browser.close()


def _of(decision: str) -> list[tuple[str, str]]:
    return [route for route, decided in ROUTES.items() if decided == decision]


def _open(browser: TestClient, method: str, path: str, number: int) -> tuple[int, str]:
    """Return the status and the text, in which the number is left out."""
    names = {**NAMES, "name": "lb1"}
    query = {
        "/runs/compare": {"b": str(number)},
        "/search": {"q": "reason"},
        "/search/suggestions": {"q": "reason"},
    }.get(path)
    form = {"reason": "it has to be done now, really", "ending": "failed", "why": "I looked"}
    answer = browser.request(
        method,
        path.format(number=number, **names),
        params=query,
        data=form if method == "POST" else None,
    )
    return answer.status_code, mask_number(number, answer.text)


def test_viewing_test_covers_every_web_route():
    assert set(ROUTES) == set(ALL)


@pytest.mark.parametrize(("method", "path"), _of("run"))
def test_page_of_a_hidden_run_answers_as_for_a_missing_run(
    used: RestrictedHarness, used_site: Site, method: str, path: str
):
    browser = used_site.browser("dora")
    absent = _open(browser, method, path, ABSENT)
    assert absent[0] == 404
    for run in used.hidden.values():
        assert _open(browser, method, path, run.id) == absent
    if "output" not in path:
        assert _open(browser, method, path, used.shown.id)[0] != 404


@pytest.mark.parametrize(
    ("method", "path", "kind"), [(*route, kind) for kind in RECORDS for route in _of(kind)]
)
def test_page_of_a_hidden_record_answers_as_for_a_missing_one(
    used: RestrictedHarness, used_site: Site, method: str, path: str, kind: str
):
    browser = used_site.browser("dora")
    hidden, shown = used.records[kind]
    absent = _open(browser, method, path, ABSENT)
    assert absent[0] == 404
    assert _open(browser, method, path, hidden) == absent
    assert _open(browser, method, path, shown)[0] != 404


@pytest.mark.parametrize(("method", "path"), _of("leaves out"))
def test_list_pages_leave_out_hidden_runs(
    restricted: RestrictedHarness, restricted_site: Site, method: str, path: str
):
    _, shown = _open(restricted_site.browser("dora"), method, path, restricted.shown.id)
    assert HIDDEN not in shown
    for run in restricted.hidden.values():
        assert f"/runs/{run.id}" not in shown
    _, whole = _open(restricted_site.browser("adam"), method, path, restricted.shown.id)
    if path not in WORDLESS:
        assert HIDDEN in whole or f"/runs/{restricted.hidden['done'].id}" in whole


@pytest.mark.parametrize("path", ["/", "/runs", "/runs.csv", "/runs.json", "/changelog"])
def test_list_pages_show_runs_with_the_right_to_view(
    restricted: RestrictedHarness, restricted_site: Site, path: str
):
    _, shown = _open(restricted_site.browser("dora"), "GET", path, restricted.shown.id)
    assert SHOWN in shown or f"/runs/{restricted.shown.id}" in shown


@pytest.mark.parametrize(("method", "path"), _of("tells of none"))
def test_pages_about_no_run_show_no_hidden_run(
    used: RestrictedHarness, used_site: Site, method: str, path: str
):
    assert HIDDEN not in _open(used_site.browser("dora"), method, path, used.hidden["done"].id)[1]


@pytest.mark.parametrize(("method", "path"), _of("refuses"))
def test_change_log_verification_needs_the_right_to_view_every_run(
    used: RestrictedHarness, used_site: Site, method: str, path: str
):
    status, shown = _open(used_site.browser("dora"), method, path, used.shown.id)
    assert status == 403
    assert "needs the right to view every run" in shown
    assert _open(used_site.browser("adam"), method, path, used.shown.id)[0] == 200


def test_form_does_not_offer_values_of_hidden_runs(
    restricted: RestrictedHarness, restricted_site: Site
):
    path = "/runbooks/form?runbook=toy+set&field-host=lb1&host=lb1"
    assert HIDDEN not in restricted_site.browser("dora").get(path).text
