"""The seal of the change log: an Ed25519 key kept outside the database, and what it signs.

Whoever can rewrite the database can make the chain of hashes fit again; without the key they
cannot make the signatures fit. The key is a file of its own, made at the first start, for Keyturn
alone. Another is derived from it, for stamps of rows that let somebody in: see bot.auth.row_mac.
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
# What a key is derived for: one that is for something else has another.
_MAC_KEY_INFO = b"keyturn: stamps of rows that let somebody in"


class SigningKey:
    """Signs hashes. public: the public key as 64 hex digits.

    inherited: hashes of entries that another key signed, and that were found to lead up to one
    that this key has signed. That stays so, whatever is written since. doubted: rows that were
    found with a stamp that is none of ours, and whether the change log tells of them yet.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        # As libsodium takes it, which makes the same signature in half of OpenSSL's time.
        self._secret_bytes = key.private_bytes_raw() + key.public_key().public_bytes_raw()
        self.inherited_hashes = set[str]()
        self.doubted_rows = dict[tuple[str, str, str], bool]()
        self.public_key = key.public_key().public_bytes_raw().hex()

    @staticmethod
    def create() -> "SigningKey":
        return SigningKey(Ed25519PrivateKey.generate())

    def sign_hash(self, digest: str) -> str:
        """Return the signature of a hash, as 128 hex digits. digest: 64 hex digits."""
        return crypto_sign(bytes.fromhex(digest), self._secret_bytes)[:_SIGNATURE_BYTES].hex()

    def create_mac(self, content: str) -> str:
        """Return what nobody can make of this text without the key, as 64 hex digits."""
        return hmac.new(self._mac_key, content.encode(), hashlib.sha256).hexdigest()

    @cached_property
    def _mac_key(self) -> bytes:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_MAC_KEY_INFO)
        return derived.derive(self._key.private_bytes_raw())


def is_signature_valid(public_key: str, digest: str, signature: str) -> bool:
    """Return whether the owner of *public* signed this hash; all as hex digits, if they are."""
    try:
        signed, key = bytes.fromhex(signature), bytes.fromhex(public_key)
        # libsodium reads as many bytes as it expects, without looking how many there are.
        if (len(signed), len(key)) != (_SIGNATURE_BYTES, _KEY_BYTES):
            return False
        # It takes half of OpenSSL's time, and other threads go on meanwhile.
        crypto_sign_open(signed + bytes.fromhex(digest), key)
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def load_signing_key(file: Path) -> SigningKey:
    """Return the seal whose key is kept in *file*, made on the spot if there is none yet."""
    try:
        key = load_pem_private_key(
            keyfile.load_or_create_key(file, _generate_key_file), password=None
        )
    except ValueError:
        raise KeyFileError(f"{file} is no private key: put back the one from the backup") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{file} is not an Ed25519 key: put back the one from the backup")
    return SigningKey(key)


def create_signing_key(file: Path) -> SigningKey:
    """Return a new seal, its key kept in *file*, which must not be there yet."""
    if file.exists():
        raise KeyFileError(
            f"{file} is there already: it is of a change of keys that was interrupted"
        )
    return load_signing_key(file)


def _generate_key_file() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
