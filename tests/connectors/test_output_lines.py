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


def heard(*chunks: bytes) -> list[str]:
    lines: list[str] = []
    splitter = LineSplitter(WORD, lines.extend)
    for chunk in chunks:
        splitter.add(chunk)
    return lines


def framed(output: bytes) -> bytes:
    return b"Welcome!\n" + WORD + b" begins\n" + output + WORD + b" 0\n"


def test_only_the_commands_own_lines_are_shown() -> None:
    assert heard(framed(b"one\ntwo\n")) == ["one", "two"]


def test_what_has_no_end_of_line_is_shown_too() -> None:
    assert heard(framed(b"one\nand a half")) == ["one", "and a half"]


def test_a_bar_of_progress_is_shown_as_it_grows() -> None:
    assert heard(framed(b"10 %\r20 %\r"), b"30 %\r\n")[:2] == ["10 %", "20 %"]
    assert heard(WORD + b" begins\nhalf\r", b"\nwhole\n") == ["half", "whole"]


def test_a_line_without_end_is_shown_in_pieces_and_not_kept() -> None:
    lines = heard(WORD + b" begins\n", *[b"x" * 1000] * 100)
    assert len(lines) >= 20
    assert {len(line) for line in lines} == {MAX_LINE_BYTES}


def test_bytes_that_are_no_text_are_spelt_out() -> None:
    assert heard(framed(b"\xff\xfe\n")) == ["\\xff\\xfe"]


@given(st.binary(max_size=300), st.lists(st.integers(0, 400), max_size=8))
def test_it_does_not_matter_how_it_is_cut(output: bytes, cuts: Sequence[int]) -> None:
    whole = framed(output)
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    pieces = [whole[first:last] for first, last in pairwise(ends)]
    assert heard(*pieces) == heard(whole)


@pytest.mark.real
def test_a_real_host_is_read_before_it_has_ended(sshd: Sshd) -> None:
    """The command goes on only once somebody has heard its first line and has made a file."""
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
