"""The kit for declared runbooks: a first page, lint, tests by recordings, what is tried, words."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bot.cli.runbook_kit import new_page
from bot.cli.runbook_kit.explain import describe_readings, explain_page
from bot.cli.runbook_kit.lint import lint_runbook
from bot.cli.runbook_kit.new_runbook import NewRunbookError
from bot.cli.runbook_kit.recordings import (
    RecordedAnswer,
    Recording,
    make_recording_path,
    write_recording,
)
from bot.cli.runbook_kit.runbook_tests import test_runbook
from bot.cli.runbook_kit.shell_lint import lint_scripts
from runbooks._declared import load_page, register_page
from tests.cli_process import run_command
from tests.runbooks.pages import CHANGE, change_text, load_change_page

COMMAND = "cat /proc/sys/vm/swappiness"


def make_page(command: str, output: str, *, is_change: bool = False) -> str:
    ((path, text),) = new_page.make_page("swap look", command, output, is_change=is_change).items()
    assert path == Path("runbooks/swap_look.yaml")
    return text


@pytest.mark.parametrize(
    ("command", "output", "reading"),
    [
        (COMMAND, "60\n", "as: number"),
        ("systemctl is-active nginx", "active\n", "as: text"),
        (
            "systemctl show -p Id,Names nginx",
            "Id=nginx.service\nNames=nginx.service\n",
            "as: pairs",
        ),
        ("ip -j addr", '[{"ifname": "lo"}]', "as: json"),
        ("cat /proc/swaps", "Filename Size\n/swap 10\n", "columns: [column1, column2]"),
        ("cat /proc/swaps", "", "as: table"),
    ],
)
def test_first_page_reads_what_the_command_printed_and_is_not_finished(
    command: str, output: str, reading: str
):
    for is_change in (False, True):
        text = make_page(command, output, is_change=is_change)
        assert reading in text
        runbook = load_page(Path("swap_look.yaml"), text.encode())
        assert lint_runbook(runbook)


@pytest.mark.parametrize("command", ["rm -rf /", "systemctl stop nginx", "sh -c id", "", "'"])
def test_first_page_is_not_written_from_a_command_that_may_change_something(command: str):
    with pytest.raises(NewRunbookError):
        make_page(command, "")


def test_page_is_written_in_the_terminal(tmp_path: Path):
    plain = {name: value for name, value in os.environ.items() if "KEYTURN" not in name}
    env = plain | {"KEYTURN_RUNBOOKS": str(tmp_path)}
    made = run_command(
        ("runbook", "new", "kernel show", "--from", "uname -r"), env=env, where=tmp_path
    )
    assert made.stdout.endswith("then run: keyturn runbook lint kernel show\n")
    file = tmp_path / "runbooks" / "kernel_show.yaml"
    assert os.uname().release in file.read_text()
    assert lint_runbook(load_page(file, file.read_bytes()))


def test_page_with_a_fault_is_not_tried_and_its_place_is_told(tmp_path: Path):
    file = tmp_path / "runbooks" / "swappiness_set.yaml"
    file.parent.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    file.write_text(change_text(CHANGE, "now != value", "nov != value"))
    env = os.environ | {"KEYTURN_RUNBOOKS": str(tmp_path), "KEYTURN_DATA": str(tmp_path / "var")}
    tried = run_command(("runbook", "try", "swappiness", "set", "web1", "10"), env=env)
    assert (tried.returncode, tried.stderr.count("\n")) == (2, 1)
    assert (
        "swappiness set: line 17, column 5: character 1: nothing has the name nov" in tried.stderr
    )
    assert tried.stderr.endswith(": write `now`\n")


def record(directory: Path, **outputs: str) -> None:
    for name, output in outputs.items():
        recording = Recording(
            "swappiness set",
            {"host": "web1", "value": 10},
            (RecordedAnswer("web1", COMMAND, output),),
        )
        write_recording(make_recording_path(directory, load_change_page(), name), recording)


def list_failures(runbook: Any, directory: Path) -> list[str]:
    register_page(runbook)
    return [one.message for one in test_runbook(runbook, directory) if not one.passed]


def test_recordings_prove_that_a_declared_change_converges(tmp_path: Path):
    record(tmp_path, before="60\n", after="10\n", undone="60\n")
    assert list_failures(load_change_page(), tmp_path) == []


def test_declared_change_that_does_not_converge_fails_its_test(tmp_path: Path):
    record(tmp_path, before="60\n", after="10\n", undone="60\n")
    wrong = change_text(CHANGE, "when: now != value", "when: now != value + 1")
    assert list_failures(load_change_page(wrong), tmp_path) == [
        "the plan after still has: Set swappiness to 10"
    ]


def test_trying_shows_what_each_parser_made_of_the_output():
    request = load_change_page().model_validate({"host": "web1", "value": 10})
    answer = RecordedAnswer("web1", COMMAND, "60\n")
    assert describe_readings(request, [answer]) == [f"$ {COMMAND}", "    60", "now = 60", ""]
    odd = RecordedAnswer("web1", COMMAND, "sixty\n")
    assert describe_readings(request, [odd])[2] == "not understood: 'sixty' is not a whole number"
    assert describe_readings(request, []) == [""]


def test_page_is_explained_in_words():
    lines = list(explain_page(load_change_page()))
    assert "  reads now: the file /proc/sys/vm/swappiness, as number" in lines
    assert "  step 1, if now != value: Set swappiness to {value}" in lines
    assert "     runs `/usr/sbin/sysctl -w vm.swappiness={value}`, as root" in lines
    assert any("sudo of the login that changes: LOGIN ALL=(root)" in line for line in lines)


PROBATION = """
probation:
  name: swappiness
  restore: |-
    case $1 in
    save) cat /proc/sys/vm/swappiness >value ;;
    restore) cat value >/proc/sys/vm/swappiness ;;
    esac
"""


def test_scripts_and_the_probation_of_a_page_are_explained_whole():
    page = with_script(f"{QUOTED}\nsync") + PROBATION
    lines = list(explain_page(load_change_page(page)))
    at = lines.index("     undo: a script, with {now}, as root:")
    assert lines[at + 1 : at + 3] == [f"       | {QUOTED}", "       | sync"]
    assert "  takes down meanwhile: nothing" in lines
    (told,) = (line for line in lines if line.startswith("  on probation: "))
    assert "the host restores after 120 s, unless Keyturn has logged in again" in told
    assert "       | save) cat /proc/sys/vm/swappiness >value ;;" in lines


def test_page_whose_rule_is_too_long_for_sudo_is_explained_with_an_installed_script():
    run = '{run: [/usr/sbin/sysctl, -w, "vm.swappiness={value}"], root: true}'
    control = "{command: systemd.control_service, with: {verb: '\"restart\"', name: '\"web\"'}}"
    lines = list(explain_page(load_change_page(change_text(CHANGE, run, control))))
    assert '     runs systemd.control_service of Keyturn with verb = "restart"' in "\n".join(lines)
    assert any("NOPASSWD: /usr/local/lib/keyturn/service-control-" in line for line in lines)


def test_explain_of_a_page_with_an_open_question_says_where_it_is(tmp_path: Path):
    own = tmp_path / "runbooks"
    own.mkdir(mode=0o755)
    (own / "swappiness_set.yaml").write_text(change_text(CHANGE, "is {now}", "TODO what?"))
    env = os.environ | {"KEYTURN_RUNBOOKS": str(tmp_path)}
    answer = run_command(("runbook", "explain", "swappiness set"), env=env, where=tmp_path)
    assert answer.returncode == 1
    assert "is not answered yet: swappiness TODO what?" in answer.stderr
    assert "Traceback" not in answer.stderr


def with_script(script: str) -> str:
    """Return the page of a change with a script for its undo."""
    undo = 'undo: {run: [/usr/sbin/sysctl, -w, "vm.swappiness={now}"], root: true}'
    own = f'undo: {{script: {json.dumps(script)}, arguments: ["{{now}}"], root: true}}'
    return change_text(CHANGE, undo, own)


QUOTED = 'sysctl -w "vm.swappiness=$1"'


@pytest.mark.parametrize(
    ("script", "problems"),
    [
        (QUOTED, []),
        (
            f"{QUOTED}\nrm $1",
            ["line 19, column 12: line 2 of this script: Double quote to prevent"],
        ),
        (f"[[ $1 = 5 ]] && {QUOTED}", ["In POSIX sh, [[ ]] is undefined (shellcheck SC3010)"]),
        (f"if true; then {QUOTED}", ["Couldn't parse this if expression"]),
    ],
)
def test_script_of_a_page_is_linted_by_shellcheck(
    tmp_path: Path, script: str, problems: list[str]
):
    runbook = load_change_page(with_script(script))
    found = "\n".join(lint_scripts(runbook))
    assert bool(found) == bool(problems)
    assert all(one in found for one in problems)
    register_page(runbook)
    (result,) = [one for one in test_runbook(runbook, tmp_path) if one.name == "scripts"]
    assert result.passed is (not problems)


def test_without_shellcheck_scripts_are_untested_and_lint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = tmp_path / "runbooks"
    own.mkdir(mode=0o755)
    (own / "swappiness_set.yaml").write_text(with_script(QUOTED))
    env = os.environ | {"KEYTURN_RUNBOOKS": str(tmp_path), "PATH": "/nowhere"}
    typed = run_command(("runbook", "lint", "swappiness set"), env=env, where=tmp_path)
    assert (typed.returncode, typed.stdout) == (0, "No problems in 1 runbook.\n")
    assert typed.stderr.startswith("swappiness set: its scripts were not checked, since")
    monkeypatch.setenv("PATH", "/nowhere")
    runbook = load_change_page(with_script("rm $1"))
    register_page(runbook)
    (result,) = [one for one in test_runbook(runbook, tmp_path) if one.name == "scripts"]
    assert result.passed is None


def test_schema_describes_every_part_of_the_format(tmp_path: Path):
    schema = json.loads(
        run_command(("runbook", "schema"), env=dict(os.environ), where=tmp_path).stdout
    )
    assert set(schema["properties"]) >= {"words", "fields", "read", "state", "steps", "report"}
    assert schema["additionalProperties"] is False
