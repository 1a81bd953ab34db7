"""What a browser returns when a passkey has signed, as the signature that ssh-keygen verifies.

Sources of the formats: https://www.w3.org/TR/webauthn-3/ 6.1 and 5.8.1, and PROTOCOL.u2f of
OpenSSH, "webauthn-sk-ecdsa-sha2-nistp256@openssh.com".
"""

import base64
import binascii
import json
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from bot.model.errors import InvalidRequestError
from bot.signing.sshsig import PLAN_NAMESPACE, PublicKey, encode_signature, encode_string

PASSKEY_KIND = "sk-ecdsa-sha2-nistp256@openssh.com"
# The hash of the site, the flags and a counter; extensions follow, and plans want none.
_DATA_LENGTH = 37
_INCOMPLETE = "the browser returned no signature: try again"


@dataclass(frozen=True)
class Assertion:
    """What a browser returns, decoded."""

    authenticator_data: bytes
    client_data: bytes
    signature: bytes

    def wrap(self, key: PublicKey) -> str:
        """Return the signature of this key as ssh-keygen writes it. It is not verified yet."""
        numbers = b"".join(map(_encode_integer, decode_dss_signature(self.signature)))
        parts = (f"webauthn-{PASSKEY_KIND}".encode(), numbers)
        tail = (self._origin.encode(), self.client_data, b"")
        blob = (
            b"".join(map(encode_string, parts))
            + self.authenticator_data[_DATA_LENGTH - 5 :]
            + b"".join(map(encode_string, tail))
        )
        return encode_signature(key, blob, namespace=PLAN_NAMESPACE)

    @property
    def _origin(self) -> str:
        return str(json.loads(self.client_data).get("origin", ""))


def parse_assertion(authenticator_data: str, client_data: str, signature: str) -> Assertion:
    """Return what a form holds in base64url. Raises InvalidRequestError."""
    try:
        found = Assertion(*map(_decode, (authenticator_data, client_data, signature)))
        decode_dss_signature(found.signature)
        json.loads(found.client_data)["origin"]
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        raise InvalidRequestError(_INCOMPLETE) from None
    if len(found.authenticator_data) < _DATA_LENGTH:
        raise InvalidRequestError(_INCOMPLETE)
    if len(found.authenticator_data) > _DATA_LENGTH:
        raise InvalidRequestError(
            "the device added extensions, which a signed plan does not have: use another"
        )
    return found


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _encode_integer(number: int) -> bytes:
    return encode_string(number.to_bytes(number.bit_length() // 8 + 1, "big"))
