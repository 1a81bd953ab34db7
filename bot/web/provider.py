"""The provider: whom people prove to by OpenID Connect who they are, and what it answers.

Source: https://openid.net/specs/openid-connect-core-1_0.html#CodeFlowAuth
"""

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx2

from bot.model.text import escape_to_one_line
from bot.web.id_token import Expected, NotBelieved, UnknownKey, believed, trusted_ways

_SECONDS = 5.0
# How long what the provider says of itself is believed, and how often a new key is looked for.
_KEEP_SECONDS, _APART_SECONDS = 3600.0, 60.0
# How long one that did not answer is left alone: strangers wait for it, and hold a thread each.
_REST_SECONDS = 15.0
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class NoAnswer(Exception):
    """The provider cannot be asked, or says something that is no answer. For its keepers."""


@dataclass(frozen=True)
class Registration:
    """How we are known to the provider.

    issuer: exactly as its tokens say. slack: whether its tokens carry Slack's own ids.
    endpoints: those that are not to be looked up in the discovery document, by their names there.
    """

    issuer: str
    client_id: str
    client_secret: str
    name: str
    slack: bool
    discovery: str
    endpoints: Mapping[str, str]


class Provider:
    """Asked over HTTPS for its description, its keys and for tokens. clock: seconds since 1970."""

    def __init__(
        self, registration: Registration, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.registration, self._clock = registration, clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._silent: dict[str, tuple[float, str]] = {}

    def address(self, secret: str, *, back: str) -> str:
        """Return where to send a browser that keeps *secret*. back: where it comes back to."""
        about = self._about()
        with self._client(about, back) as client:
            address, _ = client.create_authorization_url(
                about["authorization_endpoint"],
                state=derived(secret, "state"),
                nonce=derived(secret, "nonce"),
                code_verifier=derived(secret, "verifier"),
            )
        return address

    def vouched(self, secret: str, code: str, *, back: str) -> Mapping[str, Any]:
        """Return what the provider says of whom it gave *code*. Raises NoAnswer, NotBelieved."""
        about = self._about()
        answer = self._tokens(about, secret, code, back)
        token, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str):
            raise NotBelieved("there is no ID token in its answer")
        expected = Expected(
            self.registration.issuer,
            self.registration.client_id,
            nonce=derived(secret, "nonce"),
            now=int(self._clock()),
            access_token=access if isinstance(access, str) else "",
        )
        ways = trusted_ways(about.get("id_token_signing_alg_values_supported"))
        keys = about["jwks_uri"]
        try:
            claims = believed(token, self._document(keys), ways=ways, expected=expected)
        except UnknownKey:
            renewed = self._document(keys, keep=_APART_SECONDS)
            claims = believed(token, renewed, ways=ways, expected=expected)
        return (
            claims
            if "email" in claims
            else {**claims, **self._address_of(about, expected, claims["sub"])}
        )

    def _address_of(
        self, about: Mapping[str, Any], expected: Expected, subject: object
    ) -> Mapping[str, Any]:
        """Return the e-mail address where it is not in the token, but has to be asked for."""
        where = about.get("userinfo_endpoint")
        if self.registration.slack or not isinstance(where, str) or not expected.access_token:
            return {}
        said = _fetched(where, {"Authorization": f"Bearer {expected.access_token}"})
        if said.get("sub") != subject:
            raise NotBelieved("it tells of somebody else when asked for the address")
        return {name: said[name] for name in ("email", "email_verified") if name in said}

    def from_here(self, iss: str | None) -> bool:
        """Say whether an answer is this provider's, as far as it says whose it is (RFC 9207)."""
        if iss is None:
            return self._about().get("authorization_response_iss_parameter_supported") is not True
        return iss == self.registration.issuer

    def _tokens(
        self, about: Mapping[str, Any], secret: str, code: str, back: str
    ) -> Mapping[str, Any]:
        from authlib.common.errors import AuthlibBaseError

        try:
            with self._client(about, back) as client:
                return client.fetch_token(
                    about["token_endpoint"],
                    code=code,
                    grant_type="authorization_code",
                    code_verifier=derived(secret, "verifier"),
                )
        except AuthlibBaseError as no:
            raise NotBelieved(escape_to_one_line(str(no))) from None
        except (httpx2.HTTPError, ValueError) as trouble:
            raise NoAnswer(_said(about["token_endpoint"], trouble)) from None

    def _client(self, about: Mapping[str, Any], back: str) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client

        given = self.registration
        ways: object = about.get("token_endpoint_auth_methods_supported")
        by_post = isinstance(ways, list) and "client_secret_basic" not in ways
        secret = "client_secret_post" if by_post else "client_secret_basic"
        return OAuth2Client(
            given.client_id,
            given.client_secret or None,
            token_endpoint_auth_method=secret if given.client_secret else "none",
            scope="openid email profile",
            redirect_uri=back,
            code_challenge_method="S256",
            follow_redirects=False,
            timeout=_SECONDS,
        )

    def _about(self) -> Mapping[str, Any]:
        """Return the description of the provider, with what is set here put over it."""
        given = self.registration
        if all(name in given.endpoints for name in _ENDPOINTS):
            return given.endpoints
        found = self._document(given.discovery)
        if found.get("issuer") != given.issuer:
            said = escape_to_one_line(str(found.get("issuer")))[:200]
            raise NoAnswer(f"{given.discovery} describes {said}, and not {given.issuer}")
        about = {**found, **given.endpoints}
        for name in _ENDPOINTS:
            if not isinstance(about.get(name), str):
                raise NoAnswer(f"{given.discovery} has no {name}")
        return about

    def _document(self, address: str, *, keep: float = _KEEP_SECONDS) -> Mapping[str, Any]:
        """Return what lies there, or lay there at most so many seconds ago."""
        with self._lock:
            at, kept = self._kept.get(address, (0.0, None))
            if kept is None or self._clock() - at > keep:
                kept = self._asked(address)
                self._kept[address] = self._clock(), kept
            return kept

    def _asked(self, address: str) -> Mapping[str, Any]:
        """Fetch it, unless there was no answer just now."""
        since, why = self._silent.get(address, (0.0, ""))
        if why and self._clock() - since < _REST_SECONDS:
            raise NoAnswer(why)
        try:
            found = _fetched(address)
        except NoAnswer as no:
            self._silent[address] = self._clock(), str(no)
            raise
        self._silent.pop(address, None)
        return found


def derived(secret: str, use: str) -> str:
    """Return what only the keeper of *secret* can know, for one use: 43 letters of base64url.

    State, nonce and verifier come from one secret in the browser's cookie, so that nothing is
    stored for strangers, and whoever has not that cookie has none of the three.
    """
    made = hmac.digest(secret.encode(), use.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def _fetched(address: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    try:
        answer = httpx2.get(
            address, headers=dict(headers or {}), timeout=_SECONDS, follow_redirects=False
        )
        answer.raise_for_status()
        found: object = answer.json()
    except (httpx2.HTTPError, ValueError) as trouble:
        raise NoAnswer(_said(address, trouble)) from None
    if not isinstance(found, dict):
        raise NoAnswer(f"{address} answers no JSON object")
    return cast("dict[str, Any]", found)


def _said(address: str, trouble: Exception) -> str:
    return escape_to_one_line(f"{address}: {trouble or type(trouble).__name__}")[:300]
