"""`keyturn rebuild`, and `keyturn undo` of several runs."""

import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bot.__main__ import main
from bot.features.rebuild.commands import list_lines, list_script_lines
from tests.playground.service import Service
from tests.policies import write_policy

AT = "2026-03-01T14:30:00+00:00"
REBUILD: dict[str, Any] = {
    "host": "nas1",
    "unknown": ["What was set up without Keyturn"],
    "values": [
        {
            "key": "zfs tank compression",
            "run": 12,
            "request": "zfs set nas1 tank compression lz4",
            "requested_by": "dora",
            "reason": "logs fill the pool",
            "approved_by": ["stan"],
            "set_at": AT,
            "commands": ["touch RAN"],
        }
    ],
    "adopted": [
        {
            "key": "hidepid",
            "value": "2\ntouch RAN",
            "adopted_by": "stan",
            "reason": "the new image",
            "adopted_at": AT,
            "run": 3,
        }
    ],
    "not_repeated": [
        {
            "request": "zfs scrub start nas1 tank",
            "count": 4,
            "last_run": 88,
            "last_at": AT,
            "irreversible": True,
        }
    ],
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    directory: Path = tmp_path_factory.mktemp("rebuild")
    write_policy(directory / "policy")
    with Service(directory) as service:
        yield service


def type_command(service: Service, *words: str) -> Result:
    make = service.keyturn.service.tokens.create_token
    _, token = make(person="olga", scopes=["request"], days=1, source="cli")
    env = {"KEYTURN_URL": service.address, "KEYTURN_TOKEN": token}
    return CliRunner(env=env).invoke(main, words)


def test_rebuild_prints_what_keyturn_does_not_know_first():
    lines = [*list_lines(REBUILD)]
    assert lines[:2] == ["nas1: what Keyturn does not know", "  What was set up without Keyturn"]
    text = "\n".join(lines)
    run = "run 12, 2026-03-01 14:30Z, by dora, “logs fill the pool”, approved by stan"
    assert run in text
    assert "zfs scrub start nas1 tank: last in run 88" in text
    assert ", 4 times, irreversible" in text


def test_rebuild_script_exits_before_its_first_command(tmp_path: Path):
    script = tmp_path / "rebuild.sh"
    script.write_text("\n".join(list_script_lines(REBUILD)))
    ended = subprocess.run(
        ["sh", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "Read this script; do not run it.\n")
    assert not (tmp_path / "RAN").exists()
    text = script.read_text()
    assert "\n# run 12, " in text
    assert "hidepid: 2 touch RAN" in text


def test_rebuild_of_a_host_without_values_is_shown_but_not_requested(service: Service):
    shown = type_command(service, "rebuild", "lb1")
    assert shown.exit_code == 0
    assert "Values, in the order in which they were set\n  none" in shown.stdout
    refused = type_command(service, "rebuild", "lb1", "--request", "lb2")
    assert refused.exit_code == 2
    assert "No value that Keyturn has set on lb1 is known" in refused.stderr
    assert type_command(service, "rebuild", "lb1", "--plan").exit_code == 2
    assert type_command(service, "rebuild", "lb9").exit_code == 3


def test_undo_command_takes_one_run_or_a_selection(service: Service):
    assert type_command(service, "undo").exit_code == 2
    assert type_command(service, "undo", "1", "--person", "dora").exit_code == 2
    refused = type_command(service, "undo", "--person", "dora", "--since", "2h")
    assert "No run of these can be undone" in refused.stderr
    assert "since when" in type_command(service, "undo", "--person", "dora").stderr
