"""`keyturn token`: create, list and revoke tokens in the database."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.auth import tokens
from bot.model.signing import load_signing_key
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, open_harness


@pytest.fixture
def served(tmp_path: Path) -> Generator[Harness]:
    database = create_sqlite_database(
        tmp_path / "keyturn.db", load_signing_key(tmp_path / "changelog.key")
    )
    with open_harness(tmp_path, database=database) as harness:
        yield harness


def _keyturn(harness: Harness, *words: str) -> Result:
    path = harness.policies.path
    env = {"KEYTURN_DATA": str(path.parent), "KEYTURN_POLICY": str(path)}
    return CliRunner(env=env).invoke(main, words)


def test_token_new_prints_only_the_token_and_list_hides_it(served: Harness):
    result = _keyturn(served, "token", "new", "dora", "--scope", "request", "--days", "7")
    assert result.exit_code == 0, result.output
    whole = result.stdout.strip()
    with served.database.reading() as tx:
        record = tokens.find_token(tx, whole)
    assert record is not None
    assert (record.person, record.scopes) == ("dora", ("request",))
    listed = _keyturn(served, "token", "list", "dora")
    assert record.prefix in listed.stdout
    assert whole not in listed.stdout
    assert "active" in listed.stdout


def test_token_list_shows_a_revoked_token(served: Harness):
    made = _keyturn(served, "token", "new", "olga", "--scope", "metrics", "--json")
    number = json.loads(made.stdout)["id"]
    assert _keyturn(served, "token", "revoke", str(number)).exit_code == 0
    [listed] = json.loads(_keyturn(served, "token", "list", "--json").stdout)
    assert (listed["active"], "hash" in listed) == (False, False)
    assert "revoked" in _keyturn(served, "token", "list").stdout


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("new", "nobody", "--scope", "read"), 3, "not in the policy"),
        (("new", "dora"), 2, "--scope"),
        (("new", "dora", "--scope", "root"), 2, "root"),
        (("new", "dora", "--scope", "read", "--days", "0"), 2, "1 to 366 days"),
        (("revoke", "9"), 2, "there is no token 9"),
    ],
)
def test_token_command_error_is_printed_without_traceback(
    served: Harness, words: tuple[str, ...], status: int, says: str
):
    result = _keyturn(served, "token", *words)
    assert result.exit_code == status
    assert says in result.output
    assert "Traceback" not in result.output
