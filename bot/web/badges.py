"""Badges of schedules, their due times and hosts, which pages alone show. Pure."""

from collections.abc import Mapping

from bot.db.schedules import FireOutcome, ScheduleState
from bot.hosts.status import HostKeyKind, Reachability
from bot.model.run_states import StatusDisplay, Tone

SCHEDULE_BADGES: Mapping[ScheduleState, StatusDisplay] = {
    ScheduleState.ACTIVE: StatusDisplay(
        "Active", Tone.SUCCESS, "clock", "It starts runs at its due times."
    ),
    ScheduleState.SUSPENDED: StatusDisplay(
        "Suspended", Tone.WARNING, "ban", "It starts no runs until resumed."
    ),
    ScheduleState.LAPSED: StatusDisplay(
        "Lapsed", Tone.WARNING, "clock", "Its approval no longer holds."
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
        "Answers", Tone.SUCCESS, "check", "It answered when it was last asked."
    ),
    Reachability.UNREACHABLE: StatusDisplay(
        "Not reached", Tone.DANGER, "cross", "It could not be reached last time."
    ),
    Reachability.KEY: StatusDisplay(
        "Shows another key", Tone.DANGER, "alert", "Nothing is sent to it until it is it."
    ),
    Reachability.LOGIN: StatusDisplay(
        "Lets nobody in", Tone.DANGER, "lock", "It does not take our key."
    ),
    Reachability.WEAK: StatusDisplay(
        "Too weak", Tone.DANGER, "alert", "It speaks only what we refuse to speak."
    ),
    Reachability.INTERRUPTED: StatusDisplay(
        "Broke off", Tone.WARNING, "question", "Its answer never came whole."
    ),
    Reachability.NEVER_TRIED: StatusDisplay(
        "Not met yet", Tone.NEUTRAL, "dots", "Nothing was asked of it so far."
    ),
}

HOST_KEY_BADGES: Mapping[HostKeyKind, StatusDisplay] = {
    HostKeyKind.PINNED: StatusDisplay(
        "Pinned", Tone.SUCCESS, "key", "It is known by its own key."
    ),
    HostKeyKind.CA: StatusDisplay(
        "By CA", Tone.SUCCESS, "shield", "It is known by a key that a CA has signed."
    ),
    HostKeyKind.CHANGED: StatusDisplay(
        "Changed key", Tone.DANGER, "alert", "It showed a key that is not its own."
    ),
}
