"""A passkey in software: its assertion as the signature that OpenSSH verifies.

Source of the format: PROTOCOL.u2f of OpenSSH, "webauthn-sk-ecdsa-sha2-nistp256@openssh.com".
"""

import base64
import hashlib
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bot.signing.sshsig import (
    PLAN_NAMESPACE,
    PublicKey,
    build_signed_blob,
    encode_signature,
    encode_string,
)

_KIND = b"sk-ecdsa-sha2-nistp256@openssh.com"


@dataclass
class SoftPasskey:
    """One passkey. application: the site that it belongs to."""

    application: str = "keyturn.example.com"
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    @property
    def public(self) -> PublicKey:
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        strings = (_KIND, b"nistp256", point, self.application.encode())
        return PublicKey(_KIND.decode(), b"".join(map(encode_string, strings)))

    def sign(
        self,
        message: bytes,
        *,
        flags: int = 0x05,
        origin: str = "https://keyturn.example.com",
        namespace: str = PLAN_NAMESPACE,
        kind: str = "webauthn.get",
    ) -> str:
        made = self.answer_browser(
            message, flags=flags, origin=origin, namespace=namespace, kind=kind
        )
        client, head = made["client_data"], made["authenticator_data"][32:]
        numbers = b"".join(map(_encode_integer, decode_dss_signature(made["signature"])))
        strings = (b"webauthn-" + _KIND, numbers)
        tail = b"".join(map(encode_string, (origin.encode(), client, b"")))
        signature = b"".join(map(encode_string, strings)) + head + tail
        return encode_signature(self.public, signature, namespace=namespace)

    def answer_browser(
        self,
        message: bytes,
        *,
        flags: int = 0x05,
        origin: str = "https://keyturn.example.com",
        namespace: str = PLAN_NAMESPACE,
        kind: str = "webauthn.get",
    ) -> dict[str, bytes]:
        """Return what a browser returns to the page."""
        blob = build_signed_blob(message, namespace=namespace)
        challenge = base64.urlsafe_b64encode(blob).decode().rstrip("=")
        client = (
            f'{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}",'
            '"crossOrigin":false}'
        ).encode()
        data = hashlib.sha256(self.application.encode()).digest()
        data += bytes([flags]) + struct.pack(">I", 7)
        signed = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        return {"authenticator_data": data, "client_data": client, "signature": signed}


def _encode_integer(number: int) -> bytes:
    return encode_string(number.to_bytes(number.bit_length() // 8 + 1, "big"))
