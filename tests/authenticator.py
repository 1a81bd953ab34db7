"""A WebAuthn security key in software: creates a key for a site and signs its challenges.

Source of the shapes: https://www.w3.org/TR/webauthn-3/#sctn-authenticator-data
"""

import hashlib
import json
import os
import struct
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url

_PRESENT, _HAS_KEY = 0x01, 0x40


@dataclass
class Authenticator:
    """One key. origin: of the page that the browser is on, whatever the page says itself."""

    origin: str
    count: int = 0
    id: bytes = field(default_factory=lambda: os.urandom(32))
    key: EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def enrol(self, options: str) -> str:
        """Answer navigator.credentials.create()."""
        asked: dict[str, Any] = json.loads(options)
        client = self._client("webauthn.create", asked["challenge"])
        attested = b"\0" * 16 + struct.pack(">H", len(self.id)) + self.id + self._cose()
        data = self._data(asked["rp"]["id"], _PRESENT | _HAS_KEY) + attested
        attestation: bytes = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer(
            {"clientDataJSON": client, "attestationObject": attestation, "transports": []}
        )

    def sign(self, options: str) -> str:
        """Answer navigator.credentials.get()."""
        asked: dict[str, Any] = json.loads(options)
        self.count += 1
        client = self._client("webauthn.get", asked["challenge"])
        data = self._data(asked["rpId"], _PRESENT)
        signature = self.key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        )

    def _answer(self, response: dict[str, Any]) -> str:
        encoded = {
            name: bytes_to_base64url(value) if isinstance(value, bytes) else value
            for name, value in response.items()
        }
        name = bytes_to_base64url(self.id)
        return json.dumps({"id": name, "rawId": name, "type": "public-key", "response": encoded})

    def _client(self, kind: str, challenge: str) -> bytes:
        client_data = {"type": kind, "challenge": challenge, "origin": self.origin}
        assert base64url_to_bytes(challenge)
        return json.dumps(client_data).encode()

    def _data(self, site: str, flags: int) -> bytes:
        return hashlib.sha256(site.encode()).digest() + struct.pack(">BI", flags, self.count)

    def _cose(self) -> bytes:
        public = self.key.public_key().public_numbers()
        x, y = public.x.to_bytes(32, "big"), public.y.to_bytes(32, "big")
        key: bytes = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        return key
