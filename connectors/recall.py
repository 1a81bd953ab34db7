"""Recalling: what a host says has become of a step that it was told. No I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from connectors.command import Answer, Query, Shell, failure
from connectors.marker import QUESTION, Mark, print_of
from connectors.trouble import Interrupted, NotUnderstood
from connectors.wrapper import refuse_what_was_ended


class Fate(StrEnum):
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
class Recollection:
    """A host's answer. status: of what has ended. up: seconds since the host was started.

    began, ended: seconds since 1970 by the host's clock. out_bytes, err_bytes: that it keeps, of
    each stream the first MiB. out, err: what it has said, as in an Answer; whole: all of it.
    """

    fate: Fate
    up: float
    status: int | None = None
    began: int | None = None
    ended: int | None = None
    out_bytes: int = 0
    err_bytes: int = 0
    out: str = ""
    err: str = ""
    whole: bool = True

    def answer(self, shell: Shell) -> Answer:
        """Return the answer of the command that has ended.

        Raises CommandFailed, or Interrupted where it did not come to its own end.
        """
        if self.status is None:
            raise Interrupted("nobody knows how it ended")
        seconds = (self.ended - self.began) if self.began and self.ended else shell.deadline
        # Both moments are cut to whole seconds.
        refuse_what_was_ended(self.status, seconds + 1, shell.deadline)
        answer = Answer(self.status, self.out, self.err, left_out=int(not self.whole))
        if trouble := failure(shell, answer, frozenset({0})):
            raise trouble
        return answer


NOT_ASKED = Recollection(Fate.UNMARKED, 0.0)

_NUMBER = r"(\d+|-)"
_FACTS = re.compile(
    rf"(?P<fate>[a-z]+) (?P<status>{_NUMBER}) (?P<up>[\d.]+) (?P<print>[0-9a-f]{{64}}|-) \S+ \S+ "
    rf"(?P<began>{_NUMBER}) (?P<ended>{_NUMBER}) (?P<out>\d+) (?P<err>\d+)"
)

_LAST_WORDS = re.compile(r"(?P<word>[0-9a-f]{32}) (?P<end>\d+)\n\Z")


def question(mark: Mark) -> Query[Recollection]:
    """Return what asks a host, by the login that changes, about a step that it keeps a marker of.

    It also keeps a step that was not begun from ever being.
    """
    return Query(Shell((QUESTION, *mark.words)), _understood)


def _understood(text: str) -> Recollection:
    first, _, rest = text.partition("\n")
    found = _FACTS.fullmatch(first)
    if found is None:
        raise NotUnderstood(f"the host was asked about a step and said {first[:100]!r}")
    try:
        fate = Fate(found["fate"])
    except ValueError:
        raise NotUnderstood(f"the host says that a step is {found['fate']!r}") from None
    status = _number(found, "status")
    if fate is Fate.ENDED and status is None:
        raise NotUnderstood("the host says that a step has ended, and not how")
    out, err, whole = _said(rest, found["print"], status)
    return Recollection(
        fate,
        float(found["up"]),
        status=status,
        began=_number(found, "began"),
        ended=_number(found, "ended"),
        out_bytes=int(found["out"]),
        err_bytes=int(found["err"]),
        out=out,
        err=err,
        whole=whole,
    )


def _number(found: re.Match[str] | Mapping[str, str], name: str) -> int | None:
    return None if found[name] == "-" else int(found[name])


def _said(text: str, of_word: str, status: int | None) -> tuple[str, str, bool]:
    """Return both streams without the words that frame them, and whether all is there.

    of_word: the print of the word that ends each of them.
    """
    parts = text.split(f"{of_word} next\n") if of_word != "-" else []
    if len(parts) != 3:
        return "", "", not parts
    out, err = (_unframed(part, of_word, status) for part in parts[:2])
    whole = out is not None and err is not None
    return parts[0] if out is None else out, parts[1] if err is None else err, whole


def _unframed(said: str, of_word: str, status: int | None) -> str | None:
    """Return a stream without its last words; None if they are not the script's own."""
    found = _LAST_WORDS.search(said)
    if found is None or print_of(found["word"]) != of_word or found["end"] != str(status):
        return None
    return said[: found.start()]
