"""Sign-in by OpenID Connect with a real provider, and attacks on it."""

import re
import threading
from collections.abc import Generator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from bot.audit import change_log
from bot.auth import sessions
from bot.queries.banned_people import PolicyWithoutBanned
from bot.web import build_app, oidc
from bot.web.provider import ClientRegistration, IdentityProvider, ProviderError
from tests.bot.harness import Harness
from tests.bot.web.conftest import ORIGIN, Site
from tests.playground.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider

pytestmark = pytest.mark.real

CALLBACK_URL = f"{ORIGIN}/oidc/callback"
_SLACK = {"https://slack.com/team_id": "T0KEYTURN", "https://slack.com/user_id": "U0DORA"}
ACCOUNTS = {
    "slack-dora": _SLACK,
    "slack-elsewhere": {**_SLACK, "https://slack.com/team_id": "T0OTHER"},
    "slack-none": {"email": "olga@keyturn.test", "email_verified": True},
    "s-olga": {"email": "olga@elsewhere.test", "email_verified": True},
    "s-dora": {"email": "Dora@keyturn.test", "email_verified": True},
    "s-unverified": {"email": "dora@keyturn.test", "email_verified": False},
    "s-as-if": {"email": "dora@keyturn.test", "email_verified": "true"},
    "s-olgas-address": {"email": "olga@keyturn.test", "email_verified": True},
}


@pytest.fixture(scope="module")
def provider() -> Generator[OidcProvider]:
    with OidcProvider(ACCOUNTS, back=CALLBACK_URL) as running:
        yield running


def build_registration(issuer: str, *, slack: bool = False) -> ClientRegistration:
    return ClientRegistration(
        issuer,
        CLIENT_ID,
        CLIENT_SECRET,
        "Example",
        is_slack=slack,
        discovery_url=f"{issuer}/.well-known/openid-configuration",
        endpoints={},
    )


def a_site(harness: Harness, registration: ClientRegistration) -> Site:
    from bot.web import WebDependencies

    parts = WebDependencies(
        harness.service,
        harness.database,
        harness.policies,
        ORIGIN,
        secure_cookies=False,
        identity_provider=IdentityProvider(registration),
    )
    return Site(harness, parts, build_app(parts))


def write_policy_with_oidc(site: Site, issuer: str, *, by_email: bool = True) -> None:
    people = site.policy / "people.yaml"
    text = people.read_text()
    pinned = f"roles: [administrator], oidc: [{{issuer: '{issuer}', subject: s-olga}}],"
    text = text.replace(
        "Olga Owner, roles: [administrator],",
        f"Olga Owner, email: olga@keyturn.test, {pinned}",
    )
    text = text.replace("Dora Developer,", "Dora Developer, email: dora@keyturn.test,")
    people.write_text(text + (f"sign_in_by_email: ['{issuer}']\n" if by_email else ""))


@dataclass
class SignIn:
    """One person on the way to sign in. back: the path that the provider sent them to."""

    site: Site
    provider: OidcProvider
    browser: TestClient

    def begin(self, to: str = "/") -> str:
        answer = self.browser.get("/oidc/start", params={"next": to})
        assert answer.status_code == 303
        return answer.headers["location"]

    def go(self, account: str, to: str = "/") -> str:
        callback = self.provider.sign_in(self.begin(to), account)
        assert callback.startswith(CALLBACK_URL)
        return callback.removeprefix(ORIGIN)

    def arrive(self, account: str, to: str = "/") -> Response:
        return self.browser.get(self.go(account, to))


@pytest.fixture
def oidc_sign_in(harness: Harness, provider: OidcProvider) -> Generator[SignIn]:
    site = a_site(harness, build_registration(provider.issuer))
    write_policy_with_oidc(site, provider.issuer)
    yield SignIn(site, provider, site.browser())
    for browser in site.browsers:
        browser.close()


@pytest.fixture
def slack_sign_in(harness: Harness, provider: OidcProvider) -> Generator[SignIn]:
    site = a_site(harness, build_registration(provider.issuer, slack=True))
    write_policy_with_oidc(site, provider.issuer)
    yield SignIn(site, provider, site.browser())
    for browser in site.browsers:
        browser.close()


def _always_true(*_: object) -> bool:
    return True


def _get_last_entry(site: Site) -> change_log.Entry:
    with site.database.reading() as tx:
        return change_log.list_newest_entries(tx, limit=1)[0]


def _assert_refused(answer: Response, site: Site, *, status: int = 403) -> None:
    assert answer.status_code == status
    assert "Sign-in failed" in answer.text
    with site.database.reading() as tx:
        assert [sessions.list_sessions(tx, person) for person in ("dora", "olga")] == [[], []]


# --- who comes in ---


def test_oidc_sign_in_by_the_subject_in_the_policy(oidc_sign_in: SignIn) -> None:
    page = oidc_sign_in.browser.get("/runs")
    assert page.status_code == 401
    assert "Sign in with Example" in page.text

    answer = oidc_sign_in.arrive("s-olga", to="/runs")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
    assert "Olga Owner" in oidc_sign_in.browser.get("/runs").text
    assert _get_last_entry(oidc_sign_in.site).facts["method"] == "oidc"


def test_oidc_sign_in_with_slack_uses_team_and_user_id(slack_sign_in: SignIn) -> None:
    assert slack_sign_in.arrive("slack-dora").status_code == 303
    assert "Dora Developer" in slack_sign_in.browser.get("/").text


@pytest.mark.parametrize("account", ["slack-elsewhere", "slack-none", "s-olga"])
def test_oidc_sign_in_with_slack_ignores_email_and_subject(
    slack_sign_in: SignIn, account: str
) -> None:
    _assert_refused(slack_sign_in.arrive(account), slack_sign_in.site)


def test_oidc_sign_in_by_verified_email_where_the_policy_allows_it(oidc_sign_in: SignIn) -> None:
    assert oidc_sign_in.arrive("s-dora").status_code == 303
    assert "Dora Developer" in oidc_sign_in.browser.get("/").text


def test_oidc_sign_in_by_email_is_refused_where_the_policy_does_not_allow_it(
    harness: Harness, provider: OidcProvider
) -> None:
    site = a_site(harness, build_registration(provider.issuer))
    write_policy_with_oidc(site, provider.issuer, by_email=False)
    with site.browser() as browser:
        _assert_refused(SignIn(site, provider, browser).arrive("s-dora"), site)


@pytest.mark.parametrize("account", ["s-unverified", "s-as-if", "s-olgas-address"])
def test_oidc_sign_in_is_refused_when_the_email_is_not_verified(
    oidc_sign_in: SignIn, account: str
) -> None:
    """Unverified, verified in the wrong words, and of somebody who is known by a subject."""
    _assert_refused(oidc_sign_in.arrive(account), oidc_sign_in.site)


def test_oidc_email_missing_from_the_token_is_fetched_from_userinfo(harness: Harness) -> None:
    with OidcProvider(ACCOUNTS, back=CALLBACK_URL, lean=True) as lean:
        site = a_site(harness, build_registration(lean.issuer))
        write_policy_with_oidc(site, lean.issuer)
        with site.browser() as browser:
            assert SignIn(site, lean, browser).arrive("s-dora").status_code == 303
            assert "Dora Developer" in browser.get("/").text


def test_oidc_sign_in_of_an_unknown_account_shows_the_policy_entry_to_add(
    oidc_sign_in: SignIn,
) -> None:
    answer = oidc_sign_in.arrive("slack-none")
    _assert_refused(answer, oidc_sign_in.site)
    assert "account is not in the policy of Keyturn" in answer.text
    assert "subject: &#34;slack-none&#34;" in answer.text
    assert _get_last_entry(oidc_sign_in.site).kind == "sign-in refused"


def test_oidc_sign_in_of_a_person_who_left_the_policy_is_refused(oidc_sign_in: SignIn) -> None:
    back = oidc_sign_in.go("s-olga")
    oidc_sign_in.site.dismiss("olga")
    people = oidc_sign_in.site.policy / "people.yaml"
    areas = oidc_sign_in.site.policy / "areas.yaml"
    areas.write_text(areas.read_text().replace("[olga]", "[adam]"))
    assert "olga" not in people.read_text()
    _assert_refused(oidc_sign_in.browser.get(back), oidc_sign_in.site)


def test_oidc_sign_in_of_a_banned_person_names_the_ban_without_its_reason(
    harness: Harness, provider: OidcProvider
) -> None:
    admitted = cast("Any", PolicyWithoutBanned(harness.policies, harness.database))
    whole, harness.policies = harness.policies, admitted
    site = a_site(harness, build_registration(provider.issuer))
    harness.policies = whole
    write_policy_with_oidc(site, provider.issuer)
    harness.service.ban_person("olga", banned_by="adam", reason="the laptop is stolen")
    answer = SignIn(site, provider, site.browser()).arrive("s-olga")
    _assert_refused(answer, site)
    assert "You have been banned from Keyturn since" in answer.text
    assert "Contact Adam Admin or a Keyturn administrator." in answer.text
    assert "stolen" not in answer.text
    for browser in site.browsers:
        browser.close()


def test_oidc_sign_in_declined_at_the_provider_shows_the_error(oidc_sign_in: SignIn) -> None:
    answer = oidc_sign_in.arrive("", "/runs?host=lb1")
    _assert_refused(answer, oidc_sign_in.site)
    assert 'href="/oidc/start?next=/runs%3Fhost%3Dlb1"' in answer.text
    assert "access_denied" in answer.text
    assert "Try again with Example" in answer.text


def test_oidc_sign_in_ends_the_previous_session(oidc_sign_in: SignIn) -> None:
    before = oidc_sign_in.browser
    with oidc_sign_in.site.database.transaction() as tx:
        old = sessions.begin_session(tx, "adam")
    oidc_sign_in.site.carry(before, old)
    assert oidc_sign_in.arrive("s-olga").status_code == 303
    assert before.cookies[oidc_sign_in.site.parts.cookie_name] != old
    with oidc_sign_in.site.database.reading() as tx:
        assert sessions.find_session(tx, old) is None


# --- what an attacker tries on the way ---


def test_oidc_callback_is_refused_in_a_browser_that_did_not_start_it(oidc_sign_in: SignIn) -> None:
    """Login CSRF: an attacker's own answer, given to somebody else's browser."""
    attackers = SignIn(oidc_sign_in.site, oidc_sign_in.provider, oidc_sign_in.site.browser()).go(
        "s-olga"
    )
    oidc_sign_in.begin()
    for victim in (oidc_sign_in.site.browser(), oidc_sign_in.browser):
        _assert_refused(victim.get(attackers), oidc_sign_in.site, status=400)


def test_foreign_oidc_callback_does_not_break_a_sign_in_in_progress(oidc_sign_in: SignIn) -> None:
    attackers = SignIn(oidc_sign_in.site, oidc_sign_in.provider, oidc_sign_in.site.browser()).go(
        "s-olga"
    )
    own = oidc_sign_in.go("s-dora")
    assert oidc_sign_in.browser.get(attackers).status_code == 400
    assert oidc_sign_in.browser.get(own).status_code == 303


def test_without_the_state_check_a_foreign_oidc_callback_fails_at_the_provider(
    oidc_sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "is_own_state", _always_true)
    attackers = SignIn(oidc_sign_in.site, oidc_sign_in.provider, oidc_sign_in.site.browser()).go(
        "s-olga"
    )
    oidc_sign_in.begin()
    # Nonce and verifier still keep it out: of three locks one is open now.
    answer = oidc_sign_in.browser.get(attackers)
    assert answer.status_code == 403


@pytest.mark.parametrize("state", ["", "x" * 43, "é", "A" * 4000])
def test_oidc_callback_with_an_invalid_state_is_refused(oidc_sign_in: SignIn, state: str) -> None:
    back = oidc_sign_in.go("s-olga")
    code = parse_qs(urlsplit(back).query)["code"][0]
    answer = oidc_sign_in.browser.get("/oidc/callback", params={"state": state, "code": code})
    _assert_refused(answer, oidc_sign_in.site, status=400)
    _assert_refused(
        oidc_sign_in.browser.get("/oidc/callback", params={"code": code}),
        oidc_sign_in.site,
        status=400,
    )


def test_oidc_code_works_once(oidc_sign_in: SignIn) -> None:
    back = oidc_sign_in.go("s-olga")
    kept = oidc_sign_in.browser.cookies[f"{oidc_sign_in.site.parts.cookie_name}-oidc"]
    assert oidc_sign_in.browser.get(back).status_code == 303
    assert f"{oidc_sign_in.site.parts.cookie_name}-oidc" not in oidc_sign_in.browser.cookies
    thief = oidc_sign_in.site.browser()
    thief.cookies.set(
        f"{oidc_sign_in.site.parts.cookie_name}-oidc", kept, domain="keyturn.test", path="/"
    )
    answer = thief.get(back)
    assert answer.status_code == 403
    assert "was already used" in answer.text


def test_without_replay_protection_the_provider_refuses_a_used_oidc_code(
    oidc_sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc.dedup, "remember_first", _always_true)
    back = oidc_sign_in.go("s-olga")
    kept = oidc_sign_in.browser.cookies[f"{oidc_sign_in.site.parts.cookie_name}-oidc"]
    assert oidc_sign_in.browser.get(back).status_code == 303
    thief = oidc_sign_in.site.browser()
    thief.cookies.set(
        f"{oidc_sign_in.site.parts.cookie_name}-oidc", kept, domain="keyturn.test", path="/"
    )
    answer = thief.get(back)
    assert answer.status_code == 403
    assert "invalid_grant" in answer.text


def test_oidc_callback_with_another_issuer_is_refused(oidc_sign_in: SignIn) -> None:
    """Mix-up: RFC 9207. This provider says whose its answers are, so one that does not is none."""
    named = f"iss={oidc_sign_in.provider.issuer.replace(':', '%3A').replace('/', '%2F')}"
    for other in ("iss=https%3A%2F%2Fevil.example", "nothing=1"):
        back = oidc_sign_in.go("s-olga")
        assert named in back
        _assert_refused(oidc_sign_in.browser.get(back.replace(named, other)), oidc_sign_in.site)


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil", "/runs/1\r\nX: y", "/oidc/start"]
)
def test_oidc_sign_in_redirects_only_to_own_pages(oidc_sign_in: SignIn, to: str) -> None:
    assert oidc_sign_in.arrive("s-olga", to).headers["location"] == "/"


def test_oidc_sign_in_returns_to_the_full_address_requested_before(oidc_sign_in: SignIn) -> None:
    address = "/runs?host=web*&state=failed&search=disk+full"
    asked = oidc_sign_in.browser.get(address)
    (begin,) = re.findall(r'href="(/oidc/start[^"]+)"', asked.text)
    assert begin == f"/oidc/start?next={quote(address)}"
    assert oidc_sign_in.arrive("s-olga", address).headers["location"] == address


def test_forged_oidc_cookie_is_refused(oidc_sign_in: SignIn) -> None:
    name = f"{oidc_sign_in.site.parts.cookie_name}-oidc"
    for made in ("", "x", "short.Lw", f"{'x' * 43}.%%%", f"{'x' * 43}./////w", "." * 50):
        browser = oidc_sign_in.site.browser()
        browser.cookies.set(name, made, domain="keyturn.test", path="/")
        answer = browser.get("/oidc/callback", params={"state": "x" * 43, "code": "c"})
        _assert_refused(answer, oidc_sign_in.site, status=400)


def test_oidc_authorization_url_does_not_contain_the_browser_secret(oidc_sign_in: SignIn) -> None:
    address = oidc_sign_in.begin()
    kept = oidc_sign_in.browser.cookies[f"{oidc_sign_in.site.parts.cookie_name}-oidc"].partition(
        "."
    )[0]
    assert kept not in address
    asked = parse_qs(urlsplit(address).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert {"state", "nonce", "code_challenge"} <= asked.keys()
    assert len({asked[name][0] for name in ("state", "nonce", "code_challenge")}) == 3


def test_oidc_cookie_is_httponly_secure_and_has_host_prefix(oidc_sign_in: SignIn) -> None:
    secure = replace(oidc_sign_in.site.parts, base_url="https://keyturn.test", secure_cookies=True)
    with TestClient(
        build_app(secure), base_url="https://keyturn.test", follow_redirects=False
    ) as one:
        cookie = one.get("/oidc/start").headers["set-cookie"].lower()
    assert cookie.startswith("__host-keyturn-oidc=")
    assert {"httponly", "secure", "samesite=lax", "path=/", "max-age=600"} <= {
        part.strip() for part in cookie.split(";")
    }


# --- a provider that fails ---


def test_oidc_sign_in_without_the_provider_gets_503_and_a_fix(harness: Harness) -> None:
    site = a_site(harness, build_registration("http://127.0.0.1:1"))
    with site.browser() as browser:
        answer = browser.get("/oidc/start")
        assert answer.status_code == 503
        assert "Try again shortly" in answer.text
        assert "127.0.0.1:1" not in answer.text


def test_unavailable_identity_provider_is_retried_after_a_pause() -> None:
    now, asked = [1_800_000_000.0], list[str]()

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(503)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        there = build_registration(f"http://127.0.0.1:{server.server_address[1]}")
        provider = IdentityProvider(there, clock=lambda: now[0])
        for wait, times in ((0, 1), (1, 1), (13, 1), (2, 2)):
            now[0] += wait
            with pytest.raises(ProviderError):
                provider.build_authorization_url("a secret", redirect_uri=CALLBACK_URL)
            # Each time that it is asked, everybody who wants to sign in waits for it.
            assert len(asked) == times
        server.shutdown()
        thread.join()


def test_oidc_discovery_of_another_issuer_is_refused(
    harness: Harness, provider: OidcProvider
) -> None:
    there = build_registration(provider.issuer)
    site = a_site(harness, replace(there, issuer="https://login.example.com"))
    with site.browser() as browser:
        assert browser.get("/oidc/start").status_code == 503
