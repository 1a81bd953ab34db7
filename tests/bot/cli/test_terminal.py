"""The command line in a real terminal: help, completion and Ctrl-C."""

import contextlib
import fcntl
import os
import pty
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bot.__main__ import main
from bot.cli.command_table import SECTIONS, CommandEntry
from bot.cli.sections import KeyturnCommand
from bot.cli.terminal import style_state
from bot.features import list_commands
from bot.model.run_states import ON_HOLD_DISPLAY, RUN_STATUS_DISPLAYS, Tone
from tests.cli_commands import load_commands
from tests.cli_process import begin

BIN = Path(sys.executable).parent
KEYTURN = str(BIN / "keyturn")


class Terminal:
    """A program with a screen of 80 columns. output: what it has shown.

    output: where the output of `keyturn` goes, if not to the screen.
    """

    def __init__(self, words: list[str], output: int | None = None, **environment: str) -> None:
        self.output = ""
        self._screen, ours = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        usual = {"TERM": "xterm-256color", "PATH": f"{BIN}:{os.environ['PATH']}", "PS1": "$ "}
        env = os.environ | usual | environment
        self._program = (
            begin(words[1:], [ours, ours if output is None else output, ours], env=env)
            if words[0] == KEYTURN
            else subprocess.Popen(
                words,
                stdin=ours,
                stdout=ours,
                stderr=ours,
                env=env,
                start_new_session=True,
                preexec_fn=_as_a_shell_begins_it,
            )
        )
        os.close(ours)

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def shows(self, words: str, *, seconds: float = 60) -> bool:
        """Wait until it shows that."""
        deadline = time.monotonic() + seconds
        while words not in self.output and time.monotonic() < deadline:
            if select.select([self._screen], [], [], 0.2)[0]:
                try:
                    self.output += os.read(self._screen, 65_536).decode(errors="replace")
                except OSError:  # it has ended
                    break
        return words in self.output

    def ended(self) -> int:
        """Wait for its end, and return its exit status."""
        self.shows("\0", seconds=60)
        return self._program.wait()

    def close(self) -> None:
        self._program.kill()
        self._program.wait()
        os.close(self._screen)


def _as_a_shell_begins_it() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Whoever runs the tests in the background has Ctrl-C ignored, and so would what they start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def a_terminal(*words: str, output: int | None = None, **environment: str) -> Generator[Terminal]:
    terminal = Terminal([*words], output, **environment)
    try:
        yield terminal
    finally:
        terminal.close()


def test_help_lists_every_command_in_one_section():
    listed = Counter(one.name for entries in main.sections.values() for one in entries)
    assert listed == Counter(list(load_commands(main)))


def test_help_lists_each_command_as_the_command_describes_itself():
    commands = load_commands(main)
    for entry in [one for entries in main.sections.values() for one in entries]:
        command = commands[entry.name]
        assert (entry.name, entry.summary) == (command.name, command.get_short_help_str(1000))
        assert not command.hidden
    for entry in list_commands():
        if entry.group:
            group = commands[entry.group]
            assert isinstance(group, click.Group)
            added = load_commands(group)[entry.name]
            assert entry.summary == added.get_short_help_str(1000)


_SLOW = {
    *("sqlalchemy", "pydantic", "fastapi", "starlette", "slack_bolt", "slack_sdk", "paramiko"),
    *("cedarpy", "nacl", "cryptography", "jinja2", "ruamel", "runbooks"),
}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["runs"], ["run", "--help"]])
def test_command_imports_only_what_it_needs(tmp_path: Path, words: list[str]):
    program = (
        "import sys\nfrom bot.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    # A port that no service listens on.
    environment = {**os.environ, "KEYTURN_TOKEN": "kt_none", "KEYTURN_PORT": "1"}
    result = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == (words == ["runs"]), result.stderr
    modules = result.stderr.splitlines()[-1].split()
    assert "bot.cli.sections" in modules
    assert _SLOW.isdisjoint(name.partition(".")[0] for name in modules)


def every(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        for name, inner in load_commands(command).items():
            yield from every(inner, *words, name)


def test_help_of_every_command_fits_eighty_columns():
    for words in every(main):
        result = CliRunner().invoke(main, [*words, "--help"], terminal_width=80)
        assert [line for line in result.stdout.splitlines() if len(line) > 80] == [], words


def test_help_has_no_truncated_sentences():
    for words in every(main):
        result = CliRunner().invoke(main, [*words, "--help"], terminal_width=80)
        assert "..." not in result.stdout.partition("\n")[2], words


def test_help_lists_the_exit_statuses():
    output = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    assert "130 interrupted" in output


def test_states_of_runs_have_the_colours_of_their_tones():
    colours = {Tone.INFO: "cyan", Tone.PENDING: "yellow", Tone.WARNING: "yellow"}
    colours |= {Tone.SUCCESS: "green", Tone.DANGER: "red"}
    for display in (*RUN_STATUS_DISPLAYS.values(), ON_HOLD_DISPLAY):
        shown = style_state(display.label)
        assert shown == click.style(display.label, fg=colours.get(display.tone)), display.label


def test_help_has_sections_of_features_before_those_of_who_runs_the_server():
    added = CommandEntry("moon", "bot.cli.history:list_changes", "Show the moon.", section="Sky")
    of_core = [f"{title}:" for title in SECTIONS]
    for group, titles in (
        (KeyturnCommand("keyturn"), of_core),
        (KeyturnCommand("keyturn", added=[added]), [*of_core[:-2], "Sky:", *of_core[-2:]]),
    ):
        result = CliRunner().invoke(group, ["--help"])
        assert result.exit_code == 0
        shown = result.stdout.splitlines()
        assert [one for one in shown if one[:-1] in {*SECTIONS, "Sky"}] == titles


@pytest.mark.parametrize(
    ("words", "near"),
    [("aprove 7", "approve"), ("run shwo", "show"), ("runs --stat x", "--state")],
)
def test_mistyped_command_or_option_suggests_the_nearest(words: str, near: str):
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 2
    assert "Did you mean" in result.stderr
    assert f"'{near}'" in result.stderr


def test_invalid_run_number_is_refused_with_exit_status_2():
    result = CliRunner().invoke(main, ["approve", "seven"])
    assert (result.exit_code, "'seven' is not a valid number" in result.stderr) == (2, True)


@pytest.mark.parametrize("typed", ["keyturn request zf", "keyturn comp"])
def test_tab_completes_commands_and_runbooks_in_bash(typed: str):
    whole = {"keyturn request zf": "keyturn request zfs ", "keyturn comp": "keyturn comp"}[typed]
    with a_terminal("bash", "--norc", "--noprofile", "-i") as bash:
        assert bash.shows("$ ")
        bash.press("source <(keyturn completion bash); echo so''urced\n")
        assert bash.shows("sourced\r\n"), bash.output
        bash.press(f"{typed}\t\t")
        assert bash.shows(whole if whole != typed else "completion"), bash.output
        assert "Traceback" not in bash.output


def test_ctrl_c_ends_a_command_with_status_130():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        silent.settimeout(60)
        with a_terminal(KEYTURN, "runs", KEYTURN_URL=url, KEYTURN_TOKEN="kt_x") as terminal:
            asked, _ = silent.accept()
            with asked:
                terminal.press("\x03")
                assert terminal.ended() == 130
    assert "Traceback" not in terminal.output
    assert "Aborted" not in terminal.output


def test_connection_refused_names_keyturn_url():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    result = CliRunner(env={"KEYTURN_URL": url, "KEYTURN_TOKEN": "kt_x"}).invoke(main, ["runs"])
    assert result.exit_code == 1
    assert result.stderr == (
        f"keyturn: cannot reach {url}: Connection refused. Set KEYTURN_URL to the address of the "
        "service\n"
    )


@pytest.mark.parametrize(
    ("listens", "where"),
    [
        ({"KEYTURN_PORT": "9"}, "http://127.0.0.1:9"),
        ({"KEYTURN_PORT": "9", "KEYTURN_LISTEN": "0.0.0.0"}, "http://127.0.0.1:9"),  # noqa: S104
        ({"KEYTURN_BASE_URL": "http://localhost:9/"}, "http://localhost:9"),
    ],
)
def test_default_service_address_follows_the_listen_settings(listens: dict[str, str], where: str):
    result = CliRunner(env={"KEYTURN_TOKEN": "kt_x", **listens}).invoke(main, ["runs"])
    assert result.stderr.startswith(f"keyturn: cannot reach {where}:")


def test_closed_pipe_prints_no_error():
    piped = f"{shlex.quote(KEYTURN)} runbooks | head -1"
    result = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=True)
    assert (len(result.stdout.splitlines()), result.stderr) == (1, "")
