"""The program by which an enrolled host checks who signed a plan before it runs a step of it.

It is `connectors/scripts/run-signed.sh`; docs/enrolled-hosts.md describes what it checks.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from connectors.command import Query, Shell
from connectors.errors import ParseError
from connectors.rows import Rows, make_odd_row, parse_each
from connectors.script import SCRIPTS_DIRECTORY, load_code
from connectors.step_status import MarkerState, StepStatus
from connectors.sudo import SudoRule

PROGRAM_PATH = f"{SCRIPTS_DIRECTORY}/run-signed"
PROGRAM_TEXT = f"{load_code('run-signed')}\n"
SUDO_RULE = SudoRule(PROGRAM_PATH)
_ARGV = ("sudo", "-n", "--", PROGRAM_PATH)
_FILES = (PROGRAM_PATH, "/etc/keyturn/signers", "/etc/keyturn/floor")
# A time of more digits is none, and cannot be shown.
_RECORDED = re.compile(r"p (\S+)/([1-9]\d*)-(do|undo) (\d{1,11}) (\d+|unknown)", re.ASCII)
_RECORD_LINE = re.compile(r"[padsg] ")
_DIGEST = hashlib.sha256(PROGRAM_TEXT.encode()).hexdigest()

# The exit status of the program where the step began before, and its end is not known.
_BEGAN_ALREADY = 65
_STATES = {
    "never": MarkerState.WAITING,
    "closed": MarkerState.GIVEN_UP,
    "expired": MarkerState.GIVEN_UP,
    "running": MarkerState.RUNNING,
    "unknown": MarkerState.INTERRUPTED,
}


@dataclass(frozen=True)
class SignedTexts:
    """What people signed, as the program reads it."""

    document: str
    section: str
    """The steps on this host."""
    signatures: Sequence[str] = ()
    """As `ssh-keygen -Y sign` writes them."""

    @property
    def lines(self) -> Sequence[str]:
        """Each line of them, after a letter and a blank."""
        parts = [("d", self.document), ("s", self.section)]
        parts += [("g", signature) for signature in self.signatures]
        return [
            f"{letter} {line}"
            for letter, text in parts
            for line in text.removesuffix("\n").split("\n")
        ]


@dataclass(frozen=True)
class RecordedStep:
    """A step that people had an enrolled host run without Keyturn."""

    number: int
    action: str
    """do or undo."""
    began_at: int
    """By the clock of the host, in seconds since 1970."""
    status: int | None
    """None while it runs, and where the host does not know how it ended."""
    texts: SignedTexts


def frame_input(
    action: str, step: int, document: str, section: str, signatures: Iterable[str]
) -> str:
    """Return what the program reads.

    Args:
        action: do, undo, close or report.
        step: its number in the section.
        document: the text that people signed.
        section: the text of the steps on this host.
        signatures: as `ssh-keygen -Y sign` writes them.
    """
    texts = SignedTexts(document, section, tuple(signatures))
    return "".join(f"{line}\n" for line in (f"a {action} {step}", *texts.lines))


def parse_texts(lines: Iterable[str]) -> SignedTexts:
    """Return what SignedTexts wrote as lines. Raises ParseError."""
    found: dict[str, list[str]] = {"d": [], "s": [], "g": []}
    for line in lines:
        letter, blank, text = line.partition(" ")
        if letter not in found or not blank:
            raise ParseError(f"“{line[:40]}” is no line of a signed plan")
        found[letter].append(f"{text}\n")
    signed = "".join(found["g"]).split("-----BEGIN SSH SIGNATURE-----\n")
    signatures = tuple(f"-----BEGIN SSH SIGNATURE-----\n{one}" for one in signed[1:])
    if signed[0] or not (found["d"] and found["s"]):
        raise ParseError("it is not complete")
    return SignedTexts("".join(found["d"]), "".join(found["s"]), signatures)


def query_history(days: int) -> Query[Rows[RecordedStep]]:
    """Query what people did on a host without Keyturn, for the login for changes."""
    return Query(Shell(_ARGV, f"a history {days}\n"), parse_history)


def parse_history(text: str) -> Rows[RecordedStep]:
    """Parse the record of a host, oldest step first.

    Lines that are not of the record are odd, as are steps that are not complete. Whether the rest
    of a step is what people signed is for its signatures to say.
    """
    lines = [line for line in text.split("\n") if line]
    known = [line for line in lines if _RECORD_LINE.match(line)]
    # A step begins with p and a; one that has lost its p is not part of the step before.
    starts = [
        n
        for n, line in enumerate(known)
        if n == 0 or line[0] == "p" or (line[0] == "a" and known[n - 1][0] != "p")
    ]
    blocks = ["\n".join(known[start:end]) for start, end in pairwise([*starts, len(known)])]
    steps = parse_each(blocks, _parse_recorded_step)
    foreign = [make_odd_row(line) for line in lines if not _RECORD_LINE.match(line)]
    in_order = sorted(steps, key=lambda step: (step.began_at, step.number))
    return Rows(in_order, [*foreign, *steps.odd])


def _parse_recorded_step(block: str) -> RecordedStep:
    head, _, sent = block.partition("\n")
    found = _RECORDED.fullmatch(head)
    if found is None:
        raise ParseError("it is no step of the record of a host")
    _, number, action, began, status = found.groups()
    asked, *texts = sent.split("\n")
    if asked != f"a {action} {number}":
        raise ParseError("it does not say what the host was sent")
    return RecordedStep(
        int(number),
        action,
        int(began),
        int(status) if status.isdigit() else None,
        parse_texts(texts),
    )


@dataclass(frozen=True)
class SignedStep:
    """A step of a plan, with what its host needs to check who signed it."""

    number: int
    """Its number in the section."""
    texts: SignedTexts

    def sign_command(self, command: Shell) -> Shell:
        """Return the command that has the host run this step.

        The host's own record takes the place of the marker: it runs the step once, and root keeps
        how it ended.
        """
        framed = _frame(self.number, "do", self.texts)
        return replace(command, argv=_ARGV, stdin=framed, marker=None, begun_status=_BEGAN_ALREADY)

    def query_record(self) -> Query[StepStatus]:
        """Query what the host's record says of the step. It needs no signatures."""
        unsigned = replace(self.texts, signatures=())
        framed = _frame(self.number, "report", unsigned)
        return Query(Shell(_ARGV, stdin=framed), parse_record)

    def query_after_closing(self) -> Query[StepStatus]:
        """Have the host never begin the step, unless it has begun, and query its record."""
        framed = _frame(self.number, "close", self.texts)
        return Query(Shell(_ARGV, stdin=framed), parse_record)


def _frame(number: int, action: str, texts: SignedTexts) -> str:
    return frame_input(action, number, texts.document, texts.section, texts.signatures)


def parse_record(text: str) -> StepStatus:
    """Parse what the program prints of a step: how it ended, when, and what it printed."""
    lines = text.splitlines()
    ended = re.fullmatch(r"do (\d{1,3}|[a-z]+)", lines[0] if lines else "")
    if ended is None or (not ended[1].isdigit() and ended[1] not in _STATES):
        raise ParseError(f"the host printed {text[:100]!r} instead of the record of a step")
    times = {
        name: int(seconds)
        for line in lines[2:5]
        for name, seconds in re.findall(r"^(began|end|whole) (\d+)$", line)
    }
    is_known = ended[1].isdigit()
    return StepStatus(
        MarkerState.ENDED if is_known else _STATES[ended[1]],
        status=int(ended[1]) if is_known else None,
        started_at=times.get("began"),
        ended_at=times.get("end"),
        out=_join_lines(lines, "out "),
        err=_join_lines(lines, "err "),
        is_complete="whole" in times or not is_known,
    )


def _join_lines(lines: Iterable[str], prefix: str) -> str:
    return "".join(f"{line.removeprefix(prefix)}\n" for line in lines if line.startswith(prefix))


def query_enrolment() -> Query[Sequence[str]]:
    """Query what a host lacks to check signatures: sentences, none if it is enrolled."""
    return Query(Shell(("sha256sum", "--", *_FILES)), parse_enrolment, frozenset({0, 1}))


def parse_enrolment(text: str) -> Sequence[str]:
    """Parse the lines of sha256sum: 64 digits, two characters and the name of each file."""
    found = {line[66:]: line[:64] for line in text.splitlines()}
    missing = [file for file in _FILES if file not in found]
    if missing:
        return [f"it is not enrolled: {', '.join(missing)} cannot be read"]
    if found[PROGRAM_PATH] != _DIGEST:
        return [f"{PROGRAM_PATH} is not that of this version: find out who changed it"]
    return []
