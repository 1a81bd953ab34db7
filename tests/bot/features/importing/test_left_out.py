"""What a step would do otherwise than its task is left out, asked about, or said."""

from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.drafts import Kind
from tests.bot.features.importing.test_public_steps import show

STOPS = "TODO: Ansible stopped here"


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("copy: {dest: /srv/a, content: x, mode: 644}", "is no octal one"),
        ("replace: {path: /srv/a, regexp: first, replace: firsts}", "replaced each time"),
        ("lineinfile: {path: /srv/a, regexp: ^first, line: ''}", "its line is empty"),
        ("lineinfile: {path: /srv/a, regexp: '^ *$', state: absent}", "lines without text"),
        ("lineinfile: {path: /srv/a, line: x, insertafter: ^$}", "lines without text"),
        ("lineinfile: dest=/srv/a line='it", "_ is not read"),
    ],
)
def test_task_that_a_step_would_do_otherwise_is_left_out(tmp_path: Path, task: str, reason: str):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- {task}\n")
    (job,) = import_ansible(file, set())
    assert reason in job.outcomes[-1].note


@pytest.mark.parametrize(
    ("task", "asks"),
    [
        ("copy: {dest: /srv/b, content: x}", False),
        ("copy: {dest: /srv/b, content: x}\n  when: 1 == 2", True),
        ("copy: {dest: /srv/b, content: x}\n  changed_when: no", True),
        ("copy: {dest: /srv/b, content: x}\n  changed_when: yes", True),
        ("apt_key: {id: x}", True),
    ],
)
def test_what_a_variable_has_is_of_the_task_that_registers_it_last(
    tmp_path: Path, task: str, *, asks: bool
):
    file = tmp_path / "tasks.yml"
    file.write_text(
        f"- copy: {{dest: /srv/a, content: x}}\n  register: done\n- {task}\n  register: done\n"
        "- file: {path: /srv/c, state: touch}\n  when: done is changed\n"
    )
    (job,) = import_ansible(file, set())
    assert ("Ansible asked done is changed" in " ".join(show(job).split())) == asks
    (step,) = (
        one for _, _, one in job.drafts[0].steps if one["title"] == "Create the file /srv/c"
    )
    assert "srv_a" not in step["when"]


def test_task_that_says_that_it_changes_nothing_notifies_no_one(tmp_path: Path):
    play = tmp_path / "site.yml"
    play.write_text(
        "- hosts: all\n  tasks:\n"
        "    - {copy: {dest: /srv/a, content: x}, changed_when: no, notify: restart}\n"
        "  handlers:\n    - {name: restart, service: {name: nginx, state: restarted}}\n"
    )
    (job,) = import_ansible(play, set())
    assert "Restart" not in show(job)


@pytest.mark.parametrize(
    ("attributes", "says"), [("owner: ann", True), ("mode: '0700'", True), ("mode: '0755'", False)]
)
def test_page_says_whose_directories_above_a_new_one_are(
    tmp_path: Path, attributes: str, *, says: bool
):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- file: {{path: /srv/a/b, state: directory, {attributes}}}\n")
    (job,) = import_ansible(file, set())
    assert ("Ansible would give it what /srv/a/b has" in " ".join(show(job).split())) == says


@pytest.mark.parametrize(
    ("task", "asks"),
    [
        ("assert: {that: [port > 1, port is defined]}", False),
        ("assert: {that: port > 1}\n  loop: [1, 2]", False),
        ("assert: {that: item > 1}\n  loop: [2, 3]", False),
        ("assert: {that: ansible_os_family == 'Debian'}", False),
        ("assert: {that: item > 1}\n  loop: [2, 1]", True),
        ("assert: {that: name is defined}", True),
        ("assert: {that: [port > 1, ansible_memtotal_mb > 9]}", True),
        ("fail: {msg: no}\n  when: port > 90", False),
    ],
)
def test_what_the_files_show_to_hold_asks_nothing(tmp_path: Path, task: str, *, asks: bool):
    play = tmp_path / "site.yml"
    text = task.replace("\n", "\n    ")
    play.write_text(
        f"- hosts: all\n  vars: {{port: 80}}\n  tasks:\n    - {text}\n"
        "    - file: {path: /srv/c, state: touch}\n"
    )
    (job,) = import_ansible(play, set())
    assert (STOPS in " ".join(show(job).split())) == asks


@pytest.mark.parametrize("task", ["fail: {msg: no}", "assert: {that: port > 90}"])
def test_what_stops_on_all_hosts_is_said_once(tmp_path: Path, task: str):
    play = tmp_path / "site.yml"
    play.write_text(
        f"- hosts: all\n  vars: {{port: 80}}\n  tasks:\n    - {task}\n"
        "      loop: [1, 2]\n    - file: {path: /srv/c, state: touch}\n"
    )
    (job,) = import_ansible(play, set())
    page = " ".join(show(job).split())
    assert page.count(STOPS) == 1
    assert f"{STOPS}: on all hosts, with the values that the files give" in page


@pytest.mark.parametrize(
    "key", ["sudo_user: ann", "become_user: ann", "vars: {ansible_become_user: ann}"]
)
def test_task_of_another_user_is_left_out(tmp_path: Path, key: str):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- file: {{path: /srv/a, state: touch}}\n  {key}\n")
    (job,) = import_ansible(file, set())
    assert "it runs as ann" in job.outcomes[-1].note


def test_password_that_nothing_sets_is_no_value_of_the_request(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    file.write_text("- copy: {dest: /srv/a, content: 'pass={{ db_password }}'}\n")
    (job,) = import_ansible(file, set())
    assert "db_password is a secret" in job.outcomes[-1].note


@pytest.mark.parametrize(
    ("task", "when"),
    [
        ("notify: restart {{ one }}", "srv_a"),
        ("notify: restart {{ item }}\n      loop: [1, 2]", "TODO: it is needed if"),
        ("notify: [other, restart nginx]", "srv_a"),
    ],
)
def test_handler_is_found_by_what_its_name_says(tmp_path: Path, task: str, when: str):
    play = tmp_path / "site.yml"
    play.write_text(
        "- hosts: all\n  vars: {one: nginx}\n  tasks:\n"
        f"    - copy: {{dest: /srv/a, content: x}}\n      {task}\n  handlers:\n"
        "    - {name: 'restart {{ one }}', service: {name: nginx, state: restarted}}\n"
    )
    (job,) = import_ansible(play, set())
    (step,) = (
        one for _, _, one in job.drafts[0].steps if one["title"].startswith("Restart nginx")
    )
    assert when in step["when"]


def test_of_handlers_with_one_name_the_last_one_runs(tmp_path: Path):
    play = tmp_path / "site.yml"
    play.write_text(
        "- hosts: all\n  tasks:\n    - {copy: {dest: /srv/a, content: x}, notify: restart}\n"
        "  handlers:\n    - {name: restart, service: {name: nginx, state: restarted}}\n"
        "    - {name: restart, service: {name: php, state: restarted}}\n"
    )
    (job,) = import_ansible(play, set())
    titles = [one["title"] for _, _, one in job.drafts[0].steps]
    assert [one for one in titles if "Restart" in one] == [
        "Restart php, since what it reads has changed"
    ]


def test_of_handlers_of_roles_with_one_name_the_last_one_runs(tmp_path: Path):
    for role, service in (("one", "nginx"), ("two", "php")):
        for folder, text in (
            ("tasks", f"- {{copy: {{dest: /srv/{role}, content: x}}, notify: [restart, own]}}\n"),
            (
                "handlers",
                f"- {{name: restart, service: {{name: {service}, state: restarted}}}}\n"
                "- {name: own, service: {name: redis, state: restarted}}\n",
            ),
        ):
            (tmp_path / "roles" / role / folder).mkdir(parents=True)
            (tmp_path / "roles" / role / folder / "main.yml").write_text(text)
    play = tmp_path / "site.yml"
    play.write_text(
        "- hosts: all\n  roles: [one, two]\n"
        "  handlers:\n    - {name: own, service: {name: cups, state: restarted}}\n"
    )
    (job,) = import_ansible(play, set())
    titles = [one["title"] for _, _, one in job.drafts[0].steps]
    assert [one.split()[1].strip(",") for one in titles if "Restart" in one] == ["php", "cups"]


def fill(task: str) -> str:
    """Return a list of one task, with the home of a user and of root."""
    return f"- {task}\n".replace("HOME", "/ho" + "me/ann").replace("ROOT", "/ro" + "ot")


@pytest.mark.parametrize(
    "task",
    [
        "copy: {dest: HOME/.ssh/authorized_keys, content: x}",
        "get_url: {url: 'https://example.org/keys', dest: ROOT/.ssh/authorized_keys}",
        "lineinfile: {path: ROOT/.ssh/authorized_keys, regexp: ann, state: absent}",
        "lineinfile: {path: ROOT/.ssh/authorized_keys, regexp: ann, line: ssh-rsa a}",
        "replace: {path: ROOT/.ssh/authorized_keys, regexp: ann, replace: bob}",
        "file: {path: ROOT/.ssh/authorized_keys, src: /tmp/x, state: link}",
        "file: {path: HOME/.ssh, state: directory, mode: '0777'}",
        "file: {path: HOME, state: directory, mode: g+w}",
        "file: {path: /etc, state: directory, mode: '0700'}",
        "file: {path: /etc/passwd, mode: o-r}",
        "file: {path: /usr/bin/sudo, mode: '0755'}",
        "file: {path: /usr/bin/sudo, state: absent}",
        "file: {path: /bin/bash, src: /bin/false, state: link}",
        "file: {path: /etc/nologin, state: touch}",
        "copy: {dest: /etc/netplan/1.yaml, content: x}",
        "copy: {dest: /etc/network/interfaces, content: x}",
        "copy: {dest: /etc/nftables.conf, content: x}",
        "lineinfile: {path: /etc/default/ufw, regexp: ^D, line: DEFAULT=DROP}",
        "copy: {dest: /etc/systemd/system/ssh.service, content: x}",
        "apt: {name: openssh-server, state: absent}",
        "apt: {name: [nano, sudo], state: absent}",
        "command: chmod 700 /etc",
        "user: {name: root, state: absent}",
        "user: {name: root, shell: /bin/false}",
        "group: {name: sudo, state: absent}",
        "command: mount -o remount,nosuid /usr",
        "sysctl: {name: net.ipv6.conf.all.disable_ipv6, value: 1}",
        "command: apt-get -y remove sudo",
    ],
)
def test_what_takes_access_away_is_left_out(tmp_path: Path, task: str):
    file = tmp_path / "tasks.yml"
    file.write_text(fill(task))
    (job,) = import_ansible(file, set())
    assert job.outcomes[-1].kind is not Kind.TYPED


@pytest.mark.parametrize(
    "task",
    [
        "lineinfile: {path: HOME/.ssh/authorized_keys, line: ssh-rsa a}",
        "file: {path: HOME/.ssh, state: directory, mode: '0700', owner: ann}",
        "file: {path: ROOT, state: directory, mode: '0700'}",
        "file: {path: /etc/passwd, mode: '0644'}",
        "apt: {name: nano, state: absent}",
    ],
)
def test_what_takes_no_access_away_is_carried_over(tmp_path: Path, task: str):
    file = tmp_path / "tasks.yml"
    file.write_text(fill(task))
    (job,) = import_ansible(file, set())
    assert job.outcomes[-1].kind is Kind.TYPED


@pytest.mark.parametrize(
    "key", ["connection: local", "vars: {ansible_connection: local}", "become_flags: -H -u ann"]
)
def test_task_that_runs_elsewhere_or_as_another_is_left_out(tmp_path: Path, key: str):
    file = tmp_path / "tasks.yml"
    file.write_text(f"- block:\n    - file: {{path: /srv/a, state: touch}}\n  {key}\n")
    (job,) = import_ansible(file, set())
    assert job.outcomes[-1].kind is Kind.LEFT_OUT
    assert "Create" not in "".join(map(show, [job] if job.drafts else []))


def test_handlers_that_ran_in_between_are_said_to_be_at_the_end(tmp_path: Path):
    file = tmp_path / "tasks.yml"
    file.write_text("- meta: flush_handlers\n")
    (job,) = import_ansible(file, set())
    assert job.outcomes[-1].note == (
        "handlers are at the end of their page, also those that ran here"
    )


@pytest.mark.parametrize("before", ["copy: {dest: FILE, content: x}\n    - ", ""])
@pytest.mark.parametrize(
    ("file", "line", "title"),
    [
        ("/etc/systemd/system/a.service", "systemctl daemon-reload", "its unit files again"),
        ("/etc/sysctl.d/a.conf", "sysctl --system", "Have sysctl read"),
    ],
)
def test_what_reads_files_again_that_a_blind_line_names_asks_when(
    tmp_path: Path, before: str, file: str, line: str, title: str
):
    play = tmp_path / "site.yml"
    play.write_text(
        f"- hosts: all\n  become: true\n  tasks:\n    - {before.replace('FILE', file)}"
        f"shell: make-config > {file}\n    - command: {line}\n"
    )
    (job,) = import_ansible(play, set())
    assert [one.kind for one in job.outcomes[-2:]] == [Kind.BLIND, Kind.TYPED]
    steps = show(job).partition("steps:")[2]
    after = steps[steps.index(title) :]
    assert after.partition("when:")[2].lstrip(" '").startswith("TODO:")
