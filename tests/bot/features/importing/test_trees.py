"""Directories with all that is in them: which are left alone, and how they follow other steps."""

from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.drafts import Unclear
from bot.features.importing.kinds.modes import read_mode_of_all
from runbooks import Refused
from tests.bot.features.importing.test_applied import apply, load, make_plan


def import_notes(tmp_path: Path, *tasks: str) -> list[str]:
    file = tmp_path / "tasks.yml"
    file.write_text("".join(f"- {task}\n" for task in tasks))
    (job,) = import_ansible(file, set())
    return [one.note for one in job.outcomes if not one.is_setting]


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "/etc/ssh",
        "/etc/ssh/keys",
        "/etc/pam.d",
        "/home",
        "/home/ann",
        "/srv/ann/.ssh",
        "/root",
        "/usr",
        "/usr/bin",
        "/usr/lib/x",
        "/usr/libexec/x",
        "/var",
        "/var/lib",
        "/var/empty",
        "/lib64/x",
        "/run/sshd",
        "/proc/1",
        "/tmp",
    ],
)
def test_directory_on_which_access_depends_is_left_alone(tmp_path: Path, path: str):
    tasks = (
        f"file: {{path: {path}, state: directory, recurse: yes, mode: '0777'}}",
        f"shell: chown -R ann {path}",
    )
    task, line = import_notes(tmp_path, *tasks)
    assert "access to a host may depend on" in task
    assert "access to a host may depend on" in line


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("file: {path: /srv/a, state: file, recurse: yes, mode: '0755'}", "may be no directory"),
        ("file: {path: /srv/a, state: directory, recurse: yes, mode: 'o=,u=rwX'}", "is not read"),
        ("file: {path: /srv/a, state: directory, recurse: yes, mode: 'u+x,g+X'}", "is not read"),
        ("file: {path: /srv/a, state: directory, recurse: yes, owner: 'a b'}", "is not read"),
        ("file: {path: /srv/a, state: directory, recurse: yes, owner: '-R'}", "is not read"),
        (
            "file: {path: '/srv/a;b', state: directory, recurse: yes, owner: a}",
            "no plain path|is not a plain",
        ),
        ("file: {path: '{{ p }}', state: directory, recurse: yes, owner: a}", "may depend on"),
    ],
)
def test_what_is_not_known_of_a_directory_is_left_out(tmp_path: Path, task: str, said: str):
    (note,) = import_notes(tmp_path, task)
    assert any(one in note for one in said.split("|"))


def test_step_that_sets_one_file_otherwise_is_left_out(tmp_path: Path):
    tree = "file: {path: /srv/a, state: directory, recurse: yes, mode: '0755'}"
    one = "file: {path: /srv/a/b, mode: '0600'}"
    assert (
        "a step before it sets the mode of all in /srv/a to 755"
        in import_notes(tmp_path, tree, one)[1]
    )
    assert (
        "a step before it sets the mode of /srv/a/b to 600" in import_notes(tmp_path, one, tree)[1]
    )


def test_new_file_is_changed_with_the_rest(tmp_path: Path):
    (tmp_path / "tree").mkdir(mode=0o700)
    (tmp_path / "tree").chmod(0o700)
    runbook = load(
        tmp_path,
        "- copy: {content: x, dest: DIR/tree/new}\n"
        "- file: {path: DIR/tree, state: directory, recurse: yes, mode: 'u=rwX,go='}\n",
    )
    plan = make_plan(runbook)
    assert len(plan.steps) == 2
    apply(plan)
    assert (tmp_path / "tree" / "new").stat().st_mode & 0o777 == 0o600
    assert not make_plan(runbook).steps


def test_links_are_not_followed_and_one_in_place_of_the_directory_is_refused(tmp_path: Path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "outside").touch(mode=0o600)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "other").symlink_to("tree")
    task = "- file: {path: DIR/NAME, state: directory, recurse: yes, mode: '0755'}\n"
    runbook = load(tmp_path, task.replace("NAME", "tree"))
    plan = make_plan(runbook)
    (tmp_path / "tree").chmod(0o700)
    plan = make_plan(runbook)
    assert any("tree/link. Ansible would also change" in one for one in plan.notes)
    apply(plan)
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o600
    assert not make_plan(runbook).steps
    with pytest.raises(Refused, match="is a symbolic link"):
        make_plan(load(tmp_path, task.replace("NAME", "other")))


def test_mode_that_changes_nothing_is_left_out():
    with pytest.raises(Unclear, match="changes nothing"):
        read_mode_of_all("u+")
