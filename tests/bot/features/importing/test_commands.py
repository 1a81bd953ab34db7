"""`keyturn import`: what it writes, what it says of each step, and what it refuses."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.ansible.systems import SYSTEMS
from bot.features.importing.commands import SYSTEM_NAMES
from bot.features.importing.drafts import Draft, Origin
from bot.features.importing.pages import Imported
from bot.features.importing.rundeck import import_rundeck
from bot.features.importing.semaphore import import_semaphore
from bot.features.importing.shell.lines import carry_blind
from bot.features.importing.sources import MAX_BYTES, SourceError, as_list, as_mapping
from runbooks._declared import parse_page
from runbooks._declared_yaml import read_document
from tests.cli_process import Typed, run_command

YAML_JOB = """\
- name: Tune the web server
  description: Makes a web server quick.
  uuid: 5d3c
  options:
    - {name: log-dir, description: Where logs are, value: /var/log}
    - {name: level, values: [low, high], enforced: true}
    - {name: token, secure: true}
  sequence:
    keepgoing: true
    strategy: node-first
    commands:
      - exec: sudo sysctl -w net.core.somaxconn=1024
      - exec: mkdir -p /srv/cache
        description: Make room
      - exec: find ${option.log-dir} -name '*.${option.level}' -delete
      - script: |
          #!/bin/bash
          curl -H "token: @option.token@" localhost
      - jobref: {name: Warm the cache}
      - exec: echo done
  schedule: {time: {hour: '3'}}
"""
XML_JOB = """\
<joblist>
  <job>
    <name>Tune the web server</name>
    <description>Makes a web server quick.</description>
    <context><options>
      <option name='log-dir' value='/var/log'><description>Where logs are</description></option>
      <option name='level' values='low,high' enforcedvalues='true'/>
      <option name='token' secure='true'/>
    </options></context>
    <schedule><time hour='3'/></schedule>
    <sequence keepgoing='true' strategy='node-first'>
      <command><exec>sudo sysctl -w net.core.somaxconn=1024</exec></command>
      <command><description>Make room</description><exec>mkdir -p /srv/cache</exec></command>
      <command><exec>find ${option.log-dir} -name '*.${option.level}' -delete</exec></command>
      <command><script><![CDATA[#!/bin/bash
curl -H "token: @option.token@" localhost
]]></script></command>
      <command><jobref name='Warm the cache'/></command>
      <command><exec>echo done</exec></command>
    </sequence>
  </job>
</joblist>
"""


def type_import(tmp_path: Path, *words: str) -> Typed:
    environment = os.environ | {"KEYTURN_RUNBOOKS": "", "KEYTURN_DATA": str(tmp_path / "var")}
    return run_command(["import", *words], env=environment, where=tmp_path)


def write(tmp_path: Path, text: str | bytes, name: str = "jobs.yaml") -> str:
    file = tmp_path / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(file)


def list_became(job: Imported) -> list[str]:
    return [str(one.kind) for one in job.outcomes if not one.is_setting]


@pytest.mark.parametrize(("name", "text"), [("jobs.yaml", YAML_JOB), ("jobs.xml", XML_JOB)])
def test_both_formats_of_rundeck_are_carried_over_alike(tmp_path: Path, name: str, text: str):
    (job,) = import_rundeck(Path(write(tmp_path, text, name)), set())
    assert list_became(job) == [
        "carried over",
        "carried over",
        "blind",
        "blind",
        "left out",
        "left out",
    ]
    notes = {one.what: one.note for one in job.outcomes}
    assert "stops at the first step that fails" in notes["keepgoing"]
    assert "keyturn schedule new" in notes["schedule"]
    assert "no password" in notes["the option token"]
    assert "import that one too" in notes["Warm the cache"]
    (draft,) = job.drafts
    page = draft.render()
    assert draft.words == "tune the web server"
    assert "net.core.somaxconn={net_core_somaxconn}" in page, "the undo sets what was read"
    assert """find "${1}" -name '*.'"${2}"'' -delete""" in page
    assert "values:\n      - low\n      - high" in page
    assert page.count("# Blind:") == 2
    questions = "\n".join(draft.list_questions())
    for asked in ("pattern", "when", "no_undo", "script", "run", "examples"):
        assert f"{asked} is not answered yet" in questions
    assert "it uses the password @option.token@" in questions
    assert "written for bash" in questions


def test_draft_says_at_each_place_what_is_open_and_is_neither_linted_nor_enabled(tmp_path: Path):
    typed = type_import(tmp_path, "rundeck", write(tmp_path, YAML_JOB), "--directory", "own")
    assert typed.returncode == 0, typed.stderr
    for line in (
        "  line 12   carried over sudo sysctl -w net.core.somaxconn=1024",
        "  2 carried over, 2 blind, 2 left out",
        "  wrote own/runbooks/tune_the_web_server.yaml",
        "open questions, not to be enabled yet:",
    ):
        assert line in typed.stdout
    (tmp_path / "own").chmod(0o755)
    environment = os.environ | {"KEYTURN_RUNBOOKS": str(tmp_path / "own")}
    linted = run_command(["runbook", "lint", "tune the web server"], env=environment)
    assert linted.returncode == 1
    assert linted.stdout.count("is not answered yet") == typed.stdout.count("is not answered yet")
    again = type_import(tmp_path, "rundeck", write(tmp_path, YAML_JOB), "--directory", "own")
    assert "own/runbooks/tune_the_web_server2.yaml" in again.stdout, "nothing is overwritten"


def test_job_without_open_questions_is_a_page_that_passes_lint(tmp_path: Path):
    job = "- {name: Harden, sequence: {commands: [{exec: sysctl -w kernel.dmesg_restrict=1}]}}"
    typed = type_import(tmp_path, "rundeck", write(tmp_path, job), "--directory", "own", "--json")
    (found,) = json.loads(typed.stdout)
    assert found["drafts"] == [
        {"words": "harden", "file": "own/runbooks/harden.yaml", "questions": []}
    ]
    assert [one["became"] for one in found["steps"]] == ["carried over"]
    (tmp_path / "own").chmod(0o755)
    environment = os.environ | {"KEYTURN_RUNBOOKS": str(tmp_path / "own")}
    linted = run_command(["runbook", "lint", "harden"], env=environment)
    assert (linted.returncode, linted.stdout) == (0, "No problems in 1 runbook.\n")


def test_import_prints_a_command_that_checks_its_page(tmp_path: Path):
    job = "- {name: Harden, sequence: {commands: [{exec: sysctl -w kernel.dmesg_restrict=1}]}}"
    file = write(tmp_path, job)
    tmp_path.chmod(0o755)
    typed = type_import(tmp_path, "rundeck", file, "--directory", "own drafts")
    printed = re.search("complete: read it, then run `(.+)`", typed.stdout)
    assert printed is not None, typed.stdout
    command = printed[1].replace(" keyturn ", f" {sys.executable} -m bot ")
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "No problems in 1 runbook.\n"), done.stderr


def test_pages_of_a_second_import_are_no_further_parts(tmp_path: Path):
    commands = ["apt-get install -y nginx", "systemctl enable --now nginx"]
    job = [{"name": "job", "sequence": {"commands": [{"exec": one} for one in commands]}}]
    file = write(tmp_path, json.dumps(job))
    type_import(tmp_path, "rundeck", file)
    again = type_import(tmp_path, "rundeck", file)
    assert re.findall(r"runbooks/(\S+)\.yaml", again.stdout) == ["job_part1v2", "job_part2v2"]


@pytest.mark.parametrize(
    ("commands", "became", "said"),
    [
        # All of a page is read before its first step: a start after a stop would never be planned.
        (["systemctl stop app", "cp a b", "systemctl start app"], 2, "When is this one needed?"),
        (["rm -rf /srv/app", "mkdir -p /srv/app"], 2, "set /srv/app to nothing and a directory"),
        (["systemctl restart app"], 1, "request `service restart HOST app`"),
        (["touch /x/y", "systemctl restart app"], 2, "Is it needed only after these?"),
        (["nginx -t && systemctl reload nginx"], 1, "request `service reload HOST nginx`"),
        (["sysctl -w kernel.x=1", "df -h"], 1, "make it a check"),
        (["systemctl enable data.mount"], 0, "is not the name of a service"),
        (["systemctl stop sshd"], 0, "access to a host may depend on sshd"),
        (["systemctl stop app; rm -f /x/y"], 0, "is not answered yet"),
        (["rm -rf /etc"], 0, "top of the file system"),
        (["df -h", "uptime"], 2, "which of these lines does a person have to act on?"),
        (["chmod +s /usr/bin/x"], 0, "the mode '+s' is not read"),
        (["mkdir -p /srv/../etc"], 0, "is not a plain path"),
        (["apt-get install -y nginx-"], 0, "'nginx-' is not the name of one package"),
        (["useradd -m -s /bin/sh ann"], 1, "complete: read it"),
        (["apt-get install -y nginx", "systemctl enable --now nginx"], 2, "part2.yaml"),
    ],
)  # fmt: skip
def test_command_is_carried_over_only_with_its_plain_meaning(
    tmp_path: Path, commands: list[str], became: int, said: str
):
    job = [{"name": "job", "sequence": {"commands": [{"exec": one} for one in commands]}}]
    file = write(tmp_path, json.dumps(job))
    typed = type_import(tmp_path, "rundeck", file)
    assert typed.stdout.count("carried over ") == became, typed.stdout
    assert said in typed.stdout


def test_values_of_rundeck_that_a_host_does_not_have_are_questions(tmp_path: Path):
    text = (
        "- name: x\n  options: [{name: a}]\n"
        "  sequence: {commands: [{exec: 'ls ${unquotedoption.a} ${file.b} ${HOME}'}]}"
    )
    (job,) = import_rundeck(Path(write(tmp_path, text)), set())
    assert "it uses ${unquotedoption.a}, which Keyturn does not know" in job.outcomes[0].note
    assert "it uses ${file.b}, which" in job.outcomes[0].note
    assert "HOME" not in job.outcomes[0].note


def test_values_reach_a_blind_line_as_arguments_and_never_as_code(tmp_path: Path):
    draft = Draft("x", "x", tmp_path, {})
    value = "a b; id $(id) 'q'"
    code = "# it's\nprintf '%s|' \x01v\x02 \"x\x01v\x02y\" 'z\x01v\x02' \\\"\x01v\x02"
    carry_blind(draft, Origin(tmp_path, 1, "x"), code, root=False)
    script: str = draft.steps[0][2]["do"]["script"]
    ran = subprocess.run(
        ["sh", "-c", script, "keyturn", value], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f'{value}|x{value}y|z{value}|"{value}|'


PLAYBOOK = """\
- name: Set up the web server
  hosts: web
  become: true
  vars: {docroot: /srv/www, services: [nginx, php-fpm]}
  roles: [common]
  tasks:
    - name: Make the directory
      file: path={{ docroot }} state=directory mode=0755
      notify: reload nginx
    - service: {name: "{{ item }}", state: started, enabled: yes}
      loop: "{{ services }}"
    - lineinfile: {path: /etc/hosts, line: "10.0.0.1 db"}
      when: ansible_os_family == 'Debian' and db_is_local
    - shell: ./build.sh > /var/log/build
      args: {chdir: /srv, creates: /srv/built}
    - debug: {msg: hello}
    - git: {repo: x, dest: /srv/app}
    - copy: {src: ../../etc/passwd, dest: /srv/x}
    - command: cat /etc/selinux/config
      changed_when: false
  handlers:
    - name: reload nginx
      service: {name: nginx, state: reloaded}
"""


def test_playbook_is_carried_over_with_its_loops_values_conditions_and_handlers(tmp_path: Path):
    file = write(tmp_path, PLAYBOOK, "site.yml")
    typed = type_import(tmp_path, "ansible", file, "--json")
    (found,) = json.loads(typed.stdout)
    assert [(one["line"], one["became"]) for one in found["steps"]] == [
        (7, "carried over"),
        (10, "carried over"),
        (12, "carried over"),
        (14, "carried over"),
        (16, "left out"),
        (17, "left out"),
        (18, "left out"),
        (19, "left out"),
        (22, "carried over"),
    ]
    assert [one["setting"] for one in found["settings"]] == ["roles"]
    assert "the role common is not beside it" in found["settings"][0]["note"]
    page = Path(tmp_path, found["drafts"][0]["file"]).read_text()
    assert '(!file_srv_www.startsWith("directory,"))' in " ".join(page.split())
    assert "Start php-fpm" in page
    assert "TODO: Ansible asked db_is_local. Add it to:" in " ".join(page.split())
    assert 'when: file_srv_built == ""' in page
    assert "cd /srv && ./build.sh > /var/log/build" in page
    assert "passwd" not in page
    awx = type_import(tmp_path, "awx", file, "--json")
    assert json.loads(awx.stdout)[0]["steps"] == found["steps"]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("{file: {path: /srv/x, state: touch}, become: no}", "name the owner"),
        ("file: {path: /srv/x, state: touch, owner: ann}", "carried over"),
        ("{command: ls /x, become_user: ann}", "it runs as ann"),
        ("{apt: name=x, environment: {A: b}}", "it has `environment`"),
        ("{shell: x >y, environment: {A: '{{ b }}'}}", "Ansible had `environment` for it"),
        ("{shell: x, args: {executable: /bin/bash}}", "it was written for bash"),
        ("{command: rm -f /srv/x, when: a is defined}", "Ansible asked a is defined"),
        ("{command: make creates=/srv/x, when: b}", "Ansible asked b"),
        ("{when: a, block: [{yum: name=x, when: b}]}", "asked a and b"),
        ("{shell: x, delegate_to: db1}", "it runs on another host"),
        ("{service: name=x state=started, until: ok}", "it has `until`"),
    ],
)
def test_what_changes_how_a_task_runs_is_never_dropped(tmp_path: Path, task: str, said: str):
    text = f"- hosts: all\n  tasks:\n    - {task}\n"
    typed = type_import(tmp_path, "ansible", write(tmp_path, text, "site.yml"))
    assert said in typed.stdout, typed.stdout


OVER = "carried over"
CLEAR = "no question"


@pytest.mark.parametrize(
    ("play", "said"),
    [
        # A value of the request is neither yes nor no, and no state.
        ("{tasks: [{service: {name: x, state: started, enabled: '{{ b }}'}}]}", "neither yes nor"),
        ("{tasks: [{user: {name: x, state: '{{ s }}'}}]}", "the state S is not read"),
        ("{tasks: [{group: {name: x, state: '{{ s }}'}}]}", "the state S is not read"),
        ("{tasks: [{lineinfile: {path: /a/b, line: c, state: '{{ s }}'}}]}", "the state S is"),
        ("{tasks: [{copy: {dest: /a/b, content: 1.10}}]}", "another number to Ansible"),
        ("{tasks: [{lineinfile: {path: /a/b, line: 1_000}}]}", "another number to Ansible"),
        ("{tasks: [{copy: {dest: /a/b, content: c, force: no}}]}", CLEAR),
        (
            "{tasks: [{copy: {dest: /a/b, src: /c/d, remote_src: yes, force: no}}]}",
            "leaves a file that is there",
        ),
        # What a play and blocks say holds for their tasks.
        ("{become_user: ann, tasks: [{apt: name=x}]}", "it runs as ann"),
        ("{become_user: ann, tasks: [{apt: name=x, become_user: root}]}", CLEAR),
        ("{environment: {A: b}, tasks: [{apt: name=x}]}", "it has `environment`"),
        ("{tasks: [{delegate_to: db1, block: [{apt: name=x}]}]}", "it runs on another host"),
        ("{tasks: [{environment: {A: b}, block: [{apt: name=x}]}]}", "it has `environment`"),
        ("{tasks: [{check_mode: '{{ b }}', apt: name=x}]}", "it has `check_mode`"),
        ("{tasks: [{check_mode: no, ignore_errors: no, apt: name=x}]}", CLEAR),
        ("{tasks: [{tags: [never], apt: name=x}]}", "its tag `never`"),
        # Values of a task, a block and a loop come before those of the play.
        (
            "{vars: {p: a}, tasks: [{vars: {p: b}, file: 'path=/x/{{ p }} state=directory'}]}",
            "/x/b",
        ),
        (
            "{vars: {p: a}, tasks: [{vars: {p: b}, block: "
            "[{file: 'path=/x/{{ p }} state=directory'}]}]}",
            "/x/b",
        ),
        (
            "{tasks: [{loop: [b], loop_control: {loop_var: p}, "
            "file: 'path=/x/{{ p }} state=directory'}]}",
            "/x/b",
        ),
        ("{tasks: [{loop: [b], loop_control: {extended: yes}, apt: 'name={{ i }}'}]}", "extended"),
        # A condition that is a template is another one after it is filled.
        ("{vars: {e: ''}, tasks: [{apt: name=x, when: \"'{{ e }}' == 'x'\"}]}", "the condition"),
        ("{vars: {e: x}, tasks: [{apt: name=x, when: \"e == 'x' and f\"}]}", "the condition f"),
        ("{vars: {e: x}, tasks: [{apt: name=x, when: e == 'x'}]}", CLEAR),
        (
            "{vars: {e: 0644}, tasks: [{file: {path: /a/b, mode: '{{ e }}'}}]}",
            "0644 without quotation marks is another number to Ansible",
        ),
        ('{tasks: [{copy: {dest: /a/b, content: \'{"a": "{{ e }}"}\'}}]}', "a list or a mapping"),
        ("{tasks: [{copy: {dest: /a/b, content: \"{{ 'a' * 9 }}\"}}]}", "no whole numbers"),
        ("{tasks: [{copy: {dest: /a/b, content: \"{{ ''.__class__ }}\"}}]}", "computes a value"),
        # What would take all memory.
        (
            "{tasks: [{copy: {dest: /a/b, content: \"{{ '%99999999999d' % 1 }}\"}}]}",
            "no whole numbers",
        ),
        (
            "{tasks: [{copy: {dest: /a/b, content: \"{{ 'a' * 99999999999 }}\"}}]}",
            "no whole numbers",
        ),
        ("{tasks: [{include_tasks: ../../../etc/passwd}]}", "includes another file"),
        ("{tasks: [{include_role: {name: ../../etc}}]}", "includes another file"),
        ("{tasks: [{loop: [[a]], apt: 'name={{ item }}'}]}", CLEAR),
        ("{tasks: [{with_items: [[a]], file: 'path=/x/{{ item }} state=directory'}]}", "/x/a"),
        (
            "{tasks: [{with_nested: [[a], [b]], file: 'path=/x/{{ item.0 }}{{ item.1 }} "
            "state=directory'}]}",
            "/x/ab",
        ),
        (
            "{tasks: [{with_together: [[a], [b]], file: 'path=/x/{{ item.1 }} state=directory'}]}",
            "/x/b",
        ),
        ("{tasks: [{with_together: [[a], [b, c]], apt: 'name={{ item.1 }}'}]}", "not plain lists"),
        ("{tasks: [{with_nested: [[[a, b]], [c]], apt: 'name={{ item.1 }}'}]}", "not plain lists"),
        (
            "{tasks: [{with_flattened: [[[a]]], file: 'path=/x/{{ item }} state=directory'}]}",
            "/x/a",
        ),
        (
            "{tasks: [{with_fileglob: [/x/*], file: 'path={{ item }} state=absent'}]}",
            "not beside the playbook",
        ),
    ],
)
def test_playbook_never_becomes_a_page_that_does_something_else(
    tmp_path: Path, play: str, said: str
):
    file = Path(write(tmp_path, f"- {{hosts: all, become: true, {play[1:]}", "site.yml"))
    (job,) = import_ansible(file, set())
    ((draft,), (outcome,)) = job.drafts, job.outcomes
    if said.startswith("/"):
        assert f"Create the directory {said}" in draft.render()
    elif said == CLEAR:
        assert (str(outcome.kind), draft.list_questions()) == ("carried over", [])
    else:
        assert said in outcome.note
        assert "TODO" in draft.render()


@pytest.mark.parametrize(
    ("handler", "became", "asks"),
    [
        ("{service: name=x state=reloaded}", OVER, ""),
        ("{service: name=x state=reloaded daemon_reload=yes}", OVER, ""),
        ("{command: update-grub}", OVER, ""),
        ("{apt: update_cache=yes}", OVER, ""),
        ("{systemd: daemon_reload=yes}", OVER, ""),
        ("{service: name=x state=reloaded, when: a}", OVER, "TODO: Ansible asked a. Add it to"),
        ("{service: name=x state=reloaded, delegate_to: db1}", "left out", "TODO"),
        ("{service: state=reloaded}", "left out", "TODO"),
        ("{block: [{command: x}]}", "left out", "TODO"),
        ("{command: x, environment: a}", "blind", "TODO: Ansible had `environment`"),
    ],
)
def test_handler_runs_only_after_what_notifies_it(
    tmp_path: Path, handler: str, became: str, asks: str
):
    play = (
        "- hosts: all\n  become: true\n  tasks: [{copy: {dest: /a/b, content: c}, notify: h}]\n"
        f"  handlers: [{{listen: [h], name: n, {handler[1:]}]\n"
    )
    (job,) = import_ansible(Path(write(tmp_path, play)), set())
    assert list_became(job) == [OVER, became]
    (draft,) = job.drafts
    questions = draft.list_questions()
    assert bool(questions) == bool(asks)
    assert asks in " ".join(draft.render().split())
    for _, _, step in draft.steps[2:] if not asks else ():
        assert step["when"] == draft.join_any([one["when"] for _, _, one in draft.steps[:2]])


def test_handler_asks_when_it_is_needed_if_that_is_not_known_of_a_task(tmp_path: Path):
    play = (
        "- hosts: all\n  become: true\n  tasks: [{ufw: {state: enabled}, notify: h}]\n"
        "  handlers: [{name: h, command: update-grub}]\n"
    )
    (job,) = import_ansible(Path(write(tmp_path, play)), set())
    assert list_became(job) == ["left out", "blind"]
    reload = write(tmp_path, play.replace("command: update-grub", "systemd: daemon_reload=yes"))
    (other,) = import_ansible(Path(reload), set())
    assert list_became(other) == ["left out", OVER]
    assert "was changed. What that was read shows" in " ".join(other.drafts[0].render().split())
    assert "whether a task that notifies it was changed" in job.outcomes[-1].note


def test_restart_is_on_each_page_whose_steps_ask_for_it(tmp_path: Path):
    text = (
        "- hosts: all\n  become: yes\n"
        "  handlers: [{name: h, service: {name: sshd, state: restarted}}]\n"
        "  tasks:\n"
        "  - {lineinfile: {path: /etc/ssh/sshd_config, line: X11Forwarding no}, notify: h}\n"
        "  - apt: {name: sudo}\n"
        "  - {copy: {dest: /etc/default/ssh, content: a}, notify: h}\n"
        "  - lineinfile: {path: /etc/hosts, line: 192.0.2.1 a}\n"
    )
    (job,) = import_ansible(Path(write(tmp_path, text, "site.yml")), set())
    assert [str(one.kind) for one in job.outcomes] == ["carried over"] * 5
    first, packages, last = job.drafts
    for draft, count in ((first, 1), (last, 2)):
        assert draft.list_questions() == []
        restart = next(step for _, _, step in draft.steps if "restart" in str(step["do"]))
        assert restart["do"]["run"] == ["/usr/bin/systemctl", "restart", "sshd.service"]
        assert restart["when"].count("||") == count - 1
        assert draft.probation["name"] == "access"
    assert packages.probation == {}


def test_handler_on_another_page_than_what_notifies_it_asks(tmp_path: Path):
    tasks = ", ".join(f"{{copy: {{dest: /etc/a{at}, content: c}}, notify: h}}" for at in range(10))
    play = (
        f"- hosts: all\n  become: true\n  tasks: [{tasks}]\n"
        "  handlers: [{name: h, command: update-grub}]\n"
    )
    (job,) = import_ansible(Path(write(tmp_path, play)), set())
    assert [len(draft.steps) for draft in job.drafts] == [20, 1]
    assert list_became(job)[-1] == "left out"
    assert "on the page before this one" in job.outcomes[-1].note


def test_role_knows_its_name_where_its_directory_has_it(tmp_path: Path):
    task = "- copy: {dest: '/etc/{{ ansible_role_name }}', content: x}\n"
    for place, shown in (("roles/web", "/etc/web"), ("clone", "TODO")):
        (tmp_path / place / "tasks").mkdir(parents=True)
        file = tmp_path / place / "tasks" / "main.yml"
        file.write_text(task)
        (job,) = import_ansible(file, set())
        assert shown in job.drafts[0].render()
        assert ("TODO" in job.drafts[0].render()) == (shown == "TODO")


def test_long_lines_keep_their_backslashes(tmp_path: Path):
    content = "{{ name }} " + 'it\'s "x"\n' * 60
    file = tmp_path / "site.yml"
    text = json.dumps([{"copy": {"dest": "/etc/a", "content": content}}])
    file.write_text(text)
    (job,) = import_ansible(file, set())
    (draft,) = job.drafts
    page = YAML(typ="safe").load(draft.render())
    assert page["state"] == draft.state
    assert page["steps"][0]["do"]["stdin"] == draft.steps[0][2]["do"]["stdin"]


def test_page_has_the_fields_that_its_later_steps_bring(tmp_path: Path):
    tasks = (
        "- ufw: {state: enabled}\n- copy: {dest: /etc/a, content: x, mode: odd}\n"
        "- copy: {dest: /etc/b, content: '{{ name }}'}\n"
    )
    (job,) = import_ansible(Path(write(tmp_path, tasks, "tasks.yml")), set())
    (draft,) = job.drafts
    assert "name" in draft.fields
    assert "\nfields:\n  name:\n" in draft.render()


def test_handler_of_many_tasks_has_its_conditions_in_parts(tmp_path: Path):
    tasks = ", ".join(f"{{copy: {{dest: /etc/a{at}, content: c}}, notify: h}}" for at in range(9))
    play = (
        f"- hosts: all\n  become: true\n  tasks: [{tasks}]\n"
        "  handlers: [{name: h, command: update-grub}]\n"
    )
    (job,) = import_ansible(Path(write(tmp_path, play)), set())
    (draft,) = job.drafts
    assert draft.list_questions() == []
    assert "is_changed" in draft.steps[-1][2]["when"]


def test_templates_of_semaphore_import_their_playbooks(tmp_path: Path):
    write(tmp_path, PLAYBOOK, "site.yml")
    project: Any = {
        "meta": {"name": "Demo"},
        "templates": [
            {"name": "Web", "playbook": "site.yml", "arguments": '["--tags", "x"]'},
            {"name": "Gone", "playbook": "gone.yml"},
            {"name": "Out", "playbook": "../../etc/passwd"},
            {"name": "Plan", "app": "terraform", "playbook": ""},
        ],
    }
    typed = type_import(tmp_path, "semaphore", write(tmp_path, json.dumps(project)), "--json")
    web, gone, out, plan = json.loads(typed.stdout)
    assert len(web["steps"]) == 9
    assert [one["setting"] for one in web["settings"]] == ["arguments", "roles"]
    assert "--repository" in gone["steps"][0]["note"]
    assert "is not in" in out["steps"][0]["note"]
    assert "terraform" in plan["steps"][0]["note"]


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    "<joblist><job><name>&b;</name><sequence/></job></joblist>"
)
OUTSIDE = (
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<joblist><job><name>&a;</name><sequence/></job></joblist>"
)


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("rundeck", BOMB, "has a DTD or entities"),
        ("rundeck", OUTSIDE, "has a DTD or entities"),
        ("rundeck", "<joblist><job>", "line 1: is not XML: "),
        ("rundeck", "<joblist>\n</joblist>", "line 1: is not a list of jobs of Rundeck"),
        ("rundeck", "<joblist>\n<job><name>x</name></job></joblist>", "line 2: this <job> has no"),
        ("rundeck", "<a>" * 100 + "</a>" * 100, "line 1: is nested too deeply"),
        ("rundeck", "- name: x", "line 1: is not a job of Rundeck"),
        ("rundeck", "- name: x\n  sequence: {commands: [1]}", "line 2: `sequence` has no list"),
        ("rundeck", "", "line 1: is not a job of Rundeck"),
        ("rundeck", "a: [1", "line "),
        ("rundeck", "- &a x\n- *b", "line 2, column 3: the alias *b has no anchor before it"),
        ("rundeck", "- &a [*a]", "the alias *a has no anchor before it"),
        (
            "rundeck",
            "- &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
            + "".join(f"- &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghi")),
            "its aliases stand for more than 20,000 parts",
        ),
        ("rundeck", b"\xff\xfe", "is not UTF-8"),
        ("rundeck", "x" * (MAX_BYTES + 1), "has more than 1024 KiB"),
        ("ansible", "[" * 10000, "is nested too deeply"),
        ("ansible", "hosts: all", "line 1: is not a playbook"),
        ("ansible", "- {name: job, sequence: {}, options: []}", "none of its entries is a play"),
        ("ansible", "- hosts: all\n  tasks: {a: b}", "line 2: tasks is not a list"),
        ("ansible", "- hosts: all\n  tasks: [x]", "tasks is not a list of tasks"),
        ("ansible", "- !!python/object/apply:os.system [id]", "tags are not allowed"),
        ("semaphore", "{}", "is not a project of Semaphore"),
        ("semaphore", '{"templates": [1]}', "is not a project of Semaphore"),
        ("semaphore", '[{"hosts": "all", "tasks": []}]', "is not a project of Semaphore"),
    ],
)
def test_file_that_is_no_job_gets_a_sentence_with_its_place(
    tmp_path: Path, kind: str, text: str | bytes, problem: str
):
    file = Path(write(tmp_path, text))
    importers: dict[str, Callable[[Path, set[str]], object]] = {
        "rundeck": import_rundeck,
        "ansible": import_ansible,
        "semaphore": lambda file, taken: import_semaphore(file, taken, tmp_path),
    }
    with pytest.raises(SourceError) as caught:
        importers[kind](file, set())
    message = str(caught.value)
    assert message.startswith(str(file))
    assert problem in message
    assert len(message.splitlines()) == 1


def test_command_prints_why_a_file_is_no_job_and_writes_nothing(tmp_path: Path):
    typed = type_import(tmp_path, "rundeck", write(tmp_path, BOMB))
    assert (typed.returncode, typed.stdout) == (2, "")
    assert "has a DTD or entities" in typed.stderr
    assert len(typed.stderr.splitlines()) == 1
    assert not (tmp_path / "drafts").exists()
    write(tmp_path, "", "runbooks")
    typed = type_import(
        tmp_path, "rundeck", write(tmp_path, YAML_JOB), "--directory", str(tmp_path)
    )
    assert typed.returncode == 1
    assert typed.stderr.strip().endswith(f"{tmp_path / 'runbooks'}: File exists")


ODD: list[Any] = [
    None, True, -1, "", "x" * 300, "\n", "\x07", "é", "{{ a }}", "{{ a.b | c }}", "{% if %}",
    "{a}", "@option.x@", "${option.log-dir}", "${job.id}", "/", "/../etc", "-rf", [], {}, [{}],
    {"a": {"b": []}}, "TODO", "yes", "$(id)", "a && b", "'", "\\", "#", "\x01host\x02", "<<EOF",
]  # fmt: skip


def change_somewhere(chance: random.Random, value: object) -> object:
    """Return a value with something odd in one place."""
    mapping, listed = as_mapping(value), as_list(value)
    if not (mapping or listed) or chance.random() < 0.15:
        return chance.choice(ODD)
    if listed:
        at = chance.randrange(len(listed))
        return [*listed[:at], change_somewhere(chance, listed[at]), *listed[at + 1 :]]
    key = chance.choice([*mapping])
    if chance.random() < 0.1:
        return {**mapping, str(chance.choice(ODD)): mapping[key]}
    return {**mapping, key: change_somewhere(chance, mapping[key])}


@pytest.mark.parametrize("text", [YAML_JOB, PLAYBOOK])
def test_odd_files_get_a_sentence_or_a_draft_that_says_what_is_open(tmp_path: Path, text: str):
    data = read_document(text.encode(), MAX_BYTES).data
    chance = random.Random(41)  # noqa: S311 - the same files each time
    importer: Callable[[Path, set[str]], list[Imported]] = (
        import_rundeck if text == YAML_JOB else import_ansible
    )
    drafts = list[Draft]()
    for _ in range(40):
        file = Path(write(tmp_path, json.dumps(change_somewhere(chance, data))))
        with suppress(SourceError):
            drafts += [draft for job in importer(file, set()) for draft in job.drafts]
    assert len(drafts) > 20
    for draft in drafts:
        # Its format is valid, so that it keeps no service from starting.
        parse_page(draft.render().encode())
        assert draft.list_questions()


def test_systems_of_the_command_are_those_that_are_known():
    """The command names them itself, so that its help loads no templates."""
    assert SYSTEM_NAMES.split() == sorted(SYSTEMS)
