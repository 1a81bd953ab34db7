"""How a command becomes the one line that a host's login shell is given, and how its end is read.

The line runs a fixed script. The script lets `timeout` watch over the command, so that the host
itself ends what takes too long, and says a word of its own before and after the command on both
streams. The word is new for each command, and the script reads it as the first line of its input:
nobody finds it among the words or the environment of a process there, and the command is not told
it. Output that was cut off, or that only looks like an end, is never taken for one. No I/O.
"""

import re
import secrets
import signal
from collections.abc import Callable, Mapping
from functools import lru_cache

from connectors import marker
from connectors.command import Answer, Shell
from connectors.hearing import Ear, somebody_listens
from connectors.marker import KILL_AFTER
from connectors.trouble import BegunBefore, HostTrouble, Interrupted, NotSetUp, Overtaken, TimedOut

_KEEP_FIRST = 3 * 1024 * 1024
_KEEP_LAST = 1024 * 1024

# One line without single quotes, backslashes and exclamation marks. Dialects know the words of
# programs in English (LC_ALL), and a login's PATH often lacks sbin. What is unset first stays out
# of the command's environment, which a variable that the login exports would not.
_SCRIPT = (
    "kt_seconds=$1 kt_note=$2; shift 2; "
    "LC_ALL=C PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; export LC_ALL PATH; "
    'echo "$kt_word begins"; echo "$kt_word begins" >&2; '
    "if command -v timeout >/dev/null; then "
    # A note for the host's own log. Where that cannot be written, the command runs all the same.
    '[ -z "$kt_note" ] || timeout 2 logger -t keyturn "$kt_note" </dev/null >/dev/null 2>&1; '
    f'timeout -k {KILL_AFTER} "$kt_seconds" "$@"; kt_end=$?; else kt_end=unwatched; fi; '
    'echo "$kt_word $kt_end"; echo "$kt_word $kt_end" >&2'
)
# A host that is done closes the channel, and may give its number to the next one at once. What we
# say after that reaches the wrong command, or makes sshd hang up on all of them. So the script
# does not end before it has heard all we have to say; where that is nothing, it does not listen.
# Mostly the command has heard it all, and what is left to hear is that there is no more.
_AND_LISTEN = f"{marker.READ_WORD}; %s; if read -r kt_rest; then exec cat >/dev/null; fi"
_DEAF = f"{marker.READ_WORD}; exec </dev/null; %s"

# What is said instead of an exit status where nothing was run.
_NOTHING_RUN: Mapping[str, Callable[[str], HostTrouble]] = {
    "unwatched": lambda _: NotSetUp(
        "the host has no program `timeout`, which every command runs under, or no `tee`: "
        "install coreutils there. Nothing was started"
    ),
    "unmarked": lambda place: NotSetUp(
        f"the host keeps no marker in {place}, so that nobody could ask it later what became of "
        "this. Is the directory our login's own? Name another in the host's settings as "
        f"{marker.SETTING}, or {marker.NONE} to do without. Nothing was started"
    ),
    "full": lambda place: NotSetUp(
        f"the host's disk is full: it cannot keep a marker in {place}, without which nobody could "
        "ask it later what became of this. Make room there, and ask again. Nothing was started"
    ),
    "held": lambda _: BegunBefore(
        "the host has begun this step before, so it was not run a second time"
    ),
    "fenced": lambda _: Overtaken(
        "somebody else has taken this run over since, and the host knows. Nothing was started"
    ),
    "short": lambda _: NotSetUp(
        "what the command reads did not arrive there whole: is the disk full? Nothing was started"
    ),
}
_KNOWN_ENDS = frozenset(why.encode() for why in _NOTHING_RUN)
# Words that every shell reads as they are, and what not all shells do within single quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@-]+", re.ASCII)
_DISPUTED = re.compile(r"['\\!]")
_STATUS_OF_TIMEOUT = frozenset({124, 128 + signal.SIGKILL})
_STATUS_OF_SIGNALS = range(129, 160)


class Kept:
    """What is kept of a stream: all of a short one, the beginning and the end of a long one.

    word: what frames it, for whoever listens while it comes.
    """

    def __init__(self, word: str = "") -> None:
        self._ear = Ear(word.encode()) if word and somebody_listens() else None
        self._first = bytearray()
        self._last = bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        if self._ear is not None:
            self._ear.add(data)
        self.size += len(data)
        room = _KEEP_FIRST - len(self._first)
        self._first += data[:room]
        self._last += data[room:] if room > 0 else data
        if len(self._last) > 2 * _KEEP_LAST:
            del self._last[:-_KEEP_LAST]

    def holds(self, begin: bytes) -> bool:
        return begin in self._first

    def end_said_with(self, word: bytes) -> bytes | None:
        """Return how it ended, if the last that was said says so with this word."""
        tail = bytes((self._first[-100:] + self._last[-100:])[-100:])
        before, _, end = tail.removesuffix(b"\n").rpartition(b" ")
        ended = tail.endswith(b"\n") and (end.isdigit() or end in _KNOWN_ENDS)
        return end if ended and before.endswith(word) else None

    def after(self, begin: bytes) -> tuple[bytes, int]:
        """Return the bytes after the line *begin*, and how many are missing in the middle.

        A line stands in the place of the missing ones. What comes before *begin* is the noise of
        a login.
        """
        found = self._first.find(begin)
        first = bytes(self._first[found + len(begin) :] if found >= 0 else self._first)
        last = bytes(self._last[-_KEEP_LAST:])
        left_out = self.size - len(self._first) - len(last)
        gap = f"\n[… {left_out} bytes are left out here …]\n".encode() if left_out else b""
        return first + gap + last, left_out


class Wrapped:
    """One command, wrapped for one host, and the reading of its end."""

    def __init__(self, shell: Shell, word: str | None = None) -> None:
        """Wrap *shell*, resolved for its host; *word* is what its output is framed with."""
        self._word = word or secrets.token_hex(16)
        self._begin = f"{self._word} begins\n".encode()
        self._shell = shell
        self.out = Kept(self._word)
        self.err = Kept(self._word)

    @property
    def word_line(self) -> bytes:
        """What the script waits for, as the first that is said to it."""
        return f"{self._word}\n".encode()

    @property
    def line(self) -> str:
        mark, stdin = self._shell.mark, self._shell.stdin
        script = marker.SCRIPT if mark else _SCRIPT
        script = _AND_LISTEN % script if stdin else _DEAF % script
        frame = ("keyturn", str(self._shell.deadline), self._shell.note)
        if mark is not None:
            frame += (*mark.words, str(len(stdin.encode())), marker.print_of(self._word))
        own = " ".join(map(quoted, frame))
        return f"sh -c {_quoted((script,))} {own} {_quoted(self._shell.words)}"

    @property
    def begun(self) -> bool:
        """Tell whether the script runs, so that something listens to what we say."""
        return self.out.holds(self._begin)

    @property
    def ended(self) -> bool:
        """Tell whether both streams have said their last word, and the same one."""
        return self._how_it_ended() is not None

    def answer(self, *, seconds: float) -> Answer:
        """Return the answer of a command that ended by itself.

        seconds: how long it took, seen from here. An exit status that `timeout` uses means what
        it says only when there was time enough to run out.
        """
        end = self._how_it_ended()
        if end is None:
            raise Interrupted(
                "the end of the command was never seen, so nobody can say how far it came"
                f"{self._its_last_words()}: look at the host"
            )
        if end in _NOTHING_RUN:
            mark = self._shell.mark
            raise _NOTHING_RUN[end]((mark and mark.place) or "~/.keyturn")
        refuse_what_was_ended(int(end), seconds, self._shell.deadline)
        out, out_left = self._text(self.out, end)
        err, err_left = self._text(self.err, end)
        return Answer(int(end), out, err, left_out=out_left + err_left)

    def _how_it_ended(self) -> str | None:
        word = self._word.encode()
        out, err = self.out.end_said_with(word), self.err.end_said_with(word)
        return out.decode() if out and out == err else None

    def _text(self, kept: Kept, end: str) -> tuple[str, int]:
        said, left_out = kept.after(self._begin)
        return _decoded(said[: -len(f"{self._word} {end}\n")]), left_out

    def _its_last_words(self) -> str:
        """Quote what came instead of an end: often a login shell's own words."""
        for kept in (self.err, self.out):
            said, _ = kept.after(self._begin)
            words = _decoded(said).strip()
            if words:
                return f" (the last that came was: {words.splitlines()[-1][-200:]})"
        return ""


def refuse_what_was_ended(status: int, seconds: float, deadline: int) -> None:
    """Raise Interrupted unless a command with this exit status came to its own end.

    seconds: how long it took; deadline: how long it might.
    """
    if status in _STATUS_OF_TIMEOUT and seconds >= deadline:
        raise TimedOut(
            f"the command had not ended after {deadline} s and the host stopped it: how far it "
            "came is not known"
        )
    if status in _STATUS_OF_SIGNALS:
        raise Interrupted(
            f"a signal ended the command before its time ({signal_name(status - 128)}, "
            f"exit status {status}): how far it came is not known"
        )


def _decoded(said: bytes) -> str:
    return said.decode("utf-8", "backslashreplace")


def quoted(word: str) -> str:
    """Quote a word so that sh, bash, dash, zsh, csh and fish all read the same one.

    shlex.quote is for sh alone: csh expands `!` within single quotes, fish takes `\\` for an
    escape there, zsh looks up a bare `=ls`. Outside of quotes a backslash means the same to all.
    """
    return word if _PLAIN.fullmatch(word) else "'" + _DISPUTED.sub(r"'\\\g<0>'", word) + "'"


@lru_cache(maxsize=256)
def _quoted(words: tuple[str, ...]) -> str:
    """Quote words that many hosts are told: kept, as it takes longer than all else done here."""
    return " ".join(map(quoted, words))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
