"""Forged ID tokens and answers of an identity provider are refused."""

import base64
import hmac
import json
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from bot.web import id_token, provider
from bot.web.id_token import InvalidIdTokenError, list_trusted_algorithms, verify_id_token
from bot.web.provider import ClientRegistration, IdentityProvider, ProviderError, derive_value

NOW = 1_800_000_000
SECRET = "s" * 43
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
Claims = dict[str, Any]


def _encode_base64url(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@dataclass
class ForgingProvider:
    """A provider that answers whatever it is told to. change: what it does to true claims."""

    url: str = ""
    change: Callable[[Claims], Claims] = lambda claims: claims
    sign: Callable[[Claims], str] = field(
        default=lambda claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEY)
    )
    keys: list[Any] = field(default_factory=lambda: [KEY])
    algorithms: list[str] = field(default_factory=lambda: ["RS256"])
    asked: list[str] = field(default_factory=list[str])
    elsewhere: str = ""

    def answer(self, path: str) -> Mapping[str, Any]:
        if path.startswith("/.well-known"):
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/auth",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "id_token_signing_alg_values_supported": self.algorithms,
            }
        if path == "/keys":
            return {"keys": [key.as_dict(private=False) for key in self.keys]}
        claims = {
            "iss": self.url,
            "sub": "dora",
            "aud": "keyturn",
            "nonce": derive_value(SECRET, "nonce"),
            "iat": NOW,
            "exp": NOW + 300,
            "email": "dora@keyturn.test",
        }
        return {
            "access_token": "access",
            "token_type": "Bearer",
            "id_token": self.sign(self.change(claims)),
        }


@pytest.fixture
def forging_provider() -> Generator[ForgingProvider]:
    started = ForgingProvider()

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            started.asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps(started.answer(self.path)).encode()
            self.send_response(302 if started.elsewhere else 200)
            if started.elsewhere:
                self.send_header("Location", started.elsewhere)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        started.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield started
        server.shutdown()
        thread.join()


def _provider(
    forging_provider: ForgingProvider, clock: Callable[[], float] = lambda: NOW
) -> IdentityProvider:
    discovery = f"{forging_provider.url}/.well-known/openid-configuration"
    given = ClientRegistration(
        forging_provider.url,
        "keyturn",
        "secret",
        "Forger",
        is_slack=False,
        discovery_url=discovery,
        endpoints={},
    )
    return IdentityProvider(given, clock=clock)


def _fetch_claims(forging_provider: ForgingProvider) -> Mapping[str, Any]:
    return _provider(forging_provider).fetch_claims(
        SECRET, "code", redirect_uri="http://keyturn.test/oidc/callback"
    )


def test_valid_id_token_is_accepted(forging_provider: ForgingProvider) -> None:
    assert _fetch_claims(forging_provider)["sub"] == "dora"


FORGED: Mapping[str, Callable[[Claims], Claims]] = {
    "another issuer": lambda c: {**c, "iss": "https://evil.example"},
    "an issuer with a slash": lambda c: {**c, "iss": c["iss"] + "/"},
    "no issuer": lambda c: {k: v for k, v in c.items() if k != "iss"},
    "another audience": lambda c: {**c, "aud": "somebody-else"},
    "no audience": lambda c: {k: v for k, v in c.items() if k != "aud"},
    "two audiences, meant for the other": lambda c: {**c, "aud": ["keyturn", "b"], "azp": "b"},
    "two audiences, meant for nobody": lambda c: {**c, "aud": ["keyturn", "b"]},
    "another nonce": lambda c: {**c, "nonce": "x" * 43},
    "the nonce of somebody else": lambda c: {**c, "nonce": derive_value("t" * 43, "nonce")},
    "no nonce": lambda c: {k: v for k, v in c.items() if k != "nonce"},
    "too old": lambda c: {**c, "iat": NOW - 7200, "exp": NOW - 3600},
    "just too old": lambda c: {**c, "exp": NOW - id_token.LEEWAY_SECONDS - 1},
    "for ever": lambda c: {k: v for k, v in c.items() if k != "exp"},
    "ending never": lambda c: {**c, "exp": "never"},
    "from the future": lambda c: {**c, "iat": NOW + 3600, "exp": NOW + 7200},
    "not before later": lambda c: {**c, "nbf": NOW + 3600},
    "nobody": lambda c: {k: v for k, v in c.items() if k != "sub"},
    "a number for a subject": lambda c: {**c, "sub": 5},
    "a list for a subject": lambda c: {**c, "sub": ["dora"]},
    "another access token": lambda c: {**c, "at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
}


@pytest.mark.parametrize("how", FORGED)
def test_id_token_with_wrong_claims_is_refused(
    forging_provider: ForgingProvider, how: str
) -> None:
    forging_provider.change = FORGED[how]
    with pytest.raises(InvalidIdTokenError):
        _fetch_claims(forging_provider)


def _sign_with_none(claims: Claims) -> str:
    return f"{_encode_base64url({'alg': 'none'})}.{_encode_base64url(claims)}."


def _sign_with_public_key(claims: Claims) -> str:
    """Sign with the public key as if it were a shared secret: the oldest trick with JWTs."""
    body = f"{_encode_base64url({'alg': 'HS256', 'kid': 'one'})}.{_encode_base64url(claims)}"
    made = hmac.digest(KEY.as_pem(private=False), body.encode(), "sha256")
    return f"{body}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


def _sign_with_embedded_key(claims: Claims) -> str:
    header = {"alg": "RS256", "jwk": OTHER.as_dict(private=False), "kid": "one"}
    return jwt.encode(header, claims, OTHER)


def _sign_another_body(claims: Claims) -> str:
    head, _, signature = jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEY).split(".")
    return f"{head}.{_encode_base64url({**claims, 'sub': 'olga'})}.{signature}"


SIGNED: Mapping[str, Callable[[Claims], str]] = {
    "by nobody": _sign_with_none,
    "by nobody, in capitals": lambda c: (
        f"{_encode_base64url({'alg': 'NONE'})}.{_encode_base64url(c)}."
    ),
    "by the public key as a secret": _sign_with_public_key,
    "by our own secret": lambda c: jwt.encode(
        {"alg": "HS256"}, c, OctKey.import_key("secret-secret-secret-secret-secret"), ["HS256"]
    ),
    "by a key that it brings along": _sign_with_embedded_key,
    "by an unknown key": lambda c: jwt.encode({"alg": "RS256", "kid": "two"}, c, OTHER),
    "for another body": _sign_another_body,
    "without a signature": lambda c: (
        f"{_encode_base64url({'alg': 'RS256', 'kid': 'one'})}.{_encode_base64url(c)}."
    ),
    "by a way that was not offered": lambda c: jwt.encode(
        {"alg": "ES256", "kid": "three"}, c, ECKey.generate_key("P-256", {"kid": "three"})
    ),
    "as no token at all": lambda _c: "x",
    "as nothing": lambda _c: "",
    "as hostile text": lambda _c: "\x1b[2J<script>.\u202e.é",
}


@pytest.mark.parametrize("how", SIGNED)
@pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")
def test_id_token_with_an_invalid_signature_is_refused(
    forging_provider: ForgingProvider, how: str
) -> None:
    forging_provider.sign = SIGNED[how]
    with pytest.raises(InvalidIdTokenError) as no:
        _fetch_claims(forging_provider)
    assert str(no.value).isprintable()


def test_id_token_algorithms_none_and_hs256_are_never_trusted(
    forging_provider: ForgingProvider,
) -> None:
    forging_provider.algorithms, forging_provider.sign = ["none", "HS256"], _sign_with_none
    assert list_trusted_algorithms(forging_provider.algorithms) == []
    with pytest.raises(InvalidIdTokenError):
        _fetch_claims(forging_provider)


@pytest.mark.parametrize(
    ("guard", "how"),
    [("nonce", "another nonce"), ("client_id", "another audience"), ("issuer", "another issuer")],
)
def test_without_the_claim_check_a_forged_id_token_is_accepted(
    forging_provider: ForgingProvider, guard: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: expect what the crook says, and it is believed."""
    forging_provider.change = FORGED[how]
    forged = FORGED[how](
        {
            "iss": forging_provider.url,
            "aud": "keyturn",
            "nonce": derive_value(SECRET, "nonce"),
            "sub": "",
        }
    )
    name = {"nonce": "nonce", "client_id": "aud", "issuer": "iss"}[guard]
    real = provider.ExpectedClaims

    def lax(*args: Any, **more: Any) -> Any:
        expected = real(*args, **more)
        object.__setattr__(expected, guard, forged[name])
        return expected

    monkeypatch.setattr(provider, "ExpectedClaims", lax)
    assert _fetch_claims(forging_provider)["sub"] == "dora"


def test_without_an_algorithm_list_a_token_signed_with_a_shared_secret_is_accepted() -> None:
    claims = {"iss": "i", "aud": "keyturn", "nonce": "n", "sub": "x", "iat": NOW, "exp": NOW + 9}
    expected = id_token.ExpectedClaims("i", "keyturn", nonce="n", now=NOW)
    secret = OctKey.import_key("a shared secret that anybody may know", {"kid": "one"})
    keys = {"keys": [secret.as_dict()]}
    forged = jwt.encode({"alg": "HS256", "kid": "one"}, claims, secret, algorithms=["HS256"])
    for ways in ([], list_trusted_algorithms(["HS256"]), ["RS256"]):
        with pytest.raises(InvalidIdTokenError):
            verify_id_token(forged, keys, algorithms=ways, expected=expected)
    assert verify_id_token(forged, keys, algorithms=["HS256"], expected=expected)["sub"] == "x"


def test_provider_keys_are_fetched_again_at_most_once_a_minute(
    forging_provider: ForgingProvider,
) -> None:
    forging_provider.keys = [OTHER]
    now = [NOW]
    asked = _provider(forging_provider, clock=lambda: now[0])

    def attempt() -> Mapping[str, Any]:
        return asked.fetch_claims(SECRET, "code", redirect_uri="http://keyturn.test/oidc/callback")

    for _ in range(5):
        with pytest.raises(InvalidIdTokenError):
            attempt()
    assert forging_provider.asked.count("/keys") == 1
    forging_provider.keys = [OTHER, KEY]
    now[0] += 61
    assert attempt()["sub"] == "dora"
    assert forging_provider.asked.count("/keys") == 2


def test_redirect_of_the_identity_provider_is_not_followed(
    forging_provider: ForgingProvider,
) -> None:
    forging_provider.elsewhere = f"{forging_provider.url}/metadata"
    with pytest.raises(ProviderError):
        _fetch_claims(forging_provider)
    assert "/metadata" not in forging_provider.asked


def test_configured_oidc_endpoints_need_no_discovery(forging_provider: ForgingProvider) -> None:
    given = ClientRegistration(
        forging_provider.url,
        "keyturn",
        "secret",
        "Forger",
        is_slack=False,
        discovery_url="http://127.0.0.1:1/",
        endpoints={
            "authorization_endpoint": f"{forging_provider.url}/auth",
            "token_endpoint": f"{forging_provider.url}/token",
            "jwks_uri": f"{forging_provider.url}/keys",
        },
    )
    asked = IdentityProvider(given, clock=lambda: NOW)
    assert (
        asked.fetch_claims(SECRET, "code", redirect_uri="http://keyturn.test/oidc/callback")["sub"]
        == "dora"
    )
    assert forging_provider.asked == ["/token", "/keys"]
