"""What OpenSSH's known_hosts files say of a host's key. Pure.

Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. Hashed names are found by trying those we look for.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pydantic import TypeAdapter, ValidationError

from connectors.inventory import PublicKey

# The first that is known is taken.
_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
_PUBLIC_KEY: TypeAdapter[str] = TypeAdapter(PublicKey)


@dataclass(frozen=True)
class KnownHostLine:
    """One line of known_hosts. marker: "", "@cert-authority" or "@revoked"."""

    marker: str
    names: str
    key: str


@dataclass(frozen=True)
class KnownKey:
    """The key that a host is known by, or None and why not."""

    key: str | None
    why: str = ""


def parse_known_hosts(text: str) -> tuple[KnownHostLine, ...]:
    """Understand a file; lines that hold no key that we speak are passed over."""
    lines = (_line(line.split()) for line in text.splitlines())
    return tuple(line for line in lines if line is not None)


def find_host_key(lines: Sequence[KnownHostLine], names: Sequence[str], port: int) -> KnownKey:
    """Find the key of a host that goes by any of these names.

    A host without any line and one whose lines contradict each other are both not known.
    """
    wanted = {_written(name, port) for name in names}
    found = [line for line in lines if any(_is_for(line, name) for name in wanted)]
    revoked = {line.key for line in found if line.marker == "@revoked"}
    keys = {line.key for line in found if not line.marker} - revoked
    for kind in _KINDS:
        same_kind = sorted(key for key in keys if key.split()[0] == kind)
        if len(same_kind) > 1:
            return KnownKey(
                None, f"known_hosts holds {len(same_kind)} different {kind} keys of it"
            )
        if same_kind:
            return KnownKey(same_kind[0])
    if revoked:
        return KnownKey(None, "known_hosts has revoked its key")
    if found:
        return KnownKey(None, "known_hosts knows it by the authority that signed its key, only")
    return KnownKey(None)


def _line(words: list[str]) -> KnownHostLine | None:
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#") or words[1] not in _KINDS:
        return None
    try:
        return KnownHostLine(marker, words[0], _PUBLIC_KEY.validate_python(" ".join(words[1:3])))
    except ValidationError:
        return None


def _written(name: str, port: int) -> str:
    lower = name.lower()
    return lower if port == 22 else f"[{lower}]:{port}"


def _is_for(line: KnownHostLine, name: str) -> bool:
    if line.names.startswith("|1|"):
        return _is_hash_of(line.names, name)
    patterns = line.names.lower().split(",")
    if any(_fits(name, each[1:]) for each in patterns if each.startswith("!")):
        return False
    return any(_fits(name, each) for each in patterns if not each.startswith("!"))


def _fits(name: str, pattern: str) -> bool:
    # Brackets stand around a name with a port, and are no pattern.
    return fnmatchcase(name, re.sub(r"\[", "[[]", pattern))


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        _, _, salt, digest = hashed.split("|")
        made = hmac.digest(base64.b64decode(salt), name.encode(), "sha1")
        return hmac.compare_digest(made, base64.b64decode(digest))
    except (ValueError, binascii.Error):
        return False
