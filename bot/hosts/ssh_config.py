"""The hosts of an OpenSSH client's configuration. Pure.

Format: ssh_config(5). The first value of a keyword counts. Files that it includes are not read,
and what only applies when a condition holds (Match) is left out.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from bot.hosts.imported_host import ImportedHost, ImportedHosts, NotUnderstood, parse_port

_KEYWORD = re.compile(r"\s*([A-Za-z0-9]+)(?:\s*=\s*|\s+)(.*?)\s*")
_THROUGH = re.compile(
    r"\bssh\b.* -W ?\[?%h\]?:%p (?:.* )?(\S+)|\bssh\b (?:.* )?(\S+) -W ?\[?%h\]?:%p"
)


@dataclass
class _Block:
    """Settings of the hosts that fit the patterns; those of a Match fit nobody."""

    patterns: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)

    def is_for(self, name: str) -> bool:
        if any(fnmatchcase(name, each[1:]) for each in self.patterns if each.startswith("!")):
            return False
        return any(fnmatchcase(name, each) for each in self.patterns)


def parse_ssh_config(text: str) -> ImportedHosts:
    """Return every host that the file calls by a name of its own."""
    blocks = [_Block(("*",))]
    remarks: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        keyword, words = _said(line, number)
        match keyword:
            case "host":
                blocks.append(_Block(tuple(words)))
            case "match":
                blocks.append(_Block(()))
                remarks.append(f"line {number}: what follows Match is left out")
            case "include":
                remarks.append(f"line {number}: {' '.join(words)} is not read: import it too")
            case _:
                blocks[-1].settings.setdefault(keyword, " ".join(words))
    names = [name for block in blocks for name in block.patterns if not re.search(r"[*?!]", name)]
    hosts = tuple(_found(name, _settings(blocks, name)) for name in dict.fromkeys(names))
    return ImportedHosts(hosts, tuple(remarks))


def parse_hop(jump: str) -> str:
    """Return the name or address in `[user@]host[:port]`, or in an ssh:// address."""
    place = jump.removeprefix("ssh://").rpartition("@")[2]
    bracketed = re.fullmatch(r"\[(.+)\](?::\d+)?", place)
    if bracketed:
        return bracketed[1]
    return place.rpartition(":")[0] if re.fullmatch(r"[^:]+:\d+", place) else place


def parse_last_hop(jumps: str) -> tuple[str, tuple[str, ...]]:
    """Return the last host of a ProxyJump, and what is to be said of those before it."""
    *before, last = jumps.split(",")
    if not before:
        return parse_hop(last), ()
    ways = ", ".join(parse_hop(each) for each in before)
    return parse_hop(last), (
        f"jump: it is reached through {ways} first: give {parse_hop(last)} that jump",
    )


def _said(line: str, number: int) -> tuple[str, Sequence[str]]:
    match = _KEYWORD.fullmatch(line)
    if match is None:
        raise NotUnderstood(f"line {number} is no line of an SSH configuration: {line[:80]!r}")
    keyword = match[1].lower()
    if keyword == "proxycommand":  # the rest of the line, whatever is quoted in it
        return keyword, [match[2]]
    try:
        words = shlex.split(match[2], comments=True)
    except ValueError as error:
        raise NotUnderstood(f"line {number}: {str(error).lower()}: {line[:80]!r}") from None
    return keyword, words


def _settings(blocks: Sequence[_Block], name: str) -> Mapping[str, str]:
    settings: dict[str, str] = {}
    for block in blocks:
        if block.is_for(name):
            for keyword, value in block.settings.items():
                settings.setdefault(keyword, value)
    return settings


def _found(name: str, settings: Mapping[str, str]) -> ImportedHost:
    notes: list[str] = []
    port = parse_port(settings.get("port", "22"))
    if port is None:
        notes.append(f"port: {settings['port']} is none")
    jump, said = _jump(settings)
    alias = settings.get("hostkeyalias", "")
    return ImportedHost(
        name=name,
        address=settings.get("hostname", name).replace("%h", name).replace("%%", "%"),
        port=port or 22,
        user=settings.get("user", ""),
        key=settings.get("identityfile", ""),
        jump=jump,
        aliases=(alias,) if alias else (),
        notes=(*notes, *said),
    )


def _jump(settings: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    # Of the two, the one that stands first counts.
    keyword = next((each for each in settings if each in ("proxyjump", "proxycommand")), "")
    way = settings.get(keyword, "none")
    if way.lower() == "none":
        return "", ()
    if keyword == "proxyjump":
        return parse_last_hop(way)
    through = _THROUGH.search(way)
    if through:
        return parse_hop(through[1] or through[2]), ()
    return "", (f"jump: it is reached by a command of its own, {way}: name a jump host",)
