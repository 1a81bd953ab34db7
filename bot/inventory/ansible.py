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

from bot.inventory.ansible_group import Groups
from bot.inventory.found import Findings, Found, NotUnderstood, is_ipv6, port_of
from bot.inventory.ssh_config import last_hop

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


def parse(text: str) -> Findings:
    """Return every host with the variables that say how to reach it. Raises NotUnderstood."""
    groups = _from_yaml(text) if _is_yaml(text) else _from_ini(text)
    hosts: list[Found] = []
    remarks: list[str] = []
    for name in groups.hosts:
        variables = groups.variables(name)
        connection = str(variables.get("ansible_connection", "ssh"))
        if connection in _NOT_BY_SSH:
            remarks.append(f"{name} is left out: Ansible reaches it by {connection}, not SSH")
        else:
            hosts.append(_found(name, variables, groups.of(name)))
    return Findings(tuple(hosts), tuple(remarks))


def spread(pattern: str) -> Iterator[str]:
    """Yield the names that `web[01:03].example.com` stands for."""
    match = _RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    before, after = pattern[: match.start()], pattern[match.end() :]
    for middle in _counted(match[1], match[2], int(match[3] or 1), pattern):
        for rest in spread(after):
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
        return spread(with_port[1]), with_port[2]
    return spread(pattern), ""


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


def _found(name: str, variables: Mapping[str, Any], groups: frozenset[str]) -> Found:
    notes: list[str] = []

    def word(*names: str) -> str:
        value = next((variables[each] for each in names if each in variables), "")
        if isinstance(value, TaggedScalar) or "{{" in str(value):
            notes.append(f"{names[0]}: Ansible works it out itself: write what it becomes")
            return ""
        return str(value)

    port = word("ansible_port", "ansible_ssh_port") or "22"
    if port_of(port) is None:
        notes.append(f"port: {port} is none")
    arguments = word("ansible_ssh_common_args") + " " + word("ansible_ssh_extra_args")
    through = _JUMP.search(arguments)
    jump, said = last_hop(through[1]) if through else ("", ())
    if not through and "ProxyCommand" in arguments:
        said = (f"jump: it is reached by a command of its own, {arguments.strip()}: name a host",)
    if "ansible_password" in variables or "ansible_ssh_pass" in variables:
        said = (*said, "key: Ansible logs in by a password: give the login Keyturn's public key")
    platform = word("ansible_network_os")
    if platform and platform not in _PLATFORMS:
        said = (*said, f"platform: {platform} is none that Keyturn can speak to")
    return Found(
        name=name,
        address=word("ansible_host", "ansible_ssh_host") or name,
        port=port_of(port) or 22,
        user=word("ansible_user", "ansible_ssh_user"),
        key=word("ansible_ssh_private_key_file", "ansible_private_key_file"),
        jump=jump,
        platform=_PLATFORMS.get(platform, ""),
        groups=groups,
        notes=(*notes, *said),
    )
