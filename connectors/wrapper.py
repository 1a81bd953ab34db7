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

from connectors import step_marker
from connectors.command import Answer, OutputListener, Shell
from connectors.errors import (
    AlreadyStartedError,
    CommandTimeoutError,
    FencedError,
    HostError,
    SetupError,
    UnknownOutcomeError,
)
from connectors.step_marker import KILL_AFTER

# Bytes of a line without an end; a longer one is handed on in pieces.
MAX_LINE_BYTES = 4096
# A progress bar ends its lines with a carriage return. A carriage return that arrived last may be
# half of a line end.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
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
_READ_STDIN = f"{step_marker.READ_WORD}; %s; if read -r kt_rest; then exec cat >/dev/null; fi"
_NO_STDIN = f"{step_marker.READ_WORD}; exec </dev/null; %s"

# What is said instead of an exit status where nothing was run.
_NOT_STARTED: Mapping[str, Callable[[str], HostError]] = {
    "unwatched": lambda _: SetupError(
        "the host has no program `timeout`, which every command runs under, or no `tee`: "
        "install coreutils there. Nothing was started"
    ),
    "unmarked": lambda place: SetupError(
        f"the host keeps no marker in {place}, so that nobody could ask it later what became of "
        "this. Is the directory our login's own? Name another in the host's settings as "
        f"{step_marker.MARKER_SETTING}, or {step_marker.NO_MARKER} to do without. Nothing was "
        "started"
    ),
    "full": lambda place: SetupError(
        f"the host's disk is full: it cannot keep a marker in {place}, without which nobody could "
        "ask it later what became of this. Make room there, and ask again. Nothing was started"
    ),
    "held": lambda _: AlreadyStartedError(
        "the host has begun this step before, so it was not run a second time"
    ),
    "fenced": lambda _: FencedError(
        "somebody else has taken this run over since, and the host knows. Nothing was started"
    ),
    "short": lambda _: SetupError(
        "what the command reads did not arrive there whole: is the disk full? Nothing was started"
    ),
}
_KNOWN_ENDS = frozenset(why.encode() for why in _NOT_STARTED)
# Words that every shell reads as they are, and what not all shells do within single quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@-]+", re.ASCII)
_SPECIAL = re.compile(r"['\\!]")
_STATUS_OF_TIMEOUT = frozenset({124, 128 + signal.SIGKILL})
_STATUS_OF_SIGNALS = range(129, 160)


class LineSplitter:
    """Splits one stream of a command into lines while it arrives, and hands them to a listener."""

    def __init__(self, word: bytes, listener: OutputListener) -> None:
        """Split what stands between the first two lines that hold *word*."""
        self._listener = listener
        self._word = word
        self._rest = b""
        self._frame_count = 0

    def add(self, data: bytes) -> None:
        *lines, self._rest = _LINE_END.split(self._rest + data)
        while len(self._rest) > MAX_LINE_BYTES + len(self._word):
            lines.append(self._rest[:MAX_LINE_BYTES])
            self._rest = self._rest[MAX_LINE_BYTES:]
        own = [line for raw in lines if (line := self._strip_frame(raw)) is not None]
        if own:
            self._listener([_decode(line) for line in own])

    def _strip_frame(self, line: bytes) -> bytes | None:
        """Return the part of a line that the command printed; None if it printed nothing of it."""
        before, word, _ = line.partition(self._word)
        is_within = self._frame_count == 1
        if not word:
            return line if is_within else None
        self._frame_count += 1
        # Output without a line end shares its line with the closing frame.
        return before if is_within and before else None


class StreamBuffer:
    """What is kept of a stream: all of a short one, the beginning and the end of a long one.

    word: frames the command's own output. on_output: called with its lines while they arrive.
    """

    def __init__(self, word: str = "", on_output: OutputListener | None = None) -> None:
        self._splitter = LineSplitter(word.encode(), on_output) if on_output else None
        self._first = bytearray()
        self._last = bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        if self._splitter is not None:
            self._splitter.add(data)
        self.size += len(data)
        room = _KEEP_FIRST - len(self._first)
        self._first += data[:room]
        self._last += data[room:] if room > 0 else data
        if len(self._last) > 2 * _KEEP_LAST:
            del self._last[:-_KEEP_LAST]

    def has_line(self, begin: bytes) -> bool:
        return begin in self._first

    def find_end(self, word: bytes) -> bytes | None:
        """Return how it ended, if the last that was said says so with this word."""
        tail = bytes((self._first[-100:] + self._last[-100:])[-100:])
        before, _, end = tail.removesuffix(b"\n").rpartition(b" ")
        ended = tail.endswith(b"\n") and (end.isdigit() or end in _KNOWN_ENDS)
        return end if ended and before.endswith(word) else None

    def read_after(self, begin: bytes) -> tuple[bytes, int]:
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


class WrappedCommand:
    """One command, wrapped for one host, and the reading of its end."""

    def __init__(
        self, shell: Shell, word: str | None = None, on_output: OutputListener | None = None
    ) -> None:
        """Wrap a command.

        Args:
            shell: resolved for its host.
            word: frames the output; by default a new random one.
            on_output: called with the lines of both streams while they arrive.
        """
        self._word = word or secrets.token_hex(16)
        self._begin = f"{self._word} begins\n".encode()
        self._shell = shell
        self.out = StreamBuffer(self._word, on_output)
        self.err = StreamBuffer(self._word, on_output)

    @property
    def word_line(self) -> bytes:
        """What the script waits for, as the first that is said to it."""
        return f"{self._word}\n".encode()

    @property
    def line(self) -> str:
        mark, stdin = self._shell.marker, self._shell.stdin
        script = step_marker.STEP_SCRIPT if mark else _SCRIPT
        script = _READ_STDIN % script if stdin else _NO_STDIN % script
        frame = ("keyturn", str(self._shell.deadline), self._shell.note)
        if mark is not None:
            frame += (*mark.arguments, str(len(stdin.encode())), step_marker.hash_word(self._word))
        own = " ".join(map(quote_word, frame))
        return f"sh -c {_quote_words((script,))} {own} {_quote_words(self._shell.words)}"

    @property
    def has_started(self) -> bool:
        """Tell whether the script runs, so that something listens to what we say."""
        return self.out.has_line(self._begin)

    @property
    def has_ended(self) -> bool:
        """Tell whether both streams have said their last word, and the same one."""
        return self._find_end() is not None

    def read_answer(self, *, seconds: float) -> Answer:
        """Return the answer of a command that ended by itself.

        seconds: how long it took, seen from here. An exit status that `timeout` uses means what
        it says only when there was time enough to run out.
        """
        end = self._find_end()
        if end is None:
            raise UnknownOutcomeError(
                "the end of the command was never seen, so nobody can say how far it came"
                f"{self._format_last_line()}: look at the host"
            )
        if end in _NOT_STARTED:
            mark = self._shell.marker
            raise _NOT_STARTED[end]((mark and mark.directory) or "~/.keyturn")
        refuse_stopped(int(end), seconds, self._shell.deadline)
        out, out_left = self._read_output(self.out, end)
        err, err_left = self._read_output(self.err, end)
        return Answer(int(end), out, err, omitted_bytes=out_left + err_left)

    def _find_end(self) -> str | None:
        word = self._word.encode()
        out, err = self.out.find_end(word), self.err.find_end(word)
        return out.decode() if out and out == err else None

    def _read_output(self, kept: StreamBuffer, end: str) -> tuple[str, int]:
        said, left_out = kept.read_after(self._begin)
        return _decode(said[: -len(f"{self._word} {end}\n")]), left_out

    def _format_last_line(self) -> str:
        """Quote what came instead of an end: often a login shell's own words."""
        for kept in (self.err, self.out):
            said, _ = kept.read_after(self._begin)
            words = _decode(said).strip()
            if words:
                return f" (the last that came was: {words.splitlines()[-1][-200:]})"
        return ""


def refuse_stopped(status: int, seconds: float, deadline: int) -> None:
    """Raise UnknownOutcomeError unless a command with this exit status came to its own end.

    seconds: how long it took; deadline: how long it might.
    """
    if status in _STATUS_OF_TIMEOUT and seconds >= deadline:
        raise CommandTimeoutError(
            f"the command had not ended after {deadline} s and the host stopped it: how far it "
            "came is not known"
        )
    if status in _STATUS_OF_SIGNALS:
        raise UnknownOutcomeError(
            f"a signal ended the command before its time ({format_signal(status - 128)}, "
            f"exit status {status}): how far it came is not known"
        )


def _decode(said: bytes) -> str:
    return said.decode("utf-8", "backslashreplace")


def quote_word(word: str) -> str:
    """Quote a word so that sh, bash, dash, zsh, csh and fish all read the same one.

    shlex.quote is for sh alone: csh expands `!` within single quotes, fish takes `\\` for an
    escape there, zsh looks up a bare `=ls`. Outside of quotes a backslash means the same to all.
    """
    return word if _PLAIN.fullmatch(word) else "'" + _SPECIAL.sub(r"'\\\g<0>'", word) + "'"


@lru_cache(maxsize=256)
def _quote_words(words: tuple[str, ...]) -> str:
    """Quote words that many hosts are told: kept, as it takes longer than all else done here."""
    return " ".join(map(quote_word, words))


def format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
