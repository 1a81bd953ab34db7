"""Import hosts from an OpenSSH client configuration, parsed by paramiko.

Format: ssh_config(5). Included files and conditional sections (Match) are ignored, and said so.
Names are never looked up: with one of CanonicalDomains, the name in it is taken as the canonical
one.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from paramiko import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from bot.hosts.imported_host import ImportedHost, ImportedHosts, InvalidImportError, parse_port

# Other keywords are ignored: with `Match exec` paramiko would run a command of the file.
_READ_KEYWORDS = frozenset(
    (
        "host",
        "hostname",
        "hostkeyalias",
        "identityfile",
        "port",
        "proxycommand",
        "proxyjump",
        "user",
    )
)
# With these paramiko would look up names, so it gets them by other names.
_CANONICAL_KEYWORDS = frozenset(
    ("canonicalizehostname", "canonicaldomains", "canonicalizemaxdots")
)
_KEYWORD_PATTERN = re.compile(r"\w+")
_PREFIX = "keyturn"
_COMMENT_PATTERN = re.compile(r"\s#.*")
_PROXY_HOST_PATTERN = re.compile(
    r"\bssh\b.* -W ?\[?\S+?\]?:(?:\d+|%p) (?:.* )?(\S+)"
    r"|\bssh\b (?:.* )?(\S+) -W ?\[?\S+?\]?:(?:\d+|%p)"
)


# By keyword in lower case; a keyword that may be repeated has a list.
_HostSettings = Mapping[str, str | list[str] | None]


def parse_ssh_config(text: str) -> ImportedHosts:
    """Return every host with a name of its own, sorted by name.

    Raises InvalidImportError if a line is invalid.
    """
    plain, remarks = _remove_conditional_lines(text.removeprefix("\ufeff"))
    try:
        config = SSHConfig.from_text(plain)
    except ConfigParseError as error:
        raise InvalidImportError(
            f"this is not an SSH configuration: {str(error).lower()}. Correct or remove that line"
        ) from None
    names = sorted(name for name in config.get_hostnames() if not re.search(r"[*?!]", name))
    hosts = tuple(_build_host(name, *_look_up(config, name)) for name in names)
    return ImportedHosts(hosts, remarks)


def parse_hop(jump: str) -> str:
    """Return the name or address in `[user@]host[:port]`, or in an ssh:// address."""
    place = jump.removeprefix("ssh://").rpartition("@")[2]
    bracketed = re.fullmatch(r"\[(.+)\](?::\d+)?", place)
    if bracketed:
        return bracketed[1]
    return place.rpartition(":")[0] if re.fullmatch(r"[^:]+:\d+", place) else place


def parse_last_hop(jumps: str) -> tuple[str, tuple[str, ...]]:
    """Return the last host of a ProxyJump, and notes about those before it."""
    *before, last = jumps.split(",")
    if not before:
        return parse_hop(last), ()
    ways = ", ".join(parse_hop(each) for each in before)
    return parse_hop(last), (
        f"jump: the way leads through {ways} first: set that jump for {parse_hop(last)}",
    )


def _remove_conditional_lines(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the unconditional lines about connections, and remarks about the others."""
    lines: list[str] = []
    remarks: list[str] = []
    is_conditional = False
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        found = _KEYWORD_PATTERN.match(words)
        keyword = found[0].lower() if found else ""
        if keyword in {"host", "match"}:
            is_conditional = keyword == "match"
        if keyword == "match":
            remarks.append(f"line {number}: the Match section is ignored")
        elif keyword == "include":
            remarks.append(f"line {number}: {words} is ignored: import that file too")
        elif not is_conditional and keyword in _CANONICAL_KEYWORDS:
            lines.append(f"{_PREFIX}{_COMMENT_PATTERN.sub('', words)}")
        elif not is_conditional and (not keyword or keyword in _READ_KEYWORDS):
            # A command can contain #, and paramiko reads a comment as a value.
            lines.append(words if keyword == "proxycommand" else _COMMENT_PATTERN.sub("", words))
    return "\n".join(lines), tuple(remarks)


def _look_up(config: SSHConfig, name: str) -> tuple[_HostSettings, tuple[str, ...]]:
    """Return the settings of a host and notes on its name, as OpenSSH's second pass has them."""
    settings: _HostSettings = config.lookup(name)
    host = _get_first_value(settings, "hostname")
    if not _is_canonicalized(settings, host):
        return settings, ()
    domains = _get_first_value(settings, f"{_PREFIX}canonicaldomains").split()
    if len(domains) != 1:
        return settings, (
            f"address: OpenSSH looks {host} up in {', '.join(domains) or 'no domain'}, and "
            "applies the sections of what it finds: write that name, its user and its jump host",
        )
    full = f"{host}.{domains[0]}"
    # What the first pass has set stays.
    merged = {**settings, "hostname": full}
    for keyword, value in config.lookup(full).items():
        merged.setdefault(keyword, value)
    return merged, (f"address: CanonicalDomains makes {full} of {host}: check that it exists",)


def _is_canonicalized(settings: _HostSettings, host: str) -> bool:
    """Return whether OpenSSH looks a name up in CanonicalDomains (ssh.c)."""
    how = _get_first_value(settings, f"{_PREFIX}canonicalizehostname").lower()
    dots = _get_first_value(settings, f"{_PREFIX}canonicalizemaxdots")
    is_address = re.fullmatch(r"[0-9.]+|.*:.*", host) is not None
    if how not in ("yes", "always") or is_address or host.endswith("."):
        return False
    if host.count(".") > (int(dots) if dots.isdecimal() else 1):
        return False
    return how == "always" or _read_jump(settings) == ("", ())


def _build_host(name: str, settings: _HostSettings, of_name: tuple[str, ...]) -> ImportedHost:
    notes = [*of_name]
    port = parse_port(_get_first_value(settings, "port") or "22")
    if port is None:
        notes.append(f"port: {_get_first_value(settings, 'port')} is not a valid port")
    jump, of_jump = _read_jump(settings)
    alias = _get_first_value(settings, "hostkeyalias")
    key, of_key = _read_key(settings)
    return ImportedHost(
        name=name,
        address=_get_first_value(settings, "hostname"),
        port=port or 22,
        user=_get_first_value(settings, "user"),
        key=key,
        jump=jump,
        aliases=(alias,) if alias else (),
        notes=(*notes, *of_key, *of_jump),
    )


def _get_first_value(host_settings: _HostSettings, keyword: str) -> str:
    """Return the first value of a keyword, or ""."""
    value = host_settings.get(keyword) or ""
    return value if isinstance(value, str) else value[0]


def _read_key(settings: _HostSettings) -> tuple[str, tuple[str, ...]]:
    """Return the first key file, with ~ for the home directory, which paramiko expands."""
    key, home = _get_first_value(settings, "identityfile"), str(Path.home())
    if key.lower() == "none":
        return "", ()
    if re.search(r"[%$]", key):
        return "", (f"key: OpenSSH computes {key}: write the resulting path",)
    return (f"~{key.removeprefix(home)}" if key.startswith(f"{home}/") else key), ()


def _read_jump(
    settings: _HostSettings,
) -> tuple[str, tuple[str, ...]]:
    # The first of the two keywords applies.
    keyword = next((each for each in settings if each in ("proxyjump", "proxycommand")), "")
    way = _get_first_value(settings, keyword)
    if not way or way.lower() == "none":
        return "", ()
    if keyword == "proxyjump":
        return parse_last_hop(way)
    return parse_proxy_command(way)


def parse_proxy_command(command: str) -> tuple[str, tuple[str, ...]]:
    """Return the jump host that a ProxyCommand logs in to by ssh, or a note."""
    through = _PROXY_HOST_PATTERN.search(command)
    if through:
        return parse_hop(through[1] or through[2]), ()
    return "", (f"jump: a ProxyCommand connects to it, {command}: name a jump host",)
