"""Badges: each state as a word, a colour and a sign, so that colour never tells alone. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.db.schedules import FireOutcome, ScheduleState
from bot.hosts.status import HostKeyKind, Reachability
from bot.model.run import ATTENTION, State, StepState


@dataclass(frozen=True)
class Badge:
    """word: what people read. tone: its colour. icon: one of icons.html. meaning: a sentence."""

    word: str
    tone: str
    icon: str
    meaning: str


# By what lists say of a run.
RUN: Mapping[str, Badge] = {
    State.ASKED: Badge("Being read", "blue", "dots", "The host is being read for a plan."),
    State.WAITING: Badge("Waiting for approval", "yellow", "clock", "It needs another key."),
    State.READY: Badge("Approved", "blue", "key", "It waits for its turn on the host."),
    State.STARTING: Badge("Starting", "blue", "play", "The host is read once more."),
    State.RUNNING: Badge("Running", "blue", "play", "Commands are being sent."),
    State.SUCCEEDED: Badge("Succeeded", "green", "check", "Done, and proven by reading again."),
    ATTENTION: Badge(
        "Needs attention", "orange", "alert", "Done, and its report tells of something wrong."
    ),
    State.FAILED: Badge("Failed", "red", "cross", "It did not come to its end."),
    State.UNKNOWN: Badge("Unknown", "orange", "question", "A step began and nobody saw its end."),
    State.UNCHANGED: Badge("Nothing to do", "grey", "equal", "All was already as asked."),
    State.REFUSED: Badge("Refused", "grey", "ban", "The policy or the runbook said no."),
    State.DENIED: Badge("Denied", "red", "ban", "A person said no."),
    State.EXPIRED: Badge("Expired", "grey", "clock", "Nobody decided or started it in time."),
    State.WITHDRAWN: Badge("Withdrawn", "grey", "back", "Its asker took it back."),
    State.OFFERED: Badge(
        "Other values proposed", "yellow", "swap", "Its asker accepts them or takes it back."
    ),
    State.REPLACED: Badge("Replaced", "grey", "swap", "An approver proposed other values."),
    State.STALE: Badge("Stale", "orange", "swap", "The world moved after it was shown."),
    State.STOPPED: Badge("Stopped", "red", "ban", "A person stopped it."),
}

# Of a request that has begun, a host whose wave has not: what it waits for is no approval.
_TO_COME = Badge("To come", "grey", "clock", "Its wave has not begun.")

STEP: Mapping[StepState, Badge] = {
    StepState.INTENT: Badge("Sent", "blue", "play", "The command was sent; its end is awaited."),
    StepState.SUCCEEDED: Badge("Done", "green", "check", "The host did it."),
    StepState.FAILED: Badge("Failed", "red", "cross", "The host did not do it."),
    StepState.UNKNOWN: Badge("Unknown", "orange", "question", "Nobody saw the end of it."),
}

STANDING: Mapping[ScheduleState, Badge] = {
    ScheduleState.ACTIVE: Badge("Fires", "green", "clock", "It fires at its moments."),
    ScheduleState.SUSPENDED: Badge(
        "Suspended", "orange", "ban", "It fires no more until resumed."
    ),
    ScheduleState.LAPSED: Badge("Lapsed", "orange", "clock", "Its approval no longer holds."),
    ScheduleState.ENDED: Badge("Ended", "grey", "back", "It fires no more."),
}

FIRE: Mapping[FireOutcome, Badge] = {
    FireOutcome.FIRED: Badge("Fired", "green", "check", "A run was asked for."),
    FireOutcome.LATER: Badge("To come", "blue", "clock", "It starts at its own moment."),
    FireOutcome.SKIPPED: Badge("Left out", "grey", "ban", "Something stood in the way."),
    FireOutcome.MISSED: Badge("Missed", "orange", "question", "Keyturn was not running then."),
    FireOutcome.REFUSED: Badge("Refused", "red", "ban", "It may not be done any more."),
}

REACH: Mapping[Reachability, Badge] = {
    Reachability.ANSWERS: Badge(
        "Answers", "green", "check", "It answered when it was last asked."
    ),
    Reachability.UNREACHABLE: Badge(
        "Not reached", "red", "cross", "It could not be reached last time."
    ),
    Reachability.KEY: Badge(
        "Shows another key", "red", "alert", "Nothing is sent to it until it is it."
    ),
    Reachability.LOGIN: Badge("Lets nobody in", "red", "lock", "It does not take our key."),
    Reachability.WEAK: Badge(
        "Too weak", "red", "alert", "It speaks only what we refuse to speak."
    ),
    Reachability.INTERRUPTED: Badge(
        "Broke off", "orange", "question", "Its answer never came whole."
    ),
    Reachability.NOT_MET: Badge("Not met yet", "grey", "dots", "Nothing was asked of it so far."),
}

PIN: Mapping[HostKeyKind, Badge] = {
    HostKeyKind.PINNED: Badge("Pinned", "green", "key", "It is known by its own key."),
    HostKeyKind.CA: Badge(
        "By CA", "green", "shield", "It is known by a key that a CA has signed."
    ),
    HostKeyKind.CHANGED: Badge(
        "Changed key", "red", "alert", "It showed a key that is not its own."
    ),
}


def of_part(standing: str, *, begun: bool) -> Badge:
    """Return the badge of one host's part. begun: whether the request as a whole has started."""
    return _TO_COME if begun and standing == State.WAITING else RUN[standing]
