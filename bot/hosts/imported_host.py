"""Hosts as the configuration of another program describes them."""

from dataclasses import dataclass

from bot.model.errors import InvalidRequestError


@dataclass(frozen=True)
class ImportedHost:
    """One host with the values of the file; "" for what the file does not contain."""

    name: str
    address: str
    port: int = 22
    user: str = ""
    key: str = ""
    jump: str = ""
    """The last host on the way to it."""
    platform: str = ""
    aliases: tuple[str, ...] = ()
    """Other names of the host in known_hosts."""
    groups: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    """What cannot be imported, as `field: reason and what to do`."""


@dataclass(frozen=True)
class ImportedHosts:
    """All hosts of a file, with remarks about the file."""

    hosts: tuple[ImportedHost, ...]
    remarks: tuple[str, ...] = ()


class InvalidImportError(InvalidRequestError):
    """The file has another format. The message says where and what to do."""


def parse_port(text: str) -> int | None:
    """Return a TCP port, or None if the text is not one."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 0
    return number if 0 < number < 65536 else None
