"""A host as another program's file describes it, before it is one of ours."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ImportedHost:
    """One host. Everything is as the file writes it, and "" where the file is silent.

    name: what the file calls it. address: where it is. jump: the last host on the way to it.
    aliases: other names that its key may be known by. groups: what the file sorts it into.
    notes: what the file says and we cannot take over, as `field: why and what to do`.
    """

    name: str
    address: str
    port: int = 22
    user: str = ""
    key: str = ""
    jump: str = ""
    platform: str = ""
    aliases: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedHosts:
    """All hosts of a file. remarks: what is to be said of the file as a whole."""

    hosts: tuple[ImportedHost, ...]
    remarks: tuple[str, ...] = ()


class InvalidImportError(ValueError):
    """The file is not what it was taken for: where, and what to do."""


def parse_port(text: str) -> int | None:
    """Return a TCP port, or None if this is none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return number if 0 < number < 65536 else None
