"""What an enrolled host is sent, and what it says of its files."""

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.command import Answer, Shell
from connectors.errors import AlreadyStartedError, CommandError, ParseError
from connectors.fleet import Fleet
from connectors.inventory import Inventory
from connectors.rows import Rows
from connectors.run_signed import (
    PROGRAM_PATH,
    PROGRAM_TEXT,
    SignedStep,
    SignedTexts,
    frame_input,
    parse_enrolment,
    parse_history,
    parse_record,
    query_enrolment,
)
from connectors.step_marker import StepMarker
from connectors.step_status import MarkerState, StepStatus
from tests.playground.keys import make_key

SIGNERS, FLOOR = "/etc/keyturn/signers", "/etc/keyturn/floor"
DIGEST = hashlib.sha256(PROGRAM_TEXT.encode()).hexdigest()


def test_step_is_framed_line_by_line():
    assert frame_input("do", 2, "keyturn-plan 1\nreason\n", "keyturn-section 1\n", ["a\nb\n"]) == (
        "a do 2\nd keyturn-plan 1\nd reason\ns keyturn-section 1\ng a\ng b\n"
    )


def test_command_of_a_step_becomes_the_program_with_the_limits_of_the_step():
    step = Shell(("systemctl", "reload", "nginx"), error_pattern="failed", deadline=90)
    step = replace(step, marker=StepMarker("f00d-7", 1))
    sent = SignedStep(1, SignedTexts("d\n", "s\n")).sign_command(step)
    assert sent.argv == ("sudo", "-n", "--", PROGRAM_PATH)
    assert (sent.stdin, sent.error_pattern, sent.deadline) == ("a do 1\nd d\ns s\n", "failed", 90)
    # The record of the host takes the place of the marker, which the login could forge.
    assert sent.marker is None


def test_record_is_read_without_signatures_and_closed_with_them():
    step = SignedStep(2, SignedTexts("d\n", "s\n", ("g\n",)))
    read, close = step.query_record().command, step.query_after_closing().command
    assert isinstance(read, Shell)
    assert isinstance(close, Shell)
    assert (read.stdin, close.stdin) == ("a report 2\nd d\ns s\n", "a close 2\nd d\ns s\ng g\n")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("do never\nundo never\n", StepStatus(MarkerState.WAITING)),
        ("do expired\nundo never\n", StepStatus(MarkerState.GIVEN_UP)),
        (
            "do closed\nundo never\nbegan 5\nend 5\n",
            StepStatus(MarkerState.GIVEN_UP, 0, None, 5, 5),
        ),
        ("do running\nundo never\nbegan 5\n", StepStatus(MarkerState.RUNNING, 0, None, 5)),
        ("do unknown\nundo 0\nbegan 5\n", StepStatus(MarkerState.INTERRUPTED, 0, None, 5)),
        (
            "do 3\nundo never\nbegan 5\nend 7\nwhole 8\nout one\nout end 9\nout \nerr two\n",
            StepStatus(
                MarkerState.ENDED, 0, 3, 5, 7, out="one\nend 9\n\n", err="two\n", is_complete=True
            ),
        ),
        (
            "do 0\nundo never\nbegan 5\nend 7\nout one\n",
            StepStatus(MarkerState.ENDED, 0, 0, 5, 7, out="one\n", is_complete=False),
        ),
    ],
)
def test_record_of_a_step_is_read(text: str, status: StepStatus):
    assert parse_record(text) == status


@pytest.mark.parametrize(
    "text", ["", "do\n", "do maybe\n", "undo 0\n", "do 0 1\n", "not run: x\n"]
)
def test_record_that_says_something_else_is_refused(text: str):
    with pytest.raises(ParseError, match="instead of the record of a step"):
        parse_record(text)


def test_step_that_began_before_has_an_unknown_outcome():
    class Pool:
        def run(self, *_: object, **__: object) -> Answer:
            return Answer(65, "")

        def close(self) -> None: ...

    entry = {"address": "web1", "user": "kt", "host_key": make_key().public, "area": "web"}
    fleet = Fleet(Inventory.model_validate({"hosts": {"web1": entry}}), Pool())
    sent = SignedStep(1, SignedTexts("d\n", "s\n")).sign_command(Shell(("true",)))
    with pytest.raises(AlreadyStartedError):
        fleet.run_command("web1", sent)
    with pytest.raises(CommandError):
        fleet.run_command("web1", Shell(("true",)))


def _write_lines(program: str = DIGEST, *more: str) -> str:
    rest = [f"{'0' * 64}  {file}" for file in more]
    return "\n".join([f"{program}  {PROGRAM_PATH}", *rest]) + "\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_write_lines(DIGEST, SIGNERS, FLOOR), ""),
        (_write_lines("1" * 64, SIGNERS, FLOOR), "is not that of this version"),
        (_write_lines(DIGEST, SIGNERS), f"it is not enrolled: {FLOOR} cannot be read"),
        ("", f"it is not enrolled: {PROGRAM_PATH}, {SIGNERS}, {FLOOR} cannot be read"),
        ("sha256sum: something else\n", "it is not enrolled"),
    ],
)
def test_host_is_enrolled_only_with_all_files_and_this_program(text: str, words: str):
    found = parse_enrolment(text)
    assert words in " ".join(found)
    assert bool(found) == bool(words)


@pytest.mark.real
def test_files_are_read_as_sha256sum_prints_them(tmp_path: Path):
    command = query_enrolment().command
    assert isinstance(command, Shell)
    file = tmp_path / "program"
    file.write_text(PROGRAM_TEXT)
    words = [str(file) if word == PROGRAM_PATH else word for word in command.words]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    first = done.stdout.splitlines()[0]
    assert first == f"{DIGEST}  {file}"


def test_record_of_a_host_on_which_no_one_ran_anything_is_empty():
    assert parse_history("") == Rows()


STEP = "p x/1-do 1 0\na do 1\nd d\ns s\n"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("something else\n", "something else"),
        ("p x/2-do 1 0\n", "does not say what the host was sent"),
        ("p x/2-look 1 0\na do 2\nd d\ns s\n", "is no step of the record"),
        ("p x/2-do never 0\na do 2\nd d\ns s\n", "is no step of the record"),
        ("p x/2-do 999999999999 0\na do 2\nd d\ns s\n", "is no step of the record"),
        ("p x/2-do 1 0\na do 3\nd d\ns s\n", "does not say what the host was sent"),
        ("p x/2-do 1 0\na do 2\nd d\n", "it is not complete"),
        ("p x/2-do 1 0\na do 2\nd d\ns s\ng -----END SSH SIGNATURE-----\n", "not complete"),
        ("a do 2\nd d\ns s\n", "is no step of the record"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_odd_part_of_a_record_is_told_and_the_other_steps_are_kept(
    odd: str, words: str, is_first: bool
):
    other = STEP.replace("x/1", "y/1").replace("1 0\n", "5 0\n")
    history = parse_history("".join([odd, STEP, other] if is_first else [STEP, odd, other]))
    assert [step.began_at for step in history] == [1, 5]
    (row,) = history.odd
    assert words in f"{row.text}: {row.reason}"
