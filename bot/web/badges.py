"""Badges of schedules, due times, hosts and runbooks, and tiles of hosts. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.features.schedules.rows import FireOutcome, ScheduleState
from bot.model.run_states import StatusDisplay, Tone
from bot.queries.host_status import HostKeyKind, Reachability

SCHEDULE_BADGES: Mapping[ScheduleState, StatusDisplay] = {
    ScheduleState.ACTIVE: StatusDisplay(
        "Active", Tone.SUCCESS, "clock", "It starts runs at its due times."
    ),
    ScheduleState.SUSPENDED: StatusDisplay(
        "Suspended", Tone.WARNING, "ban", "It starts no runs until resumed."
    ),
    ScheduleState.LAPSED: StatusDisplay(
        "Approval expired", Tone.WARNING, "clock", "It starts no runs until it is approved again."
    ),
    ScheduleState.ENDED: StatusDisplay("Ended", Tone.NEUTRAL, "back", "It starts no more runs."),
}

FIRE_BADGES: Mapping[FireOutcome, StatusDisplay] = {
    FireOutcome.FIRED: StatusDisplay("Fired", Tone.SUCCESS, "check", "It started a run."),
    FireOutcome.LATER: StatusDisplay(
        "Upcoming", Tone.INFO, "clock", "The run starts at its due time."
    ),
    FireOutcome.SKIPPED: StatusDisplay(
        "Skipped", Tone.NEUTRAL, "ban", "Something prevented the run."
    ),
    FireOutcome.MISSED: StatusDisplay(
        "Missed", Tone.WARNING, "question", "Keyturn was not running then."
    ),
    FireOutcome.REFUSED: StatusDisplay(
        "Refused", Tone.DANGER, "ban", "The policy no longer allows it."
    ),
}

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
