"""HAProxy's stick tables, as its runtime API prints them. No I/O.

The format is that of `show table`, in HAProxy's management guide, section 9.3: one line for each
table or entry, and an empty line at the end:

    # table: http, type: ip, size:204800, used:1
    0x558f53c1e008: key=203.0.113.9 use=0 exp=578236 gpc0=1 conn_rate(100000)=43

HAProxy 3 adds `shard=0`. Numbers in round brackets are periods in milliseconds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from connectors.amounts import format_duration
from connectors.errors import CommandError, ParseError
from connectors.rows import Rows, parse_each
from connectors.visible_text import quote_text

Key = IPv4Address | IPv6Address | str

_HEAD = re.compile(r"# table: (\S+), type: (\w+)(?:, len:\d+)?, size:(\d+), used:(\d+)(?:, .*)?")
_ENTRY = re.compile(r"0x[0-9a-fA-F]+: key=((?:[^\s\\]|\\.)*) use=(\d+) exp=(\d+)((?: \S+=\S*)*)")
_COUNTER = re.compile(r"(\w+)(?:\((\d+)\))?=(\S*)")
_ESCAPED = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"e": b"\x1b"}

_HIDDEN = "# contents not dumped due to insufficient privileges"
NEEDS_OPERATOR = (
    "this socket can read the size of a table but not its entries: "
    "set haproxy.socket to a socket with `level operator`"
)

NO_ANSWER = (
    "HAProxy closed the connection without an answer and changed nothing: it may be restarting, "
    "or too many clients are connected to the socket. Try again"
)

_FAMILIES = {"ip": "IPv4 addresses", "ipv6": "IPv6 addresses"}
_STRING_KEY = re.compile(r"(?!-)[!-~]{1,128}", re.ASCII)
_INTEGER_KEY = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_MOST_INTEGER = 2**32 - 1


class InvalidKeyError(ValueError):
    """The table cannot hold this key; HAProxy would silently use another one instead."""


@dataclass(frozen=True)
class TableHead:
    """One table, as `show table` lists it."""

    name: str
    type: str
    """ip, ipv6, integer, string or binary."""
    size: int
    """The maximum of entries."""
    used: int
    """The number of entries."""

    @property
    def fill(self) -> float:
        """Used entries as a part of 1."""
        return self.used / self.size if self.size else 0.0

    @property
    def has_address_keys(self) -> bool:
        return self.type in _FAMILIES

    @property
    def key_description(self) -> str:
        """The kind of its keys as text, such as `IPv4 addresses`."""
        return _FAMILIES.get(self.type, f"{self.type} keys")


@dataclass(frozen=True)
class Rate:
    """A number of events, or of bytes, within a period."""

    amount: int
    period_ms: int


@dataclass(frozen=True)
class TableEntry:
    """One entry of a table."""

    key: str
    use_count: int
    """Connections that use the entry now. HAProxy does not remove it while there are any."""
    expires_ms: int
    """Milliseconds until it expires, which new traffic may extend; 0 means never, or as soon as no
    connection uses it."""
    shard: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counters by printed name; those of arrays are gpc0, gpc1 … and gpt0, gpt1 …"""
    rates: Mapping[str, Rate] = field(default_factory=dict[str, Rate])
    """Rates by printed name."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values that are not numbers, such as server_key."""

    @property
    def expiry(self) -> str:
        """How long it lasts, as text after a verb: `for 9 min 39 s more`."""
        if not self.expires_ms:
            # HAProxy prints 0 too of an entry that has expired and is still in use.
            used = "at least while connections use it"
            return used if self.use_count else "until someone clears it"
        return f"for {format_duration(-(-self.expires_ms // 1000))} more"

    def get_amount(self, name: str) -> int | None:
        """Return the counter or the rate with this name; None if the table keeps none."""
        rate = self.rates.get(name)
        return rate.amount if rate else self.counters.get(name)


@dataclass(frozen=True)
class StickTable:
    head: TableHead
    entries: Rows[TableEntry]


def format_key(head: TableHead, key: Key) -> str:
    """Return *key* in this table's canonical form, or raise InvalidKeyError.

    HAProxy accepts nearly any text as an address (`999.1.1.1` as 231.1.1.1, a name as 0.0.0.0), so
    only the canonical form of a key of the table's type is sent.
    """
    if head.has_address_keys:
        return _format_address_key(head, str(key))
    text = str(key)
    if head.type == "integer" and _INTEGER_KEY.fullmatch(text) and int(text) <= _MOST_INTEGER:
        return text
    if head.type == "string" and _STRING_KEY.fullmatch(text) and not set(text) & set(";\\<"):
        return text
    if head.type not in ("integer", "string"):
        raise InvalidKeyError(
            f"table {head.name} has {head.key_description}, which HAProxy can only show"
        )
    raise InvalidKeyError(
        f"{quote_text(text)} cannot be sent as a key of table {head.name}, which holds "
        f"{head.key_description}: "
        + (
            f"use a whole number up to {_MOST_INTEGER}"
            if head.type == "integer"
            else "HAProxy's socket does not accept blanks, ';', '\\', '<' and non-ASCII letters"
        )
    )


def _format_address_key(head: TableHead, text: str) -> str:
    family = IPv4Address if head.type == "ip" else IPv6Address
    try:
        address = family(text)
    except AddressValueError:
        raise InvalidKeyError(
            f"{quote_text(text)} is not an {head.key_description.removesuffix('es')}: table "
            f"{head.name} has nothing else{_format_alternative(text)}"
        ) from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise InvalidKeyError(
            f"{quote_text(text)} has a network card after the '%': enter the address alone"
        )
    return str(address)


def _format_alternative(text: str) -> str:
    try:
        mapped = IPv6Address(text).ipv4_mapped
    except AddressValueError:
        return ""
    return f": write it as {mapped}" if mapped else ""


def parse_heads(answer: str) -> Rows[TableHead]:
    """Parse `show table`."""
    return parse_each(_split_lines(answer), _parse_head)


def parse_table(answer: str) -> StickTable:
    """Parse `show table NAME`, filtered or not."""
    first, *rest = _split_lines(answer) or [""]
    head = _parse_head(first)
    return StickTable(head, parse_each(rest, lambda line: _parse_entry_line(line, head.type)))


def parse_entry(answer: str, key: str) -> TableEntry | None:
    """Parse `show table NAME key KEY`, which is only an empty line for a missing key."""
    if not _split_lines(answer):
        return None
    entries = parse_table(answer).entries
    if entries.odd or [entry.key for entry in entries] != [key]:
        keys = ", ".join(entry.key for entry in entries) or "no key"
        odd = "".join(f"; {each.text!r}: {each.reason}" for each in entries.odd)
        raise ParseError(f"HAProxy returned {keys} instead of {key}{odd}")
    return entries[0]


def _split_lines(answer: str) -> list[str]:
    """Return the lines of an answer. A complete answer ends with an empty line."""
    if not answer:
        raise ParseError(NO_ANSWER)
    if answer.strip("\n") and not answer.endswith("\n\n"):
        raise ParseError("HAProxy's answer was cut off: try again")
    return answer.strip("\n").split("\n") if answer.strip("\n") else []


def _parse_head(line: str) -> TableHead:
    found = _HEAD.fullmatch(line)
    if found is None:
        raise ParseError(f"HAProxy returned {line[:200]!r} instead of a table")
    name, kind, size, used = found.groups()
    return TableHead(name, kind, int(size), int(used))


def _parse_entry_line(line: str, kind: str) -> TableEntry:
    if line == _HIDDEN:
        raise CommandError(NEEDS_OPERATOR)
    found = _ENTRY.fullmatch(line)
    if found is None:
        raise ParseError("it is no entry of a table")
    key, use, expires, kept = found.groups()
    numbers = [part for part in _parse_counters(kept) if part[2].isdecimal()]
    plain = {name: int(value) for name, period, value in numbers if not period}
    rates = {name: Rate(int(value), int(period)) for name, period, value in numbers if period}
    texts = {name: value for name, _, value in _parse_counters(kept) if not value.isdecimal()}
    shard = plain.pop("shard", None)
    return TableEntry(_parse_key(key, kind), int(use), int(expires), shard, plain, rates, texts)


def _parse_counters(text: str) -> Iterator[tuple[str, str, str]]:
    for word in text.split():
        found = _COUNTER.fullmatch(word)
        if found is None:
            raise ParseError(f"the format of its counter {word[:80]!r} is unknown")
        yield found[1], found[2] or "", found[3]


def _parse_key(text: str, kind: str) -> str:
    """Return the key in Python's form: HAProxy prints ::1.2.3.4 where Python has ::102:304."""
    try:
        if kind == "ip":
            return str(IPv4Address(text))
        if kind == "ipv6":
            return str(IPv6Address(text))
    except AddressValueError:
        raise ParseError(f"{text[:80]!r} is no address") from None
    return _unescape_text(text) if kind == "string" else text


def _unescape_text(text: str) -> str:
    r"""Undo HAProxy's escapes, such as `bob\ smith` and `\xC3\xA9`."""
    return _ESCAPED.sub(_unescape_character, text.encode()).decode(errors="backslashreplace")


def _unescape_character(escaped: re.Match[bytes]) -> bytes:
    code = escaped[1]
    return bytes.fromhex(code[1:].decode()) if len(code) == 3 else _NAMED.get(code, code)
