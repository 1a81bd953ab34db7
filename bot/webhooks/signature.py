"""Signatures of hooks: made and looked at. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal

Way = Literal["standard", "github", "bearer"]

# How old, or early, what is signed may be: longer ones could be replayed after they are forgotten.
MOST_SECONDS = 5 * 60
SHORTEST_SECRET = 24
_PREFIX = "whsec_"


class Unsigned(Exception):
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
    if len(secret) < SHORTEST_SECRET:
        raise ValueError(f"it has {len(secret)} bytes, and needs {SHORTEST_SECRET} or more")
    return secret


def sign_headers(secret: bytes, name: str, body: bytes, *, at: int) -> dict[str, str]:
    """Return what proves that we sent *body*. name: the same whenever it is sent again.

    at: seconds since 1970.
    """
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{_standard(secret, name, str(at), body)}",
    }


def check_signature(
    way: Way, secret: bytes, given: Mapping[str, str], body: bytes, *, now: int
) -> None:
    """Raise Unsigned unless the headers prove it. given: by lower-case name. now: seconds."""
    if way == "standard":
        _check_standard(secret, given, body, now)
    elif way == "github":
        made = "sha256=" + hmac.digest(secret, body, hashlib.sha256).hex()
        if not _same(made, given.get("x-hub-signature-256", "")):
            raise Unsigned("the signature is wrong")
    elif not _same(f"Bearer {secret.decode(errors='replace')}", given.get("authorization", "")):
        raise Unsigned("the token is wrong")


def _check_standard(secret: bytes, given: Mapping[str, str], body: bytes, now: int) -> None:
    name, at = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    made = "v1," + _standard(secret, name, at, body)
    if not any(_same(made, one) for one in given.get("webhook-signature", "").split()):
        raise Unsigned("the signature is wrong")
    if not name:
        raise Unsigned("there is no webhook-id")
    # The signature is right, so this is what its maker wrote; it may still be no number.
    if not (at.isascii() and at.isdecimal() and len(at) < 12):
        raise Unsigned("the timestamp is no number of seconds")
    if not is_fresh(int(at), now):
        raise Unsigned("the timestamp is too old, or too early")


def is_fresh(at: int, now: int) -> bool:
    """Say whether a moment is near enough to be taken for now. Both: seconds since 1970."""
    return abs(now - at) <= MOST_SECONDS


def _standard(secret: bytes, name: str, at: str, body: bytes) -> str:
    told = f"{name}.{at}.".encode() + body
    return base64.b64encode(hmac.digest(secret, told, hashlib.sha256)).decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
