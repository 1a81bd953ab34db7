"""Custom runbooks of an installation, in a directory of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.cli_process import run_command

_DIALECT = """
from connectors.command import Query, Shell


def query_greeting() -> Query[str]:
    return Query(Shell(("echo", "hello")), str.strip)
"""
_RUNBOOK = '''
from connectors import greeting
from connectors.command import QueryRunner
from runbooks import Check, Host, Report


class Greet(Check[str], words="greeting show", example="web1"):
    """Have a host say hello."""

    host: Host

    def read(self, run_query: QueryRunner) -> str:
        return run_query(self.host, greeting.query_greeting())

    def report(self, greeting: str) -> Report:
        return Report(greeting)
'''
Keyturn = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def custom_directory(tmp_path: Path) -> Path:
    place = tmp_path / "own"
    _write(place / "connectors" / "greeting.py", _DIALECT)
    _write(place / "runbooks" / "greeting_show.py", _RUNBOOK)
    return place


@pytest.fixture
def keyturn(custom_directory: Path, tmp_path: Path) -> Keyturn:
    def run(*words: str, **settings: str | None) -> subprocess.CompletedProcess[str]:
        return run_command(words, env=_environment(custom_directory, settings), where=tmp_path)

    return run


def _environment(custom_directory: Path, settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return this environment without Keyturn's settings, plus *settings*; None removes one."""
    usual = {name: value for name, value in os.environ.items() if "KEYTURN" not in name}
    given = {"KEYTURN_RUNBOOKS": str(custom_directory)}
    every = usual | given | dict(settings)
    return {name: value for name, value in every.items() if value is not None}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o644)


def _list_runbooks(result: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert result.returncode == 0, result.stderr
    return {one["name"]: one for one in json.loads(result.stdout)}


def test_custom_runbooks_are_listed_and_marked_as_custom(keyturn: Keyturn):
    listed = _list_runbooks(keyturn("runbooks", "--json"))
    assert listed["greeting show"]["is_custom"] is True
    assert listed["uptime check"]["is_custom"] is False
    assert "From your own runbooks." in keyturn("runbooks", "greeting", "show").stdout


def test_custom_runbooks_are_not_loaded_without_the_setting(keyturn: Keyturn):
    """Only the setting loads them."""
    assert "greeting show" not in _list_runbooks(
        keyturn("runbooks", "--json", KEYTURN_RUNBOOKS="")
    )


def test_custom_runbooks_setting_is_read_from_the_env_file(
    keyturn: Keyturn, custom_directory: Path, tmp_path: Path
):
    (tmp_path / ".env").write_text(f"KEYTURN_RUNBOOKS={custom_directory}\n")
    result = keyturn("greeting", "show", "web1", KEYTURN_RUNBOOKS=None)
    assert "keyturn request greeting show web1" in result.stderr


def test_custom_connector_may_import_pure_modules(custom_directory: Path, keyturn: Keyturn):
    _write(
        custom_directory / "connectors" / "greeting.py",
        f"from urllib.parse import quote\n{_DIALECT}",
    )
    assert keyturn("runbooks").returncode == 0


def test_version_of_a_custom_runbook_includes_its_connectors(
    custom_directory: Path, keyturn: Keyturn
):
    def version() -> str:
        asked = (
            "from runbooks import load_catalogue as load; "
            "from runbooks._catalogue import compute_version as version; "
            "print(version(load()['greeting show']), version(load()['uptime check']))"
        )
        result = subprocess.run(
            [sys.executable, "-c", asked],
            env=os.environ | {"KEYTURN_RUNBOOKS": str(custom_directory)},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout

    before = version()
    assert version() == before
    _write(custom_directory / "connectors" / "greeting.py", _DIALECT.replace("hello", "good day"))
    changed = version()
    assert changed != before
    _write(custom_directory / "runbooks" / "_shared.py", "GREETING = 1\n")
    assert version() not in {before, changed}


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("runbooks/greeting_show.py", "def broken(:\n", "greeting_show.py: line 1: "),
        ("connectors/greeting.py", "\nimport nothing_like_it\n", "greeting.py: line 2: Module"),
        ("runbooks/greeting_show.py", "\n\nimport subprocess\n", "line 3: a runbook may not use"),
        ("runbooks/greeting_show.py", "from bot.db import seal\n", "may not use bot.db"),
        ("runbooks/greeting_show.py", "import os\nos.system('id')\n", "may not use os:"),
        ("runbooks/greeting_show.py", "import urllib.request\n", "may not use urllib.request:"),
        ("runbooks/greeting_show.py", "from urllib import request\n", "use urllib.request:"),
        ("runbooks/greeting_show.py", "import requests\n", "may not use requests:"),
        ("runbooks/greeting_show.py", "from ctypes import CDLL\n", "may not use ctypes.CDLL:"),
        ("runbooks/greeting_show.py", "import importlib\n", "may not use importlib:"),
        ("runbooks/greeting_show.py", "__import__('os')\n", "may not use builtins.__import__:"),
        ("runbooks/greeting_show.py", "open('/etc/passwd')\n", "may not use builtins.open:"),
        ("runbooks/greeting_show.py", "import psycopg\n", "may not use psycopg:"),
        (
            "runbooks/greeting_show.py",
            "from connectors import ssh_pool\n",
            "may not use connectors.ssh_pool:",
        ),
        ("connectors/greeting.py", "import subprocess\n", "may not use subprocess:"),
        ("runbooks/bond_check.py", _RUNBOOK, "Keyturn has a module with this name"),
        ("connectors/haproxy.py", _DIALECT, "Keyturn has a module with this name"),
        ("runbooks/greeting-again.py", _RUNBOOK, "use only letters, digits and _"),
        ("runbooks/greeting_again.py", _RUNBOOK, 'both have words="greeting show"'),
    ],
)
def test_custom_runbook_with_an_error_is_reported_by_file_and_line(
    custom_directory: Path, keyturn: Keyturn, file: str, text: str, why: str
):
    _write(custom_directory / file, text)
    keyturn("init", "policy")
    for words in (["runbooks"], ["policy", "check"], ["greeting", "show", "web1"]):
        result = keyturn(*words)
        assert (result.returncode, result.stdout) == (1, "")
        assert why in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("path", ["..", ".", "runbooks", "runbooks/greeting_show.py"])
def test_custom_runbook_that_others_may_write_is_not_run(
    custom_directory: Path, keyturn: Keyturn, path: str
):
    place = custom_directory / path
    place.chmod(place.stat().st_mode | 0o020)
    result = keyturn("runbooks")
    assert result.returncode == 1
    assert "is writable by others: chmod go-w it" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_custom_runbook_of_another_owner_is_not_run(custom_directory: Path, keyturn: Keyturn):
    os.chown(custom_directory / "runbooks" / "greeting_show.py", 65534, 65534)
    assert "belongs neither to root nor to Keyturn" in keyturn("runbooks").stderr


def test_missing_or_empty_directory_of_custom_runbooks_is_refused(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path
):
    gone = keyturn("runbooks", KEYTURN_RUNBOOKS=str(tmp_path / "gone"))
    assert "No such file or directory" in gone.stderr
    (tmp_path / "empty").mkdir(mode=0o755)
    empty = keyturn("runbooks", KEYTURN_RUNBOOKS=str(tmp_path / "empty"))
    assert "has no module in runbooks/ or connectors/" in empty.stderr


def test_custom_runbooks_are_completed_in_a_shell(custom_directory: Path, tmp_path: Path):
    (tmp_path / ".env").write_text(f"KEYTURN_RUNBOOKS={custom_directory}\n")
    typing = {"COMP_WORDS": "keyturn ask gree", "COMP_CWORD": "2"}
    settings = {"_KEYTURN_COMPLETE": "bash_complete", "KEYTURN_RUNBOOKS": None, **typing}
    result = subprocess.run(
        [Path(sys.executable).with_name("keyturn")],
        env=_environment(custom_directory, settings),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout == "plain,greeting\n"


@pytest.mark.parametrize("words", [["serve"], ["worker", "--site", "ams"], ["doctor"]])
def test_service_does_not_start_with_a_broken_custom_runbook(
    custom_directory: Path, keyturn: Keyturn, words: list[str]
):
    _write(custom_directory / "runbooks" / "greeting_show.py", "def broken(:\n")
    result = keyturn(*words)
    assert result.returncode == 1
    assert result.stderr.endswith("greeting_show.py: line 1: invalid syntax\n")


def test_commands_without_runbooks_work_with_a_broken_custom_runbook(
    custom_directory: Path, keyturn: Keyturn
):
    """A syntax error must not block the verification of the log or a stop."""
    _write(custom_directory / "runbooks" / "greeting_show.py", "def broken(:\n")
    assert keyturn("init", "policy").returncode == 0
    assert "no database" in keyturn("changelog", "verify").stderr


@pytest.mark.parametrize("named", ["acme_keyturn", "acme_missing", "acme_keyturn:x"])
def test_installed_package_adds_custom_runbooks_by_an_entry_point(
    custom_directory: Path, tmp_path: Path, named: str
):
    site = tmp_path / "site"
    site.mkdir(mode=0o755)
    custom_directory.rename(site / "acme_keyturn")
    _write(site / "acme_keyturn" / "__init__.py", "raise SystemExit('not imported')\n")
    entry_points = f"[keyturn.runbooks]\nacme = {named}\n"
    _write(site / "acme-1.dist-info" / "entry_points.txt", entry_points)
    _write(site / "acme-1.dist-info" / "METADATA", "Name: acme\nVersion: 1\n")
    listed = subprocess.run(
        [sys.executable, "-m", "bot", "runbooks", "--json"],
        env=_environment(custom_directory, {"KEYTURN_RUNBOOKS": None, "PYTHONPATH": str(site)}),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if named == "acme_keyturn":
        assert _list_runbooks(listed)["greeting show"]["is_custom"] is True
    else:
        assert listed.returncode == 1
        assert f"the entry point acme names {named}, which is not a package" in listed.stderr
