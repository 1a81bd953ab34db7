"""Who runs the tasks of a play, and what it includes."""

from pathlib import Path

import pytest

from bot.features.importing.ansible import import_ansible
from tests.bot.features.importing.test_public_steps import show

TOUCH = "  tasks:\n    - file: {path: /srv/a, state: touch}\n    - shell: x > y\n"
SAID = "nothing says who runs its tasks"


def write_play(tmp_path: Path, play: str, files: dict[str, str] | None = None) -> Path:
    for name, text in {"site.yml": f"- hosts: all\n{play}", **(files or {})}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "site.yml"


def test_play_that_nobody_says_who_runs_is_roots(tmp_path: Path):
    (job,) = import_ansible(write_play(tmp_path, TOUCH), set())
    page = show(job)
    assert "Create the file /srv/a" in page
    assert page.count("root: true") == 4, "as are lines of a shell"
    assert [one.note for one in job.outcomes if one.what == "become"] == [
        "nothing says who runs its tasks, as root or with -b: each step is root's"
    ]


@pytest.mark.parametrize(
    ("play", "files"),
    [
        (TOUCH + "    - group: {name: x}\n      become: yes\n", {}),
        (TOUCH + "    - block: [{group: {name: x}}]\n      become: yes\n", {}),
        (TOUCH + "    - group: {name: x}\n      vars: {ansible_become: yes}\n", {}),
        (TOUCH + "  roles: [{role: x, become: yes}]\n", {"roles/x/tasks/main.yml": "- ping:\n"}),
        (TOUCH + "  roles: [x]\n", {"roles/x/tasks/main.yml": "- ping:\n  become: yes\n"}),
        (TOUCH + "    - include_tasks: x.yml\n", {"x.yml": "- ping:\n  become_user: ann\n"}),
        (TOUCH + "  handlers:\n    - {name: a, ping: , become: yes}\n", {}),
        ("  become: no\n" + TOUCH, {}),
        ("  remote_user: ann\n" + TOUCH, {}),
        ("  vars: {ansible_user: ann}\n" + TOUCH, {}),
        ("  connection: local\n" + TOUCH, {}),
        (TOUCH, {"ansible.cfg": "[defaults]\nremote_user = ann\n"}),
    ],
)
def test_task_is_the_logins_where_something_says_who_runs_another(
    tmp_path: Path, play: str, files: dict[str, str]
):
    (job,) = import_ansible(write_play(tmp_path, play, files), set())
    assert "Create the file /srv/a" not in show(job)
    notes = " ".join(one.note for one in job.outcomes)
    assert "who would own the file: name the owner" in notes
    assert SAID not in notes


@pytest.mark.parametrize(
    ("play", "files"),
    [
        ("  become: yes\n", {}),
        ("  remote_user: root\n", {}),
        ("  vars: {ansible_user: root}\n", {}),
        ("  vars: {ansible_become: yes}\n", {}),
        ("", {"ansible.cfg": "[privilege_escalation]\nbecome = True\n"}),
    ],
)
def test_play_of_root_says_nothing_more(tmp_path: Path, play: str, files: dict[str, str]):
    more = "    - group: {name: x}\n      become: yes\n"
    (job,) = import_ansible(write_play(tmp_path, play + TOUCH + more, files), set())
    page = show(job)
    assert "Create the file /srv/a" in page
    assert page.count("root: true") == 6
    assert not [one for one in job.outcomes if one.what == "become"]


def test_task_that_runs_where_ansible_runs_says_nothing_of_the_hosts(tmp_path: Path):
    more = "    - command: date > x\n      delegate_to: localhost\n      become: no\n"
    (job,) = import_ansible(write_play(tmp_path, TOUCH + more), set())
    assert any(SAID in one.note for one in job.outcomes)
