"""What is carried over does on a host what the task said, is then in effect, and can be undone."""

import hashlib
import json
import subprocess
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.rundeck import import_rundeck
from connectors.command import Query, Shell
from connectors.errors import ParseError
from runbooks import Change, NoUndo, Plan, Refused
from runbooks._declared import check_page, load_page

T = TypeVar("T")


def run(command: Any) -> subprocess.CompletedProcess[str]:
    assert isinstance(command, Shell)
    shell = command.resolve({}, sudo=False)
    return subprocess.run(
        shell.words, input=shell.stdin, capture_output=True, text=True, check=False
    )


def run_query(_host: str, query: Query[T], /) -> T:
    answer = run(query.command)
    if answer.returncode not in query.statuses:
        raise ParseError(answer.stderr)
    return query.parse(answer.stdout)


def load(tmp_path: Path, tasks: str) -> type[Change[Any]]:
    """Import tasks, in which DIR is a directory of the test; return the one page."""
    file = tmp_path / "tasks.yml"
    file.write_text(tasks.replace("DIR", str(tmp_path)))
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    assert draft.list_questions() == []
    runbook = load_page(Path("page.yaml"), draft.render().encode())
    check_page(runbook)
    assert issubclass(runbook, Change)
    return runbook


def make_plan(runbook: type[Change[Any]], **values: str) -> Plan:
    request = runbook.model_validate({"host": "web1", **values})
    return request.plan(request.read(run_query))


def apply(plan: Plan) -> None:
    for step in plan.steps:
        answer = run(step.do)
        assert answer.returncode == 0, answer.stderr


def undo(plan: Plan) -> None:
    for step in reversed(plan.steps):
        assert not isinstance(step.undo, NoUndo)
        answer = run(step.undo)
        assert answer.returncode == 0, answer.stderr


def snapshot(place: Path) -> Mapping[str, object]:
    """Return what is in a directory: modes, links and contents."""
    return {
        str(one.relative_to(place)): (
            oct(one.lstat().st_mode),
            str(one.readlink()) if one.is_symlink() else one.is_file() and one.read_text(),
        )
        for one in sorted(place.rglob("*"))
        if one.name != "tasks.yml"
    }


REVERSIBLE = {
    "a line": ("lineinfile: {path: DIR/conf, line: 'a/b = [1] * \\d $x'}", "conf"),
    "a line by a pattern that nothing matches": (
        "lineinfile: {path: DIR/conf, regexp: '^#?\\s*Port ', line: Port 2222}",
        "conf",
    ),
    "a new file": (
        "copy: {dest: DIR/new, content: \"one\\n\\n  two: $(id) 'x'\\n\", mode: '0640'}",
        "new",
    ),
    "a new file with a name in braces": (
        "copy: {dest: DIR/new, content: \"echo ${name} {brace} {{ '{{' }}\\n\"}",
        "new",
    ),
    "a new file without a line end": ("copy: {dest: DIR/new, content: one}", "new"),
    "a directory": ("file: {path: DIR/a/b, state: directory, mode: '0750'}", "a/b"),
    "a file": ("file: {path: DIR/new, state: touch}", "new"),
    "a mode": ("file: {path: DIR/conf, mode: '0600'}", "conf"),
    "a part of a mode": ("file: {path: DIR/conf, mode: 'u+x,go-r'}", "conf"),
    "a mode without the bits of a directory": ("file: {path: DIR/shared, mode: '0755'}", "shared"),
    "a part of the mode of a directory": (
        "file: {path: DIR/shared, state: directory, mode: 'u=rwX,g=rX'}",
        "shared",
    ),
    "a line by a pattern with groups": (
        "lineinfile: {path: DIR/conf, regexp: '^(#|;)?\\s*Port(\\s|$)|^Ports', line: Port 2}",
        "conf",
    ),
    "a block": (
        "blockinfile: {path: DIR/conf, marker: '# {mark} a/b', block: \"one\\n\\n  $two \\\\1\"}",
        "conf",
    ),
    "a block of a new file": (
        "blockinfile: {path: DIR/new, create: yes, block: one, mode: '0600'}",
        "new",
    ),
    "a block of an empty file": ("blockinfile: {path: DIR/empty, block: one}", "empty"),
    "a job of a new file": (
        "cron: {name: 'a [b]', cron_file: DIR/new, user: root, job: 'echo 1 % $A', hour: 3}",
        "new",
    ),
    "two jobs of a new file": (
        "cron: {name: '{{ item }}', cron_file: DIR/new, user: root, job: '/bin/{{ item }}'}\n"
        "  loop: [a, b]",
        "new",
    ),
    "a job of a file": (
        "cron: {name: a, cron_file: DIR/conf, user: root, job: /bin/a, special_time: daily}",
        "conf",
    ),
    "a line after another": (
        "lineinfile: {path: DIR/conf, line: 'a\\b', insertafter: '^#'}",
        "conf",
    ),
    "a line before another": (
        "lineinfile: {path: DIR/conf, regexp: ^new, line: new = 1, insertbefore: '^la+st'}",
        "conf",
    ),
    "a line that a program accepts": (
        "lineinfile: {path: DIR/conf, line: 'a = $b', validate: grep -F first %s}",
        "conf",
    ),
    "a new file that a program accepts": (
        "copy: {dest: DIR/new, content: one, validate: /usr/bin/test -s %s}",
        "new",
    ),
    "a block that a program accepts": (
        "blockinfile: {path: DIR/conf, block: one, validate: grep -F first %s}",
        "conf",
    ),
    "a first line": ("lineinfile: {path: DIR/conf, line: a, insertbefore: BOF}", "conf"),
    "a line after one that is not there": (
        "lineinfile: {path: DIR/conf, line: a, insertafter: '^none'}",
        "conf",
    ),
    "a line at a place in a new file": (
        "lineinfile: {path: DIR/new, line: a, insertafter: '^none', create: yes}",
        "new",
    ),
    "two lines after another": (
        "lineinfile: {path: DIR/conf, line: '{{ item }}', insertafter: '^first'}\n"
        "  loop: [a, b]",
        "conf",
    ),
    "a block after a line": (
        "blockinfile: {path: DIR/conf, block: one, insertafter: '^first'}",
        "conf",
    ),
    "a block before a line": (
        "blockinfile: {path: DIR/conf, block: one, insertbefore: '^last'}",
        "conf",
    ),
    "a line with tabs": ('lineinfile: {path: DIR/conf, line: "\\ta\\tb"}', "conf"),
    "a new file with tabs": ('copy: {dest: DIR/new, content: "\\ta\\n"}', "new"),
    "two lines of a new file": (
        "lineinfile: {path: DIR/new, line: '{{ item }}', create: yes, mode: '0600'}\n"
        "  loop: [a, b]",
        "new",
    ),
    "a copy of another file": ("copy: {src: DIR/conf, dest: DIR/new, remote_src: yes}", "new"),
    "a file that is there, touched": (
        "file: {path: DIR/new, state: touch, access_time: preserve, modification_time: preserve}",
        "new",
    ),
    "a link": ("file: {path: DIR/new, state: link, src: DIR/conf}", "new"),
    "another link": ("file: {path: DIR/link, state: link, src: DIR/conf}", "link"),
}  # fmt: skip


@pytest.mark.parametrize("name", REVERSIBLE)
def test_task_is_in_effect_after_its_steps_and_gone_after_their_undo(tmp_path: Path, name: str):
    task, changed = REVERSIBLE[name]
    (tmp_path / "conf").write_text("first = 1\n\n# a comment\nlast = 2\n")
    (tmp_path / "link").symlink_to("/nowhere")
    (tmp_path / "empty").touch()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2775)
    runbook = load(tmp_path, f"- {task}\n")
    before = snapshot(tmp_path)
    plan = make_plan(runbook)
    assert plan.steps
    apply(plan)
    after = snapshot(tmp_path)
    assert after != before
    assert changed in after
    assert not make_plan(runbook).steps
    undo(plan)
    # A directory above that was made on the way stays.
    assert {key: value for key, value in snapshot(tmp_path).items() if key != "a"} == before
    assert make_plan(runbook).steps == plan.steps


IRREVERSIBLE = {
    "lineinfile: {path: DIR/conf, regexp: '^last *=', line: 'last = 3'}": "first = 1\nlast = 3\n",
    "lineinfile: {path: DIR/conf, line: 'first = 1', state: absent}": "last = 2\n",
    "lineinfile: {path: DIR/conf, regexp: '^(first|last)', state: absent}": "",
    "lineinfile: {path: DIR/conf, regexp: '^(?=first)', state: absent}": "refused",
    "lineinfile: {path: DIR/conf, regexp: '^[fl]', state: absent}": "",
    "lineinfile: {path: DIR/conf, regexp: '^last', line: 'last = 3', backrefs: yes}": (
        "first = 1\nlast = 3\n"
    ),
    "copy: {dest: DIR/conf, content: other}": "other",
    "copy: {dest: DIR/conf, src: DIR/tasks.yml, remote_src: yes}": "SOURCE",
    "replace: {path: DIR/conf, regexp: '= [0-9]+$', replace: '= 7 & /\\'}": "refused",
    "replace: {path: DIR/conf, regexp: '= [0-9]+$', replace: '= 7 & /'}": (
        "first = 7 & /\nlast = 7 & /\n"
    ),
    "replace: {path: DIR/conf, regexp: 'a', replace: ''}": "first = 1\nlst = 2\n",
    "replace: {path: DIR/conf, regexp: '^(last = ).*$', replace: '\\1\\g<1>3'}": (
        "first = 1\nlast = last = 3\n"
    ),
    "replace: {path: DIR/conf, regexp: '^(last) .*', replace: '# off'}": "first = 1\n# off\n",
    "replace: {path: DIR/conf, regexp: 'l?(la)?st', replace: x}": "refused",
    "replace: {path: DIR/conf, regexp: '^\\s*last', replace: x}": "refused",
    "replace: {path: DIR/conf, regexp: '[^=]* 2', replace: x}": "refused",
    "replace: {path: DIR/conf, regexp: 'f|fi', replace: x}": "refused",
    "replace: {path: DIR/conf, regexp: '(.*) = 2', replace: '\\1 = 3'}": "refused",
    "replace: {path: DIR/conf, regexp: '2*', replace: x}": "refused",
    "replace: {path: DIR/conf, regexp: last, replace: x, after: first}": "refused",
    "file: {path: DIR/conf, state: absent}": None,
}


@pytest.mark.parametrize("task", IRREVERSIBLE)
def test_task_that_loses_what_was_says_so(tmp_path: Path, task: str):
    wanted = IRREVERSIBLE[task]
    (tmp_path / "conf").write_text("first = 1\nlast = 2\n")
    file = tmp_path / "tasks.yml"
    file.write_text(f"- {task}\n".replace("DIR", str(tmp_path)))
    if wanted == "refused":
        ((draft,),) = [one.drafts for one in import_ansible(file, set())]
        assert draft.list_questions()
        return
    runbook = load(tmp_path, f"- {task}\n")
    plan = make_plan(runbook)
    (step,) = plan.steps
    assert isinstance(step.undo, NoUndo)
    apply(plan)
    conf = tmp_path / "conf"
    wanted = file.read_text() if wanted == "SOURCE" else wanted
    assert (conf.read_text() if conf.exists() else None) == wanted
    assert not make_plan(runbook).steps


@pytest.mark.parametrize("mode", ["755", "u=rwx,g=rx,o=rx", "g-w", "00755"])
@pytest.mark.parametrize("bits", [0o2775, 0o3755, 0o755, 0o6700])
@pytest.mark.parametrize("is_directory", [True, False])
def test_chmod_of_a_job_does_what_chmod_does(
    tmp_path: Path, mode: str, bits: int, is_directory: bool
):
    twin, path = tmp_path / "twin", tmp_path / "path"
    for one in (twin, path):
        one.mkdir() if is_directory else one.touch()
        one.chmod(bits)
    job = [{"name": "job", "sequence": {"commands": [{"exec": f"chmod {mode} {path}"}]}}]
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job))
    ((draft,),) = [one.drafts for one in import_rundeck(file, set())]
    runbook = load_page(Path("page.yaml"), draft.render().encode())
    assert issubclass(runbook, Change)
    plan = make_plan(runbook)
    apply(plan)
    subprocess.run(["chmod", mode, twin], check=True)
    assert oct(path.stat().st_mode) == oct(twin.stat().st_mode)
    assert not make_plan(runbook).steps
    undo(plan)
    assert path.stat().st_mode & 0o7777 == bits


MARKED = {
    # What is there, the task, and what becomes of it; none where it is refused.
    "another block": (
        "a\n# BEGIN ANSIBLE MANAGED BLOCK\nold\nolder\n# END ANSIBLE MANAGED BLOCK\nz\n",
        "blockinfile: {path: DIR/conf, block: new}",
        "a\n# BEGIN ANSIBLE MANAGED BLOCK\nnew\n# END ANSIBLE MANAGED BLOCK\nz\n",
    ),
    "a marker alone": (
        "a\n# BEGIN ANSIBLE MANAGED BLOCK\nold\n",
        "blockinfile: {path: DIR/conf, block: new}",
        None,
    ),
    "no file": ("", "blockinfile: {path: DIR/conf, block: new}", None),
    "another job": (
        "#Ansible: a\n1 * * * * root /bin/a\n2 * * * * root /bin/b\n",
        "cron: {name: a, cron_file: DIR/conf, user: root, job: /bin/c, minute: 5}",
        "#Ansible: a\n5 * * * * root /bin/c\n2 * * * * root /bin/b\n",
    ),
    "a job that is off": (
        "#Ansible: a\n* * * * * root /bin/a\n",
        "cron: {name: a, cron_file: DIR/conf, user: root, job: /bin/a, disabled: yes}",
        "#Ansible: a\n#* * * * * root /bin/a\n",
    ),
    "a job without its name": (
        "* * * * * root /bin/a\n",
        "cron: {name: a, cron_file: DIR/conf, user: root, job: /bin/a}",
        None,
    ),
}


@pytest.mark.parametrize("name", MARKED)
def test_part_of_a_file_is_replaced_between_its_marks(tmp_path: Path, name: str):
    before, task, after = MARKED[name]
    if before:
        (tmp_path / "conf").write_text(before)
    runbook = load(tmp_path, f"- {task}\n")
    if after is None:
        with pytest.raises(Refused):
            make_plan(runbook)
        return
    plan = make_plan(runbook)
    (step,) = plan.steps
    assert isinstance(step.undo, NoUndo)
    apply(plan)
    assert (tmp_path / "conf").read_text() == after
    assert not make_plan(runbook).steps


def test_jobs_of_one_new_file_follow_each_other(tmp_path: Path):
    task = "- cron: {name: '{{ item }}', cron_file: DIR/new, user: root, job: '/bin/{{ item }}'}\n"
    apply(make_plan(load(tmp_path, f"{task}  loop: [a, b]\n")))
    lines = [f"#Ansible: {one}\n* * * * * root /bin/{one}\n" for one in "ab"]
    assert (tmp_path / "new").read_text() == "".join(lines)


@pytest.mark.parametrize(
    "task",
    [
        "lineinfile: {path: /srv/a, line: x}",
        "blockinfile: {path: /srv/a, block: x}",
        "cron: {name: a, cron_file: a, user: root, job: /bin/a}",
        "apt_repository: {repo: 'deb https://x/y bookworm main'}",
        "user: {name: ann}",
        "group: {name: ops}",
    ],
)
def test_what_is_to_be_there_once_is_not_added_twice(tmp_path: Path, task: str):
    """Both steps of a page read the same, so the second one would add it again."""
    file = tmp_path / "tasks.yml"
    file.write_text(f"- {task}\n- {task}\n")
    (job,) = import_ansible(file, set())
    kinds = [str(one.kind) for one in job.outcomes if not one.is_setting]
    assert kinds == ["carried over", "left out"]
    assert "a step before it does the same" in job.outcomes[-1].note


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("block: x, insertafter: '^new'", "which a step before it changes"),
        ('block: "x\\n\\ny", insertbefore: "^a"', "which a step before it changes"),
        ("block: x, insertafter: a, insertbefore: b", "two places"),
    ],
)
def test_block_at_a_place_that_another_step_changes_is_left_out(
    tmp_path: Path, more: str, said: str
):
    file = tmp_path / "tasks.yml"
    line = "- lineinfile: {path: /srv/a, line: new}\n"
    file.write_text(f"{line}- blockinfile: {{path: /srv/a, {more}}}\n")
    (job,) = import_ansible(file, set())
    assert said in job.outcomes[-1].note


def test_block_with_empty_lines_is_not_put_before_another_line(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    file.write_text('- blockinfile: {path: /srv/a, block: "x\\n\\ny", insertbefore: "^a"}\n')
    (job,) = import_ansible(file, set())
    assert "it has empty lines" in job.outcomes[-1].note


def test_blocks_between_the_same_markers_are_asked_about(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    file.write_text("- blockinfile: {path: /etc/a, block: 'x {{ item }}'}\n  loop: [1, 2]\n")
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    assert any("steps here set the block of /etc/a" in str(one) for one in draft.list_questions())


def test_line_with_two_files_runs_where_one_is_missing_and_the_other_is_there(tmp_path: Path):
    paths = f"{tmp_path}/old {tmp_path}/new"
    task = f"- command: mv {paths} creates={tmp_path}/new removes={tmp_path}/old\n"
    runbook = load(tmp_path, task)
    assert not make_plan(runbook).steps
    (tmp_path / "old").touch()
    plan = make_plan(runbook)
    assert len(plan.steps) == 1
    (tmp_path / "new").touch()
    assert not make_plan(runbook).steps


def test_line_is_not_replaced_where_several_match(tmp_path: Path):
    (tmp_path / "conf").write_text("Port 1\nPort 2\n")
    task = "- lineinfile: {path: DIR/conf, regexp: '^Port ', line: Port 22}\n"
    with pytest.raises(Refused, match=r"2 lines of .*/conf match .Port"):
        make_plan(load(tmp_path, task))


def test_line_is_not_added_after_one_of_several(tmp_path: Path):
    (tmp_path / "conf").write_text("Match a\nMatch b\n")
    task = "- lineinfile: {path: DIR/conf, line: x, insertafter: '^Match '}\n"
    with pytest.raises(Refused, match=r"2 lines of .*/conf match .Match, .*to be after one"):
        make_plan(load(tmp_path, task))


def test_file_that_is_there_is_kept_if_the_task_says_so(tmp_path: Path):
    runbook = load(tmp_path, "- copy: {dest: DIR/conf, content: new, force: no}\n")
    plan = make_plan(runbook)
    apply(plan)
    assert (tmp_path / "conf").read_text() == "new"
    undo(plan)
    assert not (tmp_path / "conf").exists()
    (tmp_path / "conf").write_text("old")
    assert not make_plan(runbook).steps


def test_mode_of_a_request_is_set_and_restored(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- file: {{path: {tmp_path}/a, state: directory, mode: '{{{{ m }}}}'}}\n")
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    text = draft.render().replace("web1 TODO", "web1 0750")
    assert "[0-7]{4}" in text
    runbook = load_page(Path("page.yaml"), text.encode())
    check_page(runbook)
    assert issubclass(runbook, Change)
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o2775)
    plan = make_plan(runbook, m="0750")
    apply(plan)
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o750
    assert not make_plan(runbook, m="0750").steps
    undo(plan)
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o2775


def test_copy_without_its_source_or_onto_a_directory_is_refused(tmp_path: Path):
    task = "- copy: {src: DIR/none, dest: DIR/new, remote_src: yes}\n"
    with pytest.raises(Refused, match=r"/none is missing, or no file"):
        make_plan(load(tmp_path, task))
    (tmp_path / "none").touch()
    (tmp_path / "new").mkdir()
    with pytest.raises(Refused, match=r"/new is a directory"):
        make_plan(load(tmp_path, task))


def test_replacement_of_a_file_that_is_not_there_is_no_success(tmp_path: Path):
    task = "- replace: {path: DIR/none, regexp: a, replace: b}\n"
    with pytest.raises(ParseError):
        make_plan(load(tmp_path, task))


@pytest.mark.parametrize(
    "task", ["lineinfile: {path: DIR/link, line: a}", "blockinfile: {path: DIR/link, block: a}"]
)
def test_file_to_which_a_link_points_is_changed_and_the_link_stays(tmp_path: Path, task: str):
    (tmp_path / "conf").write_text("first = 1\n")
    (tmp_path / "link").symlink_to("conf")
    plan = make_plan(load(tmp_path, f"- {task}\n"))
    apply(plan)
    assert (tmp_path / "link").is_symlink()
    assert "a\n" in (tmp_path / "conf").read_text()
    undo(plan)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "conf").read_text() == "first = 1\n"


@pytest.mark.parametrize(
    "task",
    [
        "copy: {dest: DIR/link, content: a}",
        "copy: {dest: DIR/link, content: a, mode: '0600'}",
        "copy: {dest: DIR/link, src: DIR/other, remote_src: yes}",
    ],
)
def test_link_is_not_replaced_by_a_file(tmp_path: Path, task: str):
    (tmp_path / "conf").touch()
    (tmp_path / "other").write_text("other")
    (tmp_path / "link").symlink_to("conf")
    with pytest.raises(Refused, match=r"/link is a symbolic link: name what it points to"):
        make_plan(load(tmp_path, f"- {task}\n"))


@pytest.mark.parametrize("more", ["content: a", "content: a, force: no"])
def test_directory_is_not_replaced_by_a_file(tmp_path: Path, more: str):
    (tmp_path / "new").mkdir()
    task = f"- copy: {{dest: DIR/new, {more}}}\n"
    with pytest.raises(Refused, match=r"/new is a directory: name the file in it"):
        make_plan(load(tmp_path, task))


@pytest.mark.parametrize(
    "task",
    [
        "lineinfile: {path: DIR/conf, line: a}",
        "lineinfile: {path: DIR/conf, regexp: ^first, line: a}",
        "replace: {path: DIR/conf, regexp: first, replace: a}",
        "blockinfile: {path: DIR/conf, block: a}",
        "copy: {dest: DIR/conf, content: a}",
        "copy: {dest: DIR/new, content: a}",
    ],
)
def test_file_that_a_program_does_not_accept_stays_as_it_was(tmp_path: Path, task: str):
    (tmp_path / "conf").write_text("first = 1\n")
    before = snapshot(tmp_path)
    (step,) = make_plan(load(tmp_path, f"- {task[:-1]}, validate: grep -F none %s}}\n")).steps
    assert run(step.do).returncode == 1
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ('copy: {dest: /srv/a, content: "<TAB>\\t"}', "it has tabs, beside"),
        ('copy: {dest: /srv/a, content: "{{ v }}\\t"}', "it has tabs, beside"),
        ('copy: {dest: /etc/sudoers.d/a, content: "a\\tb\\n"}', "it has tabs, beside"),
        ('copy: {dest: /srv/a, content: "a\\tb", validate: grep a %s}', "a step cannot"),
        ('copy: {dest: /srv/a, content: "a\\vb"}', "invisible character U+000B"),
        ('lineinfile: {path: /srv/a, line: "a\\tb", create: yes}', "its line has a tab"),
    ],
)
def test_tabs_that_could_not_be_seen_or_tried_are_left_out(tmp_path: Path, task: str, said: str):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- {task}\n")
    (job,) = import_ansible(file, set())
    assert said in job.outcomes[-1].note


def test_tabs_of_a_plan_can_be_seen(tmp_path: Path):
    tasks = (
        'copy: {dest: DIR/new, content: "a\\tb\\n"}',
        'lineinfile: {path: DIR/conf, line: "\\tc"}',
    )
    (tmp_path / "conf").write_text("a\n")
    first, second = make_plan(load(tmp_path, "".join(f"- {one}\n" for one in tasks))).steps
    assert "a<TAB>b" in str(first.do)
    assert r"\tc" in str(second.do)
    assert "\t" not in str(first.do) + str(second.do)


@pytest.mark.parametrize(
    "validate", ["nginx -t", "nginx -t %s -q", "true %s; id", "sh -c 'cat %s'", "'%s'", "a\\ b %s"]
)
def test_file_that_is_tried_by_more_than_words_is_left_out(tmp_path: Path, validate: str):
    file = tmp_path / "tasks.yml"
    given = {"path": "/etc/app", "line": "a", "validate": validate}
    file.write_text(json.dumps([{"lineinfile": given}]))
    (job,) = import_ansible(file, set())
    assert [str(one.kind) for one in job.outcomes if not one.is_setting] == ["left out"]
    assert "more than words and the file" in job.outcomes[-1].note


@contextmanager
def serve(place: Path) -> Generator[str]:
    """Serve a directory, which is made; yield its address."""
    place.mkdir(exist_ok=True)
    handler = partial(SimpleHTTPRequestHandler, directory=str(place))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serve a directory with one file; return its address."""
    with serve(tmp_path / "served") as address:
        (tmp_path / "served" / "tool").write_text("one\n")
        yield address


def test_file_is_fetched_if_there_is_none_or_another_one(tmp_path: Path, server: str):
    digest = hashlib.sha256(b"one\n").hexdigest()
    told = f"- get_url: {{url: '{server}/tool', dest: DIR/tool, mode: '0755', "
    checked = load(tmp_path, f"{told}checksum: 'sha256:{digest.upper()}'}}\n")
    plain = load(tmp_path, f"{told}force: no}}\n")
    tool = tmp_path / "tool"
    for runbook in (checked, plain):
        plan = make_plan(runbook)
        apply(plan)
        assert (tool.read_text(), tool.stat().st_mode & 0o777) == ("one\n", 0o755)
        assert not make_plan(runbook).steps
        undo(plan)
        assert not tool.exists()
    tool.write_text("other")
    tool.chmod(0o755)
    assert not make_plan(plain).steps
    (step,) = (plan := make_plan(checked)).steps
    assert isinstance(step.undo, NoUndo)
    apply(plan)
    assert (tool.read_text(), tool.stat().st_mode & 0o777) == ("one\n", 0o755)


def test_file_with_another_checksum_or_that_is_not_there_leaves_none(tmp_path: Path, server: str):
    for name, more in (("tool", f", checksum: 'sha256:{'0' * 64}'"), ("none", "")):
        task = f"- get_url: {{url: '{server}/{name}', dest: DIR/tool{more}}}\n"
        (step,) = make_plan(load(tmp_path, task)).steps
        assert run(step.do).returncode
        assert [*tmp_path.glob("tool*")] == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (", force: yes", "fetches the file each time"),
        (", checksum: 'md5:d41d8cd98f00b204e9800998ecf8427e'", "not one of SHA-256"),
        (", checksum: 'sha256:https://x/sums'", "not one of SHA-256"),
        (", headers: {a: b}", "its argument headers is not read"),
        (", validate_certs: no", "its argument validate_certs is not read"),
    ],
)
def test_file_that_is_not_fetched_as_ansible_does_is_left_out(
    tmp_path: Path, more: str, said: str
):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- get_url: {{url: 'https://x/y', dest: /srv/y{more}}}\n")
    (job,) = import_ansible(file, set())
    assert said in job.outcomes[-1].note


def test_template_without_logic_is_filled_with_values_of_the_play_and_of_the_request(
    tmp_path: Path,
):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "app.j2").write_text("port = {{ port }}\nname = {{ name }}\n")
    file = tmp_path / "site.yml"
    file.write_text(
        "- hosts: all\n  become: true\n  vars: {port: 8080}\n  tasks:\n"
        f"    - template: {{src: app.j2, dest: {tmp_path}/app}}\n"
    )
    ((draft,),) = [one.drafts for one in import_ansible(file, set())]
    text = (
        draft.render().replace("pattern: TODO", "pattern: '[a-z]+'").replace("web1 TODO", "web1 x")
    )
    runbook = load_page(Path("page.yaml"), text.encode())
    check_page(runbook)
    assert issubclass(runbook, Change)
    apply(make_plan(runbook, name="shop"))
    assert (tmp_path / "app").read_text() == "port = 8080\nname = shop\n"
    assert not make_plan(runbook, name="shop").steps
    assert make_plan(runbook, name="other").steps


@pytest.mark.parametrize(("line", "is_refused"), [("ln -s", True), ("ln -sf", False)])
def test_link_to_something_else_is_replaced_only_with_f(
    tmp_path: Path, line: str, *, is_refused: bool
):
    (tmp_path / "link").symlink_to("conf")
    runbook = load(tmp_path, f"- command: {line} DIR/other DIR/link\n")
    if is_refused:
        with pytest.raises(Refused, match="is a link to something else"):
            make_plan(runbook)
    else:
        apply(make_plan(runbook))
        assert (tmp_path / "link").readlink() == tmp_path / "other"
