"""Parser of `csf -g`: rules, sets and files of csf that contain an address. No I/O.

The format was recorded of csf 15, and is that of public outputs of 2023 and 2024. Those of 2017
have no column for the table of a chain, and are refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from connectors import csf_program
from connectors.command import Hint, Query, Shell
from connectors.errors import ParseError
from connectors.public_addresses import Address
from connectors.sudo import ADDRESS, SudoRule, WordPattern

_HINTS = (
    *csf_program.HINTS,
    Hint(r"unresolved error", "csf could not start: see csf.error on the host"),
)
_COLOUR = re.compile(r"(\x1b|\\x1b)\[[0-9;]*[A-Za-z]")
_HEAD = re.compile(r"Table +Chain +num .*")
_SILENT = re.compile(r"\s*|ip6tables:|No matches found for \S+ in ip6?tables|\*WARNING\*.*")
# Table, chain, number, packets, bytes, target, protocol, options, in, out, source, destination.
_RULE = re.compile(
    r"(?P<place>\w+ +\S+) +\d+ +\S+ +\S+ +(?P<target>\S+) +\S+ +\S+ +\S+ +\S+"
    r" +(?P<source>\S+) +(?P<to>\S+)(?P<more> .*)?"
)
_TEMPORARY = re.compile(r"Temporary (?P<kind>Blocks|Allows): IP:(?P<address>\S+) (?P<more>.*)")
_SET = re.compile(r"IPSET: Set:(?P<set>\S+) Match:(?P<match>\S+)( .*)?")
_DENY_SETS = ("set chain_DENY", "set chain_6_DENY")
_ALLOW_SETS = ("set chain_ALLOW", "set chain_6_ALLOW")
_FILE = re.compile(r"(?:Permanent \w+ \()?(?P<file>csf\.\w+)\)?: (?P<entry>.+)")


@dataclass(frozen=True)
class CsfMatch:
    """One place that contains an address."""

    place: str
    """A chain, a set or a file."""
    text: str
    """What the rule does, or the entry in the file."""


def query_matches(address: Address) -> Query[Sequence[CsfMatch]]:
    """Query where csf has *address*. It takes a quarter of a second and requires root."""
    shell = Shell((csf_program.PROGRAM, "-g", str(address)), root=True, hints=_HINTS, deadline=60)
    return Query(shell, parse_matches)


def parse_matches(text: str) -> Sequence[CsfMatch]:
    lines = _COLOUR.sub("", text).splitlines()
    if not any(_HEAD.fullmatch(line.rstrip()) for line in lines):
        raise ParseError(f"csf -g printed {text[:200]!r} instead of a table of rules")
    matches = [line.rstrip() for line in lines if not _SILENT.fullmatch(line.rstrip())]
    return [_parse_match(line) for line in matches if not _HEAD.fullmatch(line)]


def _parse_match(line: str) -> CsfMatch:
    if rule := _RULE.fullmatch(line):
        what = f"{rule['target']} {rule['source']} to {rule['to']}{rule['more'] or ''}"
        return CsfMatch(" ".join(rule["place"].split()), " ".join(what.split()))
    if member := _SET.fullmatch(line):
        return CsfMatch(f"set {member['set']}", member["match"])
    if entry := _FILE.fullmatch(line):
        return CsfMatch(entry["file"], entry["entry"])
    # Temporary entries and country lists are printed in csf's own sentences.
    return CsfMatch("csf", line)


@dataclass(frozen=True)
class CsfEntries:
    """What `csf -g` found that is for one address."""

    allow: str = ""
    """Its line in csf.allow; "" if it has none."""
    deny: str = ""
    """Its line in csf.deny; "" if it has none."""
    temporary_block: str = ""
    """Port, direction, remaining time and comment of its temporary block; "" for none."""
    allowed_by: str = ""
    """The first line of csf.allow or of a file that it includes, for the address or a network
    with it; csf does not deny the address then."""
    has_temporary_allow: bool = False
    is_denied: bool = False
    """Whether a rule or set that csf.deny or a temporary block fills has it."""
    wider: Sequence[CsfMatch] = ()
    """Lines of csf.deny that are for more than this address, and sets that csf fills from lists
    of other providers."""


def parse_entries(matches: Sequence[CsfMatch], address: Address) -> CsfEntries:
    """Return which of the matches of `csf -g` are for this address alone."""
    exact = {m.place: m.text for m in matches if _is_for(m.text.partition(" ")[0], address)}
    temporary = [found for m in matches if (found := _TEMPORARY.fullmatch(m.text))]
    mine = {t["kind"]: t["more"] for t in temporary if _is_for(t["address"], address)}
    return CsfEntries(
        allow=exact.get("csf.allow", ""),
        deny=exact.get("csf.deny", ""),
        temporary_block=mine.get("Blocks", ""),
        allowed_by=next((m.text for m in matches if m.place == "csf.allow"), ""),
        has_temporary_allow="Allows" in mine,
        is_denied=any(m.place in {"filter DENYIN", *_DENY_SETS} for m in matches),
        wider=tuple(m for m in matches if _is_wider_block(m, address)),
    )


def _is_wider_block(match: CsfMatch, address: Address) -> bool:
    if match.place.startswith("set "):
        return match.place not in _DENY_SETS + _ALLOW_SETS
    return match.place == "csf.deny" and not _is_for(match.text.partition(" ")[0], address)


def _is_for(text: str, address: Address) -> bool:
    try:
        return ip_network(text) == ip_network(address)
    except ValueError:
        return False


SUDO = (SudoRule(csf_program.PROGRAM, "-g", WordPattern(ADDRESS), read_only=True),)
