"""Lines of a shell that change files do as typed steps what they do by themselves."""

import json
import subprocess
from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from runbooks import NoUndo, Refused
from tests.bot.features.importing.test_applied import apply, load, make_plan, snapshot, undo

LINES = {
    # Each line, and whether it can be undone.
    "echo one > DIR/new": True,
    "echo 'a  b' > DIR/new": True,
    'echo "a # b" > DIR/conf': False,
    "echo a   b >DIR/new": True,
    "sudo echo a >> DIR/conf": True,
    "echo a>>DIR/conf": True,
    "echo a >> DIR/new": True,
    "echo a >> DIR/empty": True,
    "echo a | tee DIR/new": True,
    "echo 'a = b' | tee -a 'DIR/conf' > /dev/null": True,
    "cp DIR/tool DIR/new": True,
    "cp -f DIR/tool DIR/conf": False,
    "cp -n DIR/tool DIR/new": True,
    "cp DIR/tool DIR/sub/": True,
    "mv DIR/tool DIR/new": True,
    "mv DIR/tool DIR/conf": False,
    "mv DIR/sub DIR/other": True,
    "mv DIR/tool DIR/sub/": True,
    "install DIR/conf DIR/new": True,
    "install -m 640 DIR/conf DIR/new": True,
    "install -D --mode=600 DIR/conf DIR/deep/new": True,
    "install -d -m 2750 DIR/deep": True,
    "install -m 600 DIR/conf DIR/tool": False,
    "mkdir -m 700 DIR/deep": True,
    "mkdir -p -m u=rwx,go= DIR/deep": True,
    "ln -s DIR/conf DIR/sub/": True,
    "ln --symbolic -v conf DIR/new": True,
    "cp DIR/tool DIR/new && chmod 600 DIR/new": True,
}


def prepare(place: Path) -> None:
    place.mkdir()
    (place / "sub").mkdir()
    (place / "conf").write_text("first = 1\n")
    (place / "tool").write_text("#!/bin/sh\n")
    (place / "tool").chmod(0o755)
    (place / "empty").touch()


@pytest.mark.parametrize("line", LINES)
def test_line_does_what_a_shell_does(tmp_path: Path, line: str):
    place = tmp_path / "own"
    prepare(place)
    there = line.replace("DIR", str(place)).replace("sudo ", "")
    subprocess.run(["/bin/sh", "-c", there], check=True, stdout=subprocess.DEVNULL)
    wanted = snapshot(place)
    subprocess.run(["rm", "-rf", place], check=True)
    prepare(place)
    before = snapshot(place)
    runbook = load(tmp_path, f"- shell: {json.dumps(line.replace('DIR', 'DIR/own'))}\n")
    plan = make_plan(runbook)
    apply(plan)
    assert snapshot(place) == wanted
    assert not make_plan(runbook).steps
    if LINES[line]:
        undo(plan)
        assert snapshot(place) == before
    else:
        assert any(isinstance(step.undo, NoUndo) for step in plan.steps)


def test_line_is_added_once_and_a_file_is_not_copied_over(tmp_path: Path):
    prepare(tmp_path / "own")
    runbook = load(tmp_path, "- shell: echo 'first = 1' >> DIR/own/conf\n")
    assert not make_plan(runbook).steps
    plan = make_plan(load(tmp_path, "- shell: echo new >> DIR/own/conf\n"))
    assert any("adds a line each time" in one for one in plan.notes)
    assert not make_plan(load(tmp_path, "- shell: cp -n DIR/own/tool DIR/own/conf\n")).steps
    with pytest.raises(Refused, match=r"/own/sub is a directory"):
        make_plan(load(tmp_path, "- shell: mv DIR/own/conf DIR/own/sub\n"))


def import_kinds(tmp_path: Path, *lines: str) -> list[str]:
    file = tmp_path / "tasks.yml"
    file.write_text("".join(f"- shell: {line}\n" for line in lines))
    (job,) = import_ansible(file, set())
    return [str(one.kind) for one in job.outcomes if not one.is_setting]


@pytest.mark.parametrize(
    "line",
    [
        "echo $HOME > /srv/a",
        'echo "$(id)" > /srv/a',
        "echo `id` > /srv/a",
        "echo 'a\\nb' > /srv/a",
        "echo -n a > /srv/a",
        "echo -e a > /srv/a",
        "echo a > /srv/a > /srv/b",
        "echo a > /srv/*",
        "echo a > /srv/a; id",
        "echo a | tee /srv/a | sh",
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled",
        "echo a > srv/a",
        "cp -r /srv/a /srv/b",
        "cp -a /srv/a /srv/b",
        "cp a /srv/b",
        "cp /srv/a /srv/b /srv/c/",
        "cp /srv/../etc/shadow /srv/b",
        "mv /etc/ssh /srv/ssh",
        "mv /srv/a /etc/passwd",
        "mv /srv /opt",
        "mv -n /srv/a /srv/b",
        "mv /srv/ann/.ssh /srv/x",
        "rm -rf /etc/ssh",
        "rm -rf /etc/pam.d/",
        "rm -f /srv/ann/.ssh/authorized_keys",
        "install -s /srv/a /srv/b",
        "install --strip-program=/srv/x -s /srv/a /srv/b",
        "mkdir -m 9 /srv/a",
        "ln /srv/a /srv/b",
        "git clone 'ext::sh -c id' /srv/a",
        "git clone https://x/a",
        "git clone -c core.x=y https://x/a /srv/a",
        "git clone --upload-pack=id https://x/a /srv/a",
        "git -C /srv/a pull",
    ],
)
def test_line_that_does_more_is_blind(tmp_path: Path, line: str):
    assert import_kinds(tmp_path, line) == ["blind"]


def test_clone_of_a_line_is_a_step(tmp_path: Path):
    lines = [
        "git clone -q --depth 1 -b v1 https://x.example/a.git /srv/a",
        "git clone a@x:b.git /srv/b",
    ]
    assert import_kinds(tmp_path, *lines) == ["carried over"] * 2


def test_file_that_is_changed_on_the_same_page_is_neither_copied_nor_moved(tmp_path: Path):
    made = "echo a > /srv/a"
    assert import_kinds(tmp_path, made, "cp /srv/a /srv/b") == ["carried over", "blind"]
    assert import_kinds(tmp_path, made, "mv /srv/a /srv/b") == ["carried over", "blind"]
    file = tmp_path / "tasks.yml"
    file.write_text(f"- shell: cp /srv/a /srv/b\n- shell: {made}\n")
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    asked = [str(one) for one in draft.list_questions()]
    assert any("steps here set the content of /srv/a to" in one for one in asked)
