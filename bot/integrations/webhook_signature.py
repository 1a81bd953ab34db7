"""Create and check signatures of webhooks. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal

SignatureScheme = Literal["standard", "github", "bearer"]

# How far a timestamp may differ: older requests could be replayed after their ids are deleted.
MAX_AGE_SECONDS = 5 * 60
MIN_SECRET_BYTES = 24
_PREFIX = "whsec_"


class SignatureError(Exception):
    """The signature or its timestamp is wrong. The message says which, for the log."""


def parse_secret(text: str) -> bytes:
    """Return the bytes of a secret: base64 after `whsec_`, or the text itself."""
    written = text.strip()
    if written.startswith(_PREFIX):
        try:
            secret = base64.b64decode(written.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the text after whsec_ is not base64") from None
    else:
        secret = written.encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"it has {len(secret)} bytes and needs {MIN_SECRET_BYTES} or more")
    return secret


def build_signature_headers(
    secret: bytes, delivery_id: str, body: bytes, *, timestamp: int
) -> dict[str, str]:
    """Return the headers that sign *body*.

    Args:
        secret: The secret of the subscription.
        delivery_id: The same for every attempt.
        body: The body of the HTTP request.
        timestamp: Seconds since 1970.
    """
    signature = _compute_standard_signature(secret, delivery_id, str(timestamp), body)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


def check_signature(
    scheme: SignatureScheme, secret: bytes, headers: Mapping[str, str], body: bytes, *, now: int
) -> None:
    """Raise SignatureError unless the headers sign the body.

    headers: by lower-case name. now: seconds since 1970.
    """
    if scheme == "standard":
        _check_standard_signature(secret, headers, body, now)
    elif scheme == "github":
        made = "sha256=" + hmac.digest(secret, body, hashlib.sha256).hex()
        if not _is_equal(made, headers.get("x-hub-signature-256", "")):
            raise SignatureError("the signature is wrong")
    elif not _is_equal(
        f"Bearer {secret.decode(errors='replace')}", headers.get("authorization", "")
    ):
        raise SignatureError("the token is wrong")


def _check_standard_signature(
    secret: bytes, headers: Mapping[str, str], body: bytes, now: int
) -> None:
    name, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    made = "v1," + _compute_standard_signature(secret, name, at, body)
    if not any(_is_equal(made, one) for one in headers.get("webhook-signature", "").split()):
        raise SignatureError("the signature is wrong")
    if not name:
        raise SignatureError("the webhook-id is missing")
    # The sender signed the timestamp, but it need not be a number.
    if not (at.isascii() and at.isdecimal() and len(at) < 12):
        raise SignatureError("the timestamp is not a number of seconds")
    if not is_fresh(int(at), now):
        raise SignatureError("the timestamp is too old or in the future")


def is_fresh(at: int, now: int) -> bool:
    """Return whether a time is close enough to *now*; both in seconds since 1970."""
    return abs(now - at) <= MAX_AGE_SECONDS


def _compute_standard_signature(
    secret: bytes, delivery_id: str, timestamp: str, body: bytes
) -> str:
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def _is_equal(expected: str, received: str) -> bool:
    return hmac.compare_digest(expected.encode(), received.encode())
