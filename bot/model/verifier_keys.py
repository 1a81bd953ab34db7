"""Keys that verify signed notes, and the cosignatures of witnesses.

The formats are https://c2sp.org/signed-note and https://c2sp.org/tlog-cosignature, version 1.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from bot.model.signing import SigningKey, is_signature_valid

# The algorithms of a key: Ed25519 over the text, and Ed25519 over the text and a time.
ED25519: Final = 1
COSIGNATURE: Final = 4
# Those that identify the key begin each signature.
KEY_ID_BYTES = 4
_TIME_BYTES, _KEY_BYTES = 8, 32
_VKEY_PATTERN = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")
_SIGNATURE_PATTERN = re.compile(r"— ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
# As long as the column in the database.
_MAX_NAME = 200
# Larger notes are none: a post-quantum signature has 5 kB, and a note may have 16.
MAX_NOTE_BYTES = 128 * 1024


@dataclass(frozen=True)
class VerifierKey:
    """A public key with the name of its owner."""

    name: str
    algorithm: int
    public_key: str
    """64 hex digits."""

    @property
    def id(self) -> bytes:
        """The four bytes that begin each signature of this key."""
        named = f"{self.name}\n".encode() + self._material
        return sha256(named).digest()[:KEY_ID_BYTES]

    @property
    def text(self) -> str:
        """The key as signed-note writes it: name, id and key."""
        return f"{self.name}+{self.id.hex()}+{b64encode(self._material).decode()}"

    @property
    def _material(self) -> bytes:
        return bytes([self.algorithm]) + bytes.fromhex(self.public_key)


@dataclass(frozen=True)
class Note:
    """A signed note."""

    text: str
    """What is signed, with its last line end."""
    signatures: Sequence[tuple[str, bytes]]
    """Of each, the name, and four bytes that identify the key with the signature."""


@dataclass(frozen=True)
class Cosignature:
    """The signature of a witness under a checkpoint."""

    name: str
    """Of the witness."""
    at: int
    """When it signed, in seconds since 1970."""
    line: str
    """As a line of the signed note, with its line end."""


@dataclass(frozen=True)
class WitnessAddress:
    """A witness that the settings name."""

    key: VerifierKey
    url: str
    """Without a slash at the end."""


def parse_verifier_key(text: str) -> VerifierKey:
    """Parse a key as signed-note writes it. Raises ValueError."""
    match = _VKEY_PATTERN.fullmatch(text)
    try:
        material = b64decode(match[3], validate=True) if match else b""
    except ValueError:
        material = b""
    if match is None or len(material) != _KEY_BYTES + 1 or material[0] not in {1, COSIGNATURE}:
        raise ValueError(
            f"{text!r} is not a verifier key: it must be NAME+ID+KEY, with an Ed25519 key"
        )
    key = VerifierKey(match[1], material[0], material[1:].hex())
    if key.id.hex() != match[2]:
        raise ValueError(f"{text!r} has the id of another key: copy it again")
    return key


def parse_signed_note(note: str) -> Note | None:
    """Return the text and the signatures of a signed note; None if the text is none."""
    end = note.rfind("\n\n")
    text, signed = note[:end], note[end + 2 :]
    if end < 0 or signed[-1:] != "\n":
        return None
    matches = [_SIGNATURE_PATTERN.fullmatch(line) for line in signed[:-1].split("\n")]
    try:
        signatures = [(one[1], b64decode(one[2], validate=True)) for one in matches if one]
    except ValueError:
        return None
    return Note(f"{text}\n", signatures) if len(signatures) == len(matches) else None


def create_cosignature(key: SigningKey, name: str, text: str, at: int) -> Cosignature:
    """Cosign the text of a checkpoint. at: seconds since 1970."""
    signature = key.sign(_build_message(text, at))
    key_id = VerifierKey(name, COSIGNATURE, key.public_key).id
    content = key_id + at.to_bytes(_TIME_BYTES, "big") + signature
    return Cosignature(name, at, f"— {name} {b64encode(content).decode()}\n")


def list_cosignatures(
    text: str, signatures: Sequence[tuple[str, bytes]], keys: Sequence[VerifierKey]
) -> list[Cosignature]:
    """Return the valid cosignatures of these witnesses under the text of a checkpoint."""
    found = list[Cosignature]()
    for key in keys:
        for name, content in signatures:
            rest = content[KEY_ID_BYTES:]
            if (name, content[:KEY_ID_BYTES]) != (key.name, key.id) or len(rest) < _TIME_BYTES:
                continue
            at = int.from_bytes(rest[:_TIME_BYTES], "big")
            if at and is_signature_valid(
                key.public_key, _build_message(text, at), rest[_TIME_BYTES:]
            ):
                found.append(Cosignature(name, at, f"— {name} {b64encode(content).decode()}\n"))
    return found


def _build_message(text: str, at: int) -> bytes:
    return f"cosignature/v1\ntime {at}\n{text}".encode()


def parse_witnesses(text: str) -> tuple[WitnessAddress, ...]:
    """Parse `KEY URL`, separated by commas. Raises ValueError."""
    found = [_parse_witness(one) for one in filter(None, map(str.strip, text.split(",")))]
    names = [one.key.name for one in found]
    if len({*names}) < len(names):
        raise ValueError("two witnesses have the same name: each needs its own")
    return tuple(found)


def _parse_witness(text: str) -> WitnessAddress:
    key, _, url = text.partition(" ")
    parsed, parts = parse_verifier_key(key), urlsplit(url.strip())
    if parsed.algorithm != COSIGNATURE or len(parsed.name) > _MAX_NAME:
        raise ValueError(f"the key of {parsed.name[:_MAX_NAME]} is not one of a witness")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise ValueError(
            f"{parsed.name} needs an address: NAME+ID+KEY https://witness.example.com"
        )
    return WitnessAddress(parsed, url.strip().rstrip("/"))
