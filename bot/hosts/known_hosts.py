"""Find the key of a host in known_hosts files of OpenSSH. Pure.

Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT. paramiko reads keys and hashed names. Its `HostKeys`
supports neither patterns nor markers: it refuses a file with `@revoked`, and keeps only one of two
different keys.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paramiko import HostKeys, SSHException
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

# In order of preference.
_KEY_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
_MARKERS = ("", "@cert-authority", "@revoked")
# Salt and digest of SHA-1, each 20 bytes in base64.
_HASHED_NAME_PATTERN = re.compile(r"\|1\|[A-Za-z0-9+/]{27}=\|[A-Za-z0-9+/]{27}=")


@dataclass(frozen=True)
class KnownHostLine:
    """One line of known_hosts."""

    marker: str
    """"", `@cert-authority` or `@revoked`."""
    names: Sequence[str]
    """Names and patterns, or one hashed name."""
    key: str
    """As in the inventory: `ssh-ed25519 AAAA…`."""


@dataclass(frozen=True)
class KnownKey:
    """The key of a host, or None with the reason."""

    key: str | None
    reason: str = ""


def parse_known_hosts(text: str) -> tuple[KnownHostLine, ...]:
    """Return the lines with a key of a type that Keyturn accepts."""
    lines = (_parse_line(line.split()) for line in text.splitlines())
    return tuple(line for line in lines if line is not None)


def find_host_key(lines: Sequence[KnownHostLine], names: Sequence[str], port: int) -> KnownKey:
    """Return the key of a host with any of these names; none if the lines have different keys."""
    wanted = {_format_name(name, port) for name in names}
    found = [line for line in lines if any(_is_line_for_name(line, name) for name in wanted)]
    revoked = {line.key for line in found if line.marker == "@revoked"}
    keys = {line.key for line in found if not line.marker} - revoked
    for kind in _KEY_KINDS:
        same_kind = sorted(key for key in keys if key.split()[0] == kind)
        if len(same_kind) > 1:
            return KnownKey(None, f"known_hosts has {len(same_kind)} different {kind} keys for it")
        if same_kind:
            return KnownKey(same_kind[0])
    if revoked:
        return KnownKey(None, "its key is revoked in known_hosts")
    if found:
        return KnownKey(None, "known_hosts has only the CA that signs its key")
    return KnownKey(None)


def _parse_line(words: list[str]) -> KnownHostLine | None:
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#") or words[1] not in _KEY_KINDS:
        return None
    if marker not in _MARKERS:
        return None
    try:
        entry = HostKeyEntry.from_line(" ".join(words[:3]))
    except (SSHException, InvalidHostKey, ValueError):
        return None
    if entry is None:
        return None
    return KnownHostLine(
        marker, words[0].split(","), f"{entry.key.get_name()} {entry.key.get_base64()}"
    )


def _format_name(name: str, port: int) -> str:
    lower = name.lower()
    return lower if port == 22 else f"[{lower}]:{port}"


def _is_line_for_name(line: KnownHostLine, name: str) -> bool:
    refused = [pattern[1:] for pattern in line.names if pattern.startswith("!")]
    if any(_is_name_match(name, pattern) for pattern in refused):
        return False
    return any(
        _is_name_match(name, pattern) for pattern in line.names if not pattern.startswith("!")
    )


def _is_name_match(name: str, pattern: str) -> bool:
    if _HASHED_NAME_PATTERN.fullmatch(pattern):
        return HostKeys.hash_host(name, pattern) == pattern
    # Brackets enclose a name with a port and are not a pattern.
    return fnmatchcase(name, re.sub(r"\[", "[[]", pattern.lower()))
