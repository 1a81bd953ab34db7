"""What a run waits for. Pure.

It is stored as data, and described where people read it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import TypeAdapter

from bot.model.times import format_deadline


class WaitingFor(StrEnum):
    FREEZE = "freeze"
    START_TIME = "start time"
    LOCK = "lock"
    BREAK_GLASS = "break-glass"
    WORKER = "worker"
    OUTCOME = "outcome"
    CLAIM = "claim"
    WITNESSES = "witnesses"


@dataclass(frozen=True)
class Waiting:
    """What a run waits for, and since or until when."""

    reason: WaitingFor
    name: str = ""
    """The freeze; the locked host; the sites without a worker; the hosts or parts of the run
    whose outcome is unknown; the witnesses that do not answer."""
    place: str = ""
    """What is frozen: the title of an area."""
    time: int | None = None
    """When the freeze ends, the approved start, or the last heartbeat of a worker. Microseconds
    since 1970, UTC."""
    run: int | None = None
    """The run that goes first or holds the lock."""
    is_run_viewable: bool = False
    """Whether the reader may view that run. It is never stored."""

    def redact(self, redact_text: Callable[[str], str]) -> "Waiting":
        """Return it as it is stored, for a comparison with what is stored."""
        return replace(self, name=redact_text(self.name), place=redact_text(self.place))


_ADAPTER = TypeAdapter(Waiting)


def encode_waiting(waiting: Waiting | None) -> str | None:
    """Return the column of a run."""
    if waiting is None:
        return None
    return _ADAPTER.dump_json(
        replace(waiting, is_run_viewable=False), exclude_defaults=True
    ).decode()


def parse_waiting(text: str | None) -> Waiting | None:
    """Return what a column of a run holds."""
    return _ADAPTER.validate_json(text) if text else None


def describe_freeze(freeze: Waiting) -> str:
    """Return a freeze in words: `the edge is frozen until 2026-12-20 18:00 UTC (sale)`."""
    return f"{freeze.place} is frozen until {format_deadline(freeze.time or 0)} ({freeze.name})"


def describe_waiting(waiting: Waiting) -> str:
    """Return what a run waits for, in one sentence."""
    name = waiting.name
    match waiting.reason:
        case WaitingFor.FREEZE:
            words = describe_freeze(waiting)
        case WaitingFor.START_TIME:
            words = f"Starts at {format_deadline(waiting.time or 0)}, as it was approved"
        case WaitingFor.LOCK | WaitingFor.BREAK_GLASS:
            words = f"waits for {_describe_other_run(waiting)}"
        case WaitingFor.WORKER:
            since = format_deadline(waiting.time or 0)
            sites = f"site{'s' * (', ' in name)} {name}"
            words = f"waits for a worker: no heartbeat from {sites} since {since}"
        case WaitingFor.OUTCOME:
            words = f"Waits until the outcome of {name} is known"
        case WaitingFor.WITNESSES:
            away = name or "too few are configured"
            words = f"waits for witnesses of the change log that do not cosign it: {away}"
        case WaitingFor.CLAIM:
            words = "Waits until the hosts changed before carry their services again"
    return words


def _describe_other_run(waiting: Waiting) -> str:
    """Return the run that goes first; its number only to readers who may view it."""
    is_viewable = waiting.is_run_viewable
    if waiting.reason is WaitingFor.LOCK:
        other = f"run {waiting.run}" if is_viewable else "another run"
        return f"{other}, which has locked {waiting.name}"
    return (
        f"break-glass run {waiting.run}"
        if is_viewable
        else "another run, which break-glass starts"
    )
