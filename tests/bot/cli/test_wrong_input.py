"""Wrong input of a terminal is answered by one line and exit status 2, never by a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.cli.context import ACTING_PERSON_ADVICE
from bot.model.signing import load_signing_key
from tests.bot.features.tables import collect
from tests.cli_commands import load_commands
from tests.empty_database import create_empty_database
from tests.policies import write_policy

# Not UTF-8: Python decodes the byte 0xff of an argument like this.
_NOT_UTF8 = "\udcff"
_HOSTILE = ("", "9" * 400, "\x1b[2J\n", "a" * 20_000)
# They end when they are interrupted, or read standard input until it ends.
_ENDLESS = {("serve",), ("worker",), ("mcp",)}


def _list_commands(
    group: click.Group, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(load_commands(group).items()):
        if isinstance(command, click.Group):
            yield from _list_commands(command, (*above, name))
        elif (*above, name) not in _ENDLESS:
            yield (*above, name), command


# The name of a command, and one of its parameters.
Sample = tuple[tuple[str, ...], click.Parameter]

# Those that answer another program in its own form test that by themselves.
_COMMANDS = [
    (name, command)
    for name, command in _list_commands(main)
    if " ".join(name) not in collect("COMMANDS_OF_OTHER_PROGRAMS")
]
# How many parameters of each type are tried with hostile values: all of them take a minute.
_TRIED_OF_EACH_TYPE = 2


def _parametrize(samples: Collection[Sample]) -> pytest.MarkDecorator:
    ids = (" ".join([*name, parameter.opts[0]]) for name, parameter in samples)
    return pytest.mark.parametrize(("name", "parameter"), samples, ids=ids)


def _list_samples() -> list[Sample]:
    """Return some commands and parameters of each type that parameters have."""
    samples: dict[tuple[object, ...], list[Sample]] = {}
    for name, command in _COMMANDS:
        for parameter in command.params:
            if isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count):
                continue
            kind = (type(parameter.type), parameter.nargs, isinstance(parameter, click.Option))
            samples.setdefault(kind, []).append((name, parameter))
    return [one for of_type in samples.values() for one in of_type[:_TRIED_OF_EACH_TYPE]]


def _list_files() -> list[Sample]:
    """Return the commands and parameters for the files and directories that are read."""
    return [
        (name, parameter)
        for name, command in _COMMANDS
        for parameter in command.params
        if isinstance(parameter.type, click.File)
        or (isinstance(parameter.type, click.Path) and parameter.type.exists)
    ]


def _list_outputs() -> list[Sample]:
    """Return the commands and parameters for the files that are written."""
    return [
        (name, parameter)
        for name, command in _COMMANDS
        for parameter in command.params
        if isinstance(parameter.type, click.Path) and parameter.type.writable
    ]


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
    return CliRunner().invoke(main, list(words), prog_name="keyturn")


def _build_words(name: tuple[str, ...], parameter: click.Parameter, value: str) -> list[str]:
    """Return a command line with this value of a parameter, and one for each other it needs."""
    [command] = [each for other, each in _COMMANDS if other == name]
    options, arguments = list[str](), list[str]()
    for each in command.params:
        given = value if each is parameter else "1"
        if isinstance(each, click.Argument):
            arguments.append(given)
        elif each is parameter or each.required:
            options += [each.opts[0], given]
    return [*name, *options, "--", *arguments]


def _assert_one_line(result: Result, words: object) -> None:
    assert result.exit_code == 2, (words, result.output[-300:], repr(result.exception))
    assert result.stderr.startswith("keyturn: "), words
    assert result.stderr.count("\n") == 1, (words, result.stderr)
    assert result.stdout == "", words


@pytest.fixture
def installation(place: Path) -> Path:
    """Return the place with a signing key and an empty database."""
    (place / "var").mkdir(mode=0o700)
    load_signing_key(place / "var" / "changelog.key")
    create_empty_database(place / "var" / "keyturn.db")
    (place / "var" / "keyturn.db").chmod(0o600)
    (place / "text").write_text("nothing of the kind\n")
    return place


_ACKNOWLEDGE = "changelog acknowledge 1 --lost 1 --reason lost"
# Command lines, their exit status, and a part of the message. @ stands for the directory.
_WRONG = (
    # Files and directories
    ("policy check @/missing", 2, "does not exist"),
    ("policy page @/missing", 2, "does not exist"),
    ("changelog verify --witness @/text", 2, "holds no checkpoint"),
    ("changelog verify --witness @/binary", 2, "holds no checkpoint"),
    (f"{_ACKNOWLEDGE} --as olga", 2, "add --witness FILE"),
    (f"{_ACKNOWLEDGE} --as olga --witness @/text", 2, "holds no checkpoint"),
    ("inventory import ansible @/text", 2, "not the output of ansible-inventory"),
    ("inventory import ansible @/binary", 2, "not UTF-8"),
    ("inventory import ssh-config @/text", 2, "no named hosts"),
    ("runbooks --html @/missing/page", 2, "No such file"),
    ("runbook new a --directory @/text", 2, "is a file"),
    # Values
    ("changelog verify --key zz", 2, "64 hex digits"),
    ("changelog verify --key keyturn/5d1f+00000000+AAAA", 2, "is not a verifier key"),
    ("token new dora --days x", 2, "not a valid integer"),
    ("delegate to adam --as olga --until nonsense", 2, "is not a time"),
    ("db copy --to mysql://x", 2, "invalid address"),
    ("db grants X-Y", 2, "not a valid role name"),
    ("manifest --http http://x", 2, "HTTPS addresses only"),
    ("manifest --http https://[x", 2, "is no address"),
    ("runbook new X", 2, "cannot be the words of a runbook"),
    ("completion csh", 2, "is not one of"),
    # Names that do not exist
    (f"{_ACKNOWLEDGE} --as eve --witness @/text", 3, "unknown person eve"),
    ("inventory check nope", 3, "there is no host 'nope'"),
    ("sudoers nope", 3, "there is no host 'nope'"),
    ("policy page --person eve", 3, "unknown person eve"),
    ("sign-in eve", 3, "unknown person eve"),
    ("token new eve --scope request", 3, "eve is not in the policy"),
    ("token list eve", 3, "unknown person eve"),
    ("delegate to eve --as olga --until 4h", 3, "eve is not in the policy"),
    ("resume --as eve --reason fixed", 3, "unknown person eve"),
    ("runbooks nope", 3, "no runbook begins with 'nope'"),
    *((line, *answer) for line, answer in collect("WRONG_INPUT").items()),
)


@pytest.mark.parametrize(("line", "status", "says"), _WRONG, ids=[line for line, *_ in _WRONG])
def test_wrong_input_is_one_line_with_its_exit_status(
    installation: Path, line: str, status: int, says: str
):
    result = _type(*line.replace("@", str(installation)).split())
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    assert says in result.stderr
    assert result.stderr.startswith("keyturn: ")
    assert result.stderr.count("\n") == 1


@_parametrize(_list_samples())
def test_hostile_values_are_answered_without_a_traceback(
    name: tuple[str, ...], parameter: click.Parameter, place: Path
):
    for value in (*_HOSTILE, str(place / "binary"), str(place)):
        words = _build_words(name, parameter, value)
        result = _type(*words)
        is_end = result.exception is None or isinstance(result.exception, SystemExit)
        assert is_end, (words, repr(result.exception)[:300])
        assert "Traceback" not in result.output, words
        if result.exit_code == 2:
            _assert_one_line(result, words)


@_parametrize(_list_files())
def test_file_that_cannot_be_read_is_one_line_and_status_2(
    name: tuple[str, ...], parameter: click.Parameter, place: Path
):
    takes_directory = isinstance(parameter.type, click.Path) and not parameter.type.file_okay
    for value in (str(place / "missing"), str(place / "binary" if takes_directory else place)):
        words = _build_words(name, parameter, value)
        result = _type(*words)
        _assert_one_line(result, words)
        assert value in result.stderr


@_parametrize(_list_outputs())
def test_directory_in_place_of_an_output_is_one_line_and_status_2(
    name: tuple[str, ...], parameter: click.Parameter, place: Path
):
    words = _build_words(name, parameter, str(place))
    _assert_one_line(_type(*words), words)


def test_unknown_option_of_each_command_is_one_line_with_the_help():
    for name, _command in _COMMANDS:
        result = _type(*name, "--unknown-option")
        _assert_one_line(result, name)
        assert result.stderr.endswith(f" (help: keyturn {' '.join(name)} --help)\n")


def test_unknown_option_is_one_line_of_json_where_json_is_wanted():
    result = _type("runs", "--unknown-option", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr)["status"] == 2


def test_missing_words_and_options_are_one_line():
    for words in (["token", "new"], ["token", "new", "dora"], ["stop", "all"], ["runs", "-n"]):
        _assert_one_line(_type(*words), words)


def test_missing_acting_person_says_what_to_do_and_where():
    for words in (["ban", "dora", "--reason", "stolen laptop"], ["delegate", "to", "stan"]):
        result = _type(*words)
        _assert_one_line(result, words)
        assert f"Missing option '--as'. {ACTING_PERSON_ADVICE} (help: " in result.stderr


def test_group_without_a_command_prints_its_help():
    for words in ([], ["policy"]):
        result = _type(*words)
        assert result.exit_code == 2
        assert result.stderr.startswith(" ".join(["Usage: keyturn", *words]))


def test_argument_that_is_not_utf8_is_one_line_and_status_2_for_each_command():
    for name, _command in _COMMANDS:
        result = _type(*name, f"x{_NOT_UTF8}")
        assert result.exit_code == 2, name
        assert result.stderr == (
            f"keyturn: word {len(name) + 1} of the command line is not UTF-8: 'x\\udcff'\n"
        )


def test_bytes_that_are_not_utf8_are_refused_by_the_real_command(tmp_path: Path):
    command = [os.fsencode(Path(sys.executable).with_name("keyturn")), b"runs", b"--host", b"\xff"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count(b"\n") == 1
    assert b"word 3 of the command line is not UTF-8" in result.stderr
