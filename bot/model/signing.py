"""The signing key of the change log: an Ed25519 key in a file outside the database.

A person who can write to the database can rewrite the tree of hashes, but cannot create valid
signatures without the key. The first start creates the key file, which only Keyturn can read.
The key of the MACs in bot.auth.row_mac is derived from it.
"""

import hashlib
import hmac
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from nacl.bindings import crypto_sign, crypto_sign_open
from nacl.exceptions import CryptoError

from bot.model import keyfile
from bot.model.keyfile import KeyFileError

_SIGNATURE_BYTES, _KEY_BYTES = 64, 32
# The purpose of the derived key. A change would end all sessions and invalidate all API tokens.
_MAC_KEY_INFO = b"keyturn: MACs of rows that grant access"


class SigningKey:
    """Signs checkpoints of the log, and creates MACs of database rows."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        # In the form of libsodium, which signs twice as fast as OpenSSL.
        self._secret_bytes = key.private_bytes_raw() + key.public_key().public_bytes_raw()
        self.forged_rows = dict[tuple[str, str, str], bool]()
        """Rows with a wrong MAC, each with whether it is recorded in the change log."""
        self.public_key = key.public_key().public_bytes_raw().hex()
        """64 hex digits."""

    @staticmethod
    def create() -> "SigningKey":
        return SigningKey(Ed25519PrivateKey.generate())

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature of a message, 64 bytes."""
        return crypto_sign(message, self._secret_bytes)[:_SIGNATURE_BYTES]

    def create_mac(self, content: str) -> str:
        """Return the MAC of a text, as 64 hex digits."""
        return hmac.new(self._mac_key, content.encode(), hashlib.sha256).hexdigest()

    @cached_property
    def _mac_key(self) -> bytes:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_MAC_KEY_INFO)
        return derived.derive(self._key.private_bytes_raw())


def is_signature_valid(public_key: str, message: bytes, signature: bytes) -> bool:
    """Return whether the owner of the public key, in hex digits, signed this message."""
    try:
        key = bytes.fromhex(public_key)
        # libsodium does not check the lengths of its arguments.
        if (len(signature), len(key)) != (_SIGNATURE_BYTES, _KEY_BYTES):
            return False
        # libsodium verifies twice as fast as OpenSSL and releases the lock of the interpreter.
        crypto_sign_open(signature + message, key)
    except (CryptoError, ValueError):
        return False
    return True


def load_signing_key(file: Path) -> SigningKey:
    """Load the signing key from *file*; create the file if it does not exist."""
    try:
        key = load_pem_private_key(
            keyfile.load_or_create_key(file, _generate_key_file), password=None
        )
    except ValueError:
        raise KeyFileError(f"{file} is not a private key: restore it from the backup") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{file} is not an Ed25519 key: restore it from the backup")
    return SigningKey(key)


def create_signing_key(file: Path) -> SigningKey:
    """Create a signing key in *file*, which must not exist."""
    if file.exists():
        raise KeyFileError(
            f"{file} exists already: an earlier change of the signing key was interrupted"
        )
    return load_signing_key(file)


def _generate_key_file() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
