"""Security keys and passkeys (WebAuthn): the private key never leaves its device. Pure.

The formats are those of https://www.w3.org/TR/webauthn-3/, implemented by py_webauthn.
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

# py_webauthn loads slowly, so functions import it when they need it.
PASSKEY_KIND = "passkey"
_DIGEST_DIGITS = 32


class KeyNotVerifiedError(Exception):
    """The response of the browser does not prove possession of the key."""


@dataclass(frozen=True)
class RelyingParty:
    """The site that keys belong to."""

    host: str
    """The host name that keys are bound to."""
    origin: str
    """The origin of the pages."""


@dataclass(frozen=True)
class StoredPublicKey:
    """A public key with the id by which its device finds it; both base64url."""

    id: str
    public: str

    @property
    def digest(self) -> str:
        """32 hex digits that identify the key."""
        return hash_canonical({"kind": PASSKEY_KIND, "id": self.id, "public": self.public})[
            :_DIGEST_DIGITS
        ]

    def to_json(self) -> str:
        return json.dumps({"id": self.id, "public": self.public})

    @staticmethod
    def from_json(text: str) -> "StoredPublicKey":
        return StoredPublicKey(**json.loads(text))


def build_relying_party(base_url: str) -> RelyingParty | None:
    """Return the relying party of these pages; None if browsers allow no keys there.

    They allow none for IP addresses, nor over plain HTTP except for localhost.
    """
    parts = urlsplit(base_url)
    name = parts.hostname or ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        is_secure = parts.scheme == "https" or name == "localhost"
        return (
            RelyingParty(name, f"{parts.scheme}://{parts.netloc}".lower())
            if name and is_secure
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
    """Return the JSON for a browser to create a key. known_keys: the person's other keys."""
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
    """Return the JSON for a browser to sign the challenge with one of the keys."""
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
    """Return the new key and its use count. Raises KeyNotVerifiedError."""
    from webauthn import verify_registration_response
    from webauthn.helpers import bytes_to_base64url

    try:
        registration = verify_registration_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=relying_party.host,
            expected_origin=relying_party.origin,
        )
    except Exception as error:  # noqa: BLE001 - the parsers raise many types for hostile input
        raise KeyNotVerifiedError(str(error)) from None
    key = StoredPublicKey(
        bytes_to_base64url(registration.credential_id),
        bytes_to_base64url(registration.credential_public_key),
    )
    return key, registration.sign_count


def parse_chosen_key_id(response: str) -> str:
    """Return the id of the key in a browser's response; "" without one."""
    try:
        data: object = json.loads(response)
    except (ValueError, RecursionError):
        return ""
    key_id = data.get("id") if isinstance(data, dict) else None  # pyright: ignore[reportUnknownVariableType] - checked next
    return key_id if isinstance(key_id, str) else ""


def verify_authentication(
    relying_party: RelyingParty,
    response: str,
    *,
    challenge: bytes,
    key: StoredPublicKey,
    last_count: int,
) -> int:
    """Return the new use count of the key. last_count: the stored use count.

    Raises KeyNotVerifiedError, also if the count went back: then the key was cloned.
    """
    from webauthn import base64url_to_bytes, verify_authentication_response

    try:
        authentication = verify_authentication_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=relying_party.host,
            expected_origin=relying_party.origin,
            credential_public_key=base64url_to_bytes(key.public),
            credential_current_sign_count=last_count,
        )
    except Exception as error:  # noqa: BLE001 - the parsers raise many types for hostile input
        raise KeyNotVerifiedError(str(error)) from None
    return authentication.new_sign_count


def _build_descriptors(keys: Sequence[StoredPublicKey]) -> "list[PublicKeyCredentialDescriptor]":
    from webauthn import base64url_to_bytes
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

    return [PublicKeyCredentialDescriptor(id=base64url_to_bytes(key.id)) for key in keys]
