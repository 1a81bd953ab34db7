"""Lines of a command's output, while it runs."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors import ssh
from connectors.command import RunHooks, Shell
from connectors.inventory import Host
from connectors.wrapper import MAX_LINE_BYTES, LineSplitter
from tests.playground.sshd import Sshd

WORD = b"0123456789abcdef0123456789abcdef"


def read_lines(*chunks: bytes) -> list[str]:
    lines: list[str] = []
    splitter = LineSplitter(WORD, lines.extend)
    for chunk in chunks:
        splitter.add(chunk)
    return lines


def frame_output(output: bytes) -> bytes:
    return b"Welcome!\n" + WORD + b" begins\n" + output + WORD + b" 0\n"


def test_live_output_shows_only_lines_of_the_command() -> None:
    assert read_lines(frame_output(b"one\ntwo\n")) == ["one", "two"]


def test_live_output_shows_a_last_line_without_a_newline() -> None:
    assert read_lines(frame_output(b"one\nand a half")) == ["one", "and a half"]


def test_live_output_shows_each_step_of_a_progress_bar() -> None:
    assert read_lines(frame_output(b"10 %\r20 %\r"), b"30 %\r\n")[:2] == ["10 %", "20 %"]
    assert read_lines(WORD + b" begins\nhalf\r", b"\nwhole\n") == ["half", "whole"]


def test_live_output_splits_an_endless_line_at_the_line_limit() -> None:
    lines = read_lines(WORD + b" begins\n", *[b"x" * 1000] * 100)
    assert len(lines) >= 20
    assert {len(line) for line in lines} == {MAX_LINE_BYTES}


def test_live_output_escapes_bytes_that_are_not_utf_8() -> None:
    assert read_lines(frame_output(b"\xff\xfe\n")) == ["\\xff\\xfe"]


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=8))
def test_live_output_is_the_same_however_the_stream_is_split(
    output: bytes, cuts: Sequence[int]
) -> None:
    whole = frame_output(output)
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    pieces = [whole[first:last] for first, last in pairwise(ends)]
    assert read_lines(*pieces) == read_lines(whole)


@pytest.mark.real
def test_live_output_of_a_host_is_read_while_the_command_runs(sshd: Sshd) -> None:
    """The command continues only after its first line was received, which creates a file."""
    go_on = sshd.directory / "go-on"
    lines: list[str] = []

    def listen(output: Sequence[str]) -> None:
        lines.extend(output)
        go_on.touch()

    script = 'echo first; until [ -e "$1" ]; do sleep 0.01; done; printf last; echo no >&2'
    host = Host.model_validate({**sshd.inventory_entry(area="infra"), "name": "web1"})
    session = ssh.connect(host, sshd.directory.parent.parent)
    try:
        command = Shell(("sh", "-c", script, "sh", str(go_on)))
        answer = session.run(command, RunHooks(on_output=listen))
    finally:
        session.close()
    assert answer.out == "first\nlast"
    assert sorted(lines) == ["first", "last", "no"]
