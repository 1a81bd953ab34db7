"""What a witness remembers: its key, and the newest checkpoint of each log that it knows.

It is one SQLite file. A checkpoint is durable before its cosignature leaves the machine.
"""

import hashlib
import os
import re
import sqlite3
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.model.merkle import is_consistent
from bot.model.signing import SigningKey, is_signature_valid
from bot.model.verifier_keys import (
    COSIGNATURE,
    ED25519,
    KEY_ID_BYTES,
    Note,
    VerifierKey,
    create_cosignature,
    parse_signed_note,
    parse_verifier_key,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS witness (name TEXT NOT NULL, key BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS log_key (origin TEXT NOT NULL, vkey TEXT NOT NULL PRIMARY KEY);
CREATE TABLE IF NOT EXISTS checkpoint (
    origin TEXT NOT NULL PRIMARY KEY, hash TEXT NOT NULL, size INTEGER NOT NULL,
    root BLOB NOT NULL, note TEXT NOT NULL);
"""
_MAX_PROOF_LINES = 63
_OLD_PATTERN = re.compile(r"old (0|[1-9][0-9]{0,17})")
_SIZE_PATTERN = re.compile(r"0|[1-9][0-9]{0,17}")
_ROOT_BYTES = 32
_EMPTY_ROOT = hashlib.sha256(b"").digest()


class StateError(Exception):
    """The state file cannot be used."""


@dataclass(frozen=True)
class WitnessAnswer:
    """A response of the witness."""

    status: HTTPStatus
    body: str
    media_type: str = "text/plain; charset=utf-8"


class _Refused(Exception):
    """The witness does not cosign a checkpoint."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class _Head:
    """The size and root of a log, from the text of a checkpoint."""

    origin: str
    size: int
    root: bytes


@dataclass(frozen=True)
class _Submission:
    """What `add-checkpoint` receives."""

    old: int
    proof: Sequence[bytes]
    note: Note
    head: _Head


class WitnessState:
    """The state file, open. Several processes may use it, since SQLite locks it."""

    def __init__(self, file: Path, *, name: str) -> None:
        """Open the file. name: of the witness, for a new file. Raises StateError."""
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._lock = threading.Lock()
        try:
            # The lock above gives the connection to one thread at a time.
            self._sql = sqlite3.connect(
                file, timeout=5, isolation_level=None, check_same_thread=False
            )
            self._sql.execute("PRAGMA journal_mode=WAL")
            self._sql.execute("PRAGMA synchronous=FULL")
            self._sql.executescript(_SCHEMA)
            self._name, self._key = self._load_key(name)
        except sqlite3.Error as error:
            raise StateError(f"{file} is not the state of a witness: {error}") from None

    def _load_key(self, name: str) -> tuple[str, SigningKey]:
        row = self._sql.execute("SELECT name, key FROM witness").fetchone()
        if row is None:
            if not name:
                raise StateError("this witness is new: give it a name with --name")
            row = (name, Ed25519PrivateKey.generate().private_bytes_raw())
            self._sql.execute("INSERT INTO witness VALUES (?, ?)", row)
        if name and name != row[0]:
            raise StateError(f"this witness is {row[0]}, and its name cannot be changed")
        return row[0], SigningKey(Ed25519PrivateKey.from_private_bytes(row[1]))

    @property
    def verifier_key(self) -> VerifierKey:
        return VerifierKey(self._name, COSIGNATURE, self._key.public_key)

    def add_log(self, key: VerifierKey) -> None:
        """Cosign the log that has this key, from now on. Raises StateError."""
        if key.algorithm != ED25519:
            raise StateError(f"{key.text} is the key of a witness, and not of a log")
        self._sql.execute("INSERT OR IGNORE INTO log_key VALUES (?, ?)", (key.name, key.text))

    def list_logs(self) -> list[tuple[str, int]]:
        """Return the name of each log, and the size of the newest checkpoint that was cosigned."""
        return self._sql.execute(
            "SELECT DISTINCT log_key.origin, coalesce(size, 0) FROM log_key "
            "LEFT JOIN checkpoint ON checkpoint.origin = log_key.origin ORDER BY 1"
        ).fetchall()

    def forget_log(self, origin: str) -> bool:
        """Forget what was seen of a log, so that another history of it can begin."""
        deleted = self._sql.execute("DELETE FROM checkpoint WHERE origin = ?", (origin,))
        return bool(deleted.rowcount)

    def get_checkpoint(self, origin_hash: str) -> str | None:
        """Return the newest cosigned checkpoint of a log. origin_hash: SHA-256, in hex digits."""
        with self._lock:
            query = "SELECT note FROM checkpoint WHERE hash = ?"
            row = self._sql.execute(query, (origin_hash,)).fetchone()
        return row[0] if row else None

    def add_checkpoint(self, body: bytes) -> WitnessAnswer:
        """Cosign a checkpoint if it continues what was seen of its log."""
        try:
            submission = _parse_submission(body)
            self._check_signature(submission)
            if submission.old > submission.head.size:
                raise _Refused(HTTPStatus.BAD_REQUEST, "the old size is larger than the new one")
            with self._lock:
                return self._cosign(submission)
        except _Refused as refused:
            return WitnessAnswer(refused.status, f"{refused}\n")

    def _check_signature(self, submission: _Submission) -> None:
        """Raise _Refused unless a key of the log signed the checkpoint."""
        with self._lock:
            query = "SELECT vkey FROM log_key WHERE origin = ?"
            rows = self._sql.execute(query, (submission.head.origin,)).fetchall()
        if not rows:
            raise _Refused(HTTPStatus.NOT_FOUND, "unknown log")
        keys = {(key.name, key.id): key for key in (parse_verifier_key(row[0]) for row in rows)}
        text, found = submission.note.text.encode(), False
        for name, content in submission.note.signatures:
            key = keys.get((name, content[:KEY_ID_BYTES]))
            if key is None:
                continue
            if not is_signature_valid(key.public_key, text, content[KEY_ID_BYTES:]):
                raise _Refused(HTTPStatus.FORBIDDEN, "invalid signature")
            found = True
        if not found:
            raise _Refused(HTTPStatus.FORBIDDEN, "no signature of a known key of the log")

    def _cosign(self, submission: _Submission) -> WitnessAnswer:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            answer = self._compare_and_cosign(submission)
            self._sql.execute("COMMIT")
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        return answer

    def _compare_and_cosign(self, submission: _Submission) -> WitnessAnswer:
        head, note = submission.head, submission.note
        query = "SELECT size, root FROM checkpoint WHERE origin = ?"
        size, root = self._sql.execute(query, (head.origin,)).fetchone() or (0, _EMPTY_ROOT)
        if submission.old != size:
            return WitnessAnswer(HTTPStatus.CONFLICT, f"{size}\n", "text/x.tlog.size")
        if not head.size and head.root != _EMPTY_ROOT:
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "an empty tree has another root")
        if not is_consistent(size, root, head.size, head.root, submission.proof):
            raise _Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY, "the consistency proof does not verify"
            )
        signed = create_cosignature(self._key, self._name, note.text, int(time.time()))
        ours = "".join(
            f"— {name} {b64encode(content).decode()}\n"
            for name, content in note.signatures
            if name == head.origin
        )
        digest = hashlib.sha256(head.origin.encode()).hexdigest()
        row = (head.origin, digest, head.size, head.root, f"{note.text}\n{ours}{signed.line}")
        self._sql.execute("INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?)", row)
        return WitnessAnswer(HTTPStatus.OK, signed.line)

    def close(self) -> None:
        self._sql.close()


def _parse_submission(body: bytes) -> _Submission:
    """Parse the body of a request. Raises _Refused."""
    try:
        top, found, rest = body.decode().partition("\n\n")
        first, *lines = top.split("\n")
        old = _OLD_PATTERN.fullmatch(first)
        proof = [b64decode(line, validate=True) for line in lines]
    except ValueError:
        raise _Refused(HTTPStatus.BAD_REQUEST, "the request is malformed") from None
    is_valid = old and found and len(lines) <= _MAX_PROOF_LINES
    if not is_valid or any(len(one) != _ROOT_BYTES for one in proof):
        raise _Refused(HTTPStatus.BAD_REQUEST, "the request is malformed")
    note = parse_signed_note(rest)
    head = _parse_head(note.text) if note else None
    if old is None or note is None or head is None:
        raise _Refused(HTTPStatus.BAD_REQUEST, "the checkpoint is malformed")
    return _Submission(int(old[1]), proof, note, head)


def _parse_head(text: str) -> _Head | None:
    """Return what a checkpoint says; None if the text is none."""
    try:
        origin, size, root, *extensions = text.split("\n")
        digest = b64decode(root, validate=True)
    except ValueError:
        return None
    is_valid = origin and _SIZE_PATTERN.fullmatch(size) and len(digest) == _ROOT_BYTES
    # The last one is the end of the last line.
    is_valid = is_valid and all(extensions[:-1]) and extensions[-1:] == [""]
    return _Head(origin, int(size), digest) if is_valid else None
