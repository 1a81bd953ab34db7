"""What a stick table of HAProxy holds, and how its runtime API prints it. No I/O.

The format is that of `show table`, in HAProxy's management guide, section 9.3. One line a table
or an entry, and an empty line at the very end:

    # table: http, type: ip, size:204800, used:1
    0x558f53c1e008: key=203.0.113.9 use=0 exp=578236 gpc0=1 conn_rate(100000)=43

HAProxy 3 adds `shard=0`. Numbers in round brackets are periods in milliseconds.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from connectors.command import quote_text
from connectors.errors import CommandError, ParseError

Key = IPv4Address | IPv6Address | str

_HEAD = re.compile(r"# table: (\S+), type: (\w+)(?:, len:\d+)?, size:(\d+), used:(\d+)(?:, .*)?")
_ENTRY = re.compile(r"0x[0-9a-fA-F]+: key=((?:[^\s\\]|\\.)*) use=(\d+) exp=(\d+)((?: \S+=\S*)*)")
_COUNTER = re.compile(r"(\w+)(?:\((\d+)\))?=(\S*)")
_ESCAPED = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"e": b"\x1b"}

_HIDDEN = "# contents not dumped due to insufficient privileges"
NEEDS_OPERATOR = (
    "this socket may see how full a table is and not who is in it: "
    "set haproxy.socket to a socket with `level operator`"
)

NO_ANSWER = (
    "HAProxy closed the connection without an answer and did nothing: it may be starting anew, "
    "or too many others are connected to the socket; ask again"
)

_FAMILIES = {"ip": "IPv4 addresses", "ipv6": "IPv6 addresses"}
_STRING_KEY = re.compile(r"(?!-)[!-~]{1,128}", re.ASCII)
_INTEGER_KEY = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_MOST_INTEGER = 2**32 - 1


class InvalidKeyError(ValueError):
    """The table cannot hold such a key; HAProxy itself would quietly take another one for it."""


@dataclass(frozen=True)
class TableHead:
    """One line of `show table`. type: ip, ipv6, integer, string or binary."""

    name: str
    type: str
    size: int
    used: int

    @property
    def has_address_keys(self) -> bool:
        return self.type in _FAMILIES

    @property
    def key_description(self) -> str:
        """What its keys are, in words."""
        return _FAMILIES.get(self.type, f"{self.type} keys")


@dataclass(frozen=True)
class Rate:
    """How often something happened, or how many bytes it was, within a period."""

    amount: int
    period_ms: int


@dataclass(frozen=True)
class TableEntry:
    """What a table knows of one key.

    use: connections that hold the entry just now; HAProxy does not remove it while there are any.
    expires_ms: milliseconds until it is forgotten, which new traffic may put off; 0 means never.
    counters: by their names as printed; those of arrays are gpc0, gpc1 … and gpt0, gpt1 …
    texts: what is kept and is no number, such as server_key.
    """

    key: str
    use_count: int
    expires_ms: int
    shard: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict[str, int])
    rates: Mapping[str, Rate] = field(default_factory=dict[str, Rate])
    texts: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def expiry(self) -> str:
        """How long it is still known, in words that follow a verb."""
        if not self.expires_ms:
            return "until someone clears it"
        minutes, seconds = divmod(-(-self.expires_ms // 1000), 60)
        hours, minutes = divmod(minutes, 60)
        parts = ((hours, "h"), (minutes, "min"), (seconds, "s"))
        return f"for {' '.join(f'{n} {unit}' for n, unit in parts if n)} more"

    def get_amount(self, name: str) -> int | None:
        """Return the counter or the rate with this name; None if the table keeps none."""
        rate = self.rates.get(name)
        return rate.amount if rate else self.counters.get(name)


@dataclass(frozen=True)
class StickTable:
    head: TableHead
    entries: tuple[TableEntry, ...]


def format_key(head: TableHead, key: Key) -> str:
    """Return *key* as this table writes it, or raise InvalidKeyError.

    HAProxy takes nearly any text for an address (`999.1.1.1` for 231.1.1.1, a name for 0.0.0.0),
    so what it is sent must be the one right writing of a key of the table's own type.
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
            f"table {head.name} holds {head.key_description}, which HAProxy only shows"
        )
    raise InvalidKeyError(
        f"{quote_text(text)} cannot be sent as a key of table {head.name}, which holds "
        f"{head.key_description}: "
        + (
            f"a whole number up to {_MOST_INTEGER} is needed"
            if head.type == "integer"
            else "blanks, ';', '\\', '<' and letters beyond ASCII do not pass HAProxy's socket"
        )
    )


def _format_address_key(head: TableHead, text: str) -> str:
    family = IPv4Address if head.type == "ip" else IPv6Address
    try:
        address = family(text)
    except AddressValueError:
        raise InvalidKeyError(
            f"{quote_text(text)} is not an {head.key_description.removesuffix('es')}, and table "
            f"{head.name} holds nothing else{_format_alternative(text)}"
        ) from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise InvalidKeyError(
            f"{quote_text(text)} names a network card after the '%': give the address alone"
        )
    return str(address)


def _format_alternative(text: str) -> str:
    try:
        mapped = IPv6Address(text).ipv4_mapped
    except AddressValueError:
        return ""
    return f": write it as {mapped}" if mapped else ""


def parse_heads(answer: str) -> tuple[TableHead, ...]:
    """Understand `show table`."""
    return tuple(_parse_head(line) for line in _split_lines(answer))


def parse_table(answer: str) -> StickTable:
    """Understand `show table NAME`, filtered or not."""
    first, *rest = _split_lines(answer) or [""]
    head = _parse_head(first)
    return StickTable(head, tuple(_parse_entry_line(line, head.type) for line in rest))


def parse_entry(answer: str, key: str) -> TableEntry | None:
    """Understand `show table NAME key KEY`: nothing but an empty line if there is no such key."""
    if not _split_lines(answer):
        return None
    entries = parse_table(answer).entries
    if [entry.key for entry in entries] != [key]:
        said = ", ".join(entry.key for entry in entries) or "nobody"
        raise ParseError(f"HAProxy was asked for {key} and answered for {said}")
    return entries[0]


def _split_lines(answer: str) -> list[str]:
    """Return the lines of an answer that was seen to its end, which is an empty line."""
    if not answer:
        raise ParseError(NO_ANSWER)
    if answer.strip("\n") and not answer.endswith("\n\n"):
        raise ParseError("HAProxy's answer was cut off: ask again")
    return answer.strip("\n").split("\n") if answer.strip("\n") else []


def _parse_head(line: str) -> TableHead:
    found = _HEAD.fullmatch(line)
    if found is None:
        raise ParseError(f"HAProxy answered {line[:200]!r} instead of a table")
    name, kind, size, used = found.groups()
    return TableHead(name, kind, int(size), int(used))


def _parse_entry_line(line: str, kind: str) -> TableEntry:
    if line == _HIDDEN:
        raise CommandError(NEEDS_OPERATOR)
    found = _ENTRY.fullmatch(line)
    if found is None:
        raise ParseError(f"HAProxy printed an entry that we do not know: {line[:200]!r}")
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
            raise ParseError(f"HAProxy printed a counter that we do not know: {word[:200]!r}")
        yield found[1], found[2] or "", found[3]


def _parse_key(text: str, kind: str) -> str:
    """Return the key as Python writes it: HAProxy prints ::1.2.3.4 where Python has ::102:304."""
    try:
        if kind == "ip":
            return str(IPv4Address(text))
        if kind == "ipv6":
            return str(IPv6Address(text))
    except AddressValueError:
        raise ParseError(f"HAProxy printed {text[:200]!r} where an address belongs") from None
    return _unescape_text(text) if kind == "string" else text


def _unescape_text(text: str) -> str:
    r"""Undo HAProxy's escapes, such as `bob\ smith` and `\xC3\xA9`."""
    return _ESCAPED.sub(_unescape_character, text.encode()).decode(errors="backslashreplace")


def _unescape_character(escaped: re.Match[bytes]) -> bytes:
    said = escaped[1]
    return bytes.fromhex(said[1:].decode()) if len(said) == 3 else _NAMED.get(said, said)
