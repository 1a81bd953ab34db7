"""Pingdom's feed of the addresses that it probes from. No I/O.

The feed is RSS with an item for each probe. An item has, in the namespace below, `ip`, `state`
(Active or Inactive) and sometimes `ipv6`, where the literal NULL means none:
https://my.pingdom.com/probes/feed. There are plain lists too, one address a line:
https://my.pingdom.com/probes/ipv4 and …/ipv6.

A firewall allows every address in it. So a document with another structure is refused as a whole.
An item that cannot be parsed is skipped and reported, unless there are too many.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from xml.parsers import expat

from connectors.command import Fetch, Query, Setting
from connectors.errors import ParseError
from connectors.public_addresses import Address, is_public

_NAMESPACE = "http://www.pingdom.com/ns/PingdomRSSNamespace"
_WANTED = {f"{_NAMESPACE} {name}": name for name in ("ip", "ipv6", "state")}
_ITEM = ("rss", "channel", "item")
_BUILT = ("rss", "channel", "lastBuildDate")
_DATE = re.compile(r"[A-Za-z0-9 ,:+-]{1,60}")

# Pingdom has about a hundred probes: a feed with hardly any is as wrong as one with thousands.
_FEWEST = 10
_MOST = 1000
# The feed's own depth is 4.
_DEEPEST = 16
_LONGEST = 200
# Fewer invalid items than this are always skipped; from then on, their share counts: 1 of 20.
_FEWEST_INVALID = 3
_INVALID_SHARE = 20
_KINDS = frozenset({4, 6})

_FETCH = Fetch(
    Setting("pingdom.feed", "https://my.pingdom.com/probes/feed", pattern=r"https://[!-~]+"),
    networks=Setting("pingdom.feed_networks", "", pattern=r"[0-9A-Fa-f:./,]*"),
    authority=Setting("pingdom.feed_authority", "", pattern=r"([\w-][\w./-]*)?"),
    proxy=Setting("pingdom.feed_proxy", "", pattern=r"(http://[\w.:\[\]-]+/?)?"),
    media_types=("application/rss+xml", "application/xml", "text/xml", "text/plain"),
)


@dataclass(frozen=True)
class ProbeFeed:
    """The addresses of Pingdom's probes."""

    addresses: frozenset[Address]
    """The addresses of active probes."""
    inactive_count: int = 0
    """How many probes are not active."""
    built_at: str = ""
    """The date in the feed, as text; "" without one."""
    skip_reasons: Sequence[str] = ()
    """Why items were skipped, one sentence each."""
    skipped_addresses: frozenset[Address] = frozenset()
    """The addresses in skipped items."""
    unreadable_versions: frozenset[int] = frozenset()
    """The IP versions in which a skipped item has an address that cannot be parsed."""

    def list_kept_addresses(self, old: Collection[Address]) -> frozenset[Address]:
        """Return the addresses of a host's list that may belong to skipped items.

        They stay on the list. Where a skipped item's address cannot be parsed, it may be any
        address of its version.
        """
        return frozenset(
            address
            for address in old
            if address not in self.addresses
            and (address in self.skipped_addresses or address.version in self.unreadable_versions)
        )


def query_feed() -> Query[ProbeFeed]:
    """Query the feed that the inventory sets for the host: Pingdom's own by default."""
    return Query(_FETCH, parse_feed)


def parse_feed(text: str) -> ProbeFeed:
    """Parse the feed or a plain list. Raises ParseError if it is implausible."""
    found = _parse_rss(text) if text.lstrip().startswith("<") else _parse_list(text)
    if not _FEWEST <= len(found.addresses) <= _MOST:
        raise _make_refusal(
            f"it has {len(found.addresses)} addresses of active probes: fewer than {_FEWEST} or "
            f"more than {_MOST} cannot be right"
        )
    return found


def _make_refusal(reason: str) -> ParseError:
    return ParseError(f"Pingdom's feed is refused, and hosts keep their current list: {reason}")


class _InvalidItemError(Exception):
    """An item is invalid."""


@dataclass
class _Item:
    """One item, as far as it can be parsed."""

    is_active: bool = True
    addresses: set[Address] = field(default_factory=set[Address])
    errors: list[str] = field(default_factory=list[str])
    """Why it must be skipped; empty if it is valid."""
    unreadable_versions: set[int] = field(default_factory=set[int])


def _make_feed(items: Mapping[str, _Item], built: str = "") -> ProbeFeed:
    """Make a feed from items by position. Raises ParseError if too many are invalid."""
    invalid = [
        f"{where} {', and '.join(item.errors)}" for where, item in items.items() if item.errors
    ]
    if len(invalid) >= _FEWEST_INVALID and len(invalid) * _INVALID_SHARE > len(items):
        raise _make_refusal(
            f"{len(invalid)} of its {len(items)} items are invalid, more than "
            f"{100 // _INVALID_SHARE} %; the first: {invalid[0]}"
        )
    active = [item for item in items.values() if item.is_active]
    skipped = [item for item in active if item.errors]
    return ProbeFeed(
        frozenset(address for item in active if not item.errors for address in item.addresses),
        len(items) - len(active),
        built,
        invalid,
        frozenset(address for item in skipped for address in item.addresses),
        frozenset(version for item in skipped for version in item.unreadable_versions),
    )


def _parse_list(text: str) -> ProbeFeed:
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > _MOST:
        raise _make_refusal(f"it has more than {_MOST} lines")
    return _make_feed({f"line {n}": _parse_line(line) for n, line in enumerate(lines, 1)})


def _parse_line(line: str) -> _Item:
    try:
        return _Item(addresses={_parse_address(line.removesuffix("\r"))})
    except _InvalidItemError as error:
        return _Item(errors=[str(error)], unreadable_versions=set(_KINDS))


def _parse_address(text: str) -> Address:
    """Return a plain address, without mask, zone or leading zeros. Raises _InvalidItemError."""
    shown = repr(text[:60])
    try:
        address = ip_address(text if "%" not in text else "")
    except ValueError:
        raise _InvalidItemError(f"has {shown}, which is not an address") from None
    if not is_public(address):
        raise _InvalidItemError(f"has {shown}, which is not a public address of one machine")
    return address


@dataclass
class _Probe:
    """One item as it was read."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The texts of its elements in Pingdom's namespace, by element."""

    def get_text(self, name: str) -> str:
        texts = self.texts.get(name, [])
        if len(texts) > 1:
            raise _InvalidItemError(f"has {len(texts)} elements named {name}")
        return texts[0].strip(" \t\r\n") if texts else ""


@dataclass
class _FeedReader:
    """Handles the events of the XML parser and stores the few texts that are needed."""

    path: list[str] = field(default_factory=list[str])
    text: str | None = None
    probes: list[_Probe] = field(default_factory=list[_Probe])
    built_at: str = ""

    def start_element(self, name: str, _attributes: object) -> None:
        self.path.append(name)
        if len(self.path) > _DEEPEST:
            raise _make_refusal(f"its elements are nested more than {_DEEPEST} deep")
        if self.path[0] != "rss" or self.text is not None:
            raise _make_refusal(f"it has an unexpected element {name[:60]!r}")
        if tuple(self.path) == _ITEM:
            self.probes.append(_Probe())
            if len(self.probes) > _MOST:
                raise _make_refusal(f"it lists more than {_MOST} probes")
        if self._is_wanted():
            self.text = ""

    def add_text(self, text: str) -> None:
        if self.text is not None:
            self.text += text
            if len(self.text) > _LONGEST:
                raise _make_refusal(f"an element has more than {_LONGEST} characters")

    def end_element(self, name: str) -> None:
        if self.text is not None:
            if tuple(self.path) == _BUILT:
                self.built_at = self.text.strip() if _DATE.fullmatch(self.text.strip()) else ""
            else:
                self.probes[-1].texts.setdefault(_WANTED[name], []).append(self.text)
            self.text = None
        self.path.pop()

    def _is_wanted(self) -> bool:
        *outer, name = self.path
        return tuple(self.path) == _BUILT or (tuple(outer) == _ITEM and name in _WANTED)


def _parse_rss(text: str) -> ProbeFeed:
    reader = _read_document(text)
    items = {f"probe {n}": _parse_item(probe) for n, probe in enumerate(reader.probes, 1)}
    return _make_feed(items, reader.built_at)


def _parse_item(probe: _Probe) -> _Item:
    item = _Item()
    for name, version in (("ip", 4), ("ipv6", 6)):
        try:
            text = probe.get_text(name)
            if text in ("", "NULL"):
                continue
            address = _parse_address(text)
            item.addresses.add(address)
            if address.version != version:
                raise _InvalidItemError(f"has {text!r} instead of an IPv{version} address")
        except _InvalidItemError as error:
            item.errors.append(str(error))
            item.unreadable_versions.add(version)
    if not item.addresses and not item.errors:
        item.errors.append("has no address")
        item.unreadable_versions.update(_KINDS)
    try:
        state = probe.get_text("state")
        if state.lower() not in ("active", "inactive"):
            raise _InvalidItemError(f"has the unknown state {state[:60]!r}")
        item.is_active = state.lower() == "active"
    except _InvalidItemError as error:
        item.errors.append(str(error))
    return item


def _read_document(text: str) -> _FeedReader:
    """Parse without a tree, and refuse document types, since they can declare entities."""
    reader = _FeedReader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start_element
    parser.EndElementHandler = reader.end_element
    parser.CharacterDataHandler = reader.add_text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(text, True)  # noqa: FBT003 - expat has no keywords; True: the text is complete
    except expat.ExpatError as error:
        raise _make_refusal(f"it is not well-formed XML ({error})") from None
    return reader


def _refuse_doctype(*_declared: object) -> None:
    raise _make_refusal("it declares a document type, which Pingdom's feed does not have")
