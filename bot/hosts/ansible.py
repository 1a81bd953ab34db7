"""The hosts of an Ansible inventory, from what `ansible-inventory -i FILE --list` prints. Pure.

Ansible itself reads the inventory, with its ranges, plugins, group_vars and host_vars, and merges
the variables of each host. Format: JSON, a group to each name with `hosts` and `children`; under
`_meta`, the variables of each host:
https://docs.ansible.com/ansible/latest/dev_guide/developing_inventory.html#inventory-script-conventions
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from bot.hosts.imported_host import ImportedHost, ImportedHosts, InvalidImportError, parse_port
from bot.hosts.ssh_config import parse_last_hop, parse_proxy_command

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
# Connections by SSH. An SSH command line is also where Keyturn reaches network devices.
_SSH_CONNECTIONS = frozenset(
    {
        *("", "ssh", "smart", "paramiko", "paramiko_ssh", "libssh", "network_cli", "netconf"),
        *("ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"),
        *("ansible.netcommon.libssh", "ansible.netcommon.network_cli"),
        "ansible.netcommon.netconf",
    }
)
_NETCONF = ("netconf", "ansible.netcommon.netconf")
# In the order of Ansible's command: the first of equal options applies.
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_BRACKETED = re.compile(r"\[([^\[\]]+)\](?::(\d+))?")


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
        groups = _INVENTORY_ADAPTER.validate_json(text.removeprefix("\ufeff"))
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
        connection = _Variables(variables).read("ansible_connection")
        if connection not in _SSH_CONNECTIONS:
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


class _Variables:
    """The variables of a host, and notes on those that cannot be read."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self.notes: list[str] = []

    def has_value(self, name: str) -> bool:
        return self._variables.get(name) is not None

    def read(self, *names: str) -> str:
        """Return the value of the first variable that is set; "" if there is none."""
        name = next((each for each in names if self.has_value(each)), "")
        value: object = self._variables.get(name)
        if isinstance(value, dict):
            tagged = cast("dict[str, object]", value)
            if "__ansible_unsafe" in tagged:  # plain text that Ansible does not evaluate
                return str(tagged["__ansible_unsafe"])
            secret = "__ansible_vault" in tagged
            why = "Ansible Vault encrypts it" if secret else "it is not a text"
            self.notes.append(f"{name}: {why}: write the resulting value")
            return ""
        if "{{" in str(value):
            # It depends on the play that uses it.
            self.notes.append(f"{name}: Ansible computes it: write the resulting value")
            return ""
        return "" if value is None else str(value)


def _build_host(name: str, values: Mapping[str, Any], groups: frozenset[str]) -> ImportedHost:
    variables = _Variables(values)
    address, port_of_address = _split_address(
        variables.read("ansible_host", "ansible_ssh_host") or name
    )
    port = variables.read("ansible_port", "ansible_ssh_port") or port_of_address or "22"
    jump, of_jump = _find_jump(" ".join(variables.read(each) for each in _ARGUMENTS))
    platform = variables.read("ansible_network_os")
    user = variables.read("ansible_user", "ansible_ssh_user")
    key = variables.read("ansible_ssh_private_key_file", "ansible_private_key_file")
    notes = [*variables.notes, *of_jump]
    if parse_port(port) is None:
        notes.append(f"port: {port} is not a valid port")
    if variables.read("ansible_connection") in _NETCONF:
        notes.append("port: Ansible uses NETCONF: write the port of the SSH command line")
    if any(map(variables.has_value, ("ansible_password", "ansible_ssh_pass"))):
        notes.append(
            "key: Ansible logs in with a password: add the public key of Keyturn to the login"
        )
    if platform and platform not in _PLATFORMS:
        notes.append(f"platform: Keyturn does not support {platform}")
    return ImportedHost(
        name=name,
        address=address,
        port=parse_port(port) or 22,
        user=user,
        key=key,
        jump=jump,
        platform=_PLATFORMS.get(platform, ""),
        groups=groups,
        notes=tuple(notes),
    )


def _split_address(address: str) -> tuple[str, str]:
    """Return an address without brackets, and the port behind them."""
    found = _BRACKETED.fullmatch(address)
    return (found[1], found[2] or "") if found else (address, "")


def _find_jump(arguments: str) -> tuple[str, tuple[str, ...]]:
    """Return the jump host of options for ssh, and notes about it."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        return "", (f"jump: the options for ssh have open quotes, {arguments}: name a jump host",)
    for option, value in _list_options(words):
        if value.lower() == "none":
            return "", ()
        return parse_last_hop(value) if option == "proxyjump" else parse_proxy_command(value)
    return "", ()


def _list_options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options about jump hosts, in lower case, with their values."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        flag, value = word[:2], word[2:] or following
        if flag == "-J":
            yield "proxyjump", value
        elif flag == "-o":
            option = re.fullmatch(r"(proxyjump|proxycommand)[= ]\s*(.+)", value, re.IGNORECASE)
            if option:
                yield option[1].lower(), option[2].strip("'\"")
