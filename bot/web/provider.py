"""OpenID Connect client: sign-in at an identity provider.

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
# How long documents of the provider are cached, and the minimum time between two key refreshes.
_CACHE_SECONDS, _KEY_REFRESH_SECONDS = 3600.0, 60.0
# How long a failed request is not repeated, because each sign-in attempt blocks a thread.
_RETRY_SECONDS = 15.0
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Exception):
    """The provider is unreachable or returns an invalid response. The message is for operators."""


@dataclass(frozen=True)
class ClientRegistration:
    """Registration of Keyturn at an identity provider."""

    issuer: str
    """Exactly as in the `iss` claim of its tokens."""
    client_id: str
    client_secret: str
    name: str
    is_slack: bool
    """Whether its tokens carry Slack team and user ids."""
    discovery_url: str
    endpoints: Mapping[str, str]
    """Endpoints that override those of the discovery document, by their names there."""


class IdentityProvider:
    """Client of the provider over HTTPS. `clock` returns seconds since 1970."""

    def __init__(
        self, registration: ClientRegistration, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.registration, self._clock = registration, clock
        self._lock = threading.Lock()
        self._cached_documents: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._failures: dict[str, tuple[float, str]] = {}

    def build_authorization_url(self, secret: str, *, redirect_uri: str) -> str:
        """Return the address that starts a sign-in.

        Args:
            secret: Random value that the browser keeps in a cookie.
            redirect_uri: Address to which the provider sends the browser back.
        """
        metadata = self._get_metadata()
        with self._create_client(metadata, redirect_uri) as client:
            address, _ = client.create_authorization_url(
                metadata["authorization_endpoint"],
                state=derive_value(secret, "state"),
                nonce=derive_value(secret, "nonce"),
                code_verifier=derive_value(secret, "verifier"),
            )
        return address

    def fetch_claims(self, secret: str, code: str, *, redirect_uri: str) -> Mapping[str, Any]:
        """Return the verified claims of the person for whom the provider issued *code*.

        Raises:
            ProviderError: The provider cannot be reached.
            InvalidIdTokenError: The response cannot be trusted.
        """
        metadata = self._get_metadata()
        response = self._fetch_tokens(metadata, secret, code, redirect_uri)
        token, access = response.get("id_token"), response.get("access_token")
        if not isinstance(token, str):
            raise InvalidIdTokenError("its response has no ID token")
        expected = ExpectedClaims(
            self.registration.issuer,
            self.registration.client_id,
            nonce=derive_value(secret, "nonce"),
            now=int(self._clock()),
            access_token=access if isinstance(access, str) else "",
        )
        algorithms = list_trusted_algorithms(metadata.get("id_token_signing_alg_values_supported"))
        keys_url = metadata["jwks_uri"]
        try:
            claims = verify_id_token(
                token, self._get_document(keys_url), algorithms=algorithms, expected=expected
            )
        except UnknownSigningKeyError:
            keys = self._get_document(keys_url, max_age=_KEY_REFRESH_SECONDS)
            claims = verify_id_token(token, keys, algorithms=algorithms, expected=expected)
        return (
            claims
            if "email" in claims
            else {**claims, **self._fetch_email(metadata, expected, claims["sub"])}
        )

    def _fetch_email(
        self, metadata: Mapping[str, Any], expected: ExpectedClaims, subject: object
    ) -> Mapping[str, Any]:
        """Return the email claims from the userinfo endpoint, for tokens without them."""
        url = metadata.get("userinfo_endpoint")
        if self.registration.is_slack or not isinstance(url, str) or not expected.access_token:
            return {}
        claims = _fetch_document(url, {"Authorization": f"Bearer {expected.access_token}"})
        if claims.get("sub") != subject:
            raise InvalidIdTokenError("its userinfo endpoint describes another person")
        return {name: claims[name] for name in ("email", "email_verified") if name in claims}

    def is_own_issuer(self, iss: str | None) -> bool:
        """Return whether a response with this `iss` parameter is from this provider (RFC 9207)."""
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
        except AuthlibBaseError as error:
            raise InvalidIdTokenError(escape_to_one_line(str(error))) from None
        except (httpx2.HTTPError, ValueError) as error:
            raise ProviderError(_describe_error(metadata["token_endpoint"], error)) from None

    def _create_client(self, metadata: Mapping[str, Any], redirect_uri: str) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client

        registration = self.registration
        methods: object = metadata.get("token_endpoint_auth_methods_supported")
        by_post = isinstance(methods, list) and "client_secret_basic" not in methods
        method = "client_secret_post" if by_post else "client_secret_basic"
        return OAuth2Client(
            registration.client_id,
            registration.client_secret or None,
            token_endpoint_auth_method=method if registration.client_secret else "none",
            scope="openid email profile",
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            follow_redirects=False,
            timeout=_TIMEOUT_SECONDS,
        )

    def _get_metadata(self) -> Mapping[str, Any]:
        """Return the metadata of the provider, overridden by the registered endpoints."""
        registration = self.registration
        if all(name in registration.endpoints for name in _ENDPOINTS):
            return registration.endpoints
        url = registration.discovery_url
        document = self._get_document(url)
        if document.get("issuer") != registration.issuer:
            issuer = escape_to_one_line(str(document.get("issuer")))[:200]
            raise ProviderError(f"{url} has the issuer {issuer} instead of {registration.issuer}")
        metadata = {**document, **registration.endpoints}
        for name in _ENDPOINTS:
            if not isinstance(metadata.get(name), str):
                raise ProviderError(f"{url} has no {name}")
        return metadata

    def _get_document(self, url: str, *, max_age: float = _CACHE_SECONDS) -> Mapping[str, Any]:
        """Return a JSON document, cached for at most *max_age* seconds."""
        with self._lock:
            fetched_at, document = self._cached_documents.get(url, (0.0, None))
            if document is None or self._clock() - fetched_at > max_age:
                document = self._fetch_unless_failed(url)
                self._cached_documents[url] = self._clock(), document
            return document

    def _fetch_unless_failed(self, url: str) -> Mapping[str, Any]:
        """Fetch a document, unless the last attempt has just failed."""
        failed_at, message = self._failures.get(url, (0.0, ""))
        if message and self._clock() - failed_at < _RETRY_SECONDS:
            raise ProviderError(message)
        try:
            document = _fetch_document(url)
        except ProviderError as error:
            self._failures[url] = self._clock(), str(error)
            raise
        self._failures.pop(url, None)
        return document


def derive_value(secret: str, purpose: str) -> str:
    """Return a value derived from *secret* for one purpose: 43 characters of base64url.

    State, nonce and verifier all come from one secret in a cookie of the browser. Nothing is
    stored on the server for people who are not signed in, and without the cookie none of the
    three is known.
    """
    digest = hmac.digest(secret.encode(), purpose.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _fetch_document(url: str, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    try:
        response = httpx2.get(
            url, headers=dict(headers or {}), timeout=_TIMEOUT_SECONDS, follow_redirects=False
        )
        response.raise_for_status()
        document: object = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise ProviderError(_describe_error(url, error)) from None
    if not isinstance(document, dict):
        raise ProviderError(f"{url} does not return a JSON object")
    return cast("dict[str, Any]", document)


def _describe_error(url: str, error: Exception) -> str:
    return escape_to_one_line(f"{url}: {error or type(error).__name__}")[:300]
