"""What one reading of a key means: as set, changed outside, missing, or not readable. Pure.

A key is what a change gave a lasting value: a host, and the name that its runbook declares by
`sets`. A reading is the plan of the same request, made again: a plan without steps means as set.
"""

import hashlib
import re
from dataclasses import dataclass

from bot.model.canonical import hash_canonical
from bot.model.drift_state import DriftState
from bot.model.lasting_values import join_values
from bot.model.times import DAY, HOUR, MINUTE
from runbooks import Plan

# A value is often changed back, or changed again, soon after a change.
FIRST_DELAY = 10 * MINUTE
# After a reading that failed.
_RETRY_DELAY = HOUR
# At most one message for each host within this time.
MESSAGE_INTERVAL = HOUR
_MAX_TEXT = 300
# A float holds such numbers exactly.
_MAX_NUMBER = 10**15
_NUMBER = re.compile(r"-?\d[\d,_]*(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """What a reading of a key returned."""

    state: DriftState
    """Before what people adopted or expect is considered."""
    digest: str = ""
    """64 hex digits that are the same for the same other value; "" if it is as set."""
    value: str = ""
    """The value on the host, or why it could not be read."""
    set_value: str = ""
    """What the request would set; "" if it is as set."""


@dataclass(frozen=True)
class Expectation:
    """A value that may vary for a while."""

    until: int
    """Microseconds since 1970."""
    lowest: float | None = None
    highest: float | None = None
    """The numbers between which the value may vary; None for any value."""

    def covers(self, value: str, *, now: int) -> bool:
        """Return whether the value may be so now."""
        if now >= self.until:
            return False
        if self.lowest is None or self.highest is None:
            return True
        number = find_number(value)
        return number is not None and self.lowest <= number <= self.highest


@dataclass(frozen=True)
class Candidate:
    """An event on the host between the last good and the first bad reading."""

    at: int
    """Microseconds since 1970, by Keyturn's clock; 0 for a source that could not be read."""
    kind: str
    """login, start, sudo, package or keyturn; "unread" for a source that could not be read."""
    account: str
    description: str


def evaluate_plan(plan: Plan) -> Reading:
    """Return the reading that the plan of the same request means."""
    if not plan.steps:
        return Reading(DriftState.AS_SET, value=plan.current_state[:_MAX_TEXT])
    valued = [step for step in plan.steps if step.before or step.after]
    return Reading(
        DriftState.CHANGED,
        hash_canonical([[step.title, step.before, step.after] for step in plan.steps]),
        join_values([step.before for step in valued]) or plan.current_state[:_MAX_TEXT],
        join_values([step.after for step in valued]),
    )


def compute_state(
    reading: Reading, *, adopted: str, expectation: Expectation | None, now: int
) -> DriftState:
    """Return the state of a key. adopted: the digest of the value that a person adopted, or ""."""
    if reading.state in {DriftState.MISSING, DriftState.UNREADABLE}:
        return reading.state
    is_covered = expectation is not None and expectation.covers(reading.value, now=now)
    if reading.digest == adopted or (is_covered and reading.digest):
        return DriftState.AS_SET
    return DriftState.CHANGED


def compute_next_reading(host: str, state: DriftState, *, now: int) -> int:
    """Return when a key is read next: once a day, at a time of day that depends on its host.

    All keys of a host are read together, and hosts are spread over the day.
    """
    if state is DriftState.UNREADABLE:
        return now + _RETRY_DELAY
    offset = int.from_bytes(hashlib.sha256(host.encode()).digest()[:8]) % DAY
    return now + DAY - (now - offset) % DAY


def find_number(value: str) -> float | None:
    """Return the first number of a value such as `262,144 connections`; None without one."""
    found = _NUMBER.search(value)
    return float(found[0].replace(",", "").replace("_", "")) if found else None


def parse_range(text: str) -> tuple[float, float]:
    """Return the lowest and highest number of `1000..2000`. Raises ValueError."""
    lowest, dots, highest = (part.strip() for part in text.partition(".."))
    fits = dots and _NUMBER.fullmatch(lowest) and _NUMBER.fullmatch(highest)
    numbers = [find_number(part) for part in (lowest, highest)] if fits else []
    known = [number for number in numbers if number is not None and abs(number) < _MAX_NUMBER]
    if len(known) != 2 or known[0] > known[1]:
        raise ValueError("write the range as LOWEST..HIGHEST, such as 1000..2000")
    return known[0], known[1]
