"""A host that is to be added: the words for its two people, and what speaks against it. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bot.hosts.inventory_writer import InventoryEntry
from bot.hosts.pending_hosts import PENDING_HOSTS_FILE as _WAITING
from bot.hosts.pending_hosts import HostNotConfirmedError, LocalUser, PendingHost
from bot.policy import Policy
from bot.policy.loader import describe_validation_error
from connectors.inventory import Host

_FINGERPRINT_PATTERN = re.compile(r"(?<!\S)SHA256:([A-Za-z0-9+/]{43})=?(?!\S)")
# Stands for an area that nobody has named yet.
_PLACEHOLDER_AREA = "not-named-yet"
_KEY_FILE_KINDS = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}
# What prints the fingerprint on a host's console. Switches print the key alone.
_SSH_KEYGEN_COMMAND = "ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"
_FINGERPRINT_COMMANDS = {
    "cisco_ios": "show ip ssh    (its key, in one line, as input of ssh-keygen -lf -)",
    "dell_powerconnect": (
        "show crypto key mypubkey rsa    (its key, in one line, as input of ssh-keygen -lf -)"
    ),
}


class InvalidFingerprintError(ValueError):
    """What somebody gave is no fingerprint that can be compared."""


class InvalidCandidateError(ValueError):
    """The inventory would not take such a host: why, and what to do."""


@dataclass(frozen=True)
class HostCandidate:
    """What a person says of a host that is to be added; "" for what the defaults are to say."""

    name: str
    address: str
    port: int = 22
    user: str = ""
    area: str = ""
    tags: tuple[str, ...] = ()
    platform: str | None = None

    def build_entry(self, key: str) -> InventoryEntry:
        """Return what inventory.yaml is to say, once the host has shown its key."""
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
        lacking = () if self.area else ("area: say which part of production it belongs to",)
        return InventoryEntry(self.name, fields, lacking)

    def build_host(self, key: str) -> Host:
        """Return the host as the inventory would have it. Raises NotAddable."""
        entry = self.build_entry(key)
        try:
            return Host.model_validate(
                {"area": _PLACEHOLDER_AREA, **entry.fields, "name": self.name}
            )
        except ValidationError as error:
            raise InvalidCandidateError(describe_validation_error(error, "hosts")) from None


def find_fingerprint(text: str) -> str:
    """Find the fingerprint in what `ssh-keygen -l` prints, or in a part of it."""
    found = _FINGERPRINT_PATTERN.findall(text)
    if len(found) != 1:
        raise InvalidFingerprintError(
            f"{text!r} holds no single fingerprint SHA256:… of 43 characters: "
            "give the one that `ssh-keygen -lf` prints on the host"
        )
    return f"SHA256:{found[0]}"


def describe_shown_key(host: Host) -> str:
    """Say which key a host showed, and how it is compared."""
    kind = str(host.host_key).split()[0]
    template = _FINGERPRINT_COMMANDS.get(host.platform, _SSH_KEYGEN_COMMAND)
    command = template.format(kind=_KEY_FILE_KINDS.get(kind, "ecdsa"))
    return f"""\
Whoever answers at {host.address}, port {host.port}, shows this key ({kind}):

    {host.fingerprint}

That it is {host.name} who answers is not proven by it. On the host's own console, and not over
the network, this must print the same:

    {command}
"""


def describe_second_step(host: Host) -> str:
    """Say what the second person does."""
    return f"""\
{host.name} waits in enrolling.yaml, and is in no inventory yet: nothing can be asked of it or done
there. Somebody else reads the fingerprint on the host's console, and types what they read there,
not what is shown here, under a login of their own:

    keyturn inventory confirm {host.name} SHA256:…
"""


def get_confirmable_host(
    name: str, pending_host: PendingHost, *, fingerprint: str, confirmed_by: LocalUser
) -> Host:
    """Return the host that somebody may add with what they read. Raises NotConfirmed."""
    try:
        host = Host.model_validate({**pending_host.entry, "name": name})
    except ValidationError as error:
        raise HostNotConfirmedError(describe_validation_error(error)) from None
    if confirmed_by.is_same_person(pending_host.requested_by):
        raise HostNotConfirmedError(
            f"{pending_host.requested_by} asked for {name}, and that is you, {confirmed_by}, or "
            "cannot be told from "
            "you: somebody else confirms it, under a login of their own"
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
        f"{host.name} is in the inventory, known by {host.fingerprint}. Both of you stand above "
        "its entry in inventory.yaml"
    )


def describe_unwritable_inventory(name: str, inventory: Path, error: OSError) -> str:
    """Say what to do with the checked entry where the inventory cannot be written."""
    return (
        f"{name} was not added: {_describe_write_error(inventory, error)}. The fingerprint "
        "matches, and "
        "the entry above was checked with the whole policy. Have somebody with write access to "
        f"{inventory.parent} put it below `hosts:` in {inventory.name}, and delete {name} from "
        f"{_WAITING}; or run this command under a login that has write access"
    )


def describe_unwritable_pending_file(name: str, pending_file: Path, error: OSError) -> str:
    """Say what to do where a host cannot be put among those that wait."""
    return (
        f"{name} does not wait to be added: {_describe_write_error(pending_file, error)}. Have "
        "somebody "
        f"with write access to {pending_file.parent} add the lines above to {pending_file.name}, "
        "or run "
        "this command under a login that has write access"
    )


def describe_leftover_pending_host(name: str, pending_file: Path, error: OSError) -> str:
    return (
        f"{name} is in the inventory, but {_describe_write_error(pending_file, error)}: delete "
        f"{name} from "
        "that file"
    )


def _describe_write_error(file: Path, error: OSError) -> str:
    return f"{file} cannot be written ({error.strerror or error})"


def describe_fingerprint_mismatch(
    name: str, *, pending_fingerprint: str, typed_fingerprint: str
) -> str:
    return (
        f"the key of {name} that waits is {pending_fingerprint}, and you read "
        f"{typed_fingerprint}: either you read the key "
        "of another kind, or something stands between us and the host. Nothing was added. Do not "
        "add it before you know which"
    )


def list_objections(host: Host, policy: Policy) -> Iterator[str]:
    """Say what the policy directory as it is has against a host, as far as it can be added."""
    for other in policy.inventory:
        if other.name == host.name:
            same = other.host_key == host.host_key
            key = "by this very key" if same else f"by another key, {other.fingerprint}"
            yield f"{host.name} is in the inventory already, {key}"
        elif other.host_key == host.host_key:
            yield (
                f"{other.name} has the same key: it is one machine by two names, or one was "
                "copied from the other, which then needs host keys of its own"
            )
    if host.area not in policy.organisation.areas and host.area != _PLACEHOLDER_AREA:
        known = ", ".join(policy.organisation.areas) or "none"
        yield f"areas.yaml has no area {host.area}; its areas: {known}"
