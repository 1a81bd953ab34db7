"""Canonical JSON and its SHA-256 digest. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

# No floats: they can be written in more than one way.
Canonical: TypeAlias = "str | int | bool | Sequence[Canonical] | Mapping[str, Canonical] | None"


def encode_canonical(value: Canonical) -> str:
    """Return canonical JSON (RFC 8785): sorted keys, no spaces, unescaped text."""
    return _ENCODER.encode(value)


def hash_canonical(value: Canonical) -> str:
    """Return the SHA-256 digest of the canonical JSON, as 64 hex digits."""
    return hashlib.sha256(encode_canonical(value).encode()).hexdigest()


def _raise_no_canonical_form(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no canonical form")


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_raise_no_canonical_form
)
