"""Encrypt secrets in the database with a key that is not in the database.

AES-256-GCM, with the context of a secret as associated data: in another row it does not decrypt.
"""

import base64
import os
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import delete, insert, select, update

from bot.db import tables
from bot.db.database import Transaction
from bot.model import keyfile
from bot.model.canonical import Canonical, encode_canonical
from bot.model.keyfile import KeyFileError

_KEY_BYTES = 32
_NONCE_BYTES = 12
_TRIAL_NAME = "trial"


class CannotOpenError(Exception):
    """The secret has another key or context, or was altered."""


class SecretBox:
    """Encrypts and decrypts secrets."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes instead of {_KEY_BYTES}")
        self._cipher = AESGCM(key)

    @staticmethod
    def create() -> "SecretBox":
        return SecretBox(os.urandom(_KEY_BYTES))

    def seal_secret(self, secret: str, *, context: Canonical) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, secret.encode(), encode_canonical(context).encode())
        return base64.b64encode(nonce + sealed).decode()

    def open_secret(self, sealed: str, *, context: Canonical) -> str:
        """Return the decrypted secret. Raises CannotOpenError."""
        try:
            raw = base64.b64decode(sealed, validate=True)
            nonce, rest = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, rest, encode_canonical(context).encode()).decode()
        except (InvalidTag, ValueError):
            raise CannotOpenError("the secret does not decrypt") from None


def load_secret_box(file: Path) -> SecretBox:
    """Load the key of secrets from *file*; create the file if it does not exist."""
    try:
        return SecretBox(keyfile.load_or_create_key(file, lambda: os.urandom(_KEY_BYTES)))
    except ValueError:
        raise KeyFileError(
            f"{file} is not a key for secrets: restore it from the backup"
        ) from None


def check_secret_key(tx: Transaction, secret_box: SecretBox) -> None:
    """Check that the key decrypts the secrets of this database, and that new ones are encrypted.

    Raises KeyFileError. With another key, no second factor would work, and new ones would need a
    key that is not in the backup.
    """
    before = read_sealed_trial(tx, secret_box)
    words = secrets.token_hex(16)
    _write_row(tx, secret_box.seal_secret(words, context=_TRIAL_NAME), is_new=before is None)
    back = _read_row(tx) or ""
    if words in back or words.encode() in base64.b64decode(back):
        raise KeyFileError("secrets would be stored without encryption: do not use this Keyturn")
    if secret_box.open_secret(back, context=_TRIAL_NAME) != words:
        raise KeyFileError("secrets do not decrypt to what was stored: do not use this Keyturn")


def read_sealed_trial(tx: Transaction, secret_box: SecretBox) -> str | None:
    """Return the encrypted trial text; None if there is none yet. Raises KeyFileError."""
    before = _read_row(tx)
    try:
        if before is not None:
            secret_box.open_secret(before, context=_TRIAL_NAME)
    except CannotOpenError:
        raise KeyFileError(
            "the secrets in this database are encrypted with another key: restore the right "
            "secrets.key from the backup"
        ) from None
    return before


def delete_sealed_trial(tx: Transaction) -> None:
    """Delete the trial text, so that the next start accepts any key."""
    tx.sql.execute(delete(tables.secret))


def _read_row(tx: Transaction) -> str | None:
    found = select(tables.secret.c.content).where(tables.secret.c.name == _TRIAL_NAME)
    return tx.sql.execute(found).scalar_one_or_none()


def _write_row(tx: Transaction, content: str, *, is_new: bool) -> None:
    if is_new:
        tx.sql.execute(insert(tables.secret).values(name=_TRIAL_NAME, content=content))
    else:
        here = tables.secret.c.name == _TRIAL_NAME
        tx.sql.execute(update(tables.secret).where(here).values(content=content))
