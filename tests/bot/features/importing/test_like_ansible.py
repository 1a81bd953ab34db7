"""What a draft does to files is what Ansible itself does with the same task."""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from runbooks import Refused
from tests.bot.features.importing.test_applied import apply, load, make_plan, snapshot

CONF = "first = 1\n\n# a comment\nlast = 2\nlast = 3\nMatch a\nend\n"
# A command that reads, how it may end, and the condition of a task that makes a file.
READS = {
    "what a command found": ("grep first DIR/conf", "failed_when: no", "found.rc == 0"),
    "what it did not find": ("grep -q none DIR/conf", "failed_when: no", "found.rc != 0"),
    "what it found, and nothing is done": (
        "grep first DIR/conf", "ignore_errors: yes", "found is failed"
    ),
    "a command without its file": ("grep first DIR/none", "failed_when: no", "found.rc != 0"),
    "what it printed": ("cat DIR/other", "check_mode: no", "found.stdout == 'other'"),
    "other than it printed": ("cat DIR/other", "check_mode: no", "found.stdout != 'other'"),
    "a part of what it printed": (
        "cat DIR/conf", "check_mode: no", "'comment' in found.stdout and found.stdout != ''"
    ),
    "no part of what it printed": (
        "cat DIR/conf", "check_mode: no", "'first' not in found.stdout"
    ),
    "nothing that it printed": ("cat DIR/empty", "check_mode: no", "found.stdout | length == 0"),
    "a user that is there": ("id root", "failed_when: no", "found is succeeded"),
    "a user that is not there": ("getent passwd none-x", "failed_when: no", "found.rc != 0"),
}  # fmt: skip
TASKS = {
    "a line at the end": "lineinfile: {path: DIR/conf, line: 'x = \\1 & /'}",
    "a line after another": "lineinfile: {path: DIR/conf, line: x, insertafter: '^#'}",
    "a line before another": "lineinfile: {path: DIR/conf, line: x, insertbefore: '^first'}",
    "a line after the last one": "lineinfile: {path: DIR/conf, line: x, insertafter: '^end$'}",
    "a line after none": "lineinfile: {path: DIR/conf, line: x, insertafter: '^none'}",
    "a line before none": "lineinfile: {path: DIR/conf, line: x, insertbefore: '^none'}",
    "a first line": "lineinfile: {path: DIR/conf, line: x, insertbefore: BOF}",
    "a line that is there": "lineinfile: {path: DIR/conf, line: end, insertafter: '^first'}",
    "a line that is there, by a pattern": (
        "lineinfile: {path: DIR/conf, regexp: '^none', line: end, insertafter: '^first'}"
    ),
    "a line in place of another": (
        "lineinfile: {path: DIR/conf, regexp: '^first', line: x, insertafter: '^end'}"
    ),
    "a line of a new file": (
        "lineinfile: {path: DIR/new, line: x, create: yes, insertafter: '^a', mode: '0600'}"
    ),
    "a line that a program accepts": (
        "lineinfile: {path: DIR/conf, line: x, validate: /usr/bin/grep -q x %s, mode: '0600'}"
    ),
    "a line of an empty file": (
        "lineinfile: {path: DIR/empty, line: x, create: yes, insertbefore: BOF}"
    ),
    "two lines after one": (
        "lineinfile: {path: DIR/conf, line: '{{ item }}', insertafter: '^first'}\n  loop: [x, y]"
    ),
    "two first lines": (
        "lineinfile: {path: DIR/conf, line: '{{ item }}', insertbefore: BOF}\n  loop: [x, y]"
    ),
    "lines of other names": (
        "lineinfile: {path: DIR/conf, regexp: '^{{ item }} =', line: '{{ item }} = 9'}\n"
        "  loop: [first, new]"
    ),
    "a line that replaces the last of several": (
        "lineinfile: {path: DIR/conf, regexp: '^Mat', line: 'Match b', backrefs: yes}"
    ),
    "no lines": "lineinfile: {path: DIR/conf, regexp: '^last', state: absent}",
    "no such line": "lineinfile: {path: DIR/conf, line: 'last = 2', state: absent}",
    "a block": 'blockinfile: {path: DIR/conf, block: "one\\n  $two\\n"}',
    "a block with a marker": (
        "blockinfile: {path: DIR/conf, block: one, marker: '; {mark} x', marker_begin: '<', "
        "marker_end: '>'}"
    ),
    "a block after a line": (
        'blockinfile: {path: DIR/conf, block: "one\\n\\n $two\\n", insertafter: "^first"}'
    ),
    "a block before a line": (
        'blockinfile: {path: DIR/conf, block: "  one\\n\\\\two", insertbefore: "^Match "}'
    ),
    "a block before the first line": (
        "blockinfile: {path: DIR/conf, block: one, insertbefore: BOF}"
    ),
    "a block after the last line": (
        "blockinfile: {path: DIR/conf, block: one, insertafter: '^end$'}"
    ),
    "a block after none": "blockinfile: {path: DIR/conf, block: one, insertafter: '^none'}",
    "a block before none": "blockinfile: {path: DIR/conf, block: one, insertbefore: '^none'}",
    "a block before the first line of a new file": (
        "blockinfile: {path: DIR/new, block: one, insertbefore: BOF, create: yes}"
    ),
    "a mode of all in a directory, without its state": (
        "file: {path: DIR/tree, recurse: yes, mode: '0750'}"
    ),
    "a block of a new file": (
        "blockinfile: {path: DIR/new, block: one, create: yes, mode: '0600'}"
    ),
    "a block of an empty file": "blockinfile: {path: DIR/empty, block: one}",
    "a mode with a sign": "file: {path: DIR/other, mode: 'u+x,g=,o=r'}",
    "a directory with X": "file: {path: DIR/new/deep, state: directory, mode: 'u=rwX,go=rX'}",
    "no file": "file: {path: DIR/other, state: absent}",
    "a link": "file: {path: DIR/new, src: conf, state: link}",
    "a mode by default": "copy: {dest: DIR/new, content: 'x'}",
    "another text that YAML reads": "lineinfile: {path: DIR/conf, line: true}",
    "a mode that YAML reads": "copy: {dest: DIR/new, content: x, mode: 0600}",
    "a text that YAML reads": "copy: {dest: DIR/new, content: yes}",
    "a text": "replace: {path: DIR/conf, regexp: 'last', replace: 'x/& y'}",
    "a text of several": "replace: {path: DIR/conf, regexp: ' = [0-9]+$', replace: ''}",
    "a text with what was": "replace: {path: DIR/conf, regexp: '^(last =) 2', replace: '\\1 9'}",
    "whole lines": "replace: {path: DIR/conf, regexp: '^#? ?a .*$', replace: '#'}",
    "a text that is not there": "replace: {path: DIR/conf, regexp: 'none', replace: x}",
    "a copy": "copy: {src: DIR/conf, dest: DIR/new, remote_src: yes}",
    "a copy with a mode": "copy: {src: DIR/conf, dest: DIR/other, remote_src: yes, mode: '0600'}",
    "a file that is kept": "copy: {content: x, dest: DIR/conf, force: no}",
    "a new file that would be kept": "copy: {content: x, dest: DIR/new, force: no}",
    "a file that is touched": (
        "file: {path: DIR/new, state: touch, mode: '0640', access_time: preserve, "
        "modification_time: preserve}"
    ),
    "a path with two slashes": "file: {path: DIR//new, state: directory}",
    "a mode of all in a directory": (
        "file: {path: DIR/tree, state: directory, recurse: yes, mode: '0750'}"
    ),
    "a mode of all in a directory, of five digits": (
        "file: {path: DIR/tree, state: directory, recurse: yes, mode: '02750'}"
    ),
    "a mode of all in a directory with X": (
        "file: {path: DIR/tree, state: directory, recurse: yes, mode: 'u=rwX,g=rX,o='}"
    ),
    "a mode of all in a directory with signs": (
        "file: {path: DIR/tree, state: directory, recurse: yes, mode: 'u+X,g+w,o-rx'}"
    ),
    "a mode of all in a new directory": (
        "file: {path: DIR/new, state: directory, recurse: yes, mode: '0700'}"
    ),
    "a mode of all in a directory after a new file": (
        "copy: {content: x, dest: DIR/tree/new, mode: '0750'}\n"
        "- file: {path: DIR/tree, state: directory, recurse: yes, mode: '0750', follow: no}"
    ),
    "a line with tabs": 'lineinfile: {path: DIR/conf, line: "a\\t\\tb \\\\t c"}',
    "a line that begins with a tab": (
        'lineinfile: {path: DIR/conf, line: "\\ta\\t", insertafter: "^first"}'
    ),
    "a line with tabs before another": (
        'lineinfile: {path: DIR/conf, line: "\\ta", insertbefore: "^first"}'
    ),
    "a line with tabs in place of another": (
        'lineinfile: {path: DIR/conf, line: "\\tfirst\\t1", regexp: "^first"}'
    ),
    "a content with tabs": 'copy: {dest: DIR/new, content: "\\ta\\n\\n\\tb\\t\\\\t\\n"}',
    "a content with tabs that has no last line end": (
        'copy: {dest: DIR/conf, content: "a\\n\\tb", mode: "0600"}'
    ),
    "an archive": (
        "unarchive: {src: DIR/a.tar, dest: DIR/tree, remote_src: yes, creates: DIR/tree/top}"
    ),
    "an archive with a mode": (
        "unarchive: {src: DIR/a.tar, dest: DIR/tree/, remote_src: yes, creates: DIR/tree/top, "
        "mode: 'u=rwX,go='}"
    ),
    "a part of an archive": (
        "unarchive: {src: DIR/a.tar, dest: DIR/tree, copy: no, creates: DIR/tree/deep, "
        "extra_opts: [--strip-components, 1], exclude: ['sub/tool']}"
    ),
    "an archive that was unpacked": (
        "unarchive: {src: DIR/none.tar, dest: DIR/tree, remote_src: yes, creates: DIR/tree/sub}"
    ),
    "comments": (
        "copy:\n    dest: DIR/new\n    content: \"{{ text | comment }}{{ text | comment('xml') }}"
        "{{ text | comment('cblock') }}{{ text | comment(decoration='; ') }}\"\n"
        '  vars: {text: "a\\n\\nb"}'
    ),
    "conditions": (
        "copy: {dest: DIR/new, content: '{{ item }}'}\n"
        "  loop: ['1.9', '1.10', '1.10.1']\n"
        "  when: item is version('1.10', '>=') and item is not search('1$') and item is match('1')"
    ),
    **{
        name: f"command: {command}\n  register: found\n  changed_when: no\n  {end}\n"
        f'- copy: {{dest: DIR/new, content: x}}\n  when: "{condition}"'
        for name, (command, end, condition) in READS.items()
    },
    **{
        f"a path that is there, {name}": (
            "stat: {path: DIR/conf}\n  register: found\n"
            "- stat: {path: DIR/none}\n  register: gone\n"
            f"- copy: {{dest: DIR/new, content: x}}\n  when: {condition}"
        )
        for name, condition in {
            "is true": "found.stat.exists == True and gone.stat.exists is false",
            "is false": "found.stat.exists == false",
            "is not true": "not gone.stat.exists == true and found.stat.exists != false",
            "is not false": "gone.stat.exists is not false",
        }.items()
    },
    "what another task registers too": (
        "copy: {content: x, dest: DIR/new}\n  register: found\n"
        "- copy: {content: x, dest: DIR/conf, force: no}\n  register: found\n"
        "- copy: {content: x, dest: DIR/other}\n  when: found is changed"
    ),
    "arguments in one line": (r"lineinfile: dest=DIR/conf line='a\tb\\c' regexp=^first\s=\s1"),
    "a text in one line": r'copy: content="a\nb\x21" dest=DIR/new',
    "a pattern without quotation marks": "lineinfile: dest=DIR/conf line=x regexp=^la\\.t",
    "joined values": (
        "copy: {dest: DIR/new, content: \"{{ ','.join(all) }}{{ 'abc'.find('c') }}\"}\n"
        "  vars: {all: [a, b]}"
    ),
}
TREE = {"plain": 0o644, "tool": 0o755, "odd": 0o4610, "shared": 0o2775}
PACKED = [
    ("sub", 0o700, tarfile.DIRTYPE),
    ("sub/tool", 0o711, tarfile.REGTYPE),
    ("sub/deep", 0o640, tarfile.REGTYPE),
    ("sub/link", 0o777, tarfile.SYMTYPE),
    ("top", 0o664, tarfile.REGTYPE),
]
# Which line, or whether, is nothing that a step could know.
REFUSED = {
    "a line after one of several": "lineinfile: {path: DIR/conf, line: x, insertafter: '^last'}",
    "a block after one of several": (
        "blockinfile: {path: DIR/conf, block: x, insertafter: '^last'}"
    ),
    "a mode of a link": "file: {path: DIR/tree/link, mode: '0600'}",
    "a directory that is a link": "file: {path: DIR/tree/link, state: directory}",
    "a link in place of a file": "file: {path: DIR/other, src: conf, state: link, force: yes}",
    "a link in place of a directory": "file: {path: DIR/tree, src: conf, state: link, force: yes}",
    "a copy of no file": "copy: {src: DIR/none, dest: DIR/new, remote_src: yes}",
}


# What goes by a line that the first of two tasks adds, which nothing that was read has.
FOLLOWERS = {
    "a line after it": "lineinfile: {path: DIR/conf, line: y, insertafter: '^x'}",
    "a line in place of it": "lineinfile: {path: DIR/conf, regexp: '^x', line: xy}",
    "no such line": "lineinfile: {path: DIR/conf, regexp: '^x', state: absent}",
    "a first line": "lineinfile: {path: DIR/conf, line: y, insertbefore: BOF, create: yes}",
}


def prepare(place: Path) -> None:
    place.mkdir()
    (place / "conf").write_text(CONF)
    (place / "other").write_text("other\n")
    (place / "other").chmod(0o640)
    (place / "empty").touch()
    (place / "tree" / "sub").mkdir(parents=True)
    for name, mode in TREE.items():
        path = place / "tree" / "sub" / name
        path.mkdir() if name == "shared" else path.touch()
        path.chmod(mode)
    (place / "tree" / "link").symlink_to("sub/plain")
    with tarfile.open(place / "a.tar", "w") as archive:
        for name, mode, kind in PACKED:
            member = tarfile.TarInfo(name)
            member.mode, member.type, member.linkname = mode, kind, "tool"
            archive.addfile(member)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, object]]:
    """Have Ansible do each task in a directory of its own; return what is there then."""
    base = tmp_path_factory.mktemp("ansible")
    tasks = list[str]()
    for number, task in enumerate(TASKS.values()):
        prepare(base / f"d{number}")
        text = "\n".join(f"    {line}" for line in task.split("\n"))
        tasks.append(f"    - {text[4:]}\n".replace("DIR", f"{base}/d{number}"))
    play = base / "site.yml"
    play.write_text("- hosts: all\n  gather_facts: no\n  tasks:\n" + "".join(tasks))
    words = [
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
    ]
    program = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent))
    assert program
    environment = {"HOME": str(base), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    answer = subprocess.run(
        [program, *words, play], capture_output=True, text=True, check=False, env=environment
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return {name: snapshot(base / f"d{number}") for number, name in enumerate(TASKS)}


@pytest.mark.parametrize("name", TASKS)
def test_draft_does_what_ansible_does(
    tmp_path: Path, done: Mapping[str, Mapping[str, object]], name: str
):
    prepare(tmp_path / "own")
    task = TASKS[name].replace("DIR", "DIR/own")
    runbook = load(tmp_path, f"- {task}\n")
    apply(make_plan(runbook))
    assert snapshot(tmp_path / "own") == done[name]
    assert not make_plan(runbook).steps


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_step_cannot_know_is_refused(tmp_path: Path, name: str):
    prepare(tmp_path / "own")
    task = REFUSED[name].replace("DIR", "DIR/own")
    with pytest.raises(Refused):
        make_plan(load(tmp_path, f"- {task}\n"))


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_goes_by_a_line_of_the_step_before_is_left_out(tmp_path: Path, name: str):
    file = tmp_path / "tasks.yml"
    tasks = ("lineinfile: {path: DIR/conf, line: x, create: yes}", FOLLOWERS[name])
    file.write_text("".join(f"- {task}\n" for task in tasks).replace("DIR", "/srv"))
    (job,) = import_ansible(file, set())
    assert "a line of /srv/conf that a step before it adds" in job.outcomes[-1].note
