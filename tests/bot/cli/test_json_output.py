"""The JSON documents that commands print with `--json`."""

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import verification
from bot.db import grants
from bot.model.grant_words import NewGrant
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


def type_with_json(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--json"])


def read_json(*words: str) -> Any:
    result = type_with_json(*words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("harness")
def test_stop_resume_ban_and_unban_print_the_new_state_as_json():
    run = read_json("stop", "1", "--reason", "the wrong lamps")
    assert (run["id"], run["state"], run["ended"]) == (1, "stopped", True)
    assert (run["page"], "the wrong lamps" in run["summary"]) == (f"{ADDRESS}/runs/1", True)
    assert read_json("stop", "all", "--reason", "smoke") == {"stopped": True, "runs": 0}
    assert read_json("resume", "--as", "olga", "--reason", "no fire") == {"stopped": False}
    assert read_json("ban", "dora", "--as", "olga", "--reason", "theft") == {
        "person": "dora",
        "banned": True,
    }
    back = ("unban", "dora", "--as", "adam", "--reason", "it is found")
    assert read_json(*back) == {"person": "dora", "banned": False}


def test_grants_delegate_token_and_sign_in_print_json(harness: Harness):
    with harness.database.transaction() as tx:
        wanted = NewGrant("dora", "abusers clear", "lb*", 5, tx.now + 3_600_000_000)
        number = grants.add_grant(tx, wanted, giver="olga", reason="").id
    assert read_json("grants", "end", str(number)) == {"id": number, "active": False}
    made = read_json("delegate", "to", "stan", "--as", "olga", "--until", "3 days")
    assert read_json("delegate", "list") == [made]
    assert made["delegate"] == "stan"
    assert datetime.fromisoformat(made["ends_at"]) - datetime.now(UTC) > timedelta(days=2)
    assert read_json("delegate", "end", str(made["id"])) == {"id": made["id"], "active": False}
    token = read_json("token", "new", "dora", "--scope", "read")["id"]
    assert read_json("token", "revoke", str(token)) == {
        "id": token,
        "person": "dora",
        "active": False,
    }
    link = read_json("sign-in", "dora")
    assert (link["person"], link["link"].startswith(f"{ADDRESS}/sign-in/")) == ("dora", True)


def test_policy_check_prints_warnings_of_a_valid_policy_as_json(harness: Harness):
    people = harness.policies.path / "people.yaml"
    people.write_text(people.read_text().replace("developer]", "developer, develper]", 1))
    data = read_json("policy", "check")
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
    result = type_with_json("policy", "check")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["ok"], result.stderr) == (1, False, "")
    assert {one["file"] for one in data["problems"]} == {"inventory.yaml"}
    assert where + 1 in {one["line"] for one in data["problems"]}
    assert not any("inventory.yaml" in one["message"] for one in data["problems"])
    inventory.unlink()
    [missing] = json.loads(type_with_json("policy", "check").stdout)["problems"]
    assert (missing["file"], missing["line"]) == (str(inventory), None)
    assert "is missing" in missing["message"]


@pytest.mark.usefixtures("harness")
def test_db_factors_and_changelog_commands_print_json():
    assert read_json("db", "upgrade") == {
        **{"current": True, "done": "current"},
        **{"notes": {}, "backup": None},
    }
    assert read_json("factors", "list") == []
    assert read_json("factors", "forget", "--yes", "--reason", "the disk broke") == {"deleted": 0}
    rotated = read_json("changelog", "rotate-key")
    assert (bool(rotated["public"]), rotated["ended_tokens"]) == (True, [])


def test_inventory_import_prints_hosts_as_json():
    data = read_json("inventory", "import", "ansible", str(ANSWERS / "ansible-inventory.json"))
    assert len(data) == 15
    [db1] = [one for one in data if one["name"] == "db1"]
    assert (db1["entry"]["jump"], db1["whole"]) == ("bastion", False)
    assert any(note.startswith("host_key: ") for note in db1["notes"])
