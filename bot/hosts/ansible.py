"""The hosts of an Ansible inventory, from what `ansible-inventory -i FILE --list` prints. Pure.

Ansible itself reads the inventory, with its ranges, plugins, group_vars and host_vars, and merges
the variables of each host. Format: JSON, a group to each name with `hosts` and `children`; under
`_meta`, the variables of each host:
https://docs.ansible.com/ansible/latest/dev_guide/developing_inventory.html#inventory-script-conventions
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from bot.hosts.imported_host import ImportedHost, ImportedHosts, InvalidImportError, parse_port
from bot.hosts.ssh_config import parse_last_hop

LIST_COMMAND = "ansible-inventory -i FILE --list"
# Groups that Ansible creates for every inventory.
_BUILT_IN_GROUPS = frozenset({"all", "ungrouped"})
_PLATFORMS = {
    **dict.fromkeys(("ios", "cisco.ios.ios"), "cisco_ios"),
    **dict.fromkeys(("frr", "frr.frr.frr"), "frr"),
    **dict.fromkeys(("dellos6", "dellemc.os6.os6"), "dell_powerconnect"),
    **dict.fromkeys(("eos", "arista.eos.eos"), "arista_eos"),
    **dict.fromkeys(("junos", "junipernetworks.junos.junos"), "juniper_junos"),
}
_NON_SSH_CONNECTIONS = ("local", "winrm", "psrp", "docker", "community.docker.docker")
_JUMP_PATTERN = re.compile(r"(?:-J ?|-o ?['\"]?ProxyJump[= ])['\"]?([^\s'\"]+)", re.IGNORECASE)


class _InventoryMember(BaseModel):
    """One member of what the command prints: a group, or `_meta` with the variables."""

    hosts: list[str] = []
    children: list[str] = []
    hostvars: dict[str, dict[str, Any]] = {}


_INVENTORY_ADAPTER = TypeAdapter(dict[str, _InventoryMember])


def parse_ansible_inventory(text: str) -> ImportedHosts:
    """Return every host with the variables that say how to reach it.

    Raises InvalidImportError if the text is not the output of the command.
    """
    try:
        groups = _INVENTORY_ADAPTER.validate_json(text)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise _build_format_error(
            f"{where}: {problem['msg']}" if where else problem["msg"]
        ) from None
    if "_meta" not in groups:
        raise _build_format_error("it has no member _meta")
    of_hosts = groups.pop("_meta").hostvars
    memberships = _collect_memberships(groups)
    hosts: list[ImportedHost] = []
    remarks: list[str] = []
    for name in dict.fromkeys((*memberships, *of_hosts)):
        variables = of_hosts.get(name, {})
        connection = str(variables.get("ansible_connection", "ssh"))
        if connection in _NON_SSH_CONNECTIONS:
            remarks.append(
                f"{name} is not imported: Ansible connects to it by {connection}, not SSH"
            )
        else:
            within = frozenset(memberships.get(name, ())) - _BUILT_IN_GROUPS
            hosts.append(_build_host(name, variables, within))
    return ImportedHosts(tuple(hosts), tuple(remarks))


def _build_format_error(problem: str) -> InvalidImportError:
    return InvalidImportError(
        f"this is not the output of ansible-inventory: {problem}. "
        f"Run `{LIST_COMMAND} > inventory.json` and import inventory.json"
    )


def _collect_memberships(groups: Mapping[str, _InventoryMember]) -> Mapping[str, set[str]]:
    """Return the groups of each host, parent groups included."""
    memberships: dict[str, set[str]] = {}
    for name in groups:
        for below in _list_groups_below(groups, name):
            for host in groups[below].hosts:
                memberships.setdefault(host, set()).add(name)
    return memberships


def _list_groups_below(groups: Mapping[str, _InventoryMember], name: str) -> Iterator[str]:
    """Yield a group and all its child groups, each once."""
    reached, waiting = {name}, [name]
    while waiting:
        group = waiting.pop()
        yield group
        new = [child for child in groups[group].children if child in groups]
        waiting += [child for child in new if child not in reached]
        reached.update(new)


def _build_host(name: str, variables: Mapping[str, Any], groups: frozenset[str]) -> ImportedHost:
    notes: list[str] = []

    def read_variable(*names: str) -> str:
        value = next((variables[each] for each in names if each in variables), "")
        # A vaulted value is an object. A template depends on the play that uses it.
        if isinstance(value, dict) or "{{" in str(value):
            notes.append(f"{names[0]}: Ansible computes it: write the resulting value")
            return ""
        return str(value)

    port = read_variable("ansible_port", "ansible_ssh_port") or "22"
    if parse_port(port) is None:
        notes.append(f"port: {port} is not a valid port")
    arguments = (
        read_variable("ansible_ssh_common_args") + " " + read_variable("ansible_ssh_extra_args")
    )
    through = _JUMP_PATTERN.search(arguments)
    jump, of_jump = parse_last_hop(through[1]) if through else ("", ())
    notes += of_jump
    if not through and "ProxyCommand" in arguments:
        notes.append(f"jump: a ProxyCommand connects to it, {arguments.strip()}: name a jump host")
    if "ansible_password" in variables or "ansible_ssh_pass" in variables:
        notes.append(
            "key: Ansible logs in with a password: add the public key of Keyturn to the login"
        )
    platform = read_variable("ansible_network_os")
    if platform and platform not in _PLATFORMS:
        notes.append(f"platform: Keyturn does not support {platform}")
    return ImportedHost(
        name=name,
        address=read_variable("ansible_host", "ansible_ssh_host") or name,
        port=parse_port(port) or 22,
        user=read_variable("ansible_user", "ansible_ssh_user"),
        key=read_variable("ansible_ssh_private_key_file", "ansible_private_key_file"),
        jump=jump,
        platform=_PLATFORMS.get(platform, ""),
        groups=groups,
        notes=tuple(notes),
    )
