"""Canonical JSON, and its SHA-256: the name of a thing that cannot be altered unseen. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

# No floats: two machines may write the same number differently.
Canonical: TypeAlias = "str | int | bool | Sequence[Canonical] | Mapping[str, Canonical] | None"


def encode_canonical(value: Canonical) -> str:
    """Write *thing* as JSON in the one way: keys sorted, no spaces, text as it is (RFC 8785 for
    the types that are allowed here)."""
    return _ENCODER.encode(value)


def hash_canonical(value: Canonical) -> str:
    """Return 64 hex digits."""
    return hashlib.sha256(encode_canonical(value).encode()).hexdigest()


def _raise_no_canonical_form(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no canonical form")


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_raise_no_canonical_form
)
