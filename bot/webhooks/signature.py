"""Signatures of hooks: made and looked at. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal

SignatureScheme = Literal["standard", "github", "bearer"]

# How old, or early, what is signed may be: longer ones could be replayed after they are forgotten.
MAX_AGE_SECONDS = 5 * 60
MIN_SECRET_BYTES = 24
_PREFIX = "whsec_"


class SignatureError(Exception):
    """Nobody who has the secret sent this, or not now. The message says why, for the log."""


def parse_secret(text: str) -> bytes:
    """Return the secret that was written down: `whsec_` and base64, or as it stands."""
    written = text.strip()
    if written.startswith(_PREFIX):
        try:
            secret = base64.b64decode(written.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("what follows whsec_ is no base64") from None
    else:
        secret = written.encode()
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(f"it has {len(secret)} bytes, and needs {MIN_SECRET_BYTES} or more")
    return secret


def build_signature_headers(
    secret: bytes, delivery_id: str, body: bytes, *, timestamp: int
) -> dict[str, str]:
    """Return what proves that we sent *body*. name: the same whenever it is sent again.

    at: seconds since 1970.
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
    """Raise Unsigned unless the headers prove it. given: by lower-case name. now: seconds."""
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
        raise SignatureError("there is no webhook-id")
    # The signature is right, so this is what its maker wrote; it may still be no number.
    if not (at.isascii() and at.isdecimal() and len(at) < 12):
        raise SignatureError("the timestamp is no number of seconds")
    if not is_fresh(int(at), now):
        raise SignatureError("the timestamp is too old, or too early")


def is_fresh(at: int, now: int) -> bool:
    """Say whether a moment is near enough to be taken for now. Both: seconds since 1970."""
    return abs(now - at) <= MAX_AGE_SECONDS


def _compute_standard_signature(
    secret: bytes, delivery_id: str, timestamp: str, body: bytes
) -> str:
    told = f"{delivery_id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(secret, told, hashlib.sha256)).decode()


def _is_equal(expected: str, received: str) -> bool:
    return hmac.compare_digest(expected.encode(), received.encode())
