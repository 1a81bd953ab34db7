"""`keyturn people …` on the server."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from tests.bot.features.scim.accounts import add_provisioning
from tests.bot.features.scim.test_slack_members import HEAD
from tests.bot.installation import create_installation


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with create_installation(tmp_path):
        pass
    add_provisioning(tmp_path / "policy")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["people", *words], catch_exceptions=False)


def test_people_are_listed(place: Path) -> None:
    assert (place / "var").exists()
    listed = run("list")
    assert listed.exit_code == 0, listed.output
    assert "dora" in listed.output
    found = json.loads(run("list", "--json").output)
    assert [one["id"] for one in found] == ["adam", "dora", "olga", "stan"]
    assert {one["source"] for one in found} == {"people.yaml"}


def test_proposals_are_a_new_file_and_never_replace_one(place: Path) -> None:
    (place / "members.csv").write_text(
        f"{HEAD}new,new@example.com,Member,1,1,0,U0NEW,New Person,new,\n"
    )
    words = ("import-slack", "members.csv", "--team", "T0KEYTURN")
    printed = run(*words)
    assert "new@example.com" in printed.output
    written = run(*words, "--output", "proposed.yaml")
    assert written.exit_code == 0, written.output
    assert "1 new person, 0 Slack accounts" in written.output
    assert (place / "proposed.yaml").read_text() == printed.output
    before = (place / "policy" / "people.yaml").read_text()
    again = run(*words, "--output", "policy/people.yaml")
    assert again.exit_code != 0
    assert (place / "policy" / "people.yaml").read_text() == before


def test_workspace_has_to_be_named(place: Path) -> None:
    (place / "members.csv").write_text(HEAD)
    assert "--team" in run("import-slack", "members.csv").output
