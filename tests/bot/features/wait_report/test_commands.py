"""`keyturn report waiting` and `keyturn policy replay`."""

import json
from pathlib import Path

import pytest

from tests.bot.cli.test_policy import add_history, run
from tests.bot.cli.test_runs import CliService
from tests.bot.harness import open_harness
from tests.policies import get_starter_rules, write_policy
from tests.toy import SetSwitch


def test_report_waiting_prints_text_and_json(cli_service: CliService):
    result = cli_service.type("dora", "report", "waiting", "--days", "7")
    assert result.exit_code == 0
    assert "the last 7 days" in result.stdout
    assert len(cli_service.read_json("dora", "report", "waiting")["by_hour"]) == 24


def test_policy_replay_counts_and_lists_the_differences(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    add_history(place)
    write_policy(
        place / "new", rules=get_starter_rules().replace('@approvals("1")', '@approvals("2")')
    )
    monkeypatch.setenv("KEYTURN_BASE_URL", "https://keyturn.example.com/")
    result = run("replay", str(place / "new"))
    assert result.exit_code == 0
    assert "3 requests since 20" in result.output
    assert "2 more approvals" in result.output
    assert "dora: toy set lb1 lamp on  https://keyturn.example.com/runs/1" in result.output
    assert "2 instead of 1, from the owners of the edge" in result.output
    data = json.loads(run("replay", str(place / "new"), "--json").output)
    assert data["outcomes"] == {"more approvals": 2, "as it was": 1}
    assert data["by_person"] == {"dora": {"more approvals": 2}, "olga": {"as it was": 1}}
    assert [one["run"] for one in data["runs"]] == [1, 2]


def test_policy_replay_reads_while_the_service_writes(place: Path):
    with open_harness(place) as harness:
        harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        with harness.database.transaction():
            result = run("replay", str(place / "policy"))
        assert "1 request since 20" in result.output
        assert "no differences" in result.output


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["policy", "--since", "yesterdy"], 2, "“yesterdy” is not a time: type 02:00, yesterday"),
        (["policy", "--since", "9999-01-01"], 2, "is in the future"),
        (["policy", "--since", "9999w"], 0, "3 requests since 18"),
        (["policy", "--since", "last month"], 0, "3 requests since 20"),
        (["nowhere"], 2, "nowhere' does not exist"),
    ],
)
def test_policy_replay_explains_an_invalid_time_or_directory(
    place: Path, words: list[str], status: int, says: str
):
    add_history(place)
    result = run("replay", str(place / words[0]), *words[1:])
    assert (result.exit_code, says in result.output) == (status, True), result.output
    assert "Traceback" not in result.output


def test_policy_replay_without_a_database_is_refused(place: Path):
    result = run("replay", str(place / "policy"))
    assert (result.exit_code, "no database in" in result.output) == (3, True)
