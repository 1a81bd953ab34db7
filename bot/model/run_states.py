"""Label, tone, icons and description of each status of runs and steps. Pure.

Chat, pages and terminal use this table. A status is a run's state, or that it needs attention.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from bot.model.run import NEEDS_ATTENTION, State, StepState
from bot.model.text import format_sentence
from bot.model.waiting import Waiting, WaitingFor, describe_waiting


class Tone(StrEnum):
    NEUTRAL = "neutral"
    INFO = "info"  # in progress
    PENDING = "pending"  # a person has to act
    SUCCESS = "success"
    WARNING = "warning"
    DANGER = "danger"


@dataclass(frozen=True)
class StatusDisplay:
    """How a status is shown. A colour or an icon is never shown without the label."""

    label: str
    """One or two words."""
    tone: Tone
    icon: str
    """An icon of the pages' `icons.html`."""
    sentence: str
    """What the status means."""
    emoji: str = ""
    """The name of an emoji for chat; "" if chat does not show the status."""


_Display = StatusDisplay

RUN_STATUS_DISPLAYS: Mapping[str, StatusDisplay] = {
    State.PLANNING: _Display(
        "Planning", Tone.INFO, "dots", "Keyturn reads the host for a plan.", "mag"
    ),
    State.PLANNED: _Display(
        "Planned", Tone.PENDING, "list", "The plan is not requested yet.", "memo"
    ),
    State.PENDING: _Display(
        "Needs approval", Tone.PENDING, "clock", "The plan needs approval.", "key"
    ),
    State.QUEUED: _Display(
        "Queued",
        Tone.INFO,
        "key",
        "The run starts when its host is free.",
        "hourglass_flowing_sand",
    ),
    State.STARTING: _Display(
        "Starting", Tone.INFO, "play", "Keyturn reads the host again.", "mag"
    ),
    State.RUNNING: _Display("Running", Tone.INFO, "play", "Keyturn runs the commands.", "gear"),
    State.SUCCEEDED: _Display(
        "Succeeded", Tone.SUCCESS, "check", "The run did what was requested.", "white_check_mark"
    ),
    NEEDS_ATTENTION: _Display(
        "Needs attention", Tone.WARNING, "alert", "The report has a problem.", "warning"
    ),
    State.FAILED: _Display("Failed", Tone.DANGER, "cross", "The run ended with an error.", "x"),
    State.UNKNOWN: _Display(
        "Unknown outcome",
        Tone.WARNING,
        "question",
        "A step was sent, and its result is unknown.",
        "warning",
    ),
    State.NO_CHANGES: _Display(
        "No changes",
        Tone.NEUTRAL,
        "equal",
        "The host was already as requested.",
        "white_check_mark",
    ),
    State.REFUSED: _Display(
        "Refused",
        Tone.NEUTRAL,
        "ban",
        "The policy or the runbook refused the request.",
        "no_entry",
    ),
    State.DENIED: _Display(
        "Denied", Tone.DANGER, "ban", "An approver denied the plan.", "no_entry_sign"
    ),
    State.EXPIRED: _Display(
        "Expired", Tone.NEUTRAL, "clock", "The run was not started in time.", "stopwatch"
    ),
    State.WITHDRAWN: _Display(
        "Withdrawn",
        Tone.NEUTRAL,
        "back",
        "The requester withdrew the request.",
        "leftwards_arrow_with_hook",
    ),
    State.COUNTER_PROPOSED: _Display(
        "Counter-proposal",
        Tone.PENDING,
        "swap",
        "An approver proposes other values; the requester accepts or withdraws them.",
        "speech_balloon",
    ),
    State.SUPERSEDED: _Display(
        "Superseded",
        Tone.NEUTRAL,
        "swap",
        "A run with other values or a newer plan replaced this one.",
        "arrows_counterclockwise",
    ),
    State.STALE: _Display(
        "Stale",
        Tone.WARNING,
        "swap",
        "The host, the policy or the runbook changed after the plan was shown.",
        "arrows_counterclockwise",
    ),
    State.STOPPED: _Display(
        "Stopped", Tone.DANGER, "ban", "A person stopped the run.", "octagonal_sign"
    ),
}

STEP_STATE_DISPLAYS: Mapping[StepState, StatusDisplay] = {
    StepState.INTENT: _Display("Sent", Tone.INFO, "play", "The result is not known yet.", "gear"),
    StepState.SUCCEEDED: _Display(
        "Succeeded", Tone.SUCCESS, "check", "The command succeeded.", "white_check_mark"
    ),
    StepState.FAILED: _Display("Failed", Tone.DANGER, "cross", "The command failed.", "x"),
    StepState.UNKNOWN: _Display(
        "Unknown outcome", Tone.WARNING, "question", "The result is unknown.", "warning"
    ),
}


class Outcome(StrEnum):
    """What became of a run. Charts, counts and filters group the statuses by it."""

    SUCCEEDED = "succeeded"
    NEEDS_ATTENTION = "needs attention"
    FAILED = "failed"
    UNKNOWN = "unknown outcome"
    NOT_RUN = "not run"
    """It ended before it was done, without an error of a command."""
    IN_PROGRESS = "in progress"
    NOT_STARTED = "not started"


_S = State
STATUSES_BY_OUTCOME: Mapping[Outcome, frozenset[str]] = {
    Outcome.SUCCEEDED: frozenset({_S.SUCCEEDED, _S.NO_CHANGES}),
    Outcome.NEEDS_ATTENTION: frozenset({NEEDS_ATTENTION}),
    Outcome.FAILED: frozenset({_S.FAILED}),
    Outcome.UNKNOWN: frozenset({_S.UNKNOWN}),
    Outcome.NOT_RUN: frozenset(
        {
            _S.REFUSED,
            _S.DENIED,
            _S.EXPIRED,
            _S.WITHDRAWN,
            _S.SUPERSEDED,
            _S.STALE,
            _S.STOPPED,
        }
    ),
    Outcome.IN_PROGRESS: frozenset({_S.PLANNING, _S.QUEUED, _S.STARTING, _S.RUNNING}),
    Outcome.NOT_STARTED: frozenset({_S.PLANNED, _S.PENDING, _S.COUNTER_PROPOSED}),
}
OUTCOMES: Mapping[str, Outcome] = {
    status: outcome for outcome, statuses in STATUSES_BY_OUTCOME.items() for status in statuses
}
"""The outcome by status."""
PROBLEM_OUTCOMES = frozenset({Outcome.FAILED, Outcome.UNKNOWN})
"""Failed, or perhaps: counted together."""

# A check has no plan: it only reads the host.
_RUNNING_CHECK_DISPLAY = _Display("Running", Tone.INFO, "dots", "Keyturn reads the host.", "mag")
ON_HOLD_DISPLAY = _Display(
    "On hold", Tone.PENDING, "clock", "A freeze holds the run.", "hourglass"
)
_STARTS_LATER_DISPLAY = _Display(
    "Starts later", Tone.PENDING, "clock", "It starts at the time that was approved.", "hourglass"
)
_HOLDING = frozenset({WaitingFor.FREEZE, WaitingFor.START_TIME})
# A child run of an approved request waits for its wave, not for an approval.
_UPCOMING_DISPLAY = _Display(
    "Upcoming", Tone.NEUTRAL, "clock", "The wave has not started.", "hourglass"
)


class _RunWithStatus(Protocol):
    """A run, or its entry in a list."""

    @property
    def state(self) -> State: ...
    @property
    def status(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def waiting(self) -> Waiting | None: ...


def get_run_display(run: _RunWithStatus) -> StatusDisplay:
    """Return how a run is displayed in its current state."""
    display = RUN_STATUS_DISPLAYS[run.status]
    if run.state is State.PLANNING and run.kind == "check":
        display = _RUNNING_CHECK_DISPLAY
    elif is_on_hold(run):
        display = _STARTS_LATER_DISPLAY if starts_later(run) else ON_HOLD_DISPLAY
    if run.waiting is None:
        return display
    return replace(display, sentence=format_sentence(describe_waiting(run.waiting)))


def is_on_hold(run: _RunWithStatus) -> bool:
    """Return whether a freeze holds the run, or the time that its approvers named."""
    return run.waiting is not None and run.waiting.reason in _HOLDING


def starts_later(run: _RunWithStatus) -> bool:
    """Return whether the run waits for the time that its approvers named."""
    return run.waiting is not None and run.waiting.reason is WaitingFor.START_TIME


def describe_outcome(run: _RunWithStatus) -> str:
    """Return the result of a run, or what it waits for, in one sentence; "" for neither."""
    return describe_waiting(run.waiting) if run.waiting is not None else run.summary


def get_child_run_display(run: _RunWithStatus, parent_state: State | None) -> StatusDisplay:
    """Return how a child run is displayed. It is requested and approved with its parent.

    parent_state: None for a run without a parent that may be viewed.
    """
    if run.state is not State.PENDING or parent_state in {None, State.PENDING}:
        return get_run_display(run)
    if parent_state in {State.PLANNING, State.PLANNED}:
        return RUN_STATUS_DISPLAYS[State.PLANNED]
    if parent_state is State.COUNTER_PROPOSED:
        return RUN_STATUS_DISPLAYS[parent_state]
    return _UPCOMING_DISPLAY
