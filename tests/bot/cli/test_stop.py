"""`keyturn stop`, `resume`, `ban` and `unban`, in another process than the service."""

import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.audit import change_log
from bot.db import stops
from bot.model.run import State
from bot.model.signing import load_signing_key
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, open_harness
from tests.toy import SetAll


@pytest.fixture
def served(tmp_path: Path) -> Generator[Harness]:
    """A harness whose database and key are where the command line looks for them."""
    database = create_sqlite_database(
        tmp_path / "keyturn.db", load_signing_key(tmp_path / "changelog.key")
    )
    with open_harness(tmp_path, database=database) as harness:
        yield harness


def _keyturn(harness: Harness, *words: str) -> Result:
    where = str(harness.policies.path.parent)
    env = {"KEYTURN_DATA": where, "KEYTURN_POLICY": str(harness.policies.path)}
    return CliRunner(env=env).invoke(main, words)


def test_stop_all_command_stops_a_running_run_before_its_next_step(served: Harness):
    results: list[Result] = []

    def stop(_host: str, _words: str) -> None:
        results.append(_keyturn(served, "stop", "all", "--reason", "the cellar is on fire"))

    served.fleet.before_send = stop
    ended = served.approve(served.request(SetAll(host="lb1", value="on")))
    assert results[0].exit_code == 0, results[0].output
    assert "Everything is stopped, with 1 open run." in results[0].output
    assert ended.state is State.STOPPED
    assert served.fleet.sent == [("lb1", "set fan on")]

    assert _keyturn(served, "resume", "--as", "olga", "--reason", "it is out").exit_code == 0
    with served.database.reading() as tx:
        assert stops.get_stop_of_everything(tx) is None


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "all", "--reason", "an own runbook went wrong"),
        ("ban", "dora", "--as", "olga", "--reason", "she wrote it"),
    ],
)
def test_stop_and_ban_work_although_own_runbooks_cannot_be_read(
    served: Harness, tmp_path: Path, words: tuple[str, ...]
):
    where = served.policies.path.parent
    env = {"KEYTURN_DATA": str(where), "KEYTURN_POLICY": str(served.policies.path)}
    # In this process the catalogue is loaded already.
    result = subprocess.run(
        [sys.executable, "-m", "bot", *words],
        env=os.environ | env | {"KEYTURN_RUNBOOKS": str(tmp_path / "gone")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_stop_command_stops_one_run_and_prints_its_summary(served: Harness):
    run = served.request(SetAll(host="lb1", value="on"))
    result = _keyturn(served, "stop", str(run.id), "--reason", "the wrong lamps")
    assert result.output == (
        f"run {run.id}: An administrator on the command line stopped it (the wrong lamps). "
        "Nothing was sent.\n"
    )
    assert served.get_run(run.id).state is State.STOPPED


def test_ban_command_holds_until_another_person_lifts_it(served: Harness):
    result = _keyturn(served, "ban", "dora", "--as", "olga", "--reason", "the laptop is stolen")
    assert (result.exit_code, "their tokens are revoked permanently" in result.output) == (0, True)
    with served.database.reading() as tx:
        assert stops.list_banned_people(tx) == {"dora"}
    refused = _keyturn(served, "unban", "dora", "--as", "dora", "--reason", "it is found")
    assert refused.exit_code == 4
    assert "Those who can: Adam Admin" in refused.output
    alone = _keyturn(served, "unban", "dora", "--as", "olga", "--reason", "it is found")
    assert (alone.exit_code, "nother person has to revert what you ordered" in alone.output) == (
        4,
        True,
    )
    back = _keyturn(served, "unban", "dora", "--as", "adam", "--reason", "it is found")
    assert (back.exit_code, "For a new one: keyturn token new dora" in back.output) == (0, True)
    with served.database.reading() as tx:
        banned = [
            one for one in change_log.list_newest_entries(tx, limit=50) if one.kind == "banned"
        ]
    assert [one.person for one in banned] == ["olga"]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("stop", "everything", "--reason", "smoke"), 2, "invalid run"),
        (("stop", "99", "--reason", "smoke"), 3, "there is no run 99"),
        (("stop", "all"), 2, "Missing option '--reason'"),
        (("resume", "--as", "adam", "--reason", "smoke"), 1, "Nothing is stopped"),
        (("ban", "nobody", "--as", "adam", "--reason", "smoke"), 3, "not in the policy"),
        (("ban", "dora", "--reason", "smoke"), 2, "Missing option '--as'"),
        (("ban", "olga", "--as", "dora", "--reason", "smoke"), 4, "You cannot do that"),
        (
            ("unban", "dora", "--as", "adam", "--reason", "smoke"),
            1,
            "Dora Developer is not banned",
        ),
    ],
)
def test_stop_or_ban_command_error_is_printed_without_traceback(
    served: Harness, words: tuple[str, ...], status: int, says: str
):
    result = _keyturn(served, *words)
    assert result.exit_code == status
    assert says in result.output
    assert "Traceback" not in result.output
