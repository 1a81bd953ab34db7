"""The JSON documents that commands print with `--json`."""

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import verification
from bot.db import grants
from bot.features.schedules import rows as schedules
from bot.model.grant_words import NewGrant
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.signing import load_signing_key
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, open_harness
from tests.bot.hosts.test_ansible import ANSWERS
from tests.toy import SetAll

ADDRESS = "https://keyturn.example.com"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Harness]:
    """An installation with a request that waits for its approval."""
    monkeypatch.setenv("KEYTURN_DATA", str(tmp_path))
    monkeypatch.setenv("KEYTURN_POLICY", str(tmp_path / "policy"))
    monkeypatch.setenv("KEYTURN_BASE_URL", ADDRESS)
    database = create_sqlite_database(
        tmp_path / "keyturn.db", load_signing_key(tmp_path / "changelog.key")
    )
    with open_harness(tmp_path, database=database) as harness:
        with database.transaction() as tx:
            verification.open_log(tx)
        harness.request(SetAll(host="lb1", value="on"))
        yield harness


def _typed(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--json"])


def _read_json(*words: str) -> Any:
    result = _typed(*words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("harness")
def test_stop_resume_ban_and_unban_print_the_new_state_as_json():
    run = _read_json("stop", "1", "--reason", "the wrong lamps")
    assert (run["id"], run["state"], run["ended"]) == (1, "stopped", True)
    assert (run["page"], "the wrong lamps" in run["summary"]) == (f"{ADDRESS}/runs/1", True)
    assert _read_json("stop", "all", "--reason", "smoke") == {"stopped": True, "runs": 0}
    assert _read_json("resume", "--as", "olga", "--reason", "no fire") == {"stopped": False}
    assert _read_json("ban", "dora", "--as", "olga", "--reason", "theft") == {
        "person": "dora",
        "banned": True,
    }
    back = ("unban", "dora", "--as", "adam", "--reason", "it is found")
    assert _read_json(*back) == {"person": "dora", "banned": False}


def test_grants_delegate_token_and_sign_in_print_json(harness: Harness):
    with harness.database.transaction() as tx:
        wanted = NewGrant("dora", "abusers clear", "lb*", 5, tx.now + 3_600_000_000)
        number = grants.add_grant(tx, wanted, giver="olga", reason="").id
    assert _read_json("grants", "end", str(number)) == {"id": number, "active": False}
    made = _read_json("delegate", "to", "stan", "--as", "olga", "--until", "3 days")
    assert _read_json("delegate", "list") == [made]
    assert made["delegate"] == "stan"
    assert datetime.fromisoformat(made["ends_at"]) - datetime.now(UTC) > timedelta(days=2)
    assert _read_json("delegate", "end", str(made["id"])) == {"id": made["id"], "active": False}
    token = _read_json("token", "new", "dora", "--scope", "read")["id"]
    assert _read_json("token", "revoke", str(token)) == {
        "id": token,
        "person": "dora",
        "active": False,
    }
    link = _read_json("sign-in", "dora")
    assert (link["person"], link["link"].startswith(f"{ADDRESS}/sign-in/")) == ("dora", True)


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
    held = _read_json("schedule", "suspend", "1", "--as", "dora", "--reason", "the disk is full")
    assert (held["schedule"], held["state"], held["name"]) == (1, "suspended", "look")
    assert "the disk is full" in held["state_reason"]
    ended = _read_json("schedule", "end", "1", "--as", "dora")
    assert (ended["schedule"], ended["state"]) == (1, "ended")
    refused = _typed("schedule", "resume", "1", "--as", "dora")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_schedule_next_prints_iso_times_as_json():
    data = _read_json("schedule", "next", "30 2 * * SUN", "--zone", "Europe/Berlin", "-n", "3")
    assert data["description"] == "At 02:30 on Sunday (Europe/Berlin)"
    moments = [datetime.fromisoformat(one) for one in data["next"]]
    assert len(moments) == 3
    assert moments == sorted(moments)
    assert {one.astimezone(ZoneInfo("Europe/Berlin")).hour for one in moments} == {2}
    unclear = _typed("schedule", "next", "61 * * * *")
    assert (unclear.exit_code, unclear.stdout) == (2, "")


def test_policy_check_prints_warnings_of_a_valid_policy_as_json(harness: Harness):
    people = harness.policies.path / "people.yaml"
    people.write_text(people.read_text().replace("developer]", "developer, develper]", 1))
    data = _read_json("policy", "check")
    assert (data["ok"], data["problems"]) == (True, [])
    assert data["people"] > 1
    [slip] = data["warnings"]
    assert (slip["file"], slip["line"], "develper" in slip["message"]) == (
        "people.yaml",
        None,
        True,
    )


def test_policy_check_prints_problems_by_file_and_line_as_json(harness: Harness):
    inventory = harness.policies.path / "inventory.yaml"
    lines = inventory.read_text().splitlines()
    where = next(n for n, line in enumerate(lines) if "area:" in line)
    lines[where] = lines[where].replace("area:", "aera:")
    inventory.write_text("\n".join(lines))
    result = _typed("policy", "check")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["ok"], result.stderr) == (1, False, "")
    assert {one["file"] for one in data["problems"]} == {"inventory.yaml"}
    assert where + 1 in {one["line"] for one in data["problems"]}
    assert not any("inventory.yaml" in one["message"] for one in data["problems"])
    inventory.unlink()
    [missing] = json.loads(_typed("policy", "check").stdout)["problems"]
    assert (missing["file"], missing["line"]) == (str(inventory), None)
    assert "is missing" in missing["message"]


@pytest.mark.usefixtures("harness")
def test_db_factors_webhooks_and_changelog_commands_print_json():
    assert _read_json("db", "upgrade") == {"current": True, "done": "current"}
    assert _read_json("factors", "list") == []
    assert _read_json("factors", "forget", "--yes", "--reason", "the disk broke") == {"deleted": 0}
    assert _read_json("webhooks", "--retry", "wiki") == {"subscription": "wiki", "entries": 0}
    rotated = _read_json("changelog", "rotate-key")
    assert (bool(rotated["public"]), rotated["ended_tokens"]) == (True, [])


def test_inventory_import_prints_hosts_as_json():
    data = _read_json("inventory", "import", "ansible", str(ANSWERS / "ansible-inventory.json"))
    assert len(data) == 15
    [db1] = [one for one in data if one["name"] == "db1"]
    assert (db1["entry"]["jump"], db1["whole"]) == ("bastion", False)
    assert any(note.startswith("host_key: ") for note in db1["notes"])
