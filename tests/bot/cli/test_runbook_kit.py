"""`keyturn runbook` and `keyturn runbooks --html`, for authors of runbooks."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from bot.cli.runbook_kit import new_runbook
from bot.cli.runbook_kit.recordings import (
    Recorder,
    Recording,
    RecordingError,
    evaluate_request,
    make_recording,
)
from bot.model.redaction import Redactor
from connectors.command import Query, QueryRunner, Shell
from runbooks import Change, Host, Plan, Step
from tests.cli_process import run_command
from tests.scripted_fleet import ScriptedFleet

DOCS = Path(__file__).parents[3] / "docs" / "runbooks-in-python.md"
FILE = "/sys/kernel/mm/transparent_hugepage/enabled"
Keyturn = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def keyturn(tmp_path: Path) -> Keyturn:
    """Type a command where `own` is the directory of the installation's runbooks."""
    (tmp_path / "own").mkdir(mode=0o755)
    plain = {name: value for name, value in os.environ.items() if "KEYTURN" not in name}
    settings = plain | {"KEYTURN_RUNBOOKS": str(tmp_path / "own")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_command(words, env=settings, where=tmp_path)

    return run


def write(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o644)


def write_example(own: Path) -> None:
    """Write the connector and the change that the documentation shows, as an author would."""
    connector, change, _ = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[:3]
    write(own / "connectors" / "hugepages.py", connector)
    write(own / "runbooks" / "hugepages_set.py", change)


def record(own: Path, **modes: str) -> None:
    for name, mode in modes.items():
        answer = {"host": "db1", "command": f"cat {FILE}", "output": mode}
        values = {"host": "db1", "mode": "madvise"}
        recording = {"runbook": "hugepages set", "values": values, "answers": [answer]}
        file = own / "tests" / "recorded" / "hugepages_set" / f"{name}.json"
        write(file, json.dumps(recording))


def test_new_runbook_names_the_setting_that_loads_it(keyturn: Keyturn, tmp_path: Path):
    known = keyturn("runbook", "new", "mail queue look")
    assert known.stdout.endswith("then run: keyturn runbook lint mail queue look\n")
    other = tmp_path / "my runbooks"
    made = keyturn("runbook", "new", "mail queue look", "--directory", str(other))
    setting = f"KEYTURN_RUNBOOKS='{other}'"
    assert made.stdout.endswith(f"then run: {setting} keyturn runbook lint mail queue look\n")
    missing = keyturn("runbook", "lint", "hugepages")
    assert (missing.returncode, "KEYTURN_RUNBOOKS names" in missing.stderr) == (3, True)


def test_a_new_runbook_fails_lint_and_tests_until_it_is_written(keyturn: Keyturn, tmp_path: Path):
    own = tmp_path / "own"
    made = keyturn("runbook", "new", "hugepages set", "--change")
    assert made.stdout.count("wrote ") == 5
    assert (keyturn("runbook", "lint").returncode, keyturn("runbook", "test").returncode) == (1, 1)
    again = keyturn("runbook", "new", "hugepages set")
    assert (again.returncode, again.stdout) == (2, "")
    assert "hugepages_set.py exists: choose other words" in again.stderr
    write_example(own)
    linted = keyturn("runbook", "lint")
    assert (linted.returncode, linted.stdout) == (0, "No problems in 1 runbook.\n")
    tested = keyturn("runbook", "test")
    assert tested.returncode == 1
    assert "ok        hugepages set: hostile values: " in tested.stdout
    assert "values are refused, in 2 fields" in tested.stdout
    assert tested.stdout.count("untested") == 3


def test_recordings_prove_that_a_change_is_in_effect_and_can_be_undone(
    keyturn: Keyturn, tmp_path: Path
):
    write_example(tmp_path / "own")
    always, madvise = "[always] madvise never", "always [madvise] never"
    record(tmp_path / "own", before=always, after=madvise, undone=always)
    tested = keyturn("runbook", "test", "hugepages", "set")
    assert tested.returncode == 0, tested.stdout
    assert tested.stdout.count("ok  ") == 4
    assert "sudo allows 4 commands" in tested.stdout
    record(tmp_path / "own", after=always, undone=madvise)
    results = json.loads(keyturn("runbook", "test", "--json").stdout)["hugepages set"]
    assert [one["message"] for one in results if one["passed"] is False] == [
        "the plan after still has: Set huge pages to madvise",
        "the plan after the undo is not that before",
    ]
    record(tmp_path / "own", before="bash: no such file")
    assert "failed    hugepages set: recordings" in keyturn("runbook", "test").stdout


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('Literal["always", "madvise", "never"]', "str", "the field mode accepts"),
        ("def takes_down", "def takes_nothing", "define takes_down"),
        ('    undo="sets what was set before",\n', "", "neither an undo nor a reason"),
        ('"""Choose', '"""TODO', "contains TODO"),
        ('example="db1 madvise"', 'example="db1"', "the example cannot be parsed"),
        ("SudoRule(", "SudoRule('/usr/bin/cat') or (", "runs tee as root without a rule"),
    ],
)
def test_lint_names_what_is_missing(
    keyturn: Keyturn, tmp_path: Path, old: str, new: str, problem: str
):
    write_example(tmp_path / "own")
    for file in (tmp_path / "own").glob("*/hugepages*.py"):
        write(file, file.read_text().replace(old, new))
    linted = keyturn("runbook", "lint")
    assert linted.returncode == 1
    assert problem in linted.stdout


@pytest.mark.parametrize("words", ["", "Mail queue", "mail; id", "../x", "a b c d e", "a-b"])
def test_runbook_new_refuses_invalid_words(words: str):
    with pytest.raises(new_runbook.NewRunbookError, match="cannot be the words of a runbook"):
        new_runbook.make_files(words, is_change=False)


def test_runbook_new_writes_no_connector_that_keyturn_has(tmp_path: Path):
    files = new_runbook.make_files("conntrack look", is_change=False)
    written = new_runbook.write_files(tmp_path, files)
    assert [str(file.relative_to(tmp_path)) for file in written] == [
        "runbooks/conntrack_look.py",
        "tests/runbooks/test_conntrack_look.py",
        "tests/conftest.py",
    ]


READ = Query(Shell(("cat", "/etc/mode")), lambda output: output.split()[0])


class SetMode(Change[str]):
    """Set a mode that stands in a file beside a password."""

    host: Host
    mode: Literal["fast", "safe"]

    def read(self, run_query: QueryRunner) -> str:
        return run_query(self.host, READ)

    def plan(self, state: str) -> Plan:
        step = Step("Set it", self.host, do=Shell(("set", self.mode)), undo=Shell(("set", state)))
        return Plan(f"it is {state}", [] if state == self.mode else [step])


def test_recording_is_redacted_and_gives_the_same_plan():
    request = SetMode(host="lb1", mode="fast")
    fleet = ScriptedFleet({("lb1", READ.command): "safe password=hunter2hunter2\n"})
    recorder = Recorder(fleet.run_query)
    plan = evaluate_request(request, recorder.run_query)
    assert isinstance(plan, Plan)
    made = make_recording(request, recorder, Redactor(["hunter2hunter2"]).redact_text)
    assert made.answers[0].output == "safe password=[secret]\n"
    assert evaluate_request(request, made.create_query_function()) == plan
    empty = Recording(made.runbook, made.values, ())
    with pytest.raises(RecordingError, match="record it again"):
        evaluate_request(request, empty.create_query_function())


def test_the_catalogue_page_says_who_may_run_a_runbook_and_with_which_sudo_lines(
    keyturn: Keyturn, tmp_path: Path
):
    keyturn("init", "policy")
    (tmp_path / "own").rmdir()
    plain = {name: value for name, value in os.environ.items() if "KEYTURN" not in name}
    page = run_command(["runbooks", "conntrack", "--html", "-"], env=plain, where=tmp_path).stdout
    assert page.startswith("<!doctype html>")
    assert "/keyturn conntrack set lb1 524288" in page
    assert "restores the previous limit" in page
    assert "keyturn ALL=(root) NOPASSWD: /usr/sbin/sysctl ^-w" in page
    assert "Dora" in page or "may request it" in page
    assert "abusers clear" not in page
