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
from bot.web.id_token import (
    ExpectedClaims,
    InvalidIdTokenError,
    UnknownSigningKeyError,
    list_trusted_algorithms,
    verify_id_token,
)

_TIMEOUT_SECONDS = 5.0
# How long what the provider says of itself is believed, and how often a new key is looked for.
_KEEP_SECONDS, _APART_SECONDS = 3600.0, 60.0
# How long one that did not answer is left alone: strangers wait for it, and hold a thread each.
_RETRY_SECONDS = 15.0
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Exception):
    """The provider cannot be asked, or says something that is no answer. For its keepers."""


@dataclass(frozen=True)
class ClientRegistration:
    """How we are known to the provider.

    issuer: exactly as its tokens say. slack: whether its tokens carry Slack's own ids.
    endpoints: those that are not to be looked up in the discovery document, by their names there.
    """

    issuer: str
    client_id: str
    client_secret: str
    name: str
    is_slack: bool
    discovery_url: str
    endpoints: Mapping[str, str]


class IdentityProvider:
    """Asked over HTTPS for its description, its keys and for tokens. clock: seconds since 1970."""

    def __init__(
        self, registration: ClientRegistration, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.registration, self._clock = registration, clock
        self._lock = threading.Lock()
        self._cached_documents: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._failures: dict[str, tuple[float, str]] = {}

    def build_authorization_url(self, secret: str, *, redirect_uri: str) -> str:
        """Return where to send a browser that keeps *secret*. back: where it comes back to."""
        about = self._get_metadata()
        with self._create_client(about, redirect_uri) as client:
            address, _ = client.create_authorization_url(
                about["authorization_endpoint"],
                state=derive_value(secret, "state"),
                nonce=derive_value(secret, "nonce"),
                code_verifier=derive_value(secret, "verifier"),
            )
        return address

    def fetch_claims(self, secret: str, code: str, *, redirect_uri: str) -> Mapping[str, Any]:
        """Return what the provider says of whom it gave *code*. Raises NoAnswer, NotBelieved."""
        about = self._get_metadata()
        answer = self._fetch_tokens(about, secret, code, redirect_uri)
        token, access = answer.get("id_token"), answer.get("access_token")
        if not isinstance(token, str):
            raise InvalidIdTokenError("there is no ID token in its answer")
        expected = ExpectedClaims(
            self.registration.issuer,
            self.registration.client_id,
            nonce=derive_value(secret, "nonce"),
            now=int(self._clock()),
            access_token=access if isinstance(access, str) else "",
        )
        ways = list_trusted_algorithms(about.get("id_token_signing_alg_values_supported"))
        keys = about["jwks_uri"]
        try:
            claims = verify_id_token(
                token, self._get_document(keys), algorithms=ways, expected=expected
            )
        except UnknownSigningKeyError:
            renewed = self._get_document(keys, max_age=_APART_SECONDS)
            claims = verify_id_token(token, renewed, algorithms=ways, expected=expected)
        return (
            claims
            if "email" in claims
            else {**claims, **self._fetch_email(about, expected, claims["sub"])}
        )

    def _fetch_email(
        self, metadata: Mapping[str, Any], expected: ExpectedClaims, subject: object
    ) -> Mapping[str, Any]:
        """Return the e-mail address where it is not in the token, but has to be asked for."""
        where = metadata.get("userinfo_endpoint")
        if self.registration.is_slack or not isinstance(where, str) or not expected.access_token:
            return {}
        said = _fetch_document(where, {"Authorization": f"Bearer {expected.access_token}"})
        if said.get("sub") != subject:
            raise InvalidIdTokenError("it tells of somebody else when asked for the address")
        return {name: said[name] for name in ("email", "email_verified") if name in said}

    def is_own_issuer(self, iss: str | None) -> bool:
        """Say whether an answer is this provider's, as far as it says whose it is (RFC 9207)."""
        if iss is None:
            return (
                self._get_metadata().get("authorization_response_iss_parameter_supported")
                is not True
            )
        return iss == self.registration.issuer

    def _fetch_tokens(
        self, metadata: Mapping[str, Any], secret: str, code: str, redirect_uri: str
    ) -> Mapping[str, Any]:
        from authlib.common.errors import AuthlibBaseError

        try:
            with self._create_client(metadata, redirect_uri) as client:
                return client.fetch_token(
                    metadata["token_endpoint"],
                    code=code,
                    grant_type="authorization_code",
                    code_verifier=derive_value(secret, "verifier"),
                )
        except AuthlibBaseError as no:
            raise InvalidIdTokenError(escape_to_one_line(str(no))) from None
        except (httpx2.HTTPError, ValueError) as trouble:
            raise ProviderError(_describe_error(metadata["token_endpoint"], trouble)) from None

    def _create_client(self, metadata: Mapping[str, Any], redirect_uri: str) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client

        given = self.registration
        ways: object = metadata.get("token_endpoint_auth_methods_supported")
        by_post = isinstance(ways, list) and "client_secret_basic" not in ways
        secret = "client_secret_post" if by_post else "client_secret_basic"
        return OAuth2Client(
            given.client_id,
            given.client_secret or None,
            token_endpoint_auth_method=secret if given.client_secret else "none",
            scope="openid email profile",
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            follow_redirects=False,
            timeout=_TIMEOUT_SECONDS,
        )

    def _get_metadata(self) -> Mapping[str, Any]:
        """Return the description of the provider, with what is set here put over it."""
        given = self.registration
        if all(name in given.endpoints for name in _ENDPOINTS):
            return given.endpoints
        found = self._get_document(given.discovery_url)
        if found.get("issuer") != given.issuer:
            said = escape_to_one_line(str(found.get("issuer")))[:200]
            raise ProviderError(f"{given.discovery_url} describes {said}, and not {given.issuer}")
        about = {**found, **given.endpoints}
        for name in _ENDPOINTS:
            if not isinstance(about.get(name), str):
                raise ProviderError(f"{given.discovery_url} has no {name}")
        return about

    def _get_document(self, url: str, *, max_age: float = _KEEP_SECONDS) -> Mapping[str, Any]:
        """Return what lies there, or lay there at most so many seconds ago."""
        with self._lock:
            at, kept = self._cached_documents.get(url, (0.0, None))
            if kept is None or self._clock() - at > max_age:
                kept = self._fetch_document_or_wait(url)
                self._cached_documents[url] = self._clock(), kept
            return kept

    def _fetch_document_or_wait(self, url: str) -> Mapping[str, Any]:
        """Fetch it, unless there was no answer just now."""
        since, why = self._failures.get(url, (0.0, ""))
        if why and self._clock() - since < _RETRY_SECONDS:
            raise ProviderError(why)
        try:
            found = _fetch_document(url)
        except ProviderError as no:
            self._failures[url] = self._clock(), str(no)
            raise
        self._failures.pop(url, None)
        return found


def derive_value(secret: str, purpose: str) -> str:
    """Return what only the keeper of *secret* can know, for one use: 43 letters of base64url.

    State, nonce and verifier come from one secret in the browser's cookie, so that nothing is
    stored for strangers, and whoever has not that cookie has none of the three.
    """
    made = hmac.digest(secret.encode(), purpose.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def _fetch_document(url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    try:
        answer = httpx2.get(
            url, headers=dict(headers or {}), timeout=_TIMEOUT_SECONDS, follow_redirects=False
        )
        answer.raise_for_status()
        found: object = answer.json()
    except (httpx2.HTTPError, ValueError) as trouble:
        raise ProviderError(_describe_error(url, trouble)) from None
    if not isinstance(found, dict):
        raise ProviderError(f"{url} answers no JSON object")
    return cast("dict[str, Any]", found)


def _describe_error(url: str, error: Exception) -> str:
    return escape_to_one_line(f"{url}: {error or type(error).__name__}")[:300]
