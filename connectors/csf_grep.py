"""Parser of `csf -g`: rules, sets and files of csf that contain an address. No I/O."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.public_addresses import Address
from connectors.sudo import ADDRESS, SudoRule, WordPattern

_PROGRAM = Setting("csf.program", "/usr/sbin/csf", pattern=r"/[\w./-]+")
_HINTS = (
    Hint(r"(?i)have been \S*disabled", "csf is disabled: run csf -e first"),
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
_SET = re.compile(r"IPSET: Set:(?P<set>\S+) Match:(?P<match>\S+)( .*)?")
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
    shell = Shell((_PROGRAM, "-g", str(address)), root=True, hints=_HINTS, deadline=60)
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


SUDO = (SudoRule(_PROGRAM, "-g", WordPattern(ADDRESS), read_only=True),)
