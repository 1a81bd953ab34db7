"""Properties of ZFS datasets that can be changed, and their allowed values. No I/O.

Formats: zfs-get(8) with `-H` and `-p`; the values are those of zfsprops(7).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Literal, get_args

from connectors.amounts import format_size
from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.sudo import SudoRule, WordPattern
from connectors.visible_text import quote_text
from connectors.zpool import DATASET, OUT_OF_REACH, parse_size

PropertyName = Literal["sync", "compression", "sharenfs", "atime", "quota", "refquota"]
Source = Literal["local", "inherited", "default", "received", "temporary", "none"]

_HINTS = (
    Hint(r"dataset does not exist", "this host has no such dataset"),
    Hint(r"invalid property", "this host's ZFS is too old for this property"),
    Hint(r"must be one of", "this host's ZFS does not support this value"),
    Hint(
        r"unable to reshare|exportfs",
        "the value is set, but the NFS server did not apply it: check that exportfs is installed "
        "and that nfsd runs",
    ),
    Hint(r"less than current used", "the dataset uses more than that already"),
    Hint(r"read-only|pool must be upgraded", "this pool does not accept that value"),
    *OUT_OF_REACH,
)

_SIZE = (r"none|[1-9][0-9]{0,18}[KMGTP]?", "none, or a size such as 500G or 2T")
_VALUES: dict[str, tuple[str, str]] = {
    "sync": (r"standard|always|disabled", "standard, always or disabled"),
    "atime": (r"on|off", "on or off"),
    "compression": (
        r"on|off|lz4|lzjb|zle|gzip(-[1-9])?|zstd(-([1-9]|1[0-9]))?"
        r"|zstd-fast(-([1-9]|[1-9]0|100|500|1000))?",
        "on, off, lz4, zstd, zstd-1 to zstd-19, zstd-fast-…, gzip, gzip-1 to gzip-9, lzjb or zle",
    ),
    "quota": _SIZE,
    "refquota": _SIZE,
}
# What a limit of space is for. ZFS does not inherit these limits; a limit of 0 is none.
LIMITS = {"quota": "used", "refquota": "referenced"}
# Options of exports(5) without and with a value.
_FLAGS = (
    {"rw", "ro", "sync", "async", "secure", "insecure", "crossmnt", "hide", "nohide"}
    | {"root_squash", "no_root_squash", "all_squash", "no_all_squash"}
    | {"subtree_check", "no_subtree_check", "wdelay", "no_wdelay"}
)
_VALUED = {
    "sec": r"(sys|krb5|krb5i|krb5p)(:(sys|krb5|krb5i|krb5p))*",
    "anonuid": r"[0-9]{1,10}",
    "anongid": r"[0-9]{1,10}",
    "fsid": r"[0-9]{1,10}",
}
_NAME = r"(?!\d+(\.\d+)*$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*"
_CLIENT = re.compile(r"\[[0-9A-Fa-f:.]+\](?:/\d{1,3})?|[^:\[\]]+", re.ASCII)


_GET = ("get", "-H", "-p", "-o", "name,property,value,source")


class InvalidValueError(ValueError):
    """The property does not have this value, or Keyturn does not allow it."""


@dataclass(frozen=True)
class ZfsProperty:
    """One property of a dataset."""

    dataset: str
    name: str
    value: str
    source: Source
    """Where its value comes from."""
    inherited_from: str = ""
    """The dataset that it is inherited from."""
    used: int = 0
    """Bytes in use of what a quota limits; 0 for other properties."""

    @property
    def text(self) -> str:
        """Its value for people."""
        if self.name not in LIMITS:
            return self.value
        return format_size(int(self.value)) if self.value != "none" else "none"

    def has_value(self, value: str) -> bool:
        """Return whether it is set to *value*, also if that is written in another unit."""
        if self.name not in LIMITS:
            return self.value == value
        return parse_limit(self.value) == parse_limit(value)


def parse_limit(value: str) -> int:
    """Return a quota in bytes; 0 for none."""
    return 0 if value == "none" else parse_size(value)


def refuse_invalid_value(name: PropertyName, value: str) -> str:
    """Return *value*. Raises InvalidValueError if the property may not be set to it."""
    if name == "sharenfs":
        return _refuse_invalid_share(value)
    pattern, takes = _VALUES[name]
    if not re.fullmatch(pattern, value, re.ASCII):
        raise InvalidValueError(f"{name} takes {takes}")
    return value


def query_property(dataset: str, name: PropertyName) -> Query[ZfsProperty]:
    words = ("zfs", *_GET, f"{name},{LIMITS[name]}" if name in LIMITS else name, dataset)
    return Query(Shell(words, root=True, hints=_HINTS), parse_property)


def set_property(dataset: str, name: str, value: str) -> Shell:
    return Shell(("zfs", "set", f"{name}={value}", dataset), root=True, hints=_HINTS)


def restore_property(was: ZfsProperty) -> Shell:
    """Restore a property's value and its source."""
    if was.source == "local":
        return set_property(was.dataset, was.name, was.value)
    received = ("-S",) if was.source == "received" else ()
    words = ("zfs", "inherit", *received, was.name, was.dataset)
    return Shell(words, root=True, hints=_HINTS)


def parse_property(answer: str) -> ZfsProperty:
    first, _, second = answer.removesuffix("\n").partition("\n")
    parts, more = first.split("\t"), second.split("\t")
    if len(parts) != 4 or not answer.endswith("\n"):
        raise ParseError(f"zfs get printed {answer[:200]!r} instead of a property")
    dataset, name, value, source = parts
    if name in LIMITS and source != "-":
        return _parse_limit(parts, more)
    inherited = re.fullmatch(r"inherited from (\S.*)", source)
    if inherited:
        return ZfsProperty(dataset, name, value, "inherited", inherited[1])
    known = "none" if source == "-" else source
    for each in get_args(Source):
        if known == each:
            return ZfsProperty(dataset, name, value, each)
    raise ParseError(f"zfs get printed the unknown source {source[:80]!r}")


def _parse_limit(parts: Sequence[str], used: Sequence[str]) -> ZfsProperty:
    dataset, name, value, _ = parts
    if used[1:2] != [LIMITS[name]] or not value.isdecimal() or not used[2].isdecimal():
        raise ParseError(f"zfs get printed {' '.join((*parts, *used))[:200]!r} instead of sizes")
    limit = "none" if value == "0" else value
    # Its source would say "default" for none, which inheriting cannot restore.
    return ZfsProperty(dataset, name, limit, "local", used=int(used[2]))


def _refuse_invalid_share(value: str) -> str:
    if value in ("on", "off"):
        return value
    for option in value.split(","):
        key, equals, rest = option.partition("=")
        if not equals and key in _FLAGS:
            continue
        if equals and key in ("rw", "ro"):
            _refuse_invalid_clients(rest)
        elif not equals or not re.fullmatch(_VALUED.get(key, "(?!)"), rest, re.ASCII):
            raise InvalidValueError(
                f"sharenfs takes on, off, or options such as rw=@192.0.2.0/24,no_subtree_check; "
                f"{quote_text(option)} is not a known option"
            )
    return value


def _refuse_invalid_clients(text: str) -> None:
    """Check clients separated by colons: a network after @, a host name, [an IPv6 address]."""
    clients = _CLIENT.findall(text)
    if ":".join(clients) != text or not clients:
        raise InvalidValueError(
            f"{quote_text(text)} is not a list of clients such as "
            "@192.0.2.0/24:[2001:db8::]/32:web1.example"
        )
    for client in clients:
        if not _is_client(client):
            raise InvalidValueError(
                f"{quote_text(client)} is neither a host name nor a network such as @192.0.2.0/24"
            )


def _is_client(client: str) -> bool:
    network = client.removeprefix("@").replace("[", "").replace("]", "")
    try:
        ip_network(network, strict=False)
    except ValueError:
        return re.fullmatch(_NAME, client, re.ASCII) is not None and len(client) < 254
    return "%" not in client


_ZFS = "/usr/sbin/zfs"
_PROPERTY = WordPattern("|".join(get_args(PropertyName)))
_PROPERTIES = WordPattern(
    "|".join(
        f"{name},{LIMITS[name]}" if name in LIMITS else name for name in get_args(PropertyName)
    )
)
_DATASET = WordPattern(DATASET)
# Nearly what refuse_invalid_value allows: a sudo rule has no room for all of it.
_SHARED_WITH = r"(@?[A-Za-z0-9][A-Za-z0-9.-]*(/[0-9.]{1,15})?|\[[0-9A-Fa-f:.]+\](/[0-9]{1,3})?)"
_OPTION = "|".join(
    (
        *sorted(_FLAGS),
        *(f"{name}={value}" for name, value in _VALUED.items()),
        f"(rw|ro)={_SHARED_WITH}(:{_SHARED_WITH})*",
    )
)
_TAKEN = {name: pattern for name, (pattern, _) in _VALUES.items()} | {
    "sharenfs": f"on|off|({_OPTION})(,({_OPTION}))*"
}
SUDO = (
    SudoRule(_ZFS, *_GET, _PROPERTIES, _DATASET, read_only=True),
    *(
        SudoRule(_ZFS, "set", WordPattern(pattern, prefix=f"{name}="), _DATASET)
        for name, pattern in _TAKEN.items()
    ),
    SudoRule(_ZFS, "inherit", _PROPERTY, _DATASET),
    SudoRule(_ZFS, "inherit", "-S", _PROPERTY, _DATASET),
)
