"""Scripts of which a shell is only asked to run one plain command after the other."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.pages import Imported
from bot.features.importing.rundeck import import_rundeck
from runbooks import Change
from runbooks._declared import load_page
from tests.bot.features.importing.test_applied import apply, make_plan, snapshot, undo


def import_script(tmp_path: Path, script: str) -> Imported:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps([{"name": "job", "sequence": {"commands": [{"script": script}]}}]))
    (job,) = import_rundeck(file, set())
    return job


def load_script(tmp_path: Path, script: str) -> type[Change[Any]]:
    (draft,) = import_script(tmp_path, script).drafts
    assert draft.list_questions() == []
    runbook = load_page(Path("page.yaml"), draft.render().encode())
    assert issubclass(runbook, Change)
    return runbook


SCRIPT = """\
#!/bin/bash
set -euo pipefail
# where it is kept
mkdir -p DIR/own/a

cp DIR/own/conf \\
    DIR/own/a/b
chmod 640 DIR/own/a/b
echo done
exit 0
"""


def test_script_of_plain_lines_does_what_a_shell_does_and_is_undone(tmp_path: Path):
    own, twin = tmp_path / "own", tmp_path / "twin"
    for one in (own, twin):
        one.mkdir()
        (one / "conf").write_text("one\n")
    before = snapshot(own)
    runbook = load_script(tmp_path, SCRIPT.replace("DIR", str(tmp_path)))
    plan = make_plan(runbook)
    apply(plan)
    code = SCRIPT.replace("DIR/own", str(twin))
    subprocess.run(["bash", "-c", code], check=True, capture_output=True)
    assert snapshot(own) == snapshot(twin)
    assert not make_plan(runbook).steps
    undo(plan)
    assert snapshot(own) == before


def test_result_names_a_line_that_does_something_and_that_a_failure_stops_it(tmp_path: Path):
    lines = f"mkdir -p {tmp_path}/a\nmkdir -p {tmp_path}/b\n"
    (one,) = import_script(tmp_path, f"#!/bin/sh\n# why\n{lines}").outcomes
    assert (str(one.kind), one.what) == ("carried over", f"mkdir -p {tmp_path}/a")
    assert one.note == "the shell went on after a line that failed; Keyturn stops there"
    (one,) = import_script(tmp_path, f"#!/bin/sh -x\nset -e\n{lines}").outcomes
    assert (str(one.kind), one.note) == ("carried over", "")


@pytest.mark.parametrize(
    "script",
    [
        "cd DIR\nmkdir -p a",
        "NAME=a\nmkdir -p DIR/a",
        "mkdir -p DIR/a\nexit 0\nmkdir -p DIR/b",
        "mkdir -p DIR/a\nexit 1",
        "if true; then\nmkdir -p DIR/a\nfi",
        "for one in a b; do\nmkdir -p DIR/$one\ndone",
        "mkdir -p 'DIR/a\nb'",
        "mkdir -p DIR/a || true\nmkdir -p DIR/b",
        "mkdir -p DIR/a\nunknown DIR/a",
        "umask 077\nmkdir -p DIR/a",
        "set -e\ntest -d DIR\nmkdir -p DIR/a",
        "set -e\ngrep -q x DIR/conf\nmkdir -p DIR/a",
        "grep -q x DIR/conf && mkdir -p DIR/a",
        "id ann && mkdir -p DIR/a",
        "test -d DIR/b && mkdir -p DIR/a",
        "systemctl is-active web && systemctl stop idle",
        "nginx -t && mkdir -p DIR/a",
        "mkdir -p DIR/a && exit 0\nmkdir -p DIR/b",
        # Nothing shows when it is needed.
        "mkdir -p DIR/a\nsysctl -p",
        # It copies what the line before it makes, which nothing that was read has.
        "cp DIR/conf DIR/a\ncp DIR/a DIR/b",
    ],
)
def test_script_is_blind_as_a_whole_if_one_of_its_lines_is_not_plain(tmp_path: Path, script: str):
    script = script.replace("DIR", str(tmp_path))
    job = import_script(tmp_path, script)
    assert [str(one.kind) for one in job.outcomes if not one.is_setting] == ["blind"]
    (draft,) = job.drafts
    ((_, _, step),) = draft.steps
    assert step["do"]["script"].strip().endswith(script.splitlines()[-1])


LINES = """\
echo 'vm.swappiness = 10' >> /etc/sysctl.conf
chmod 600 /etc/sysctl.conf
sysctl -p
"""


def test_program_reads_again_what_any_step_before_it_changes(tmp_path: Path):
    (draft,) = import_script(tmp_path, LINES).drafts
    *others, (_, _, last) = draft.steps
    assert last["do"]["run"] == ["/usr/sbin/sysctl", "-p"]
    assert len(others) > 1
    assert draft.list_questions() == []
    state = draft.state.get("is_changed", "")
    assert all(step["when"] in f"{last['when']}{state}" for _, _, step in others)


def test_script_of_a_task_is_carried_over_too(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    lines = f"    mkdir -p {tmp_path}/a\n    chmod 700 {tmp_path}/a\n"
    file.write_text(f"- shell: |\n{lines}  args: {{executable: /bin/bash}}\n")
    (job,) = import_ansible(file, set())
    assert [str(one.kind) for one in job.outcomes if not one.is_setting] == ["carried over"]
