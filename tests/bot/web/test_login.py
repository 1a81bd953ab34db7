"""Sign-in by a one-time link, and the end of sessions."""

import base64
import logging
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from bot.audit import change_log
from bot.auth import sessions
from bot.db import tables
from bot.db.database import StoreUnavailable, Transaction
from bot.web import build_app
from bot.web.redirects import MAX_LENGTH, get_safe_page
from tests.bot.harness import Harness
from tests.bot.web.conftest import ORIGIN, Site, create_site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_sample_runs
from tests.row_macs import change_rows

ROOT = Path(__file__).parents[3]


def test_sign_in_link_signs_in_by_its_button(site: Site) -> None:
    browser = site.browser()
    link = site.link("dora")
    page = browser.get(link)
    assert page.status_code == 200
    assert "Sign in to Keyturn" in page.text

    answer = browser.post(link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "Dora Developer" in browser.get("/").text
    assert "signed in" in site.harness.list_entry_kinds()


def test_sign_in_link_shows_the_person_it_signs_in(site: Site) -> None:
    page = site.browser().get(site.link("dora")).text
    assert "This link signs you in as <strong>Dora Developer</strong>" in page
    assert "Sign in as Dora Developer" in page


@pytest.mark.parametrize("seconds", [0, 600])
def test_used_or_expired_sign_in_link_names_nobody(site: Site, seconds: int) -> None:
    link = site.link("dora", seconds=seconds)
    site.browser().post(link)
    page = site.browser().get(link).text
    assert "Dora" not in page
    assert "has been used, has expired or is unknown" in page


def test_sign_in_link_works_once(site: Site) -> None:
    link = site.link("dora")
    assert site.browser().post(link).status_code == 303
    second = site.browser().post(link)
    assert second.status_code == 410
    assert "/keyturn web" in second.text
    assert "set-cookie" not in second.headers


def test_sign_in_pages_name_the_server_where_there_is_no_slack(site: Site) -> None:
    app = build_app(replace(site.parts, has_slack=False))
    link = site.link("dora", seconds=0)
    with TestClient(app, base_url=ORIGIN, headers={"Origin": ORIGIN}) as browser:
        answers = [browser.get("/runs"), browser.get(link), browser.post(link)]
    assert [answer.status_code for answer in answers] == [401, 200, 410]
    for answer in answers:
        assert "keyturn sign-in PERSON" in answer.text
        assert "Slack" not in answer.text


def test_request_form_that_is_sent_without_a_session_is_filled_in_after_sign_in(
    site: Site,
) -> None:
    typed = {
        "runbook": "abusers clear",
        "field-host": "lb1",
        "field-address": "203.0.113.9",
        "reason": "a customer & friend",
    }
    browser = site.browser()
    refused = browser.post("/runbooks", data=typed)
    assert refused.status_code == 401
    assert "What you typed is in the form again" in refused.text
    form = browser.post(site.link("dora")).headers["location"]
    values = Page(browser.get(form).text).values
    assert {name: values[name] for name in typed} == typed


def test_form_of_a_run_that_is_sent_without_a_session_leads_back_to_the_run(site: Site) -> None:
    browser = site.browser()
    typed = {"reason": "not <today>", "digest": "0" * 64, "code": "123456"}
    refused = browser.post("/runs/7/deny", data=typed)
    assert "Nothing was sent" in refused.text
    # Scripts fill it in again; without them it can be copied.
    assert 'data-typed="/runs/7/deny"' in refused.text
    assert 'data-name="reason">not &lt;today&gt;</dd>' in refused.text
    assert "0" * 64 not in refused.text
    assert "123456" not in refused.text
    assert browser.post(site.link("olga")).headers["location"] == "/runs/7"


def test_opening_a_sign_in_link_does_not_use_it(site: Site) -> None:
    link = site.link("dora")
    for _ in range(3):
        assert site.browser().get(link).status_code == 200
        assert site.browser().head(link).status_code == 200
    assert site.browser().post(link).status_code == 303


def test_expired_sign_in_link_is_refused(site: Site) -> None:
    answer = site.browser().post(site.link("dora", seconds=0))
    assert answer.status_code == 410
    assert "set-cookie" not in answer.headers


def test_sign_in_link_of_a_person_who_left_the_policy_is_refused(site: Site) -> None:
    link = site.link("adam")
    site.dismiss("adam")
    answer = site.browser().post(link)
    assert answer.status_code == 410
    assert "set-cookie" not in answer.headers


def test_invented_sign_in_link_is_refused(site: Site) -> None:
    for token in ("x" * 43, "x" * 5000):
        assert site.browser().post(f"/sign-in/{token}").status_code == 410


def test_session_cookie_is_httponly_and_samesite_lax(site: Site) -> None:
    cookie = site.browser().post(site.link("dora")).headers["set-cookie"]
    name, *rest = (part.strip() for part in cookie.lower().split(";"))
    assert name.startswith("keyturn=")
    assert {"httponly", "samesite=lax", "path=/"} <= set(rest)
    assert not {part for part in rest if part.startswith("domain")}


def test_session_cookie_over_https_is_secure_with_host_prefix(harness: Harness) -> None:
    site = create_site(harness, "https://keyturn.test")
    headers = {"Origin": "https://keyturn.test"}
    with TestClient(
        site.app, base_url="https://keyturn.test", headers=headers, follow_redirects=False
    ) as browser:
        cookie = browser.post(site.link("dora")).headers["set-cookie"].lower()
        assert cookie.startswith("__host-keyturn=")
        assert "; secure" in cookie
        assert browser.get("/").status_code == 200


def test_signing_in_again_replaces_the_previous_session(site: Site) -> None:
    browser = site.browser("dora")
    before = browser.cookies[site.parts.cookie_name]
    browser.post(site.link("olga"))
    assert browser.cookies[site.parts.cookie_name] != before
    with site.database.reading() as tx:
        assert sessions.find_session(tx, before) is None
    assert "Olga Owner" in browser.get("/").text


def test_database_does_not_hold_the_session_token(site: Site) -> None:
    browser = site.browser("dora")
    token = browser.cookies[site.parts.cookie_name]
    with site.database.reading() as tx:
        rows = tx.sql.execute(tables.session.select()).all()
    assert token not in repr(rows)


def test_sign_out_ends_the_session_on_the_server(site: Site) -> None:
    browser = site.browser("dora")
    token = browser.cookies[site.parts.cookie_name]
    answer = browser.post("/sign-out")
    assert "You are signed out" in answer.text
    assert site.parts.cookie_name not in browser.cookies
    thief = site.browser()
    site.carry(thief, token)
    assert thief.get("/").status_code == 401
    assert site.harness.list_entry_kinds()[-1] == "signed out"


def _age_session(site: Site, **back: int) -> None:
    with site.database.transaction() as tx:
        then = {name: tx.now - seconds * 1_000_000 for name, seconds in back.items()}
        change_rows(tx, tables.session, lambda _row: then)


def test_idle_session_expires(site: Site) -> None:
    browser = site.browser("dora")
    _age_session(site, last_seen_at=sessions.IDLE_SECONDS - 60)
    assert browser.get("/").status_code == 200
    _age_session(site, last_seen_at=sessions.IDLE_SECONDS + 60)
    answer = browser.get("/")
    assert answer.status_code == 401
    assert "Your session has expired." in answer.text


@pytest.mark.parametrize("headers", [{"HX-Request": "true"}, {"Sec-Fetch-Mode": "cors"}])
def test_late_update_of_an_older_page_does_not_end_the_session_of_who_signed_in_since(
    site: Site, headers: dict[str, str]
) -> None:
    browser = site.browser("dora")
    _age_session(site, last_seen_at=sessions.IDLE_SECONDS + 60)
    late = browser.get("/runs", headers=headers)
    assert (late.status_code, "set-cookie" in late.headers) == (401, False)
    assert site.parts.cookie_name in browser.get("/runs").headers["set-cookie"]


def test_session_expires_at_its_maximum_age(site: Site) -> None:
    browser = site.browser("dora")
    _age_session(site, started_at=sessions.MAX_SECONDS + 1, last_seen_at=0)
    assert browser.get("/").status_code == 401


def test_page_view_renews_the_session_and_a_live_update_does_not(site: Site) -> None:
    number = add_sample_runs(site.database)["pending"]
    browser = site.browser("dora")

    def last_seen() -> int:
        with site.database.reading() as tx:
            session = sessions.find_session(tx, browser.cookies[site.parts.cookie_name])
        assert session is not None
        return session.last_seen_at

    _age_session(site, last_seen_at=1000)
    old = last_seen()
    browser.get(f"/runs/{number}/live")
    assert last_seen() == old
    browser.get(f"/runs/{number}")
    assert last_seen() > old


def test_person_who_left_the_policy_is_signed_out_at_once(site: Site) -> None:
    browser = site.browser("adam")
    assert browser.get("/").status_code == 200
    site.dismiss("adam")
    answer = browser.get("/runs")
    assert answer.status_code == 401
    assert "no longer in the policy" in answer.text
    assert site.parts.cookie_name not in browser.cookies
    assert browser.post("/changelog/verify").status_code == 401


def test_pages_are_unavailable_with_a_broken_policy(site: Site) -> None:
    browser = site.browser("olga")
    (site.policy / "people.yaml").write_text("people: [")
    answer = browser.get("/runs")
    assert answer.status_code == 503
    assert "keyturn policy check" in answer.text
    assert "people.yaml" not in answer.text


@pytest.mark.parametrize("path", ["/", "/runs", "/changelog", "/runs/1", "/runs/123456789"])
def test_sign_in_redirects_to_the_requested_page(site: Site, path: str) -> None:
    answer = site.browser().post(site.link("dora"), params={"next": path})
    assert answer.headers["location"] == path


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/runs",
        "javascript:alert(1)",
        "/runs/1\r\nSet-Cookie: a=b",
        "/runs/1\n",
        "/runs/0",
        "/runs/1/approve",
        "/runs/../..//evil.example",
        "/runs/١",
        "/sign-out",
        "",
        " /runs",
        "/runs/1/approve?digest=0",
        "/runs?\r\nSet-Cookie: a=b",
        "/runs?host=\x00",
        "/runs?host=l b",
        "/runs#?host=lb1",
        "/runs?" + "a" * MAX_LENGTH,
        "//evil.example?/runs",
        "?/runs",
        "%2f%2fevil.example",
    ],
)
def test_sign_in_redirects_to_home_for_an_unsafe_address(site: Site, path: str) -> None:
    assert get_safe_page(path, site.parts) == "/"
    answer = site.browser().post(site.link("dora"), params={"next": path})
    if len(path) > MAX_LENGTH:
        assert answer.status_code == 422
        return
    assert answer.headers["location"] == "/"


ADDRESSES = [
    "/runs?host=web*&state=failed&search=disk+full",
    "/changes?at=2026-03-01%2002:00&host=lb1,web*",
    "/runs/compare?a=1&b=2",
    "/changelog.csv?kind=approved",
    "/runbooks/form?runbook=zfs%20scrub&host=nas1",
    "/runs?search=%0d%0aSet-Cookie:%20a",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_sign_in_returns_to_the_full_address_requested_before(site: Site, address: str) -> None:
    browser = site.browser()
    assert browser.get(address).status_code == 401
    shown = browser.get(link := site.link("dora")).text
    assert f"<code>{escape(address)}</code>" in shown
    answer = browser.post(link)
    assert answer.headers["location"] == address
    assert set(answer.headers.get_list("set-cookie")[0].split("; ")) >= {"HttpOnly", "Path=/"}
    # Once: the next link leads to the first page again.
    assert browser.post(site.link("dora")).headers["location"] == "/"


def test_page_named_in_the_sign_in_link_wins_over_the_page_requested_before(site: Site) -> None:
    browser = site.browser()
    browser.get("/runs?host=lb1")
    answer = browser.post(site.link("dora"), params={"next": "/stop"})
    assert answer.headers["location"] == "/stop"


@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("/runs/1/live", {}),
        ("/runs?host=lb1", {"HX-Request": "true"}),
        ("/runs?host=lb1", {"Sec-Fetch-Mode": "cors"}),
        ("/sign-out", {}),
    ],
)
def test_background_request_is_not_kept_as_the_page_after_sign_in(
    site: Site, address: str, headers: dict[str, str]
) -> None:
    browser = site.browser()
    browser.get(address, headers=headers)
    assert browser.post(site.link("dora")).headers["location"] == "/"


@pytest.mark.parametrize("kept", ["//evil.example", "https://evil.example/runs", "/nope", "\xe4"])
def test_forged_return_cookie_cannot_redirect_to_another_site(site: Site, kept: str) -> None:
    browser = site.browser()
    name = f"{site.parts.cookie_name}-onward".encode()
    for cookie in (kept.encode("latin-1"), base64.urlsafe_b64encode(kept.encode())):
        browser.cookies.clear()
        answer = browser.post(site.link("dora"), headers=[(b"Cookie", name + b"=" + cookie)])
        assert answer.headers["location"] == "/"


@pytest.mark.parametrize("query", ["host=l%62" + "x" * MAX_LENGTH, "host=\\"])
def test_unsafe_query_is_dropped_from_the_page_after_sign_in(site: Site, query: str) -> None:
    browser = site.browser()
    browser.get(f"/runs?{query}")
    assert browser.post(site.link("dora")).headers["location"] == "/runs"


def test_sign_in_redirects_to_every_kind_of_page(site: Site) -> None:
    added = [
        route.path.format(number=12, name="lb1")
        for one in site.parts.pages
        for route in one.router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    ]
    for path in ("/stop", "/hosts/lb1", "/changes", *added):
        answer = site.browser().post(site.link("dora"), params={"next": path})
        assert answer.headers["location"] == path
        # Not where its feature is missing.
        assert get_safe_page(path, replace(site.parts, pages=())) == (
            "/" if path in added else path
        )


# Also where the page is an argument of the function that redirects.
_NEXT_PAGE = r"(?:step-up\?next=|\bpage=f?\")(/[^\"]+)"


def test_every_page_after_step_up_is_a_safe_redirect(site: Site) -> None:
    files = [*(ROOT / "bot" / "web").glob("*.py"), *(ROOT / "bot" / "features").glob("*/pages.py")]
    code = "".join(file.read_text() for file in files)
    wanted = {re.sub(r"\{\w+\}", "12", at) for at in re.findall(_NEXT_PAGE, code)}
    assert "/stop" in wanted
    assert [at for at in wanted if get_safe_page(at, site.parts) != at] == []


def test_refused_sign_in_is_logged_once_a_minute_without_its_token(site: Site) -> None:
    used = site.link("dora")
    site.browser().post(used)
    for _ in range(3):
        assert site.browser().post(used).status_code == 410
    assert site.browser().post("/sign-in/invented").status_code == 410
    with site.database.reading() as tx:
        entries = [e for e in change_log.list_entries_after(tx, 0) if e.kind == "sign-in refused"]
    assert [(e.facts["account"], e.facts["reason"]) for e in entries] == [
        ("dora", "the link was already used")
    ]
    assert used.rpartition("/")[2] not in entries[0].body


def test_expired_sign_in_link_is_logged_as_expired(site: Site) -> None:
    site.browser().post(site.link("dora", seconds=-1))
    with site.database.reading() as tx:
        last = change_log.list_newest_entries(tx, limit=1)[0]
    assert (last.kind, last.facts["reason"]) == ("sign-in refused", "the link has expired")


def test_sign_in_link_is_not_written_to_the_log_when_the_database_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(tx: Transaction, token: str) -> str:
        del tx, token
        raise StoreUnavailable("the disk is full")

    link = site.link("dora")
    with caplog.at_level(logging.CRITICAL), monkeypatch.context() as broken:
        broken.setattr(sessions, "use_sign_in_link", gone)
        assert site.browser().post(link).status_code == 503
    assert "POST /sign-in: the disk is full" in caplog.text
    assert link.rpartition("/")[2] not in caplog.text
    # It is still good, so whoever read it in the log could have come in by it.
    assert site.browser().post(link).status_code == 303
