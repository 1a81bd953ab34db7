"""What an enrolled host is sent, and what it says of its files."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from connectors.command import Shell
from connectors.run_signed import (
    PROGRAM_PATH,
    PROGRAM_TEXT,
    frame_input,
    parse_enrolment,
    query_enrolment,
    sign_step,
)

SIGNERS, FLOOR = "/etc/keyturn/signers", "/etc/keyturn/floor"
DIGEST = hashlib.sha256(PROGRAM_TEXT.encode()).hexdigest()


def test_step_is_framed_line_by_line():
    assert frame_input("do", 2, "keyturn-plan 1\nreason\n", "keyturn-section 1\n", ["a\nb\n"]) == (
        "a do 2\nd keyturn-plan 1\nd reason\ns keyturn-section 1\ng a\ng b\n"
    )


def test_command_of_a_step_becomes_the_program_with_the_limits_of_the_step():
    step = Shell(("systemctl", "reload", "nginx"), error_pattern="failed", deadline=90)
    sent = sign_step(step, 1, "d\n", "s\n", ())
    assert sent.argv == ("sudo", "-n", "--", PROGRAM_PATH)
    assert (sent.stdin, sent.error_pattern, sent.deadline) == ("a do 1\nd d\ns s\n", "failed", 90)


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
