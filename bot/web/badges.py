"""Badges of hosts and runbooks, and tiles of hosts. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.model.run_states import StatusDisplay, Tone
from bot.queries.host_status import HostKeyKind, Reachability

REACHABILITY_BADGES: Mapping[Reachability, StatusDisplay] = {
    Reachability.REACHABLE: StatusDisplay(
        "Reachable", Tone.SUCCESS, "check", "The last connection succeeded."
    ),
    Reachability.UNREACHABLE: StatusDisplay(
        "Unreachable", Tone.DANGER, "cross", "The last connection failed."
    ),
    Reachability.KEY: StatusDisplay(
        "Host key mismatch", Tone.DANGER, "alert", "Blocked until the host key is confirmed."
    ),
    Reachability.LOGIN: StatusDisplay(
        "Login refused", Tone.DANGER, "lock", "The host rejected the SSH key of Keyturn."
    ),
    Reachability.WEAK: StatusDisplay(
        "Weak crypto", Tone.DANGER, "alert", "It offers only algorithms that Keyturn rejects."
    ),
    Reachability.INTERRUPTED: StatusDisplay(
        "Interrupted", Tone.WARNING, "question", "The last connection broke off."
    ),
    Reachability.NEVER_TRIED: StatusDisplay(
        "Never contacted", Tone.NEUTRAL, "dots", "Keyturn has not connected to it yet."
    ),
}

HOST_LOCKED_BADGE = StatusDisplay("Locked", Tone.INFO, "lock", "A change holds the host lock.")
HOST_FROZEN_BADGE = StatusDisplay("Frozen", Tone.PENDING, "ban", "A freeze holds changes.")

HOST_KEY_BADGES: Mapping[HostKeyKind, StatusDisplay] = {
    HostKeyKind.PINNED: StatusDisplay(
        "Pinned", Tone.SUCCESS, "key", "The host key is pinned in the inventory."
    ),
    HostKeyKind.CA: StatusDisplay(
        "CA", Tone.SUCCESS, "shield", "The host key is signed by a trusted CA."
    ),
    HostKeyKind.SNMP: StatusDisplay(
        "SNMP", Tone.NEUTRAL, "key", "The device has no host key: Keyturn uses SNMP."
    ),
    HostKeyKind.CHANGED: StatusDisplay(
        "Mismatch", Tone.DANGER, "alert", "The host key does not match the pinned key."
    ),
}

# By `RunbookInfo.effect`.
EFFECT_BADGES: Mapping[str, StatusDisplay] = {
    "check": StatusDisplay("Read-only", Tone.SUCCESS, "eye", "It changes nothing."),
    "change": StatusDisplay("Change", Tone.INFO, "play", "It changes the host and can be undone."),
    "irreversible": StatusDisplay(
        "Irreversible", Tone.WARNING, "alert", "It changes the host and cannot be undone."
    ),
}


@dataclass(frozen=True)
class HostTile:
    """The tile of one host in the map of hosts."""

    name: str
    url: str
    css_class: str
    icon: str
    label: str
