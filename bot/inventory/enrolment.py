"""A host that is to be added: the words for its two people, and what speaks against it. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bot.inventory.entry import Entry
from bot.policy import Policy
from bot.policy.directory import in_words
from connectors.inventory import Host

_FINGERPRINT = re.compile(r"(?<!\S)SHA256:([A-Za-z0-9+/]{43})=?(?!\S)")
# Stands for an area that nobody has named yet.
_SOME_AREA = "not-named-yet"
_FILES = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}


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

    def entry(self, key: str) -> Entry:
        """Return what inventory.yaml is to say, once the host has shown its key."""
        fields: dict[str, Any] = {"address": self.address}
        if self.port != 22:
            fields["port"] = self.port
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
            raise NotAddable(in_words(error)) from None


def fingerprint_in(said: str) -> str:
    """Find the fingerprint in what `ssh-keygen -l` prints, or in a part of it."""
    found = _FINGERPRINT.findall(said)
    if len(found) != 1:
        raise NoFingerprint(
            f"{said!r} holds no single fingerprint SHA256:… of 43 characters: "
            "give the one that `ssh-keygen -lf` prints on the host"
        )
    return f"SHA256:{found[0]}"


def shown(host: Host) -> str:
    """Say which key a host showed, and how it is compared."""
    kind = str(host.host_key).split()[0]
    file = f"/etc/ssh/ssh_host_{_FILES.get(kind, 'ecdsa')}_key.pub"
    return f"""\
Whoever answers at {host.address}, port {host.port}, shows this key ({kind}):

    {host.fingerprint}

That it is {host.name} who answers is not proven by it. On the host's own console, and not over
the network, this must print the same:

    ssh-keygen -lf {file}
"""


def to_be_compared(host: Host) -> str:
    """Say who the two people are who add a host."""
    port = f" --port {host.port}" if host.port != 22 else ""
    return f"""\
Adding a host takes two people. One puts the entry below into inventory.yaml and asks for a review
of that change. The other reads the fingerprint from the console, and lets the change in after

    keyturn inventory enroll {host.name} {host.address}{port} --against SHA256:…

has agreed. Nothing was written.
"""


def agrees(host: Host) -> str:
    return f"""\
It is the key that you read on the console. If the change under review says the same as the entry
below, and above all the same host_key, let it in: {host.name} is who it says. Nothing was written.
"""


def disagrees(host: Host, expected: str) -> str:
    kind = str(host.host_key).split()[0]
    return (
        f"whoever answers at {host.address}, port {host.port}, shows {host.fingerprint}, and you "
        f"read {expected}: either you read the key of another kind than {kind}, or "
        "something stands between us and the host. Do not add it before you know which"
    )


def objections(host: Host, policy: Policy) -> Iterator[str]:
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
