"""What Pingdom's feed says of the machines that it probes from. No I/O.

The feed is RSS with an item for each probe, and in it, of the namespace below, `ip`, `state`
(Active or Inactive) and, for some, `ipv6`, where the literal NULL means that there is none:
https://my.pingdom.com/probes/feed. There are plain lists too, one address to a line:
https://my.pingdom.com/probes/ipv4 and …/ipv6.

A firewall lets in whatever stands here. So the feed is believed as a whole or not at all.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from xml.parsers import expat

from connectors.command import Fetch, Query, Setting
from connectors.public import Address, is_public
from connectors.trouble import NotUnderstood

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

_FETCH = Fetch(
    Setting("pingdom.feed", "https://my.pingdom.com/probes/feed", pattern=r"https://[!-~]+"),
    networks=Setting("pingdom.feed_networks", "", pattern=r"[0-9A-Fa-f:./,]*"),
    authority=Setting("pingdom.feed_authority", "", pattern=r"([\w-][\w./-]*)?"),
    types=("application/rss+xml", "application/xml", "text/xml", "text/plain"),
)


@dataclass(frozen=True)
class Feed:
    """The addresses of active probes, and how many probes are listed that are not active.

    built: when the feed says that it was made, as it says it; "" if it does not.
    """

    addresses: frozenset[Address]
    inactive: int = 0
    built: str = ""


def feed() -> Query[Feed]:
    """Ask for the feed that the host's inventory entry names: Pingdom's own by default."""
    return Query(_FETCH, parse)


def parse(text: str) -> Feed:
    """Understand the feed or a plain list; raise NotUnderstood for all of it if a part is bad."""
    found = _from_rss(text) if text.lstrip().startswith("<") else _from_list(text)
    if not _FEWEST <= len(found.addresses) <= _MOST:
        raise _refusal(
            f"it has {len(found.addresses)} addresses of active probes, and fewer than {_FEWEST} "
            f"or more than {_MOST} cannot be right"
        )
    return found


def _refusal(why: str) -> NotUnderstood:
    return NotUnderstood(
        f"Pingdom's feed is refused as a whole, and hosts keep the list that they have: {why}"
    )


def _from_list(text: str) -> Feed:
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return Feed(frozenset(_address(line, f"line {n}") for n, line in enumerate(lines, 1)))


def _address(text: str, where: str) -> Address:
    """Return an address written as addresses are: alone, without mask, zone and leading zeros."""
    shown = repr(text[:60])
    try:
        address = ip_address(text if "%" not in text else "")
    except ValueError:
        raise _refusal(f"{where} holds {shown}, which is no address") from None
    if not is_public(address):
        raise _refusal(f"{where} holds {shown}, which is not one machine's on the internet")
    return address


@dataclass
class _Probe:
    """One item, as far as it was read. texts: its elements of Pingdom's namespace."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def text(self, name: str, where: str) -> str:
        said = self.texts.get(name, [])
        if len(said) > 1:
            raise _refusal(f"{where} has {len(said)} elements named {name}")
        return said[0].strip(" \t\r\n") if said else ""


@dataclass
class _Reader:
    """Follows the document as it is parsed, and keeps the few texts that matter."""

    path: list[str] = field(default_factory=list[str])
    heard: str | None = None
    probes: list[_Probe] = field(default_factory=list[_Probe])
    built: str = ""

    def start(self, name: str, _attributes: object) -> None:
        self.path.append(name)
        if len(self.path) > _DEEPEST:
            raise _refusal(f"its elements lie more than {_DEEPEST} deep in each other")
        if self.path[0] != "rss" or self.heard is not None:
            raise _refusal(f"there should be no {name[:60]!r} where there is one")
        if tuple(self.path) == _ITEM:
            self.probes.append(_Probe())
            if len(self.probes) > _MOST:
                raise _refusal(f"it lists more than {_MOST} probes")
        if self._matters():
            self.heard = ""

    def words(self, text: str) -> None:
        if self.heard is not None:
            self.heard += text
            if len(self.heard) > _LONGEST:
                raise _refusal(f"an element of it holds more than {_LONGEST} characters")

    def end(self, name: str) -> None:
        if self.heard is not None:
            if tuple(self.path) == _BUILT:
                self.built = self.heard.strip() if _DATE.fullmatch(self.heard.strip()) else ""
            else:
                self.probes[-1].texts.setdefault(_WANTED[name], []).append(self.heard)
            self.heard = None
        self.path.pop()

    def _matters(self) -> bool:
        *outer, name = self.path
        return tuple(self.path) == _BUILT or (tuple(outer) == _ITEM and name in _WANTED)


def _from_rss(text: str) -> Feed:
    reader = _read(text)
    active: set[Address] = set()
    inactive = 0
    for n, probe in enumerate(reader.probes, 1):
        where = f"probe {n}"
        addresses = list(_addresses(probe, where))
        state = probe.text("state", where)
        if state.lower() == "active":
            active.update(addresses)
        elif state.lower() == "inactive":
            inactive += 1
        else:
            raise _refusal(f"{where} is {state[:60]!r}, and neither active nor inactive")
    return Feed(frozenset(active), inactive, reader.built)


def _addresses(probe: _Probe, where: str) -> Iterator[Address]:
    said: Sequence[tuple[str, int]] = (("ip", 4), ("ipv6", 6))
    texts = [(probe.text(name, where), version) for name, version in said]
    given = [(text, version) for text, version in texts if text not in ("", "NULL")]
    if not given:
        raise _refusal(f"{where} has no address")
    for text, version in given:
        address = _address(text, where)
        if address.version != version:
            raise _refusal(f"{where} holds {text!r} in the place of an IPv{version} address")
        yield address


def _read(text: str) -> _Reader:
    """Parse without building a tree, and without document types: they declare entities."""
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.words
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(text, True)  # noqa: FBT003 - expat takes no keywords: this is all of it
    except expat.ExpatError as trouble:
        raise _refusal(f"it is no well-formed XML ({trouble})") from None
    return reader


def _refuse_doctype(*_declared: object) -> None:
    raise _refusal("it declares a document type, which the feed never did")
