"""Messages and checks for the two people who add a host. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bot.hosts.inventory_writer import InventoryEntry
from bot.hosts.pending_hosts import PENDING_HOSTS_FILE as _WAITING
from bot.hosts.pending_hosts import HostNotConfirmedError, LocalUser, PendingHost
from bot.model.request_form import RequestSyntaxError
from bot.policy import Policy
from bot.policy.loader import describe_validation_error
from connectors.inventory import Host

_FINGERPRINT_PATTERN = re.compile(r"(?<!\S)SHA256:([A-Za-z0-9+/]{43})=?(?!\S)")
# An address of IPv6 has several colons, and brackets only before a port.
_ADDRESS_PATTERN = re.compile(
    r"(?:(?P<host>[^:\[\]]+)|\[(?P<bracketed>[^\[\]]+)\]):(?P<port>[0-9]{1,9})", re.ASCII
)
# Stands for an area that is not given yet.
_PLACEHOLDER_AREA = "not-named-yet"
_KEY_FILE_KINDS = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}
# The commands that print the fingerprint on the console of a host. Switches print only the key.
_SSH_KEYGEN_COMMAND = "ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"
_FINGERPRINT_COMMANDS = {
    "cisco_ios": "show ip ssh    (its key, in one line, as input of ssh-keygen -lf -)",
    "dell_powerconnect": (
        "show crypto key mypubkey rsa    (its key, in one line, as input of ssh-keygen -lf -)"
    ),
    "arista_eos": (
        "show management ssh hostkey rsa public    (its key, as input of ssh-keygen -lf -)"
    ),
    "hp_procurve": "show crypto host-public-key    (its key, as input of ssh-keygen -lf -)",
}


class InvalidFingerprintError(RequestSyntaxError):
    """The text does not contain exactly one fingerprint."""


class InvalidCandidateError(RequestSyntaxError):
    """The inventory would refuse the host. The message says why and what to do."""


@dataclass(frozen=True)
class HostCandidate:
    """The data of a host to be added; "" for what comes from the defaults."""

    name: str
    address: str
    port: int = 22
    user: str = ""
    area: str = ""
    tags: tuple[str, ...] = ()
    platform: str | None = None

    def build_entry(self, key: str) -> InventoryEntry:
        """Return the entry for inventory.yaml with the key that the host presented."""
        fields: dict[str, Any] = {"address": self.address}
        if self.port != 22:
            fields["port"] = self.port
        if self.platform:
            fields["platform"] = self.platform
        if self.user:
            fields["user"] = self.user
        fields["host_key"] = key
        if self.area:
            fields["area"] = self.area
        if self.tags:
            fields["tags"] = list(self.tags)
        missing = () if self.area else ("area: add the area that the host belongs to",)
        return InventoryEntry(self.name, fields, missing)

    def build_host(self, key: str) -> Host:
        """Return the host as in the inventory. Raises InvalidCandidateError."""
        entry = self.build_entry(key)
        try:
            return Host.model_validate(
                {"area": _PLACEHOLDER_AREA, **entry.fields, "name": self.name}
            )
        except ValidationError as error:
            raise InvalidCandidateError(describe_validation_error(error, "hosts")) from None


def split_address(typed: str) -> tuple[str, int | None]:
    """Return the address and the port of HOST:PORT or [IPV6]:PORT; None without a port."""
    match = _ADDRESS_PATTERN.fullmatch(typed)
    if match is None:
        return typed, None
    port = int(match["port"])
    if not 1 <= port <= 65535:
        raise InvalidCandidateError(f"{typed}: the port must be from 1 to 65535")
    return match["host"] or match["bracketed"], port


def find_fingerprint(text: str) -> str:
    """Return the fingerprint in the output of `ssh-keygen -l`, or in a part of it."""
    matches = _FINGERPRINT_PATTERN.findall(text)
    if len(matches) != 1:
        raise InvalidFingerprintError(
            f"{text!r} does not contain exactly one fingerprint (SHA256: and 43 characters): "
            "copy it from the output of `ssh-keygen -lf` on the host"
        )
    return f"SHA256:{matches[0]}"


def describe_shown_key(host: Host) -> str:
    """Return the message with the key that a host presented and how to verify it."""
    kind = str(host.host_key).split()[0]
    template = _FINGERPRINT_COMMANDS.get(host.platform, _SSH_KEYGEN_COMMAND)
    command = template.format(kind=_KEY_FILE_KINDS.get(kind, "ecdsa"))
    return f"""\
Host key presented by {host.address}, port {host.port} ({kind}), not verified yet:

    {host.fingerprint}

This does not prove that the host is {host.name}. Run this on the console of the host, not over the
network; it must print the same fingerprint:

    {command}
"""


def describe_second_step(host: Host) -> str:
    """Return the message about the confirmation by a second person."""
    return f"""\
{host.name} is pending in enrolling.yaml and not in the inventory yet, so no runbook can use it. A
second person must confirm it: read the fingerprint on the console of the host (do not copy it from
here) and run, with their own login:

    keyturn inventory confirm {host.name} SHA256:…
"""


def get_confirmable_host(
    name: str, pending_host: PendingHost, *, fingerprint: str, confirmed_by: LocalUser | None
) -> Host:
    """Return the host if this person may confirm it with this fingerprint.

    Args:
        confirmed_by: None if one person may enrol hosts alone.

    Raises:
        HostNotConfirmedError: The person could be the requester, or the fingerprint differs.
    """
    try:
        host = Host.model_validate({**pending_host.entry, "name": name})
    except ValidationError as error:
        raise HostNotConfirmedError(describe_validation_error(error)) from None
    if confirmed_by and confirmed_by.is_same_person(pending_host.requested_by):
        raise HostNotConfirmedError(
            f"{pending_host.requested_by} requested {name}, and you ({confirmed_by}) could be the "
            "same person: a different person must confirm it, with their own login"
        )
    if host.fingerprint != fingerprint:
        raise HostNotConfirmedError(
            describe_fingerprint_mismatch(
                name, pending_fingerprint=host.fingerprint, typed_fingerprint=fingerprint
            )
        )
    return host


def describe_confirmed_host(host: Host) -> str:
    return (
        f"{host.name} is in the inventory with the key {host.fingerprint}. The comment above its "
        "entry in inventory.yaml names both of you"
    )


def describe_unwritable_inventory(name: str, inventory: Path, error: OSError) -> str:
    """Return what to do with the checked entry if the inventory is not writable."""
    return (
        f"{name} was not added: {_describe_write_error(inventory, error)}. The fingerprint "
        "matches, and the entry above is valid in the policy. Add it below `hosts:` in "
        f"{inventory.name} and delete {name} from {_WAITING}, or run this command again, with a "
        f"login that can write to {inventory.parent}"
    )


def describe_unwritable_pending_file(name: str, pending_file: Path, error: OSError) -> str:
    """Return what to do if the file of pending hosts is not writable."""
    return (
        f"{name} was not stored as pending: {_describe_write_error(pending_file, error)}. Add the "
        f"lines above to {pending_file.name}, or run this command again, with a login that can "
        f"write to {pending_file.parent}"
    )


def describe_leftover_pending_host(name: str, pending_file: Path, error: OSError) -> str:
    return (
        f"{name} is in the inventory, but {_describe_write_error(pending_file, error)}: delete "
        f"{name} from that file"
    )


def _describe_write_error(file: Path, error: OSError) -> str:
    return f"{file} cannot be written ({error.strerror or error})"


def describe_fingerprint_mismatch(
    name: str, *, pending_fingerprint: str, typed_fingerprint: str
) -> str:
    return (
        f"the pending key of {name} is {pending_fingerprint}, but you read {typed_fingerprint}: "
        "either you read a key of another type, or another machine intercepts the connection. "
        "Nothing was added. Find the cause before you add the host"
    )


def list_objections(host: Host, policy: Policy) -> Iterator[str]:
    """Yield the conflicts of a host with the current policy."""
    for other in policy.inventory:
        if other.name == host.name:
            same = other.host_key == host.host_key
            key = "with the same key" if same else f"with another key, {other.fingerprint}"
            yield f"{host.name} is already in the inventory, {key}"
        elif other.host_key == host.host_key:
            yield (
                f"{other.name} has the same key: either both are one machine, or one is a copy of "
                "the other and needs new host keys"
            )
    if host.area not in policy.organisation.areas and host.area != _PLACEHOLDER_AREA:
        known = ", ".join(policy.organisation.areas) or "none"
        yield f"area {host.area} is not in areas.yaml, which has {known}"
