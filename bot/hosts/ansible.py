"""The hosts of an Ansible inventory, INI or YAML. Pure.

Format: https://docs.ansible.com/ansible/latest/inventory_guide/intro_inventory.html. Only the file
itself is read: what group_vars, host_vars and plugins would add is told by
`ansible-inventory --list --yaml`, whose output can be read here too.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.error import YAMLError

from bot.hosts.imported_host import ImportedHost, ImportedHosts, NotUnderstood, is_ipv6, parse_port
from bot.hosts.ssh_config import parse_last_hop

# Groups that Ansible makes itself, and that say nothing of a host.
_EVERYBODY = frozenset({"all", "ungrouped"})


class Groups:
    """Every host and group of an inventory, gathered in the order of the file."""

    def __init__(self) -> None:
        self.hosts: dict[str, dict[str, Any]] = {}
        self._variables: dict[str, dict[str, Any]] = {"all": {}}
        self._parents: dict[str, set[str]] = {}
        self._in: dict[str, set[str]] = {}

    def add(self, group: str) -> None:
        self._variables.setdefault(group, {})

    def put(self, group: str, *, below: str) -> None:
        """Make a group a child of another. Raises NotUnderstood if it is its own ancestor."""
        self.add(group)
        self.add(below)
        self._parents.setdefault(group, set()).add(below)
        if group in self._above(below) | {below}:
            raise NotUnderstood(f"the group {group} is within itself")

    def give(self, group: str, variables: Mapping[str, Any]) -> None:
        self._variables.setdefault(group, {}).update(variables)

    def add_host(self, name: str, group: str, variables: Mapping[str, Any]) -> None:
        self.add(group)
        self.hosts.setdefault(name, {}).update(variables)
        self._in.setdefault(name, set()).add(group)

    def of(self, host: str) -> frozenset[str]:
        """Return the groups that a host is in, those above them as well."""
        return frozenset(self._all_of(host) - _EVERYBODY)

    def variables(self, host: str) -> Mapping[str, Any]:
        """Return what counts for a host: its own before its group's, a child's before a parent's.

        Of groups that are equally deep, the last by name wins.
        """
        merged: dict[str, Any] = {}
        order = sorted(self._all_of(host) | {"all"}, key=lambda group: (self._depth(group), group))
        for group in order:
            merged.update(self._variables[group])
        return merged | self.hosts[host]

    def _all_of(self, host: str) -> set[str]:
        groups = set(self._in[host])
        return groups.union(*(self._above(group) for group in groups))

    def _above(self, group: str) -> set[str]:
        found: set[str] = set()
        waiting = list(self._parents.get(group, ()))
        while waiting:
            parent = waiting.pop()
            if parent not in found:
                found.add(parent)
                waiting.extend(self._parents.get(parent, ()))
        return found

    def _depth(self, group: str) -> int:
        if group == "all":
            return 0
        return 1 + max((self._depth(parent) for parent in self._parents.get(group, ())), default=0)


_BY_ITSELF = "ansible-inventory -i FILE --list --yaml"
_RANGE = re.compile(r"\[([A-Za-z]|\d+):([A-Za-z]|\d+)(?::(\d+))?\]")
_MOST_HOSTS = 10_000
_SECTION = re.compile(r"\s*\[([^\[\]:]+)(?::(hosts|children|vars))?\]\s*(?:[#;].*)?")
_PLATFORMS = {
    **dict.fromkeys(("ios", "cisco.ios.ios"), "cisco_ios"),
    **dict.fromkeys(("frr", "frr.frr.frr"), "frr"),
    **dict.fromkeys(("dellos6", "dellemc.os6.os6"), "dell_powerconnect"),
}
_NOT_BY_SSH = ("local", "winrm", "psrp", "docker", "community.docker.docker")
_JUMP = re.compile(r"(?:-J ?|-o ?['\"]?ProxyJump[= ])['\"]?([^\s'\"]+)", re.IGNORECASE)


def parse_inventory(text: str) -> ImportedHosts:
    """Return every host with the variables that say how to reach it. Raises NotUnderstood."""
    groups = _from_yaml(text) if _is_yaml(text) else _from_ini(text)
    hosts: list[ImportedHost] = []
    remarks: list[str] = []
    for name in groups.hosts:
        variables = groups.variables(name)
        connection = str(variables.get("ansible_connection", "ssh"))
        if connection in _NOT_BY_SSH:
            remarks.append(f"{name} is left out: Ansible reaches it by {connection}, not SSH")
        else:
            hosts.append(_found(name, variables, groups.of(name)))
    return ImportedHosts(tuple(hosts), tuple(remarks))


def expand_range(pattern: str) -> Iterator[str]:
    """Yield the names that `web[01:03].example.com` stands for."""
    match = _RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    before, after = pattern[: match.start()], pattern[match.end() :]
    for middle in _counted(match[1], match[2], int(match[3] or 1), pattern):
        for rest in expand_range(after):
            yield f"{before}{middle}{rest}"


def _counted(first: str, last: str, step: int, pattern: str) -> list[str]:
    numbers = first.isdecimal() and last.isdecimal()
    start, end = (int(first), int(last)) if numbers else (ord(first[0]), ord(last[0]))
    if first.isdecimal() != last.isdecimal() or end < start or step < 1:
        raise NotUnderstood(f"{pattern!r} counts from {first} to {last}, which nobody can")
    if (end - start) // step >= _MOST_HOSTS:
        raise NotUnderstood(f"{pattern!r} stands for more than {_MOST_HOSTS} hosts")
    width = len(first) if first.startswith("0") else 0
    counted = range(start, end + 1, step)
    return [f"{number:0{width}d}" if numbers else chr(number) for number in counted]


def _is_yaml(text: str) -> bool:
    """Tell by the first line that says something."""
    for line in text.splitlines():
        if line.strip() in ("", "---") or line.lstrip().startswith("#"):
            continue
        return bool(re.match(r"\{|['\"]?[\w.-]+['\"]?\s*:(\s|$)", line.strip()))
    return False


# --- INI ---


def _from_ini(text: str) -> Groups:
    if text.startswith("#!"):
        raise NotUnderstood(f"this is a program: give me what it makes, by `{_BY_ITSELF}`")
    groups = Groups()
    group, kind = "ungrouped", "hosts"
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        section = _SECTION.fullmatch(line)
        if section:
            group, kind = section[1], section[2] or "hosts"
            groups.add(group)
        elif kind == "vars":
            name, _, value = line.partition("=")
            groups.give(group, {name.strip(): _unquoted(value)})
        elif kind == "children":
            groups.put(line.split()[0], below=group)
        else:
            _add_hosts(groups, group, line, number)
    return groups


def _unquoted(value: str) -> str:
    # Ansible takes `# …` behind a variable of a group for a part of it.
    text = value.strip()
    quoted = re.fullmatch(r"(['\"])(.*)\1", text)
    return quoted[2] if quoted else text


def _add_hosts(groups: Groups, group: str, line: str, number: int) -> None:
    try:
        pattern, *rest = shlex.split(line, comments=True)
    except ValueError as error:
        raise NotUnderstood(f"line {number}: {str(error).lower()}: {line[:80]!r}") from None
    if any("=" not in word for word in rest) or "=" in pattern:
        raise NotUnderstood(f"line {number} is no host with its variables: {line[:80]!r}")
    variables: dict[str, Any] = dict(word.split("=", 1) for word in rest)
    _add_pattern(groups, group, pattern, variables)


def _add_pattern(groups: Groups, group: str, pattern: str, variables: Mapping[str, Any]) -> None:
    names, port = _apart(pattern)
    if port:
        variables = {"ansible_port": port, **variables}
    for name in names:
        groups.add_host(name, group, variables)
        if len(groups.hosts) > _MOST_HOSTS:
            raise NotUnderstood(f"these are more than {_MOST_HOSTS} hosts")


def _apart(pattern: str) -> tuple[Iterable[str], str]:
    """Part a pattern from its port; brackets hold a range, or an IPv6 address."""
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d+))?", pattern)
    if bracketed and is_ipv6(bracketed[1]):
        return [bracketed[1]], bracketed[2] or ""
    with_port = re.fullmatch(r"(.+):(\d+)", pattern)
    if with_port and ":" not in _RANGE.sub("", with_port[1]):
        return expand_range(with_port[1]), with_port[2]
    return expand_range(pattern), ""


# --- YAML ---


def _from_yaml(text: str) -> Groups:
    try:
        data: Any = YAML(typ="rt").load(text)
    except (YAMLError, ValueError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise NotUnderstood(f"{where}{getattr(error, 'problem', None) or error}") from None
    top = _mapping(data, "the file")
    if "plugin" in top:
        raise NotUnderstood(f"this sets up a plugin: give me what it makes, by `{_BY_ITSELF}`")
    groups = Groups()
    for name, group in top.items():
        _add_group(groups, name, group)
    return groups


def _add_group(groups: Groups, name: str, data: Any) -> None:
    group = _mapping(data, name)
    groups.add(name)
    for pattern, variables in _mapping(group.get("hosts"), f"{name}.hosts").items():
        _add_pattern(groups, name, pattern, _mapping(variables, f"{name}.hosts.{pattern}"))
    groups.give(name, _mapping(group.get("vars"), f"{name}.vars"))
    for child, inner in _mapping(group.get("children"), f"{name}.children").items():
        groups.put(child, below=name)
        _add_group(groups, child, inner)


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise NotUnderstood(f"{what} must be a mapping; if a program made this: `{_BY_ITSELF}`")
    return {str(key): value for key, value in cast("dict[Any, Any]", data).items()}


# --- variables ---


def _found(name: str, variables: Mapping[str, Any], groups: frozenset[str]) -> ImportedHost:
    notes: list[str] = []

    def word(*names: str) -> str:
        value = next((variables[each] for each in names if each in variables), "")
        if isinstance(value, TaggedScalar) or "{{" in str(value):
            notes.append(f"{names[0]}: Ansible works it out itself: write what it becomes")
            return ""
        return str(value)

    port = word("ansible_port", "ansible_ssh_port") or "22"
    if parse_port(port) is None:
        notes.append(f"port: {port} is none")
    arguments = word("ansible_ssh_common_args") + " " + word("ansible_ssh_extra_args")
    through = _JUMP.search(arguments)
    jump, said = parse_last_hop(through[1]) if through else ("", ())
    if not through and "ProxyCommand" in arguments:
        said = (f"jump: it is reached by a command of its own, {arguments.strip()}: name a host",)
    if "ansible_password" in variables or "ansible_ssh_pass" in variables:
        said = (*said, "key: Ansible logs in by a password: give the login Keyturn's public key")
    platform = word("ansible_network_os")
    if platform and platform not in _PLATFORMS:
        said = (*said, f"platform: {platform} is none that Keyturn can speak to")
    return ImportedHost(
        name=name,
        address=word("ansible_host", "ansible_ssh_host") or name,
        port=parse_port(port) or 22,
        user=word("ansible_user", "ansible_ssh_user"),
        key=word("ansible_ssh_private_key_file", "ansible_private_key_file"),
        jump=jump,
        platform=_PLATFORMS.get(platform, ""),
        groups=groups,
        notes=(*notes, *said),
    )
