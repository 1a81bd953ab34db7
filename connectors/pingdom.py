"""What Pingdom's feed says of the machines that it probes from. No I/O.

The feed is RSS with an item for each probe, and in it, of the namespace below, `ip`, `state`
(Active or Inactive) and, for some, `ipv6`, where the literal NULL means that there is none:
https://my.pingdom.com/probes/feed. There are plain lists too, one address to a line:
https://my.pingdom.com/probes/ipv4 and …/ipv6.

A firewall lets in whatever stands here. So what is not built as the feed is refused as a whole.
An item that cannot be understood is skipped and named, unless too many are.
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

# Pingdom has about a hundred probes: a feed without nearly all of them is as wrong as one with
# thousands.
_FEWEST = 10
_MOST = 1000
# The feed's own depth is 4.
_DEEPEST = 16
_LONGEST = 200
# Fewer odd items than this never spoil the feed; from then on, their share counts: 1 of 20.
_FEWEST_ODD = 3
_ODD_SHARE = 20
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
    """The addresses of active probes, and how many probes are listed that are not active.

    built: when the feed says that it was made, as it says it; "" if it does not.
    odd: why an item was skipped, one sentence each. doubtful: the addresses that skipped items
    name. unread: the IP versions in which a skipped item names an address that cannot be read.
    """

    addresses: frozenset[Address]
    inactive_count: int = 0
    built_at: str = ""
    skip_reasons: Sequence[str] = ()
    skipped_addresses: frozenset[Address] = frozenset()
    unreadable_versions: frozenset[int] = frozenset()

    def list_kept_addresses(self, old: Collection[Address]) -> frozenset[Address]:
        """Return the addresses of a host's list that may belong to skipped items.

        They stay on the list. Where a skipped item's address cannot be read, it may be any
        address of its version.
        """
        return frozenset(
            address
            for address in old
            if address not in self.addresses
            and (address in self.skipped_addresses or address.version in self.unreadable_versions)
        )


def query_feed() -> Query[ProbeFeed]:
    """Query the feed that the host's inventory entry names: Pingdom's own by default."""
    return Query(_FETCH, parse_feed)


def parse_feed(text: str) -> ProbeFeed:
    """Understand the feed or a plain list. Raises ParseError if it is not to be believed."""
    found = _parse_rss(text) if text.lstrip().startswith("<") else _parse_list(text)
    if not _FEWEST <= len(found.addresses) <= _MOST:
        raise _make_refusal(
            f"it has {len(found.addresses)} addresses of active probes, and fewer than {_FEWEST} "
            f"or more than {_MOST} cannot be right"
        )
    return found


def _make_refusal(why: str) -> ParseError:
    return ParseError(
        f"Pingdom's feed is refused as a whole, and hosts keep the list that they have: {why}"
    )


class _InvalidItemError(Exception):
    """An item is not as it must be."""


@dataclass
class _Item:
    """What one item names, as far as it can be understood. odd: why it is to be skipped."""

    is_active: bool = True
    addresses: set[Address] = field(default_factory=set[Address])
    errors: list[str] = field(default_factory=list[str])
    unreadable_versions: set[int] = field(default_factory=set[int])


def _make_feed(items: Mapping[str, _Item], built: str = "") -> ProbeFeed:
    """Make a feed of items by where they stand. Raises ParseError if too many are odd."""
    odd = [f"{where} {', and '.join(item.errors)}" for where, item in items.items() if item.errors]
    if len(odd) >= _FEWEST_ODD and len(odd) * _ODD_SHARE > len(items):
        raise _make_refusal(
            f"{len(odd)} of its {len(items)} items cannot be understood, more than "
            f"{100 // _ODD_SHARE} %; the first: {odd[0]}"
        )
    active = [item for item in items.values() if item.is_active]
    skipped = [item for item in active if item.errors]
    return ProbeFeed(
        frozenset(address for item in active if not item.errors for address in item.addresses),
        len(items) - len(active),
        built,
        odd,
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
    except _InvalidItemError as odd:
        return _Item(errors=[str(odd)], unreadable_versions=set(_KINDS))


def _parse_address(text: str) -> Address:
    """Return an address written as addresses are: alone, without mask, zone and leading zeros."""
    shown = repr(text[:60])
    try:
        address = ip_address(text if "%" not in text else "")
    except ValueError:
        raise _InvalidItemError(f"holds {shown}, which is no address") from None
    if not is_public(address):
        raise _InvalidItemError(f"holds {shown}, which is not one machine's on the internet")
    return address


@dataclass
class _Probe:
    """One item, as far as it was read. texts: its elements of Pingdom's namespace."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def get_text(self, name: str) -> str:
        said = self.texts.get(name, [])
        if len(said) > 1:
            raise _InvalidItemError(f"has {len(said)} elements named {name}")
        return said[0].strip(" \t\r\n") if said else ""


@dataclass
class _FeedReader:
    """Follows the document as it is parsed, and keeps the few texts that matter."""

    path: list[str] = field(default_factory=list[str])
    text: str | None = None
    probes: list[_Probe] = field(default_factory=list[_Probe])
    built_at: str = ""

    def start_element(self, name: str, _attributes: object) -> None:
        self.path.append(name)
        if len(self.path) > _DEEPEST:
            raise _make_refusal(f"its elements lie more than {_DEEPEST} deep in each other")
        if self.path[0] != "rss" or self.text is not None:
            raise _make_refusal(f"there should be no {name[:60]!r} where there is one")
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
                raise _make_refusal(f"an element of it holds more than {_LONGEST} characters")

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
                raise _InvalidItemError(f"holds {text!r} in the place of an IPv{version} address")
        except _InvalidItemError as odd:
            item.errors.append(str(odd))
            item.unreadable_versions.add(version)
    if not item.addresses and not item.errors:
        item.errors.append("has no address")
        item.unreadable_versions.update(_KINDS)
    try:
        state = probe.get_text("state")
        if state.lower() not in ("active", "inactive"):
            raise _InvalidItemError(f"is {state[:60]!r}, and neither active nor inactive")
        item.is_active = state.lower() == "active"
    except _InvalidItemError as odd:
        item.errors.append(str(odd))
    return item


def _read_document(text: str) -> _FeedReader:
    """Parse without building a tree, and without document types: they declare entities."""
    reader = _FeedReader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start_element
    parser.EndElementHandler = reader.end_element
    parser.CharacterDataHandler = reader.add_text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(text, True)  # noqa: FBT003 - expat takes no keywords: this is all of it
    except expat.ExpatError as trouble:
        raise _make_refusal(f"it is no well-formed XML ({trouble})") from None
    return reader


def _refuse_doctype(*_declared: object) -> None:
    raise _make_refusal("it declares a document type, which the feed never did")
