"""Progress bars of long commands, on terminals only."""

import io
import os
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.cli import progress as cli_progress
from bot.db import runs
from bot.model import progress
from tests.bot.cli.test_terminal import KEYTURN, a_terminal
from tests.bot.features.tables import collect
from tests.bot.installation import create_installation
from tests.bot.maintenance.test_copy_database import a_request
from tests.cli_process import run_keyturn

WORK = [
    ("verifying", "changelog verify"),
    ("saving", "backup {place}/today.backup"),
    *((label, typed) for typed, label in collect("LONG_COMMANDS").items()),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with create_installation(tmp_path) as tx:
        change_log.append_entry(
            tx, UnknownEvent(kind="requested"), run=runs.add_run(tx, a_request()).id
        )
    return tmp_path


def on_a_terminal(place: Path, *words: str, output: int | None = None) -> str:
    """Return what is seen there until the command has ended. output: where that goes instead."""
    data, policy = str(place / "var"), str(place / "policy")
    with a_terminal(
        KEYTURN, *words, output=output, KEYTURN_DATA=data, KEYTURN_POLICY=policy
    ) as terminal:
        assert terminal.ended() == 0, terminal.output
    return terminal.output


@pytest.mark.parametrize(("label", "typed"), WORK)
def test_long_command_draws_a_progress_bar_on_a_terminal(place: Path, label: str, typed: str):
    screen = on_a_terminal(place, *typed.format(place=place).split())
    drawn, _, after = screen.rpartition("100%")
    assert label in drawn
    assert after.replace("\033[?25h", "").startswith("\r\n")


@pytest.mark.parametrize(("label", "typed"), WORK)
def test_long_command_draws_no_progress_bar_in_a_pipe_or_with_json(
    place: Path, label: str, typed: str
):
    words = typed.format(place=place).split()
    read = on_a_terminal(place, *words, "--json")
    (place / "today.backup").unlink(missing_ok=True)
    piped = run_keyturn(place, *words)
    assert (piped.returncode, piped.stderr) == (0, "")
    assert label not in read + piped.stdout
    assert "%" not in read + piped.stdout


def test_restore_draws_a_progress_bar_while_verifying(place: Path):
    assert run_keyturn(place, "backup", str(place / "today.backup")).returncode == 0
    (place / "var" / "keyturn.db").unlink()
    assert "verifying" in on_a_terminal(place, "restore", str(place / "today.backup"))


def test_changelog_export_draws_a_progress_bar_only_when_writing_to_a_file(place: Path):
    export = ("changelog", "export")
    with (place / "log").open("w") as file:
        assert "exporting" in on_a_terminal(place, *export, output=file.fileno())
    reader, writer = os.pipe()
    assert "exporting" not in on_a_terminal(place, *export, output=writer)
    os.close(writer)
    assert os.read(reader, 1) == b"{"
    os.close(reader)
    assert "exporting" not in on_a_terminal(place, *export)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar_is_redrawn_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch):
    screen, moments = Screen(), count()
    monkeypatch.setattr(sys, "stderr", screen)
    # Each look at the clock is a hundredth of a second after the one before.
    monkeypatch.setattr(time, "monotonic", lambda: next(moments) / 100)
    with cli_progress.show_progress()("counting", lambda: 1_000) as report_progress:
        for _ in range(1_000):
            report_progress(1)
    assert "100%" in screen.getvalue()
    assert 40 <= screen.getvalue().count("counting") <= 53


def test_interrupted_progress_bar_does_not_show_100_percent(monkeypatch: pytest.MonkeyPatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)

    def halfway(report_progress: progress.ReportProgress) -> None:
        report_progress(5)
        raise OSError("the disk is full")

    with (
        pytest.raises(OSError, match="full"),
        cli_progress.show_progress()("counting", lambda: 10) as report_progress,
    ):
        halfway(report_progress)
    assert " 50%" in screen.getvalue()
    assert "100%" not in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_iteration_with_progress_yields_every_item():
    steps: list[int] = []
    assert [*progress.iterate_with_progress(range(12_001), steps.append)] == [*range(12_001)]
    assert (sum(steps), len(steps) > 1) == (12_001, True)
