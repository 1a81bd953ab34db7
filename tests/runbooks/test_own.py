"""Custom runbooks of an installation, in a directory of their own."""

import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bot.model.signing import create_signing_key, load_signing_key
from runbooks._own_files import OwnRunbookError, read_own_files
from tests.cli_process import run_command
from tests.policies import write_policy
from tests.runbooks.pages import CHANGE

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


def _install(keyturn: Keyturn, place: Path) -> None:
    """Create a policy, a database and the key of its log."""
    write_policy(place / "policy")
    (place / "var").mkdir(mode=0o700, exist_ok=True)
    load_signing_key(place / "var" / "changelog.key")
    (place / "var" / "keyturn.db").touch(mode=0o600)
    assert keyturn("db", "upgrade").returncode == 0


def _enable(keyturn: Keyturn, place: Path, *words: str) -> None:
    """Have two people enable a runbook, as its files are now."""
    _install(keyturn, place)
    for person in ("adam", "olga"):
        enabled = keyturn("runbook", "enable", *(words or ("greeting", "show")), "--as", person)
        assert enabled.returncode == 0, enabled.stderr


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


def test_custom_runbooks_are_listed_and_marked_as_custom(keyturn: Keyturn, tmp_path: Path):
    _enable(keyturn, tmp_path)
    listed = _list_runbooks(keyturn("runbooks", "--json"))
    assert listed["greeting show"]["is_custom"] is True
    assert listed["uptime check"]["is_custom"] is False
    assert "From your own runbooks." in keyturn("runbooks", "greeting", "show").stdout


def test_custom_runbooks_are_not_loaded_without_the_setting(keyturn: Keyturn):
    """Only the setting loads them."""
    assert "greeting show" not in _list_runbooks(
        keyturn("runbooks", "--json", KEYTURN_RUNBOOKS="")
    )


def test_custom_runbook_that_is_not_enabled_is_named_and_not_listed(
    keyturn: Keyturn, tmp_path: Path
):
    listed = keyturn("runbooks", "--json")
    assert "greeting show" not in _list_runbooks(listed)
    assert "two people have to enable them: greeting show" in listed.stderr
    write_policy(tmp_path / "policy")
    explained = keyturn("policy", "explain", "dora", "greeting", "show", "web1")
    assert "run `keyturn runbook enable greeting show`" in explained.stderr


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


def test_version_of_a_custom_runbook_includes_its_connectors(custom_directory: Path):
    def version() -> list[str]:
        asked = (
            "from runbooks import enable_all, load_catalogue as load, set_enabled_source; "
            "from runbooks._catalogue import compute_version as version; "
            "set_enabled_source(enable_all); "
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
        return result.stdout.split()

    greeting, uptime = version()
    assert version() == [greeting, uptime]
    _write(custom_directory / "connectors" / "greeting.py", _DIALECT.replace("hello", "good day"))
    changed, same = version()
    assert (changed != greeting, same) == (True, uptime)
    _write(custom_directory / "runbooks" / "_shared.py", "GREETING = 1\n")
    assert version()[0] not in {greeting, changed}


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("runbooks/greeting_show.py", "def broken(:\n", "greeting_show.py: line 1: "),
        ("runbooks/greeting_show.py", "GREETING = 1\n", 'greeting_show.py: no class has words="'),
        (
            "runbooks/greeting_show.py",
            _RUNBOOK.replace('"greeting show"', '" ".join(("greeting", "show"))'),
            "line 7: write the words as plain text",
        ),
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
    custom_directory: Path, setting: None, file: str, text: str, why: str
):
    _write(custom_directory / file, text)
    error = _get_error()
    assert why in error
    assert "\n" not in error


@pytest.fixture
def setting(custom_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process read the directory, as each command does."""
    monkeypatch.setenv("KEYTURN_RUNBOOKS", str(custom_directory))


def _get_error() -> str:
    """Return why the files of the directory are not used."""
    with pytest.raises(OwnRunbookError) as caught:
        read_own_files()
    return str(caught.value)


@pytest.mark.parametrize(
    "words", [["runbooks"], ["policy", "check"], ["greeting", "show", "web1"]]
)
def test_each_command_that_reads_custom_runbooks_reports_the_error(
    custom_directory: Path, keyturn: Keyturn, words: list[str]
):
    keyturn("init", "policy")
    _write(custom_directory / "runbooks/greeting_show.py", "def broken(:\n")
    _check_one_line(keyturn(*words), "greeting_show.py: line 1: ")


def _check_one_line(result: subprocess.CompletedProcess[str], why: str) -> None:
    assert (result.returncode, result.stdout) == (1, "")
    assert why in result.stderr
    assert result.stderr.count("\n") == 1


def test_enabled_custom_runbook_that_fails_is_reported_by_file_and_line(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path
):
    _write(custom_directory / "connectors" / "greeting.py", "\nimport nothing_like_it\n")
    _enable(keyturn, tmp_path)
    for words in (["runbooks"], ["serve"]):
        result = keyturn(*words)
        assert result.returncode == 1
        assert "greeting.py: line 2: ModuleNotFoundError: No module named" in result.stderr
        assert "Traceback" not in result.stderr


def _plant(mark: Path, text: str = _RUNBOOK) -> str:
    """Return the text of a module that leaves a mark when it is executed."""
    return f"from pathlib import Path\nPath({str(mark)!r}).touch()\n{text}"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "executed"


_COMMANDS = (
    ["runbooks"],
    ["runbooks", "greeting", "show"],
    ["runbooks", "--html", "-"],
    ["help", "greeting", "show"],
    ["greeting", "show", "web1"],
    ["doctor"],
    ["policy", "check"],
    ["policy", "explain", "dora", "greeting", "show", "web1"],
    ["runbook", "enable"],
    ["runbook", "enable", "greeting", "show", "--as", "adam"],
    ["runbook", "lint", "greeting"],
    ["runbook", "lint"],
    ["runbook", "test"],
    ["runbook", "try", "greeting", "show", "lb1"],
    ["sudoers", "lb1"],
)


def test_custom_runbook_that_is_not_enabled_is_never_executed(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path, mark: Path
):
    _install(keyturn, tmp_path)
    _write(custom_directory / "runbooks" / "greeting_show.py", _plant(mark))
    for words in _COMMANDS:
        result = keyturn(*words)
        assert not mark.exists(), words
        assert "Traceback" not in result.stderr, words
    printed = _serve_and_stop(custom_directory, tmp_path)
    assert "Keyturn is ready" in printed
    assert "two people have to enable them: greeting show" in printed
    assert not mark.exists()
    assert keyturn("runbook", "enable", "greeting", "show", "--as", "olga").returncode == 0
    keyturn("runbooks")
    assert mark.exists()


def test_custom_runbook_that_changed_is_not_executed(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path, mark: Path
):
    _enable(keyturn, tmp_path)
    _write(custom_directory / "runbooks" / "greeting_show.py", _plant(mark))
    assert "greeting show" in keyturn("runbooks").stderr
    _write(custom_directory / "runbooks" / "greeting_show.py", _RUNBOOK)
    assert keyturn("runbooks").stderr == ""
    # A connector takes part in every runbook.
    _write(custom_directory / "connectors" / "another.py", _plant(mark, ""))
    assert "greeting show" in keyturn("runbooks").stderr
    assert not mark.exists()


def test_author_without_the_keys_executes_a_runbook_that_is_not_enabled(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path, mark: Path
):
    _write(custom_directory / "runbooks" / "greeting_show.py", _plant(mark))
    assert keyturn("runbook", "lint", "greeting", "show").returncode == 0
    assert mark.exists()
    mark.unlink()
    _enable(keyturn, tmp_path)
    _write(custom_directory / "runbooks" / "greeting_show.py", _plant(mark) + "# changed\n")
    refused = keyturn("runbook", "lint", "greeting", "show")
    assert refused.returncode == 4
    assert "not enabled, and this would execute the file where Keyturn's keys" in refused.stderr
    assert not mark.exists()


@pytest.mark.parametrize("mode", py_compile.PycInvalidationMode)
def test_bytecode_beside_a_custom_runbook_is_not_used(
    custom_directory: Path,
    keyturn: Keyturn,
    tmp_path: Path,
    mark: Path,
    mode: py_compile.PycInvalidationMode,
):
    """What two people enabled is the source, and Python would prefer the bytecode."""
    _enable(keyturn, tmp_path)
    source = custom_directory / "runbooks" / "greeting_show.py"
    planted = tmp_path / "planted.py"
    planted.write_text(_plant(mark))
    os.utime(planted, (source.stat().st_atime, source.stat().st_mtime))
    cache = Path(cache_from_source(str(source)))
    cache.parent.mkdir(mode=0o755)
    py_compile.compile(
        str(planted), cfile=str(cache), dfile=str(source), invalidation_mode=mode, doraise=True
    )
    sourceless = custom_directory / "connectors" / "another.pyc"
    py_compile.compile(str(planted), cfile=str(sourceless), doraise=True)
    before = cache.read_bytes()
    listed = keyturn("runbooks", "greeting", "show")
    assert "Have a host say hello." in listed.stdout
    assert not mark.exists()
    assert cache.read_bytes() == before
    assert not (custom_directory / "connectors" / "__pycache__").exists()


def test_forged_log_entry_loads_no_custom_runbook(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path, mark: Path
):
    """Who can write the database cannot sign an entry."""
    _write(custom_directory / "runbooks" / "greeting_show.py", _plant(mark))
    _install(keyturn, tmp_path)
    (tmp_path / "var" / "changelog.key").rename(tmp_path / "real.key")
    create_signing_key(tmp_path / "var" / "changelog.key")
    for person in ("adam", "olga"):
        keyturn("runbook", "enable", "greeting", "show", "--as", person)
    (tmp_path / "real.key").replace(tmp_path / "var" / "changelog.key")
    for words in (["runbooks"], ["runbook", "enable"], ["doctor"]):
        shown = keyturn(*words)
        assert "enabled, confirmed" not in shown.stdout
        assert not mark.exists()


@pytest.mark.parametrize("linked", ["runbooks/greeting_show.py", "runbooks", "connectors"])
def test_symbolic_link_inside_the_directory_is_refused(
    custom_directory: Path, setting: None, tmp_path: Path, linked: str
):
    place = custom_directory / linked
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert f"{place} is a symbolic link: put the file or directory itself there" in _get_error()


def test_link_to_the_directory_is_followed_unless_others_can_exchange_it(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path
):
    (tmp_path / "links").mkdir(mode=0o755)
    link = tmp_path / "links" / "own"
    link.symlink_to(custom_directory)
    assert keyturn("runbooks", KEYTURN_RUNBOOKS=str(link)).returncode == 0
    link.parent.chmod(0o777)
    refused = keyturn("runbooks", KEYTURN_RUNBOOKS=str(link))
    assert f"{link.parent} is writable by others: chmod go-w it" in refused.stderr


@pytest.mark.parametrize("path", ["..", ".", "runbooks", "runbooks/greeting_show.py"])
def test_custom_runbook_that_others_may_write_is_not_run(
    custom_directory: Path, setting: None, path: str
):
    place = custom_directory / path
    place.chmod(place.stat().st_mode | 0o020)
    assert "is writable by others: chmod go-w it" in _get_error()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_custom_runbook_of_another_owner_is_not_run(custom_directory: Path, setting: None):
    os.chown(custom_directory / "runbooks" / "greeting_show.py", 65534, 65534)
    assert "belongs neither to root nor to Keyturn" in _get_error()


def test_missing_or_empty_directory_of_custom_runbooks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYTURN_RUNBOOKS", str(tmp_path / "gone"))
    assert "create it with the folder runbooks, or correct KEYTURN_RUNBOOKS" in _get_error()
    (tmp_path / "empty").mkdir(mode=0o755)
    monkeypatch.setenv("KEYTURN_RUNBOOKS", str(tmp_path / "empty"))
    assert "has no module in runbooks/ or connectors/" in _get_error()


def test_custom_runbooks_are_completed_in_a_shell(custom_directory: Path, tmp_path: Path):
    (tmp_path / ".env").write_text(f"KEYTURN_RUNBOOKS={custom_directory}\n")
    typing = {"COMP_WORDS": "keyturn request gree", "COMP_CWORD": "2"}
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


def _serve_and_stop(custom_directory: Path, place: Path) -> str:
    """Run the server until it is ready, and return what it printed."""
    settings = {"KEYTURN_PORT": "0", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [Path(sys.executable).with_name("keyturn"), "serve"],
        env=_environment(custom_directory, settings),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        assert server.stdout is not None
        printed = ""
        for line in server.stdout:
            printed += line
            if line.startswith("Keyturn is ready"):
                server.terminate()
    return printed


@pytest.mark.parametrize("words", [["serve"], ["worker", "--site", "ams"]])
def test_service_does_not_start_with_a_broken_custom_runbook(
    custom_directory: Path, keyturn: Keyturn, words: list[str]
):
    _write(custom_directory / "runbooks" / "greeting_show.py", "def broken(:\n")
    result = keyturn(*words)
    assert result.returncode == 1
    assert result.stderr.endswith("greeting_show.py: line 1: invalid syntax\n")


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        (
            "runbooks/greeting_show.py",
            "def broken(:\n",
            "greeting_show.py: line 1: invalid syntax",
        ),
        # Only loading it shows this.
        ("connectors/greeting.py", "import nothing_like_it\n", "greeting.py: line 1: ModuleNotF"),
    ],
)
def test_doctor_lists_a_broken_custom_runbook_and_goes_on(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path, file: str, text: str, why: str
):
    _write(custom_directory / file, text)
    if file.startswith("connectors"):
        _enable(keyturn, tmp_path)
    else:
        _install(keyturn, tmp_path)
    result = keyturn("doctor", "--json")
    found = json.loads(result.stdout)["findings"]
    [own] = [one for one in found if one["subject"] == "own runbooks"]
    assert (result.returncode, own["level"]) == (1, "error")
    assert why in own["message"]
    assert "Keyturn does not start until" in own["message"]
    subjects = {one["subject"] for one in found}
    assert subjects >= {"policy", "database", "change log", "pages", "Slack", "host lb1"}


def test_hosts_are_checked_with_a_broken_custom_runbook(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path
):
    _install(keyturn, tmp_path)
    _write(custom_directory / "runbooks" / "greeting_show.py", "def broken(:\n")
    result = keyturn("inventory", "check", "--json")
    assert {one["host"] for one in json.loads(result.stdout)} >= {"lb1", "web1"}
    assert result.returncode == 1
    assert "not checked for your own runbooks: " in result.stderr
    assert "greeting_show.py: line 1: invalid syntax" in result.stderr


def test_author_lints_a_page_where_the_keys_are_and_no_class(
    custom_directory: Path, keyturn: Keyturn, tmp_path: Path
):
    """A page is data, so nothing of it is executed before it is enabled."""
    (custom_directory / "connectors" / "greeting.py").unlink()
    _write(custom_directory / "runbooks" / "swappiness_set.yaml", CHANGE)
    _install(keyturn, tmp_path)
    linted = keyturn("runbook", "lint", "swappiness", "set")
    assert (linted.returncode, linted.stdout) == (0, "No problems in 1 runbook.\n")
    refused = keyturn("runbook", "lint", "greeting", "show")
    assert (refused.returncode, "not enabled" in refused.stderr) == (4, True)
    assert "swappiness set" not in _list_runbooks(keyturn("runbooks", "--json"))


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
        assert listed.returncode == 0
        assert "two people have to enable them: greeting show" in listed.stderr
    else:
        assert listed.returncode == 1
        assert f"the entry point acme names {named}, which is not a package" in listed.stderr
