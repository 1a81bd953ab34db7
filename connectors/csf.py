"""ConfigServer Firewall (csf): read its settings, files and rules. No I/O.

csf exits with status 0 for nearly everything, so its output proves nothing: its files and the
kernel's rules do. All of this requires root, which alone can read /etc/csf.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network

from connectors import csf_program
from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.public_addresses import Address
from connectors.script import load_script
from connectors.sudo import SudoRule

Network = IPv4Network | IPv6Network

_CPANEL = Setting("cpanel.directory", "/var/cpanel", pattern=r"/[\w./-]+")

_HINTS = (
    *csf_program.HINTS,
    Hint(
        r"(iptables|ip6tables|ipset): not found",
        "a program that csf needs is missing: install iptables and ipset",
    ),
    Hint(
        r"tables.*(xtables lock|Resource temporarily)",
        "another program is changing the rules: try again",
    ),
)

_STATE = load_script("csf-state", argument_count=3)
_KINDS = (
    *("file", "disabled", "kept", "cpanel", "allow", "deny", "own", "common"),
    *("included", "ignore"),
    *("conf", "rule", "loaded", "mine"),
)
# Some forks colour their output even without a terminal; control characters arrive escaped.
_CONF = re.compile(r'(\w+) *= *"([^"]*)"')
_RULE = re.compile(r"-A ALLOWIN (?:-s (\S+) )?(?:(?:! )?-i \S+ )?-j ACCEPT")
_SET_RULE = re.compile(r"-A ALLOWIN -m set --match-set (\S+) src -j ACCEPT")
_MEMBER = re.compile(r"add (chain_(?:6_)?ALLOW) (\S+)")


@dataclass(frozen=True)
class Firewall:
    """csf's settings, its files, and the rules in force."""

    settings: Mapping[str, str]
    """The settings of csf.conf, by name."""
    include_line: str
    """The line that csf.allow needs so that csf reads Keyturn's file."""
    is_included: bool
    """Whether csf.allow has that line."""
    own_list: str | None
    """The text of Keyturn's file; None if it does not exist."""
    is_enabled: bool = True
    allow: Mapping[str, str] = field(default_factory=dict[str, str])
    """The entries of csf.allow, each with its comment."""
    deny: Mapping[str, str] = field(default_factory=dict[str, str])
    """The entries of csf.deny, each with its comment."""
    included_deny: Mapping[str, str] = field(default_factory=dict[str, str])
    """The entries of the files that csf.deny includes. csf does not remove them."""
    ignore: Mapping[str, str] = field(default_factory=dict[str, str])
    """The entries of csf.ignore and its included files. csf does not deny them."""
    allowed_networks: frozenset[Network] = frozenset()
    """Networks that the kernel's rules allow at every port."""
    loaded_tables: frozenset[str] = frozenset()
    """The tables that hold csf's rules, such as iptables; none after a flush."""
    own_addresses: frozenset[Address] = frozenset()
    """The host's own addresses."""
    common_domains: frozenset[str] | None = None
    """Domains that no customer of cPanel may take; None on a host without cPanel."""

    @property
    def is_testing(self) -> bool:
        """Whether csf is in TESTING mode, in which it removes all rules every five minutes."""
        return self.is_set("TESTING")

    @property
    def missing_tables(self) -> str:
        """The tables without csf's rules; "" while the firewall is on."""
        wanted = ("iptables", "ip6tables") if self.is_set("IPV6") else ("iptables",)
        return " and ".join(table for table in wanted if table not in self.loaded_tables)

    @property
    def reload_option(self) -> str:
        """The option that reloads immediately. With LFDSTART, `-r` leaves it to a daemon."""
        return "-sf" if self.is_set("LFDSTART") else "-r"

    @property
    def removable_count(self) -> int:
        """How many entries of csf.deny count for DENY_IP_LIMIT."""
        return sum(not is_protected(comment) for comment in self.deny.values())

    def is_set(self, setting: str) -> bool:
        return self.settings.get(setting, "0") not in ("0", "")

    def can_filter(self, address: Address) -> bool:
        """Return whether csf filters this IP version; it refuses entries of another."""
        return address.version == 4 or self.is_set("IPV6")

    def is_allowed(self, address: Address) -> bool:
        return ip_network(address) in self.allowed_networks or any(
            address.version == wide.version and address in wide
            for wide in self.allowed_networks
            if wide.num_addresses > 1
        )


def is_protected(comment: str) -> bool:
    """Return whether csf keeps the entry with this comment in csf.deny."""
    return "do not delete" in comment.lower()


def query_firewall() -> Query[Firewall]:
    words = (_STATE, csf_program.DIRECTORY, csf_program.PROGRAM, _CPANEL)
    return Query(Shell(words, root=True, hints=_HINTS, deadline=60), parse_firewall)


def parse_firewall(text: str) -> Firewall:
    facts: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    *lines, end = text.removesuffix("\n").split("\n")
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind not in facts:
            raise ParseError(f"the firewall script printed an unknown line: {line[:100]!r}")
        facts[kind].append(rest)
    if end != "end" or not facts["file"]:
        raise ParseError(f"the firewall script's output was cut off after {end[:100]!r}")
    include = f"Include {facts['file'][0]}"
    return Firewall(
        settings=_parse_settings(facts["conf"]),
        include_line=include,
        is_included=any(line.split() == include.split() for line in facts["allow"]),
        own_list="".join(f"{line}\n" for line in facts["own"]) if facts["kept"] else None,
        is_enabled=not facts["disabled"],
        allow=_parse_entries(facts["allow"]),
        deny=_parse_entries(facts["deny"]),
        included_deny=_parse_entries(facts["included"]),
        ignore=_parse_entries(facts["ignore"]),
        allowed_networks=frozenset(_list_allowed_networks(facts["rule"])),
        loaded_tables=frozenset(facts["loaded"]),
        own_addresses=frozenset(_parse_own_addresses(facts["mine"])),
        common_domains=frozenset(facts["common"]) if facts["cpanel"] else None,
    )


def _parse_settings(lines: Sequence[str]) -> Mapping[str, str]:
    found = [_CONF.match(line) for line in lines]
    settings = {setting[1]: setting[2] for setting in found if setting}
    if "TESTING" not in settings:
        raise ParseError("csf.conf has no TESTING setting")
    return settings


def _parse_entries(lines: Sequence[str]) -> Mapping[str, str]:
    """Return the address or advanced rule of each line, with its comment."""
    entries: dict[str, str] = {}
    for line in lines:
        first, _, comment = line.strip().partition("#")
        if first.strip() and "Include" not in line:
            entries[first.split()[0]] = comment.strip()
    return entries


def _list_allowed_networks(rules: Sequence[str]) -> Iterator[Network]:
    """Yield the networks that rules allow by source address alone."""
    sets = {rule[1] for line in rules if (rule := _SET_RULE.fullmatch(line))}
    for line in rules:
        if (rule := _RULE.fullmatch(line)) and rule[1]:
            yield _parse_network(rule[1])
        elif (member := _MEMBER.match(line)) and member[1] in sets:
            yield _parse_network(member[2])


def _parse_network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        raise ParseError(f"a firewall rule has {text[:60]!r} instead of a network") from None


def _parse_own_addresses(words: Sequence[str]) -> Iterator[Address]:
    for word in words:
        try:
            yield ip_interface(word).ip
        except ValueError:
            raise ParseError(f"ip printed {word[:60]!r} instead of an address") from None


SUDO = (SudoRule(_STATE, csf_program.DIRECTORY, csf_program.PROGRAM, _CPANEL, read_only=True),)
