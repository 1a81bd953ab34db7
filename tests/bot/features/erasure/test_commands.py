"""`keyturn changelog erase` requests an erasure and cannot confirm it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import change_log
from bot.model.signing import load_signing_key
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, open_harness
from tests.toy import SetSwitch


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An installation with one run that is over; its database, policy and key are in place."""
    monkeypatch.setenv("KEYTURN_DATA", str(tmp_path))
    monkeypatch.setenv("KEYTURN_POLICY", str(tmp_path / "policy"))
    monkeypatch.setenv("KEYTURN_BASE_URL", "https://keyturn.example.com")
    database = create_sqlite_database(
        tmp_path / "keyturn.db", load_signing_key(tmp_path / "changelog.key")
    )
    with open_harness(tmp_path, database=database) as harness:
        harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        yield harness


def _erase(*words: str) -> Result:
    return CliRunner().invoke(main, ["changelog", "erase", *words], catch_exceptions=False)


def test_changelog_erase_requests_erasure_and_prints_the_page(harness: Harness) -> None:
    asked = _erase("1", "--as", "dora", "--reason", "it names a customer", "--json")
    assert asked.exit_code == 0, asked.output
    where = "https://keyturn.example.com/runs/1/erase"
    assert json.loads(asked.stdout) == {"run": 1, "page": where}
    with harness.database.reading() as tx:
        last = change_log.list_newest_entries(tx, limit=1)[0]
    assert (last.kind, last.person, last.facts["source"]) == ("erasure requested", "dora", "cli")
    assert last.facts["login"]


def test_changelog_erase_cannot_confirm_as_another_person(harness: Harness) -> None:
    """Whoever is at it can say that they are anybody."""
    _erase("1", "--as", "dora", "--reason", "it names a customer")
    refused = _erase("1", "--as", "olga", "--reason", "it names a customer", "--confirm")
    assert (refused.exit_code, "No such option" in refused.output) == (2, True)
    assert "output erased" not in harness.list_entry_kinds()


def test_changelog_erase_of_a_missing_run_is_refused(harness: Harness) -> None:
    missing = _erase("7", "--as", "dora", "--reason", "it names a customer")
    assert (missing.exit_code, "no run 7" in missing.output) == (3, True)
