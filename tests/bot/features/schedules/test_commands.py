"""`keyturn schedule …`."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.db import runs
from bot.db.database import Database
from bot.features.schedules import rows as schedules
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.bot.cli.test_runs import CliService
from tests.bot.features.schedules.due import record_missed_moments
from tests.bot.installation import create_installation
from tests.cli_process import run_keyturn

SCRUB = ("--", "zfs", "scrub", "status", "nas1", "tank")


def run_schedule_command(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return run_keyturn(place, "schedule", *words)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with create_installation(tmp_path):
        return tmp_path


def test_schedule_add_stores_the_request_for_the_service(place: Path):
    about = ("--cron", "0 3 1 * *", "--zone", "Europe/Amsterdam", "--as", "stan", "--yes")
    asked = run_schedule_command(place, "add", "monthly look", *about, *SCRUB)
    assert asked.returncode == 0, asked.stderr
    assert "At 03:00 on the first day of every month (Europe/Amsterdam)" in asked.stdout
    assert "Requested as run 1" in asked.stdout
    database = Database(f"sqlite:///{place / 'var' / 'keyturn.db'}")
    with database.reading() as tx:
        run = runs.get_run(tx, 1)
        assert (run.state, run.origin.source, run.requested_by) == ("planning", "cli", "stan")
        assert schedules.list_schedules(tx) == []
    database.close()
    assert "No schedules." in run_schedule_command(place, "list").stderr
    assert json.loads(run_schedule_command(place, "list", "--json").stdout) == []


def test_schedule_commands_count_missed_times(place: Path):
    about = ("--cron", "0 3 1 * *", "--as", "stan", "--yes")
    run_schedule_command(place, "add", "monthly look", *about, *SCRUB)
    database = Database(f"sqlite:///{place / 'var' / 'keyturn.db'}")
    with database.transaction() as tx:
        timing = ScheduleTiming("monthly look", parse_cron("0 3 1 * *", "UTC"))
        schedules.add_schedule(tx, run=1, owner="stan", timing=timing, lapses=tx.now)
    record_missed_moments(database, 1, times=2)
    database.close()
    assert "2 missed in 30 days" in run_schedule_command(place, "list").stdout
    assert "2 missed in 30 days" in run_schedule_command(place, "show", "1").stdout
    [schedule_data] = json.loads(run_schedule_command(place, "list", "--json").stdout)
    assert all(datetime.fromisoformat(due).tzinfo is UTC for due in schedule_data["next"])
    assert (
        schedule_data["missed"]
        == json.loads(run_schedule_command(place, "show", "1", "--json").stdout)["missed"]
        == 2
    )


def test_schedule_add_without_confirmation_requests_nothing(place: Path):
    asked = run_schedule_command(place, "add", "look", "--cron", "@daily", "--as", "stan", *SCRUB)
    assert asked.returncode == 1
    assert "At 00:00 every day" in asked.stdout


def test_schedule_next_prints_due_times_without_a_database(tmp_path: Path):
    result = run_schedule_command(
        tmp_path, "next", "30 2 * * SUN", "--zone", "Europe/Berlin", "-n", "3"
    )
    assert result.stdout.startswith("At 02:30 on Sunday (Europe/Berlin)\n  Sun ")
    assert len(result.stdout.splitlines()) == 4


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("next", "61 * * * *"), 2, "the minute is not valid"),
        (("show", "7"), 3, "there is no schedule 7"),
        (("end", "7", "--as", "stan"), 3, "there is no schedule 7"),
        (("end", "7", "--as", "zoe"), 3, "unknown person zoe"),
        (("add", "x", "--cron", "@dayly", "--as", "stan", *SCRUB), 2, "instead of five"),
        (("add", "x", "--cron", "@daily", "--as", "stan", "--", "zfs"), 2, "zfs"),
    ],
)
def test_invalid_schedule_command_prints_one_line(
    place: Path, words: tuple[str, ...], status: int, says: str
):
    result = run_schedule_command(place, *words)
    assert (result.returncode, says in result.stderr) == (status, True), result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_calendar_command_lists_due_times_in_the_zone_of_the_reader(cli_service: CliService):
    assert len(cli_service.read_json("dora", "calendar", "--days", "3")["days"]) == 3
    # At every moment it is another day there.
    first, last = (
        json.loads(cli_service.type("dora", "calendar", "--json", TZ=zone).stdout)["days"][0][
            "date"
        ]
        for zone in ("Etc/GMT+12", "Pacific/Kiritimati")
    )
    assert first < last
    nothing = cli_service.type("dora", "calendar", "--days", "1")
    assert (nothing.exit_code, nothing.stderr) == (0, "No due times and no freezes.\n")
