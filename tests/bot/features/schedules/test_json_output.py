"""What the commands of schedules print as JSON."""

import json
from datetime import datetime
from zoneinfo import ZoneInfo

from click.testing import CliRunner

from bot.__main__ import main
from bot.features.schedules import rows as schedules
from bot.model.schedule import ScheduleTiming, parse_cron
from tests.bot.cli.test_json_output import ADDRESS, harness, read_json, type_with_json
from tests.bot.harness import Harness

__all__ = ["harness"]


def test_schedule_commands_print_the_schedule_state_as_json(harness: Harness):
    scrub = ("--", "zfs", "scrub", "status", "nas1", "tank")
    about = ("--cron", "@daily", "--as", "stan", "--yes", "--json")
    result = CliRunner().invoke(main, ["schedule", "add", "look", *about, *scrub])
    asked = json.loads(result.stdout)
    assert (result.exit_code, asked["id"], asked["ended"]) == (0, 2, False)
    assert (asked["page"], "At 00:00" in result.stderr) == (f"{ADDRESS}/runs/2", True)
    with harness.database.transaction() as tx:
        timing = ScheduleTiming("look", parse_cron("@daily", "UTC"))
        schedules.add_schedule(
            tx, run=1, owner="dora", timing=timing, lapses=tx.now + 3_600_000_000
        )
    held = read_json("schedule", "suspend", "1", "--as", "dora", "--reason", "the disk is full")
    assert (held["schedule"], held["state"], held["name"]) == (1, "suspended", "look")
    assert "the disk is full" in held["state_reason"]
    ended = read_json("schedule", "end", "1", "--as", "dora")
    assert (ended["schedule"], ended["state"]) == (1, "ended")
    refused = type_with_json("schedule", "resume", "1", "--as", "dora")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_schedule_next_prints_iso_times_as_json():
    data = read_json("schedule", "next", "30 2 * * SUN", "--zone", "Europe/Berlin", "-n", "3")
    assert data["description"] == "At 02:30 on Sunday (Europe/Berlin)"
    moments = [datetime.fromisoformat(one) for one in data["next"]]
    assert len(moments) == 3
    assert moments == sorted(moments)
    assert {one.astimezone(ZoneInfo("Europe/Berlin")).hour for one in moments} == {2}
    unclear = type_with_json("schedule", "next", "61 * * * *")
    assert (unclear.exit_code, unclear.stdout) == (2, "")
