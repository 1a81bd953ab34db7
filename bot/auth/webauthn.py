"""Security keys and passkeys: a private key that never leaves its device (WebAuthn). Pure.

The shapes are those of https://www.w3.org/TR/webauthn-3/, written and checked by py_webauthn.
"""

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.model.canonical import hash_canonical

if TYPE_CHECKING:
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

# py_webauthn takes a tenth of a second to load: that is done when somebody has a key.
KIND = "passkey"
_DIGEST_DIGITS = 32


class NotProven(Exception):
    """What the browser sent does not prove that its owner has the key."""


@dataclass(frozen=True)
class KeyScope:
    """Where keys are for. name: the host that they are bound to. origin: of the pages."""

    name: str
    origin: str


@dataclass(frozen=True)
class PublicKey:
    """The public half of a key, and the id by which its device finds it; both base64url."""

    id: str
    public: str

    @property
    def digest(self) -> str:
        """32 hex digits that name it."""
        return hash_canonical({"kind": KIND, "id": self.id, "public": self.public})[
            :_DIGEST_DIGITS
        ]

    def to_json(self) -> str:
        return json.dumps({"id": self.id, "public": self.public})

    @staticmethod
    def from_json(text: str) -> "PublicKey":
        return PublicKey(**json.loads(text))


def scope_of_pages(base_url: str) -> KeyScope | None:
    """Return where keys of these pages belong; None where browsers let them belong to nothing:
    at a bare address, and on plain http elsewhere than on one's own machine."""
    parts = urlsplit(base_url)
    name = parts.hostname or ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        safe = parts.scheme == "https" or name == "localhost"
        return (
            KeyScope(name, f"{parts.scheme}://{parts.netloc}".lower()) if name and safe else None
        )
    return None


def registration_options(
    home: KeyScope, *, person: str, name: str, challenge: bytes, known: Sequence[PublicKey]
) -> str:
    """Return what a browser needs to make a key, as JSON. known: keys that are there already."""
    from webauthn import generate_registration_options, options_to_json
    from webauthn.helpers.structs import (
        AuthenticatorSelectionCriteria,
        ResidentKeyRequirement,
        UserVerificationRequirement,
    )

    return options_to_json(
        generate_registration_options(
            rp_id=home.name,
            rp_name="Keyturn",
            user_name=person,
            user_id=hash_canonical({"person": person}).encode(),
            user_display_name=name,
            challenge=challenge,
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.DISCOURAGED,
                user_verification=UserVerificationRequirement.PREFERRED,
            ),
            exclude_credentials=_described(known),
        )
    )


def authentication_options(home: KeyScope, *, challenge: bytes, keys: Sequence[PublicKey]) -> str:
    """Return what a browser needs to have one of the keys sign the challenge, as JSON."""
    from webauthn import generate_authentication_options, options_to_json
    from webauthn.helpers.structs import UserVerificationRequirement

    return options_to_json(
        generate_authentication_options(
            rp_id=home.name,
            challenge=challenge,
            allow_credentials=_described(keys),
            user_verification=UserVerificationRequirement.PREFERRED,
        )
    )


def verify_registration(home: KeyScope, answer: str, *, challenge: bytes) -> tuple[PublicKey, int]:
    """Return the new key, and how often it was used before. Raises Unproven."""
    from webauthn import verify_registration_response
    from webauthn.helpers import bytes_to_base64url

    try:
        seen = verify_registration_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=home.name,
            expected_origin=home.origin,
        )
    except Exception as fault:  # noqa: BLE001 - anything may be sent, and parsers raise what they like
        raise NotProven(str(fault)) from None
    key = PublicKey(
        bytes_to_base64url(seen.credential_id), bytes_to_base64url(seen.credential_public_key)
    )
    return key, seen.sign_count


def chosen_key_id(answer: str) -> str:
    """Return the id of the key that a browser says it used, "" if it says nothing of the kind."""
    try:
        said: object = json.loads(answer)
    except (ValueError, RecursionError):
        return ""
    found = said.get("id") if isinstance(said, dict) else None  # pyright: ignore[reportUnknownVariableType] - it is looked at next
    return found if isinstance(found, str) else ""


def verify_authentication(
    home: KeyScope, answer: str, *, challenge: bytes, key: PublicKey, count: int
) -> int:
    """Return how often the key was used by now. count: how often when it was last seen.

    Raises Unproven, also if the count went back: then there are two of the key.
    """
    from webauthn import base64url_to_bytes, verify_authentication_response

    try:
        seen = verify_authentication_response(
            credential=answer,
            expected_challenge=challenge,
            expected_rp_id=home.name,
            expected_origin=home.origin,
            credential_public_key=base64url_to_bytes(key.public),
            credential_current_sign_count=count,
        )
    except Exception as fault:  # noqa: BLE001 - anything may be sent, and parsers raise what they like
        raise NotProven(str(fault)) from None
    return seen.new_sign_count


def _described(keys: Sequence[PublicKey]) -> "list[PublicKeyCredentialDescriptor]":
    from webauthn import base64url_to_bytes
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

    return [PublicKeyCredentialDescriptor(id=base64url_to_bytes(key.id)) for key in keys]
