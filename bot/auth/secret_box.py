"""The safe: secrets that the database must keep, sealed by a key that it does not hold.

AES-256-GCM. What a secret is about is sealed with it: moved to another row, it does not open.
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
    """It was sealed by another key, or is about something else, or was altered."""


class SecretBox:
    """Seals and opens."""

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
        """Return the secret. Raises DoesNotOpen."""
        try:
            raw = base64.b64decode(sealed, validate=True)
            nonce, rest = raw[:_NONCE_BYTES], raw[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, rest, encode_canonical(context).encode()).decode()
        except (InvalidTag, ValueError):
            raise CannotOpenError("it does not open") from None


def load_secret_box(file: Path) -> SecretBox:
    """Return the safe whose key is kept in *file*, made on the spot if there is none yet."""
    try:
        return SecretBox(keyfile.load_or_create_key(file, lambda: os.urandom(_KEY_BYTES)))
    except ValueError:
        raise KeyFileError(
            f"{file} is no key of a safe: put back the one from the backup"
        ) from None


def check_secret_key(tx: Transaction, secret_box: SecretBox) -> None:
    """See that our key opens what this database holds, and that what is written is sealed.

    Raises BadKey: with another key, nobody's second factor would work, and new ones would be
    sealed by a key that is not in the backup.
    """
    before = read_sealed_trial(tx, secret_box)
    words = secrets.token_hex(16)
    _write_row(tx, secret_box.seal_secret(words, context=_TRIAL_NAME), is_new=before is None)
    back = _read_row(tx) or ""
    if words in back or words.encode() in base64.b64decode(back):
        raise KeyFileError("secrets would be written as they are: this Keyturn must not be used")
    if secret_box.open_secret(back, context=_TRIAL_NAME) != words:
        raise KeyFileError("secrets do not come back as they were: this Keyturn must not be used")


def read_sealed_trial(tx: Transaction, secret_box: SecretBox) -> str | None:
    """Return what was sealed for a trial, None if nothing was yet. Raises BadKey."""
    before = _read_row(tx)
    try:
        if before is not None:
            secret_box.open_secret(before, context=_TRIAL_NAME)
    except CannotOpenError:
        raise KeyFileError(
            "the secrets in this database are sealed by another key: put the right "
            "secrets.key back, from the backup of its day"
        ) from None
    return before


def delete_sealed_trial(tx: Transaction) -> None:
    """Let the next start begin with whatever key there is by then."""
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
