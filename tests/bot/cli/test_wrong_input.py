"""Wrong input of a terminal is answered by one message and exit status 2, never by a traceback."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from tests.policies import write_policy

# Not UTF-8: Python decodes the byte 0xff of an argument like this.
_NOT_UTF8 = "\udcff"
_HOSTILE = ("", "9" * 400, "\x1b[2J\n", "a" * 100_000)
# They end when they are interrupted, or read standard input until it ends.
_ENDLESS = {("serve",), ("worker",), ("mcp",)}


def _list_commands(
    group: click.Group, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from _list_commands(command, (*above, name))
        elif (*above, name) not in _ENDLESS:
            yield (*above, name), command


_COMMANDS = list(_list_commands(main))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "wrong"
    write_policy(directory / "policy")
    (directory / "binary").write_bytes(b"\xff\xfe\x00\x80" * 50)
    return directory


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("KEYTURN_DATA", str(place / "var"))
    monkeypatch.setenv("KEYTURN_POLICY", str(place / "policy"))
    monkeypatch.setenv("KEYTURN_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("KEYTURN_TOKEN", "kt_x")


def _type(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def _assert_answered(result: Result, words: object) -> None:
    is_end = result.exception is None or isinstance(result.exception, SystemExit)
    assert is_end, (words, repr(result.exception)[:300])
    assert "Traceback" not in result.output, words
    assert len(result.stderr) < 5_000 + 2 * 100_000, words


def _list_parameters(command: click.Command) -> tuple[int, list[str]]:
    """Return how many arguments a command needs, and its options that take a value."""
    arguments = sum(isinstance(one, click.Argument) for one in command.params)
    options = [
        one.opts[0]
        for one in command.params
        if isinstance(one, click.Option) and not (one.is_flag or one.count)
    ]
    return arguments, options


@pytest.mark.parametrize(("name", "command"), _COMMANDS, ids=[" ".join(n) for n, _ in _COMMANDS])
def test_hostile_values_are_answered_without_a_traceback(
    name: tuple[str, ...], command: click.Command, place: Path
):
    arguments, options = _list_parameters(command)
    files = (str(place / "binary"), str(place))
    for value in (*_HOSTILE, *files):
        words = (*name, *[value] * arguments)
        _assert_answered(_type(*words), words)
    for option in options:
        words = (*name, option, files[0], *["1"] * arguments)
        _assert_answered(_type(*words), words)


@pytest.mark.parametrize(("name", "command"), _COMMANDS, ids=[" ".join(n) for n, _ in _COMMANDS])
def test_argument_that_is_not_utf8_is_one_line_and_status_2(
    name: tuple[str, ...], command: click.Command
):
    result = _type(*name, f"x{_NOT_UTF8}")
    assert result.exit_code == 2
    place = len(name) + 1
    assert result.stderr == (
        f"keyturn: word {place} of the command line is not UTF-8: 'x\\udcff'\n"
    )


def test_bytes_that_are_not_utf8_are_refused_by_the_real_command(tmp_path: Path):
    import subprocess
    import sys

    command = [os.fsencode(Path(sys.executable).with_name("keyturn")), b"runs", b"--host", b"\xff"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count(b"\n") == 1
    assert b"word 3 of the command line is not UTF-8" in result.stderr
