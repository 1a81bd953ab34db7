"""`keyturn agent` and `stop agent`."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.model.signing import load_signing_key
from tests.agents import get_rules_for_agents
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, open_harness


@pytest.fixture
def served(tmp_path: Path) -> Generator[Harness]:
    database = create_sqlite_database(
        tmp_path / "keyturn.db", load_signing_key(tmp_path / "changelog.key")
    )
    with open_harness(tmp_path, rules=get_rules_for_agents(), database=database) as harness:
        yield harness


def keyturn(harness: Harness, *words: str) -> Result:
    path = harness.policies.path
    env = {"KEYTURN_DATA": str(path.parent), "KEYTURN_POLICY": str(path)}
    return CliRunner(env=env).invoke(main, words)


def add(harness: Harness) -> None:
    added = keyturn(
        harness,
        *("agent", "add", "triage-bot", "--as", "olga"),
        *("--owner", "adam", "--purpose", "reads alerts"),
    )
    assert added.exit_code == 0, added.output
    confirmed = keyturn(harness, "agent", "confirm", "triage-bot", "--as", "stan")
    assert confirmed.exit_code == 0, confirmed.output


def test_agent_is_added_confirmed_paused_resumed_and_ended(served: Harness):
    add(served)
    assert "active" in keyturn(served, "agent", "list").stdout
    paused = keyturn(served, "stop", "agent", "triage-bot", "--reason", "nonsense")
    assert "triage-bot is paused; no open runs" in paused.stdout
    [listed] = json.loads(keyturn(served, "agent", "list", "--json").stdout)
    assert (listed["state"], listed["pause_reason"]) == ("paused", "nonsense")
    words = ("agent", "resume", "triage-bot", "--reason", "fixed", "--as")
    assert keyturn(served, *words, "dora").exit_code == 4
    assert keyturn(served, *words, "olga").exit_code == 0
    ended = keyturn(served, "agent", "end", "triage-bot", "--reason", "replaced")
    assert "has ended" in ended.stdout
    assert keyturn(served, "agent", "token", "triage-bot").exit_code != 0


@pytest.mark.parametrize("words", [("agent",), ("all", "triage-bot"), ("7", "triage-bot")])
def test_stop_agent_without_a_name_or_stop_all_with_one_is_refused(
    served: Harness, words: tuple[str, ...]
):
    refused = keyturn(served, "stop", *words, "--reason", "nonsense")
    assert refused.exit_code == 2
    assert "stop agent NAME" in refused.output
