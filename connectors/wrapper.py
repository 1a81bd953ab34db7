"""Wrapped commands: the line that a host's login shell runs, and the parser of its output. No I/O.

The line runs a fixed script. The script runs the command under `timeout`, so that the host itself
stops it at its deadline, and prints a secret word before and after the command on both streams.
The word is new for each command, and the script reads it as the first line of its input: it is not
in the arguments or environment of a process, and the command does not receive it. So output that
was cut off, or that imitates an end, is never taken as complete.
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
from connectors.script import join_lines, load_code

# Bytes of a line without an end; a longer line is passed on in pieces.
MAX_LINE_BYTES = 4096
# A progress bar ends its lines with a carriage return. One that arrives last may be the first half
# of a line end.
_LINE_END = re.compile(rb"\r?\n|\r(?=[^\n])")
_KEEP_FIRST = 3 * 1024 * 1024
_KEEP_LAST = 1024 * 1024

_SCRIPT = join_lines(load_code("wrapped-command", kt_after=step_marker.KILL_AFTER))
# When the script ends, the host closes the channel and may reuse its number immediately. Input
# that is sent after that reaches the wrong command, or makes sshd close the whole connection. So
# the script does not end before it has read all input; without input it does not read. Mostly the
# command has read it all, and only the end of the input is left.
_READ_STDIN = f"{step_marker.READ_WORD}; %s; if read -r kt_rest; then exec cat >/dev/null; fi"
_NO_STDIN = f"{step_marker.READ_WORD}; exec </dev/null; %s"

# The words instead of an exit status where nothing was run.
_NOT_STARTED: Mapping[str, Callable[[str], HostError]] = {
    "unwatched": lambda _: SetupError(
        "the host lacks the program `timeout` or `tee`, which Keyturn needs: "
        "install coreutils there. Nothing was started"
    ),
    "unmarked": lambda place: SetupError(
        f"the host cannot write a marker in {place}, so Keyturn could not query the step after a "
        "crash. Make the login the owner of that directory, or set "
        f"{step_marker.MARKER_SETTING} of the host to another one, or to {step_marker.NO_MARKER} "
        "to run without markers. Nothing was started"
    ),
    "full": lambda place: SetupError(
        f"the host's disk is full: it cannot write a marker in {place}, so Keyturn could not "
        "query the step after a crash. Free some space there and try again. Nothing was started"
    ),
    "held": lambda _: AlreadyStartedError(
        "the host had already started this step, so it was not run a second time"
    ),
    "fenced": lambda _: FencedError(
        "another worker has taken over this run on the host. Nothing was started"
    ),
    "short": lambda _: SetupError(
        "the command's input did not arrive completely: check whether the host's disk is full. "
        "Nothing was started"
    ),
}
_KNOWN_ENDS = frozenset(why.encode() for why in _NOT_STARTED)
# Words that no shell changes, and characters that some shells change within single quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_./:,@-]+", re.ASCII)
_SPECIAL = re.compile(r"['\\!]")
_STATUS_OF_TIMEOUT = frozenset({124, 128 + signal.SIGKILL})
_STATUS_OF_SIGNALS = range(129, 160)


class LineSplitter:
    """Splits one stream of a command into lines while it arrives, for a listener."""

    def __init__(self, word: bytes, listener: OutputListener) -> None:
        """Split the output between the first two lines that contain *word*."""
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
        """Return the part of a line that the command itself printed; None if there is none."""
        before, word, _ = line.partition(self._word)
        is_within = self._frame_count == 1
        if not word:
            return line if is_within else None
        self._frame_count += 1
        # Output without a line end shares its line with the closing frame.
        return before if is_within and before else None


class StreamBuffer:
    """Stores a stream: all of a short one, the beginning and the end of a long one.

    Args:
        word: frames the command's own output.
        on_output: called with its lines while they arrive.
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
        """Return the exit status or reason in the last line, if it has this word; else None."""
        tail = bytes((self._first[-100:] + self._last[-100:])[-100:])
        before, _, end = tail.removesuffix(b"\n").rpartition(b" ")
        ended = tail.endswith(b"\n") and (end.isdigit() or end in _KNOWN_ENDS)
        return end if ended and before.endswith(word) else None

    def read_after(self, begin: bytes) -> tuple[bytes, int]:
        """Return the bytes after the line *begin*, and how many are missing in the middle.

        A line in their place says so. Output before *begin* comes from the login shell.
        """
        found = self._first.find(begin)
        first = bytes(self._first[found + len(begin) :] if found >= 0 else self._first)
        last = bytes(self._last[-_KEEP_LAST:])
        left_out = self.size - len(self._first) - len(last)
        gap = f"\n[… {left_out} bytes omitted …]\n".encode() if left_out else b""
        return first + gap + last, left_out


class WrappedCommand:
    """One command, wrapped for one host, with the parser of its output."""

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
        """The first line of input, which the script waits for."""
        return f"{self._word}\n".encode()

    @property
    def line(self) -> str:
        """The line for the host's login shell."""
        marker, stdin = self._shell.marker, self._shell.stdin
        script = step_marker.STEP_SCRIPT if marker else _SCRIPT
        script = _READ_STDIN % script if stdin else _NO_STDIN % script
        frame = ("keyturn", str(self._shell.deadline), self._shell.note)
        if marker is not None:
            frame += (
                *marker.arguments,
                str(len(stdin.encode())),
                step_marker.hash_word(self._word),
            )
        own = " ".join(map(quote_word, frame))
        return f"sh -c {_quote_words((script,))} {own} {_quote_words(self._shell.words)}"

    @property
    def has_started(self) -> bool:
        """Whether the script runs and reads its input."""
        return self.out.has_line(self._begin)

    @property
    def has_ended(self) -> bool:
        """Whether both streams have ended, with the same exit status."""
        return self._find_end() is not None

    def read_answer(self, *, seconds: float) -> Answer:
        """Return the answer of a command that ended by itself. Raises HostError.

        seconds: how long it took, measured here. An exit status of `timeout` is taken as one only
        if the deadline has passed.
        """
        end = self._find_end()
        if end is None:
            raise UnknownOutcomeError(
                "the output ended before the command did, so its outcome is unknown"
                f"{self.format_last_line()}: check the host"
            )
        if end in _NOT_STARTED:
            marker = self._shell.marker
            raise _NOT_STARTED[end]((marker and marker.directory) or "~/.keyturn")
        refuse_stopped(int(end), seconds, self._shell.deadline)
        out, out_left = self._read_output(self.out, end)
        err, err_left = self._read_output(self.err, end)
        return Answer(int(end), out, err, omitted_bytes=out_left + err_left)

    def _find_end(self) -> str | None:
        word = self._word.encode()
        out, err = self.out.find_end(word), self.err.find_end(word)
        return out.decode() if out and out == err else None

    def _read_output(self, kept: StreamBuffer, end: str) -> tuple[str, int]:
        output, left_out = kept.read_after(self._begin)
        return _decode(output[: -len(f"{self._word} {end}\n")]), left_out

    def format_last_line(self) -> str:
        """Return the last line of output for an error message: often the login shell's own."""
        for kept in (self.err, self.out):
            output, _ = kept.read_after(self._begin)
            text = _decode(output).strip()
            if text:
                return f" (last output: {text.splitlines()[-1][-200:]})"
        return ""


def refuse_stopped(status: int, seconds: float, deadline: int) -> None:
    """Raise UnknownOutcomeError if this exit status means that the command was stopped.

    seconds: how long it took. deadline: its limit in seconds.
    """
    if status in _STATUS_OF_TIMEOUT and seconds >= deadline:
        raise CommandTimeoutError(
            f"the host stopped the command at its deadline of {deadline} s: it is unknown how far "
            "it came"
        )
    if status in _STATUS_OF_SIGNALS:
        raise UnknownOutcomeError(
            f"a signal ended the command ({format_signal(status - 128)}, "
            f"exit status {status}): it is unknown how far it came"
        )


def _decode(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


def quote_word(word: str) -> str:
    """Quote a word so that sh, bash, dash, zsh, csh and fish all parse it alike.

    shlex.quote is for sh alone: csh expands `!` within single quotes, `\\` is an escape there in
    fish, zsh expands a bare `=ls`. Outside of quotes a backslash means the same to all.
    """
    return word if _PLAIN.fullmatch(word) else "'" + _SPECIAL.sub(r"'\\\g<0>'", word) + "'"


@lru_cache(maxsize=256)
def _quote_words(words: tuple[str, ...]) -> str:
    """Quote words. The result is cached: many hosts run the same command, and this is slow."""
    return " ".join(map(quote_word, words))


def format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
