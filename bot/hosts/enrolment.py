"""A host that is to be added: the words for its two people, and what speaks against it. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bot.hosts.inventory_writer import Entry
from bot.hosts.pending_hosts import FILE as _WAITING
from bot.hosts.pending_hosts import LocalUser, NotConfirmed, PendingHost
from bot.policy import Policy
from bot.policy.loader import describe_validation_error
from connectors.inventory import Host

_FINGERPRINT = re.compile(r"(?<!\S)SHA256:([A-Za-z0-9+/]{43})=?(?!\S)")
# Stands for an area that nobody has named yet.
_SOME_AREA = "not-named-yet"
_FILES = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}
# What prints the fingerprint on a host's console. Switches print the key alone.
_SSH_KEYGEN = "ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"
_PRINTED_BY = {
    "cisco_ios": "show ip ssh    (its key, in one line, as input of ssh-keygen -lf -)",
    "dell_powerconnect": (
        "show crypto key mypubkey rsa    (its key, in one line, as input of ssh-keygen -lf -)"
    ),
}


class NoFingerprint(ValueError):
    """What somebody gave is no fingerprint that can be compared."""


class NotAddable(ValueError):
    """The inventory would not take such a host: why, and what to do."""


@dataclass(frozen=True)
class Candidate:
    """What a person says of a host that is to be added; "" for what the defaults are to say."""

    name: str
    address: str
    port: int = 22
    user: str = ""
    area: str = ""
    tags: tuple[str, ...] = ()
    platform: str | None = None

    def entry(self, key: str) -> Entry:
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
        return Entry(self.name, fields, lacking)

    def host(self, key: str) -> Host:
        """Return the host as the inventory would have it. Raises NotAddable."""
        entry = self.entry(key)
        try:
            return Host.model_validate({"area": _SOME_AREA, **entry.fields, "name": self.name})
        except ValidationError as error:
            raise NotAddable(describe_validation_error(error, "hosts")) from None


def find_fingerprint(said: str) -> str:
    """Find the fingerprint in what `ssh-keygen -l` prints, or in a part of it."""
    found = _FINGERPRINT.findall(said)
    if len(found) != 1:
        raise NoFingerprint(
            f"{said!r} holds no single fingerprint SHA256:… of 43 characters: "
            "give the one that `ssh-keygen -lf` prints on the host"
        )
    return f"SHA256:{found[0]}"


def describe_shown_key(host: Host) -> str:
    """Say which key a host showed, and how it is compared."""
    kind = str(host.host_key).split()[0]
    return f"""\
Whoever answers at {host.address}, port {host.port}, shows this key ({kind}):

    {host.fingerprint}

That it is {host.name} who answers is not proven by it. On the host's own console, and not over
the network, this must print the same:

    {_PRINTED_BY.get(host.platform, _SSH_KEYGEN).format(kind=_FILES.get(kind, "ecdsa"))}
"""


def describe_second_step(host: Host) -> str:
    """Say what the second person does."""
    return f"""\
{host.name} waits in enrolling.yaml, and is in no inventory yet: nothing can be asked of it or done
there. Somebody else reads the fingerprint on the host's console, and types what they read there,
not what is shown here, under a login of their own:

    keyturn inventory confirm {host.name} SHA256:…
"""


def get_confirmable(name: str, waiting: PendingHost, *, read: str, by: LocalUser) -> Host:
    """Return the host that somebody may add with what they read. Raises NotConfirmed."""
    try:
        host = Host.model_validate({**waiting.entry, "name": name})
    except ValidationError as error:
        raise NotConfirmed(describe_validation_error(error)) from None
    if by.is_same(waiting.asked_by):
        raise NotConfirmed(
            f"{waiting.asked_by} asked for {name}, and that is you, {by}, or cannot be told from "
            "you: somebody else confirms it, under a login of their own"
        )
    if host.fingerprint != read:
        raise NotConfirmed(describe_disagreement(name, waiting=host.fingerprint, read=read))
    return host


def describe_confirmed(host: Host) -> str:
    return (
        f"{host.name} is in the inventory, known by {host.fingerprint}. Both of you stand above "
        "its entry in inventory.yaml"
    )


def not_added(name: str, inventory: Path, trouble: OSError) -> str:
    """Say what to do with the checked entry where the inventory cannot be written."""
    return (
        f"{name} was not added: {_cannot_write(inventory, trouble)}. The fingerprint matches, and "
        "the entry above was checked with the whole policy. Have somebody with write access to "
        f"{inventory.parent} put it below `hosts:` in {inventory.name}, and delete {name} from "
        f"{_WAITING}; or run this command under a login that has write access"
    )


def not_waiting(name: str, enrolling: Path, trouble: OSError) -> str:
    """Say what to do where a host cannot be put among those that wait."""
    return (
        f"{name} does not wait to be added: {_cannot_write(enrolling, trouble)}. Have somebody "
        f"with write access to {enrolling.parent} add the lines above to {enrolling.name}, or run "
        "this command under a login that has write access"
    )


def still_waiting(name: str, enrolling: Path, trouble: OSError) -> str:
    return (
        f"{name} is in the inventory, but {_cannot_write(enrolling, trouble)}: delete {name} from "
        "that file"
    )


def _cannot_write(file: Path, trouble: OSError) -> str:
    return f"{file} cannot be written ({trouble.strerror or trouble})"


def describe_disagreement(name: str, *, waiting: str, read: str) -> str:
    return (
        f"the key of {name} that waits is {waiting}, and you read {read}: either you read the key "
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
    if host.area not in policy.household.areas and host.area != _SOME_AREA:
        known = ", ".join(policy.household.areas) or "none"
        yield f"areas.yaml has no area {host.area}; its areas: {known}"
