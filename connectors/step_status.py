"""Step status: query on a host what became of a step after a crash. No I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from connectors.command import Answer, Query, Shell, find_failure
from connectors.errors import ParseError, UnknownOutcomeError
from connectors.step_marker import STATUS_SCRIPT, StepMarker, hash_word
from connectors.wrapper import refuse_stopped


class MarkerState(StrEnum):
    """The state of a step on its host."""

    CLOSED = "closed"
    """It did not start, and never will."""
    STARTING = "starting"
    """Its directory exists; nothing more is known."""
    RUNNING = "running"
    ENDED = "ended"
    """It has an exit status."""
    GONE = "gone"
    """It started and is not running any more, and its exit status was not stored."""
    REBOOTED = "rebooted"
    """Like GONE, because the host was rebooted."""
    UNMARKED = "unmarked"
    """The host keeps no marker."""
    WAITING = "waiting"
    """Of an enrolled host: it has not begun, and still could."""
    GIVEN_UP = "given up"
    """Of an enrolled host: it has not begun, and never will."""
    INTERRUPTED = "interrupted"
    """Of an enrolled host: it began, and how it ended was not recorded."""


@dataclass(frozen=True)
class StepStatus:
    """The status of a step on its host."""

    state: MarkerState
    uptime: float = 0.0
    """Seconds since the host booted; for CLOSED."""
    status: int | None = None
    """The exit status, if it has ended."""
    started_at: int | None = None
    """Seconds since 1970 by the host's clock."""
    ended_at: int | None = None
    """Seconds since 1970 by the host's clock."""
    out_bytes: int = 0
    """Stored bytes of standard output, at most 1 MiB."""
    err_bytes: int = 0
    """Stored bytes of standard error, at most 1 MiB."""
    out: str = ""
    """Standard output, as in an Answer."""
    err: str = ""
    """Standard error, as in an Answer."""
    is_complete: bool = True
    """Whether the stored output is complete."""

    def to_answer(self, shell: Shell) -> Answer:
        """Return the answer of a command that has ended.

        Raises CommandError if it failed, or UnknownOutcomeError if it was stopped early.
        """
        if self.status is None:
            raise UnknownOutcomeError("the step's exit status is unknown")
        seconds = (
            (self.ended_at - self.started_at)
            if self.started_at and self.ended_at
            else shell.deadline
        )
        # Both times are rounded down to seconds.
        refuse_stopped(self.status, seconds + 1, shell.deadline)
        answer = Answer(self.status, self.out, self.err, omitted_bytes=int(not self.is_complete))
        if error := find_failure(shell, answer, frozenset({0})):
            raise error
        return answer


NO_STATUS = StepStatus(MarkerState.UNMARKED)

_NUMBER = r"(\d+|-)"
_FACTS = re.compile(
    rf"(?P<fate>[a-z]+) (?P<status>{_NUMBER}) (?P<up>[\d.]+) (?P<print>[0-9a-f]{{64}}|-) \S+ \S+ "
    rf"(?P<began>{_NUMBER}) (?P<ended>{_NUMBER}) (?P<out>\d+) (?P<err>\d+)"
)

_LAST_LINE = re.compile(r"(?P<word>[0-9a-f]{32}) (?P<end>\d+)\n\Z")


def query_step_status(marker: StepMarker) -> Query[StepStatus]:
    """Query the status of a step, with the login for changes.

    A step that has not started by then can never start.
    """
    return Query(Shell((STATUS_SCRIPT, *marker.arguments)), _parse_step_status)


def _parse_step_status(text: str) -> StepStatus:
    first, _, rest = text.partition("\n")
    found = _FACTS.fullmatch(first)
    if found is None:
        raise ParseError(f"the status script printed {first[:100]!r} instead of a step's status")
    try:
        fate = MarkerState(found["fate"])
    except ValueError:
        raise ParseError(f"the host returned the unknown state {found['fate']!r}") from None
    status = _parse_number(found, "status")
    if fate is MarkerState.ENDED and status is None:
        raise ParseError("the host returned an ended step without its exit status")
    out, err, whole = _parse_streams(rest, found["print"], status)
    return StepStatus(
        fate,
        float(found["up"]),
        status=status,
        started_at=_parse_number(found, "began"),
        ended_at=_parse_number(found, "ended"),
        out_bytes=int(found["out"]),
        err_bytes=int(found["err"]),
        out=out,
        err=err,
        is_complete=whole,
    )


def _parse_number(found: re.Match[str] | Mapping[str, str], name: str) -> int | None:
    return None if found[name] == "-" else int(found[name])


def _parse_streams(text: str, word_hash: str, status: int | None) -> tuple[str, str, bool]:
    """Return both streams without their frames, and whether they are complete.

    word_hash: the hash of the secret word that ends each of them.
    """
    parts = text.split(f"{word_hash} next\n") if word_hash != "-" else []
    if len(parts) != 3:
        return "", "", not parts
    out, err = (_strip_frame(part, word_hash, status) for part in parts[:2])
    whole = out is not None and err is not None
    return parts[0] if out is None else out, parts[1] if err is None else err, whole


def _strip_frame(text: str, word_hash: str, status: int | None) -> str | None:
    """Return a stream without its last line; None if that line is not the script's own."""
    found = _LAST_LINE.search(text)
    if found is None or hash_word(found["word"]) != word_hash or found["end"] != str(status):
        return None
    return text[: found.start()]
