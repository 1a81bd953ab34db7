"""Checkpoints of the change log: its size and root, signed.

A checkpoint is a signed note as in https://c2sp.org/signed-note with the text of
https://c2sp.org/tlog-checkpoint, so that witnesses and tools of other logs can read it.

Witnesses keep checkpoints outside the database, as notes or as lines of any log. An attacker who
rewrites the database, or restores an old copy of it, cannot rewrite the witnesses as well.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bot.model.merkle import Tree
from bot.model.signing import SigningKey, is_signature_valid
from bot.model.verifier_keys import ED25519, KEY_ID_BYTES, VerifierKey


@dataclass(frozen=True)
class Checkpoint:
    """The root of the log at one size, signed."""

    origin: str
    """The name of the log."""
    size: int
    """The number of its newest entry."""
    root: str
    """Its root, in base64."""
    at: int
    """Microseconds since 1970, UTC. Not part of what is signed."""
    signatures: tuple[str, ...]
    """Each in base64: four bytes that identify the key, and the signature."""
    cosignatures: tuple[str, ...] = ()
    """Of witnesses, each as a line of the note."""
    run: int | None = field(default=None, compare=False)
    """The run whose step wrote it to the log of a host; None elsewhere."""

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{self.root}\n"

    @property
    def note(self) -> str:
        """The checkpoint as other tools read it."""
        ours = "".join(f"— {self.origin} {one}\n" for one in self.signatures)
        return f"{self.text}\n{ours}{''.join(self.cosignatures)}"

    @property
    def line(self) -> str:
        """The checkpoint as a line for any log."""
        signatures = "".join(f" signature={one}" for one in self.signatures)
        return (
            f"{_LINE_PREFIX} at={self.at} origin={self.origin} size={self.size} root={self.root}"
            f"{signatures}"
        )


# Logs prefix the time, the host and more, or put the line into JSON.
_LINE_PREFIX = "keyturn checkpoint"
_RUN_PATTERN = re.compile(rf"\brun (\d{{1,9}}) step \d{{1,9}}: {_LINE_PREFIX} ")
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_ORIGIN = r"[\w./:-]{1,100}"
_LINE_PATTERN = re.compile(
    _LINE_PREFIX + rf" at=(\d{{1,18}}) origin=({_ORIGIN}) size=(\d{{1,18}}) root=({_BASE64})"
    rf"((?: signature={_BASE64})+)"
)
_NOTE_PATTERN = re.compile(
    rf"({_ORIGIN})\n(\d{{1,18}})\n({_BASE64})\n(?:[^\n]+\n)*\n((?:— [^\n ]+ {_BASE64}\n)+)"
)
_SIGNATURE_PATTERN = re.compile(rf"— ([^\n ]+) ({_BASE64})\n")


def name_log(first_key: str) -> str:
    """Return the origin of the log whose first entry has this public key."""
    return f"keyturn/{first_key[:16]}"


def encode_root(tree: Tree) -> str:
    """Return the root of a tree as checkpoints have it."""
    return b64encode(tree.root).decode()


def sign_checkpoint(origin: str, tree: Tree, at: int, keys: Sequence[SigningKey]) -> Checkpoint:
    """Return the checkpoint of a tree, with a signature of each of our keys."""
    point = Checkpoint(origin, tree.size, encode_root(tree), at, ())
    text = point.text.encode()
    signed = [identify_key(origin, key.public_key) + key.sign(text) for key in keys]
    return replace(point, signatures=tuple(b64encode(one).decode() for one in signed))


def is_signed_by(checkpoint: Checkpoint, public_key: str) -> bool:
    """Return whether the owner of this public key, in hex digits, signed the checkpoint."""
    try:
        wanted = identify_key(checkpoint.origin, public_key)
        found = [b64decode(one, validate=True) for one in checkpoint.signatures]
    except ValueError:
        return False
    text = checkpoint.text.encode()
    return any(
        one.startswith(wanted) and is_signature_valid(public_key, text, one[KEY_ID_BYTES:])
        for one in found
    )


def identify_key(origin: str, public_key: str) -> bytes:
    """Return the four bytes that begin each signature of this key."""
    return VerifierKey(origin, ED25519, public_key).id


def parse_note(note: str, at: int = 0) -> Checkpoint | None:
    """Return the checkpoint of a signed note; None if the text is none."""
    match = _NOTE_PATTERN.fullmatch(note)
    if match is None:
        return None
    origin, size, root, signatures = match.groups()
    ours = [one for name, one in _SIGNATURE_PATTERN.findall(signatures) if name == origin]
    return Checkpoint(origin, int(size), root, at, tuple(ours))


def parse_line(line: str) -> Checkpoint | None:
    """Return the checkpoint in a line of a log; None if it holds none."""
    match = _LINE_PATTERN.search(line)
    if match is None:
        return None
    at, origin, size, root, signatures = match.groups()
    each = tuple(one.removeprefix("signature=") for one in signatures.split())
    of_run = _RUN_PATTERN.search(line)
    run = int(of_run[1]) if of_run else None
    return Checkpoint(origin, int(size), root, int(at), each, run=run)
