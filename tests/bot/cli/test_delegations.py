"""`keyturn delegate`, `keyturn grant` and `keyturn grants`."""

import json
from pathlib import Path

import pytest

from bot.audit import change_log
from bot.db import grants
from bot.db.database import Database
from bot.model.grant_words import NewGrant
from tests.bot.installation import create_installation
from tests.cli_process import run_keyturn


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with create_installation(tmp_path) as tx:
        wanted = NewGrant("dora", "abusers clear", "lb*", 5, tx.now + 3600 * 1_000_000)
        grants.add_grant(tx, wanted, giver="olga", reason="")
    return tmp_path


def test_delegate_command_creates_lists_and_ends_a_delegation(place: Path):
    words = ("delegate", "to", "stan", "--as", "olga", "--until", "3 days", "--area", "edge")
    made = run_keyturn(place, *words, "--reason", "at sea")
    assert made.stdout.startswith("1: stan decides for olga in edge until ")
    listed = json.loads(run_keyturn(place, "delegate", "list", "--json").stdout)
    shown = run_keyturn(place, "delegate", "list", "--iso", "--utc").stdout.split()
    assert shown[-1] == f"{listed[0]['ends_at'][:19]}Z"
    assert (listed[0]["delegate"], listed[0]["delegator"]) == ("stan", "olga")
    assert "Ended delegation 1." in run_keyturn(place, "delegate", "end", "1").stdout
    assert "No delegations." in run_keyturn(place, "delegate", "list").stderr
    database = Database(f"sqlite:///{place / 'var' / 'keyturn.db'}")
    with database.reading() as tx:
        entries = change_log.list_newest_entries(tx, limit=2)
    database.close()
    assert [(one.kind, one.facts["source"]) for one in entries] == [
        ("delegation revoked", "cli"),
        ("delegation created", "cli"),
    ]


def test_grants_command_creates_lists_and_ends_a_standing_grant(place: Path):
    assert "1  dora  olga  5 of 5  " in run_keyturn(place, "grants", "list").stdout
    assert "Revoked grant 1." in run_keyturn(place, "grants", "end", "1").stdout
    assert "No standing grants." in run_keyturn(place, "grants", "list").stderr
    what = ("dora", "abusers", "clear", "lb*", "--per-hour", "3", "--until", "2 days")
    created = run_keyturn(place, "grant", *what, "--as", "olga").stdout
    assert created.startswith(
        "2: dora may run abusers clear lb* without approval, 3 an hour until"
    )
    refused = run_keyturn(place, "grant", *what, "--as", "stan")
    assert (refused.returncode, refused.stdout) == (4, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("delegate", "to", "ghost", "--as", "olga", "--until", "3 days"), "not in the policy"),
        (("delegate", "to", "stan", "--as", "dora", "--until", "3 days"), "own no area"),
        (("delegate", "to", "stan", "--as", "olga", "--until", "whenever"), "is not a time"),
        (("delegate", "end", "9"), "no delegation 9"),
        (("grants", "end", "9"), "no grant 9"),
    ],
)
def test_invalid_delegation_or_grant_command_prints_one_line(
    place: Path, words: tuple[str, ...], message: str
):
    answer = run_keyturn(place, *words)
    status = {"own no area": 4, "not in the policy": 3}.get(message, 2)
    assert answer.returncode == status
    assert message in answer.stderr
    assert answer.stderr.count("\n") == 1
