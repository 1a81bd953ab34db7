"""Every web route and its status, signed in and signed out. Enter new routes here."""

from collections.abc import Generator, Iterable, Iterator, Mapping

import pytest
from starlette.routing import Route

from tests.bot.features.tables import collect
from tests.bot.harness import open_harness
from tests.bot.web.conftest import Site, create_site
from tests.bot.web.sample_runs import add_sample_runs

# method, path → status for a stranger, status for somebody signed in.
ROUTES = {
    ("GET", "/"): (401, 200),
    ("GET", "/runs"): (401, 200),
    ("GET", "/runs.csv"): (401, 200),
    ("GET", "/runs.json"): (401, 200),
    ("GET", "/runs/{number}"): (401, 200),
    ("GET", "/runs/{number}/live"): (401, 200),
    ("GET", "/runs/{number}/output/{step}.txt"): (401, 404),
    ("GET", "/runs/compare"): (401, 404),
    ("GET", "/runs/{number}/stream"): (401, 200),
    ("GET", "/stream"): (401, 200),
    ("POST", "/runs/{number}/verify"): (401, 200),
    ("GET", "/runs/{number}/proof"): (401, 200),
    ("POST", "/runs/{number}/approve"): (401, 409),
    ("GET", "/runs/{number}/sign"): (401, 403),
    ("GET", "/sign"): (200, 200),
    ("GET", "/signatures/next"): (401, 303),
    ("POST", "/signatures"): (422, 422),
    ("POST", "/runs/{number}/hold"): (401, 409),
    ("POST", "/runs/{number}/deny"): (401, 409),
    ("POST", "/runs/{number}/withdraw"): (401, 403),
    ("POST", "/runs/{number}/stop"): (401, 409),
    ("POST", "/runs/{number}/undo"): (401, 422),
    ("POST", "/runs/{number}/request"): (401, 403),
    ("POST", "/runs/{number}/replan"): (401, 403),
    ("POST", "/runs/{number}/resolve"): (401, 422),
    ("POST", "/runs/{number}/break-glass"): (401, 422),
    ("POST", "/runs/{number}/review"): (401, 422),
    ("GET", "/second-factor"): (401, 200),
    ("POST", "/second-factor/app"): (401, 303),
    ("GET", "/second-factor/app/{number}"): (401, 404),
    ("POST", "/second-factor/app/{number}"): (401, 422),
    ("POST", "/second-factor/key/options"): (401, 422),
    ("POST", "/second-factor/key"): (401, 422),
    ("POST", "/second-factor/{number}/confirm"): (401, 422),
    ("POST", "/second-factor/{number}/remove"): (401, 422),
    ("GET", "/step-up"): (401, 200),
    ("POST", "/step-up/code"): (401, 403),
    ("POST", "/step-up/options"): (401, 422),
    ("POST", "/step-up/key"): (401, 422),
    ("POST", "/runs/{number}/question"): (401, 422),
    ("POST", "/runs/{number}/answer"): (401, 422),
    ("POST", "/runs/{number}/reassign"): (401, 409),
    ("POST", "/runs/{number}/counter"): (401, 409),
    ("POST", "/runs/{number}/accept"): (401, 403),
    ("GET", "/access"): (401, 200),
    ("POST", "/access/delegations"): (401, 422),
    ("POST", "/access/delegations/{number}/end"): (401, 422),
    ("POST", "/access/grants"): (401, 422),
    ("POST", "/access/grants/{number}/end"): (401, 422),
    ("GET", "/tokens"): (401, 200),
    ("POST", "/tokens"): (401, 422),
    ("POST", "/tokens/{number}/confirm"): (401, 422),
    ("POST", "/tokens/{number}/revoke"): (401, 422),
    ("GET", "/hosts"): (401, 200),
    ("GET", "/hosts/{name}"): (401, 200),
    ("GET", "/changes"): (401, 200),
    ("GET", "/health"): (401, 200),
    ("GET", "/runbooks"): (401, 200),
    ("GET", "/runbooks/form"): (401, 404),
    ("GET", "/runbooks/options"): (401, 404),
    ("GET", "/runbooks/preview"): (401, 404),
    ("POST", "/runbooks"): (401, 404),
    ("GET", "/search/suggestions"): (401, 200),
    ("GET", "/search"): (401, 200),
    ("GET", "/views/{number}"): (401, 404),
    ("POST", "/views"): (401, 422),
    ("POST", "/views/{number}/delete"): (401, 404),
    ("GET", "/changelog"): (401, 200),
    ("GET", "/changelog.csv"): (401, 200),
    ("GET", "/changelog.json"): (401, 200),
    ("GET", "/changelog/entries/{number}/proof"): (401, 200),
    ("POST", "/changelog/verify"): (401, 200),
    ("GET", "/policy"): (401, 200),
    ("GET", "/policy/{person}"): (401, 200),
    ("GET", "/sign-in/{token}"): (200, 200),
    ("POST", "/sign-in/{token}"): (410, 410),
    ("POST", "/sign-out"): (200, 200),
    ("GET", "/oidc/start"): (404, 404),
    ("GET", "/oidc/callback"): (404, 404),
    ("GET", "/sessions"): (401, 200),
    ("POST", "/sessions/{session}/end"): (401, 303),
    ("POST", "/sessions/end-all"): (401, 200),
    ("GET", "/bans"): (401, 200),
    ("POST", "/bans"): (401, 422),
    ("POST", "/bans/lift"): (401, 422),
    ("GET", "/stop"): (401, 200),
    ("POST", "/stop"): (401, 422),
    ("POST", "/stop/resume"): (401, 422),
    ("GET", "/healthz"): (200, 200),
    ("GET", "/readyz"): (200, 200),
    **collect("PAGES"),
}
# What stands in an address for something that is not a run.
NAMES = {"token": "x" * 43, "person": "dora", "name": "lb1", "session": "0" * 16, "step": "1"}


@pytest.fixture(scope="module")
def gallery_site(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[tuple[Site, Mapping[str, int]]]:
    """The pages of one harness for all tests of addresses, and its runs by what they show."""
    with open_harness(tmp_path_factory.mktemp("harness")) as harness:
        site = create_site(harness)
        yield site, add_sample_runs(site.database)
        for browser in site.browsers:
            browser.close()


def everything(routes: Iterable[object]) -> Iterator[object]:
    """Yield every route, those of included routers too."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from everything(inner.routes)


def test_every_web_route_is_in_the_table(site: Site) -> None:
    routes = [route for route in everything(site.app.routes) if isinstance(route, Route)]
    served = {
        # Whatever may be got may be asked for its head: the guard sees to that.
        (method, route.path)
        for route in routes
        for method in (route.methods or set[str]()) - {"HEAD"}
    }
    assert served == set(ROUTES)


def test_web_app_serves_only_routes_and_static_files(site: Site) -> None:
    others = [route for route in everything(site.app.routes) if not isinstance(route, Route)]
    assert [getattr(route, "path", route) for route in others] == ["/static"]


def test_web_route_missing_from_the_table_is_detected(site: Site) -> None:
    @site.app.get("/backdoor")
    def backdoor() -> None: ...

    with pytest.raises(AssertionError):
        test_every_web_route_is_in_the_table(site)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_web_route_has_the_status_of_the_table_signed_in_and_out(
    gallery_site: tuple[Site, Mapping[str, int]], method: str, path: str
) -> None:
    site, numbers = gallery_site
    address = path.format(number=numbers["denied"], **NAMES)
    answers = [site.browser(person).request(method, address) for person in ("", "olga")]
    assert tuple(answer.status_code for answer in answers) == ROUTES[method, path]


@pytest.mark.parametrize("path", sorted({path for method, path in ROUTES if method == "GET"}))
def test_get_and_head_requests_change_nothing(
    gallery_site: tuple[Site, Mapping[str, int]], path: str
) -> None:
    site, numbers = gallery_site
    before = site.harness.list_entry_kinds()
    browser = site.browser("olga")
    for method in ("GET", "HEAD"):
        browser.request(method, path.format(number=numbers["pending"], **NAMES))
    assert site.harness.list_entry_kinds() == before
    assert site.harness.fleet.sent == []


@pytest.mark.parametrize(
    "path",
    sorted(path for method, path in ROUTES if method == "POST" and ("GET", path) not in ROUTES),
)
def test_post_route_refuses_get_with_405(
    gallery_site: tuple[Site, Mapping[str, int]], path: str
) -> None:
    site, numbers = gallery_site
    answer = site.browser("olga").get(path.format(number=numbers["pending"], **NAMES))
    assert answer.status_code == 405
    assert "Method not allowed" in answer.text


@pytest.mark.parametrize(
    "path", ["/nope", "/runs/0", "/runs/x", "/runs/9999", f"/runs/{2**70}", "/static/nope.js"]
)
def test_unknown_page_is_not_found(site: Site, path: str) -> None:
    answer = site.browser("olga").get(path)
    assert answer.status_code == 404
    assert "Page not found" in answer.text
    assert "Traceback" not in answer.text


def test_head_request_has_the_headers_of_get(site: Site) -> None:
    browser = site.browser("olga")
    head, get = browser.head("/runs"), browser.get("/runs")
    assert head.status_code == 200
    assert head.headers["content-security-policy"] == get.headers["content-security-policy"]
