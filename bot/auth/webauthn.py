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
PASSKEY_KIND = "passkey"
_DIGEST_DIGITS = 32


class KeyNotVerifiedError(Exception):
    """What the browser sent does not prove that its owner has the key."""


@dataclass(frozen=True)
class RelyingParty:
    """Where keys are for. name: the host that they are bound to. origin: of the pages."""

    host: str
    origin: str


@dataclass(frozen=True)
class StoredPublicKey:
    """The public half of a key, and the id by which its device finds it; both base64url."""

    id: str
    public: str

    @property
    def digest(self) -> str:
        """32 hex digits that name it."""
        return hash_canonical({"kind": PASSKEY_KIND, "id": self.id, "public": self.public})[
            :_DIGEST_DIGITS
        ]

    def to_json(self) -> str:
        return json.dumps({"id": self.id, "public": self.public})

    @staticmethod
    def from_json(text: str) -> "StoredPublicKey":
        return StoredPublicKey(**json.loads(text))


def build_relying_party(base_url: str) -> RelyingParty | None:
    """Return where keys of these pages belong; None where browsers let them belong to nothing:
    at a bare address, and on plain http elsewhere than on one's own machine."""
    parts = urlsplit(base_url)
    name = parts.hostname or ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        safe = parts.scheme == "https" or name == "localhost"
        return (
            RelyingParty(name, f"{parts.scheme}://{parts.netloc}".lower())
            if name and safe
            else None
        )
    return None


def build_registration_options(
    relying_party: RelyingParty,
    *,
    person: str,
    name: str,
    challenge: bytes,
    known_keys: Sequence[StoredPublicKey],
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
            rp_id=relying_party.host,
            rp_name="Keyturn",
            user_name=person,
            user_id=hash_canonical({"person": person}).encode(),
            user_display_name=name,
            challenge=challenge,
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.DISCOURAGED,
                user_verification=UserVerificationRequirement.PREFERRED,
            ),
            exclude_credentials=_build_descriptors(known_keys),
        )
    )


def build_authentication_options(
    relying_party: RelyingParty, *, challenge: bytes, keys: Sequence[StoredPublicKey]
) -> str:
    """Return what a browser needs to have one of the keys sign the challenge, as JSON."""
    from webauthn import generate_authentication_options, options_to_json
    from webauthn.helpers.structs import UserVerificationRequirement

    return options_to_json(
        generate_authentication_options(
            rp_id=relying_party.host,
            challenge=challenge,
            allow_credentials=_build_descriptors(keys),
            user_verification=UserVerificationRequirement.PREFERRED,
        )
    )


def verify_registration(
    relying_party: RelyingParty, response: str, *, challenge: bytes
) -> tuple[StoredPublicKey, int]:
    """Return the new key, and how often it was used before. Raises Unproven."""
    from webauthn import verify_registration_response
    from webauthn.helpers import bytes_to_base64url

    try:
        seen = verify_registration_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=relying_party.host,
            expected_origin=relying_party.origin,
        )
    except Exception as fault:  # noqa: BLE001 - anything may be sent, and parsers raise what they like
        raise KeyNotVerifiedError(str(fault)) from None
    key = StoredPublicKey(
        bytes_to_base64url(seen.credential_id), bytes_to_base64url(seen.credential_public_key)
    )
    return key, seen.sign_count


def parse_chosen_key_id(response: str) -> str:
    """Return the id of the key that a browser says it used, "" if it says nothing of the kind."""
    try:
        said: object = json.loads(response)
    except (ValueError, RecursionError):
        return ""
    found = said.get("id") if isinstance(said, dict) else None  # pyright: ignore[reportUnknownVariableType] - it is looked at next
    return found if isinstance(found, str) else ""


def verify_authentication(
    relying_party: RelyingParty,
    response: str,
    *,
    challenge: bytes,
    key: StoredPublicKey,
    last_count: int,
) -> int:
    """Return how often the key was used by now. count: how often when it was last seen.

    Raises Unproven, also if the count went back: then there are two of the key.
    """
    from webauthn import base64url_to_bytes, verify_authentication_response

    try:
        seen = verify_authentication_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=relying_party.host,
            expected_origin=relying_party.origin,
            credential_public_key=base64url_to_bytes(key.public),
            credential_current_sign_count=last_count,
        )
    except Exception as fault:  # noqa: BLE001 - anything may be sent, and parsers raise what they like
        raise KeyNotVerifiedError(str(fault)) from None
    return seen.new_sign_count


def _build_descriptors(keys: Sequence[StoredPublicKey]) -> "list[PublicKeyCredentialDescriptor]":
    from webauthn import base64url_to_bytes
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

    return [PublicKeyCredentialDescriptor(id=base64url_to_bytes(key.id)) for key in keys]
