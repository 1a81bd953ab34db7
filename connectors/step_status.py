"""Recalling: what a host says has become of a step that it was told. No I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from connectors.command import Answer, Query, Shell, find_failure
from connectors.errors import ParseError, UnknownOutcomeError
from connectors.step_marker import STATUS_SCRIPT, StepMarker, hash_word
from connectors.wrapper import refuse_stopped


class MarkerState(StrEnum):
    """What became of a step.

    closed: it was not begun, and from now on never will be. starting: its place is taken, and
    nothing more is known. ended: it has an exit status. gone: it was begun and is not there any
    more, and nobody wrote down how it ended. rebooted: so is this, since the host was restarted.
    unmarked: the host keeps no marker.
    """

    CLOSED = "closed"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"
    REBOOTED = "rebooted"
    UNMARKED = "unmarked"


@dataclass(frozen=True)
class StepStatus:
    """A host's answer. status: of what has ended. up: seconds since the host was started.

    began, ended: seconds since 1970 by the host's clock. out_bytes, err_bytes: that it keeps, of
    each stream the first MiB. out, err: what it has said, as in an Answer; whole: all of it.
    """

    state: MarkerState
    uptime: float
    status: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    out_bytes: int = 0
    err_bytes: int = 0
    out: str = ""
    err: str = ""
    is_complete: bool = True

    def to_answer(self, shell: Shell) -> Answer:
        """Return the answer of the command that has ended.

        Raises CommandError, or UnknownOutcomeError where it did not come to its own end.
        """
        if self.status is None:
            raise UnknownOutcomeError("nobody knows how it ended")
        seconds = (
            (self.ended_at - self.started_at)
            if self.started_at and self.ended_at
            else shell.deadline
        )
        # Both moments are cut to whole seconds.
        refuse_stopped(self.status, seconds + 1, shell.deadline)
        answer = Answer(self.status, self.out, self.err, omitted_bytes=int(not self.is_complete))
        if trouble := find_failure(shell, answer, frozenset({0})):
            raise trouble
        return answer


NO_STATUS = StepStatus(MarkerState.UNMARKED, 0.0)

_NUMBER = r"(\d+|-)"
_FACTS = re.compile(
    rf"(?P<fate>[a-z]+) (?P<status>{_NUMBER}) (?P<up>[\d.]+) (?P<print>[0-9a-f]{{64}}|-) \S+ \S+ "
    rf"(?P<began>{_NUMBER}) (?P<ended>{_NUMBER}) (?P<out>\d+) (?P<err>\d+)"
)

_LAST_WORDS = re.compile(r"(?P<word>[0-9a-f]{32}) (?P<end>\d+)\n\Z")


def query_step_status(mark: StepMarker) -> Query[StepStatus]:
    """Return what asks a host, by the login that changes, about a step that it keeps a marker of.

    It also keeps a step that was not begun from ever being.
    """
    return Query(Shell((STATUS_SCRIPT, *mark.arguments)), _parse_step_status)


def _parse_step_status(text: str) -> StepStatus:
    first, _, rest = text.partition("\n")
    found = _FACTS.fullmatch(first)
    if found is None:
        raise ParseError(f"the host was asked about a step and said {first[:100]!r}")
    try:
        fate = MarkerState(found["fate"])
    except ValueError:
        raise ParseError(f"the host says that a step is {found['fate']!r}") from None
    status = _parse_number(found, "status")
    if fate is MarkerState.ENDED and status is None:
        raise ParseError("the host says that a step has ended, and not how")
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


def _parse_streams(text: str, of_word: str, status: int | None) -> tuple[str, str, bool]:
    """Return both streams without the words that frame them, and whether all is there.

    of_word: the print of the word that ends each of them.
    """
    parts = text.split(f"{of_word} next\n") if of_word != "-" else []
    if len(parts) != 3:
        return "", "", not parts
    out, err = (_strip_frame(part, of_word, status) for part in parts[:2])
    whole = out is not None and err is not None
    return parts[0] if out is None else out, parts[1] if err is None else err, whole


def _strip_frame(said: str, of_word: str, status: int | None) -> str | None:
    """Return a stream without its last words; None if they are not the script's own."""
    found = _LAST_WORDS.search(said)
    if found is None or hash_word(found["word"]) != of_word or found["end"] != str(status):
        return None
    return said[: found.start()]
