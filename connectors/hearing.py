"""Hearing: what a host says is told line by line, while it is still speaking. No I/O.

Whoever waits for a command's answer says who else wants to hear it, for the thread that waits.
What is heard is not the answer: no end was seen yet, and nothing may be decided by it.
"""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[Sequence[str]], None]

# Bytes of a line that has no end; a longer one is told in pieces.
LONGEST_LINE = 4096
# A bar of progress ends its lines with a carriage return. One that is the last to have come may
# be half of a line's end.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(listener: Listener) -> Generator[None]:
    """Tell *listener* what commands say that this thread runs within the block."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def somebody_listens() -> bool:
    """Say whether what commands say that this thread runs is to be told while they run."""
    return _LISTENER.get() is not None


class Ear:
    """Cuts one stream of one command into lines as it comes, for whoever listens, if anybody.

    word: what the command's own words are framed with. What comes before is the noise of a login,
    and what comes after is nobody's.
    """

    def __init__(self, word: bytes) -> None:
        self._listener = _LISTENER.get()
        self._word = word
        self._rest = b""
        self._framed = 0

    def add(self, data: bytes) -> None:
        if self._listener is None:
            return
        *lines, self._rest = _LINE_END.split(self._rest + data)
        while len(self._rest) > LONGEST_LINE + len(self._word):
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        said = [line for raw in lines if (line := self._own(raw)) is not None]
        if said:
            self._listener([line.decode("utf-8", "backslashreplace") for line in said])

    def _own(self, line: bytes) -> bytes | None:
        """Return what of a line is the command's own; None if nothing is."""
        before, word, _ = line.partition(self._word)
        within = self._framed == 1
        if not word:
            return line if within else None
        self._framed += 1
        # What has no end of its own shares its line with our last word.
        return before if within and before else None
