"""Origin check, size limits and security headers of every web response."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from bot.model.run import State
from bot.web import middleware
from tests.bot.harness import Harness
from tests.bot.web.conftest import ORIGIN, Site, create_site
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")

FOREIGN = {
    "another site": {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    "another site in an old browser": {"Origin": "https://evil.example"},
    "a sandboxed frame": {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    "a sandboxed frame in an old browser": {"Origin": "null"},
    "a neighbour of ours": {"Origin": "http://other.keyturn.test", "Sec-Fetch-Site": "same-site"},
    "the same name on another port": {"Origin": f"{ORIGIN}:81"},
    "the same name with another scheme": {"Origin": ORIGIN.replace("http", "https")},
    "a name that begins like ours": {"Origin": f"{ORIGIN}.evil.example"},
    "our origin, if the browser knows better": {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"},
    "another origin that claims to be us": {
        "Origin": "https://evil.example",
        "Sec-Fetch-Site": "same-origin",
    },
    "the address bar": {"Sec-Fetch-Site": "none"},
    "no browser": {},
}


def _approve(browser: TestClient, number: int, digest: str, headers: dict[str, str]) -> int:
    for name in ("Origin", "Sec-Fetch-Site"):
        browser.headers.pop(name, None)
    return browser.post(
        f"/runs/{number}/approve", data={"digest": digest}, headers=headers
    ).status_code


def _always(_headers: object, _origin: str) -> bool:
    return True


@pytest.mark.parametrize("origin", FOREIGN)
def test_cross_origin_approval_is_refused(site: Site, origin: str) -> None:
    run = site.harness.request(LAMP_ON)
    assert _approve(site.browser("olga"), run.id, run.digest, FOREIGN[origin]) == 403
    assert site.harness.get_run(run.id).state is State.PENDING


@pytest.mark.parametrize("origin", FOREIGN)
def test_without_the_origin_check_a_cross_origin_approval_is_accepted(
    site: Site, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "is_same_origin", _always)
    run = site.harness.request(LAMP_ON)
    assert _approve(site.browser("olga"), run.id, run.digest, FOREIGN[origin]) == 303
    assert site.harness.get_run(run.id).state is State.QUEUED


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"},
        {"Origin": ORIGIN},
        {"Sec-Fetch-Site": "same-origin"},
    ],
)
def test_same_origin_approval_is_accepted(site: Site, headers: dict[str, str]) -> None:
    run = site.harness.request(LAMP_ON)
    assert _approve(site.browser("olga"), run.id, run.digest, headers) == 303


@pytest.mark.parametrize("origin", ["https://evil.example", "null", ORIGIN])
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_no_response_has_cors_headers(site: Site, origin: str, method: str) -> None:
    answer = site.browser("olga").request(
        method, "/runs", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
    )
    assert [name for name in answer.headers if name.startswith("access-control")] == []


PAGES = [
    "/",
    "/runs",
    "/changelog",
    "/healthz",
    "/readyz",
    "/nope",
    "/sign-in/x",
    "/static/theme.js",
]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("person", ["", "olga"])
def test_every_response_has_security_headers(site: Site, path: str, person: str) -> None:
    headers = site.browser(person).get(path).headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["form-action"] == policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")


def test_internal_error_page_has_security_headers_and_no_details(site: Site) -> None:
    @site.app.get("/fault")
    def fault() -> None:
        raise RuntimeError("the secret recipe")

    answer = site.browser("olga").get("/fault")
    assert answer.status_code == 500
    assert "Internal error" in answer.text
    assert "secret recipe" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


def test_static_file_with_a_version_is_cached_as_immutable(site: Site) -> None:
    answer = site.browser().get("/static/keyturn.css?v=123")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_hsts_header_is_sent_over_https_only(harness: Harness, site: Site) -> None:
    assert "strict-transport-security" not in site.browser().get("/healthz").headers
    secure = create_site(harness, "https://keyturn.test")
    with TestClient(secure.app, base_url="https://keyturn.test") as browser:
        assert "strict-transport-security" in browser.get("/healthz").headers


def test_request_body_over_the_limit_is_refused_by_its_content_length(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    answer = site.browser("olga").post(
        f"/runs/{run.id}/deny", data={"reason": "x" * middleware.MAX_BODY_BYTES}
    )
    assert answer.status_code == 413
    assert site.harness.get_run(run.id).state is State.PENDING


def test_chunked_request_body_over_the_limit_is_refused(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        yield b"reason="
        while True:
            taken += 16_384
            yield b"x" * 16_384
            assert taken < 64 * middleware.MAX_BODY_BYTES

    answer = site.browser("olga").post(
        f"/runs/{run.id}/deny",
        content=(chunk for chunk, _ in zip(endless(), range(100), strict=False)),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 413
    assert site.harness.get_run(run.id).state is State.PENDING


def test_form_with_too_many_fields_is_refused(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    fields = {f"field{n}": "x" for n in range(101)}
    browser = site.browser("olga")
    assert browser.post(f"/runs/{run.id}/deny", data=fields).status_code == 400
    many = b"&".join(b"%d=x" % n for n in range(10_000))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = browser.post(f"/runs/{run.id}/deny", content=many, headers=form)
    assert answer.status_code == 400
    assert site.harness.get_run(run.id).state is State.PENDING


def test_form_with_a_file_upload_is_refused(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    answer = site.browser("olga").post(f"/runs/{run.id}/deny", files={"reason": b"x"})
    assert answer.status_code == 400
    assert site.harness.get_run(run.id).state is State.PENDING
