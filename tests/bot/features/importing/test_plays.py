"""Who runs the tasks of a play, and what it includes."""

from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from tests.bot.features.importing.test_public_steps import show, write_role

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
    ("task", "is_carried"),
    [
        ("git: {repo: 'https://x/y.git', dest: /srv/a}", False),
        ("get_url: {url: 'https://x/y', dest: /srv/a}", False),
        ("get_url: {url: 'https://x/y', dest: /srv/a, owner: ann}", True),
        ("lineinfile: {path: /srv/a, line: a, create: yes}", False),
        ("lineinfile: {path: /srv/a, line: a}", True),
        ("blockinfile: {path: /srv/a, block: a, create: yes}", False),
        ("ini_file: {path: /srv/a, section: a, option: b, value: c}", False),
        ("pip: {name: a, virtualenv: /srv/a}", False),
        (
            "unarchive: {src: 'https://x/y.tar.gz', dest: /srv, remote_src: yes, creates: /srv/a}",
            False,
        ),
    ],
)
def test_login_owns_what_its_task_makes(tmp_path: Path, task: str, is_carried: bool):
    other = "    - {ping: , become: yes}\n"
    play = f"  tasks:\n    - {task}\n{other}"
    (job,) = import_ansible(write_play(tmp_path, play, {}), set())
    (one,) = [each for each in job.outcomes if not each.is_setting and each.line == 3]
    assert (str(one.kind) == "carried over") == is_carried, one
    assert ("it runs as the login, who would own the file" in one.note) != is_carried


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


SITE = {
    "site.yml": "- import_playbook: web.yml\n  vars: {level: high}\n"
    "- hosts: db\n  become: yes\n  tasks:\n    - file: {path: /srv/db, state: touch}\n"
    "- import_playbook: ../outside.yml\n"
    "- ansible.builtin.import_playbook: '{{ x }}.yml'\n"
    "- include: plays/old.yml\n",
    "web.yml": "- hosts: web\n  name: Serve\n  become: yes\n  vars: {level: low}\n  tasks:\n"
    "    - file: {path: '/srv/{{ level }}', state: touch}\n"
    "- hosts: web\n  become: yes\n  tasks:\n    - file: {path: /srv/again, state: touch}\n",
    "plays/old.yml": "- hosts: old\n  become: yes\n  roles: [one]\n",
    "plays/roles/one/tasks/main.yml": "- file: {path: /srv/one, state: touch}\n",
}


def test_playbooks_beside_a_playbook_are_further_pages(tmp_path: Path):
    for name, text in SITE.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_text(text)
    (tmp_path / "outside.yml").write_text("- hosts: all\n  tasks: [{group: {name: out}}]\n")
    jobs = import_ansible(tmp_path / "x" / "site.yml", set())
    assert [(one.name, one.file) for one in jobs] == [
        ("Serve", "web.yml"),
        ("web play2", "web.yml"),
        ("site play3", "site.yml"),
        ("site play4", "site.yml"),
        ("site play5", "site.yml"),
        ("old play6", "old.yml"),
    ]
    created = [step["title"] for job in jobs for draft in job.drafts for _, _, step in draft.steps]
    assert created == [f"Create the file /srv/{each}" for each in ("high", "again", "db", "one")]
    left = [one for job in jobs for one in job.outcomes if "import that file too" in one.note]
    assert [one.line for one in left] == [7, 8]


def test_playbook_that_only_includes_others_is_one(tmp_path: Path):
    file = write_play(tmp_path, "  become: yes\n" + TOUCH)
    (tmp_path / "all.yml").write_text("- include: site.yml\n- include: all.yml\n")
    first, second = import_ansible(tmp_path / "all.yml", set())
    assert first.file == file.name
    assert "Create the file /srv/a" in show(first)
    assert not second.drafts


INCLUDES = {
    "tasks/main.yml": "- include: old.yml name=ann level={{ number }} tags=x\n"
    "  static: no\n  when: found.stdout == 'y'\n"
    "- include_tasks: {file: named.yml, apply: {become: yes, tags: [x], when: wanted}}\n"
    "  check_mode: no\n"
    "- include_tasks: {file: named.yml, apply: {environment: {A: b}}}\n"
    "- include_role: name=other tasks_from=more\n"
    "- include_role: {name: '{{ item }}', tasks_from: more, public: yes}\n  loop: [other, none]\n"
    "- import_role: {name: '{{ item }}', tasks_from: more}\n  loop: [other, last]\n",
    "tasks/old.yml": "- user: {name: '{{ name }}'}\n"
    "- file: {path: '/srv/{{ level }}', state: touch}\n",
    "tasks/named.yml": "- file: {path: /srv/named, state: touch}\n",
    "defaults/main.yml": "number: 3\n",
    "../other/tasks/more.yml": "- file: {path: /srv/other, state: touch}\n",
    "../last/tasks/more.yml": "- file: {path: /srv/last, state: touch}\n",
}


def test_includes_have_their_tasks_in_their_place_with_what_they_give(tmp_path: Path):
    job = write_role(tmp_path / "roles" / "web", INCLUDES)
    page = show(job)
    assert "Add the user ann" in page
    assert "Create the file /srv/3" in page
    assert page.count("Ansible asked found.stdout == 'y'") == 2
    assert page.count("Ansible asked wanted") == 1
    assert page.count("Create the file /srv/named") == 1
    assert page.count("title: Create the file /srv/other") == 2
    assert page.count("title: Create the file /srv/last") == 1
    left_out = [one.line for one in job.outcomes if "import that one too" in one.note]
    assert left_out == [6, 8]


@pytest.mark.parametrize(
    ("task", "is_root"),
    [
        ("- import_tasks: x.yml\n      become: yes", True),
        ("- include: x.yml\n      become: yes", True),
        ("- include: x.yml\n      become: yes\n      static: no", False),
        ("- include_tasks: x.yml\n      become: yes", False),
        ("- include_tasks: {file: x.yml, apply: {become: yes}}", True),
        ("- block: [{include_tasks: x.yml}]\n      become: yes", True),
    ],
)
def test_what_is_included_is_roots_only_where_ansible_has_it_so(
    tmp_path: Path, task: str, is_root: bool
):
    """What is included while others run does not become root with the task that includes it.

    Source: _get_parent_attribute in lib/ansible/playbook/task.py
    """
    files = {"x.yml": "- file: {path: /srv/a, state: touch}\n"}
    more = "    - group: {name: x}\n      become: yes\n"
    file = write_play(tmp_path, f"  tasks:\n    {task}\n{more}", files)
    (job,) = import_ansible(file, set())
    assert ("Create the file /srv/a" in show(job)) == is_root


ROLES = {
    "roles/web/defaults/main.yml": "place: /srv/web\nshared: web\nlevel: low\n",
    "roles/web/vars/main.yml": "name: ann\nboth: web\n",
    "roles/web/tasks/main.yml": "- include_vars: '{{ ansible_os_family }}.yml'\n"
    "- file: {path: '{{ place }}/{{ name }}/{{ both }}/{{ family }}', state: touch}\n"
    "- file: {path: '/srv/{{ level }}', state: touch}\n"
    "- file: {path: '/srv/{{ leaked }}', state: touch}\n"
    "- file: {path: '/srv/{{ shared }}', state: touch}\n"
    "- file: {path: '/srv/{{ found }}', state: touch}\n",
    "roles/web/vars/Debian.yml": "family: deb\n",
    "roles/db/vars/main.yml": "leaked: db\nboth: db\nshared: db\n",
    "roles/db/tasks/main.yml": "- command: cat /etc/hostname\n  register: found\n"
    "  changed_when: no\n",
}


@pytest.mark.parametrize("named", ["web", "{role: web}", "{name: web, tags: x}"])
def test_role_has_its_own_values_and_is_not_taken_for_another_one(tmp_path: Path, named: str):
    play = f"  become: yes\n  vars: {{level: high}}\n  roles: [{named}, db]\n"
    (job,) = import_ansible(write_play(tmp_path, play, ROLES), set())
    titles = [step["title"] for draft in job.drafts for _, _, step in draft.steps]
    assert titles == [
        f"Create the file /srv/{one}"
        for one in ("web/ann/web/deb", "high", "{leaked}", "{shared}", "{found}")
    ]


GROUPS = {
    "group_vars/all.yml": "port: 80\nlevel: low\nname: x\n",
    "group_vars/web/main.yml": "port: 8080\nlevel: middle\n",
    "host_vars/web.yml": "own: host\n",
    "group_vars/db.yml": "port: 5432\n",
    "vars/known.yml": "level: high\n",
    "vars/Debian.yml": "family: deb\n",
    "more.yml": "more: more\n",
}
ALL_VALUES = (
    "  become: yes\n  vars: {level: play}\n  tasks:\n"
    "    - file: {path: '/srv/{{ port }}/{{ level }}/{{ own }}/{{ name }}', state: touch}\n"
    "    - file: {path: '/srv/{{ more }}/{{ family }}', state: touch}\n"
)


@pytest.mark.parametrize(
    ("hosts", "more", "created"),
    [
        ("web", "", ["8080/play/host/x", "{more}/{family}"]),
        ("web", "  vars_files: [known.yml]\n", ["8080/high/host/x", "{more}/{family}"]),
        (
            "[web]",
            "  vars_files:\n    - more.yml\n"
            "    - ['none.yml', 'vars/{{ ansible_os_family }}.yml']\n",
            ["8080/play/host/x", "more/deb"],
        ),
        ("all", "", ["80/play/{own}/x", "{more}/{family}"]),
        ("web:db", "", ["80/play/{own}/x", "{more}/{family}"]),
        ("[web, db]", "", ["80/play/{own}/x", "{more}/{family}"]),
        # Which may have any of them.
        (
            "web",
            "  vars_files: [/etc/x.yml]\n",
            ["{port}/{level}/{own}/{name}", "{more}/{family}"],
        ),
        (
            "web",
            "  vars_files: ['{{ x }}.yml']\n",
            ["{port}/{level}/{own}/{name}", "{more}/{family}"],
        ),
    ],
)
def test_values_of_groups_and_files_of_a_play_are_used(
    tmp_path: Path, hosts: str, more: str, created: list[str]
):
    file = write_play(tmp_path, ALL_VALUES + more, GROUPS)
    file.write_text(file.read_text().replace("hosts: all", f"hosts: {hosts}"))
    (job,) = import_ansible(file, set())
    titles = [step["title"] for draft in job.drafts for _, _, step in draft.steps]
    assert titles == [f"Create the file /srv/{one}" for one in created]
    if hosts == "web" and not more:
        notes = next(one.note for one in job.outcomes if one.what == "defaults of the role")
        assert notes.endswith("have others: name, own, port")


def test_variables_that_tasks_of_a_play_read_or_set_are_known_as_in_a_role(tmp_path: Path):
    tasks = (
        "  become: yes\n  vars: {level: play, place: /srv}\n  tasks:\n"
        "    - include_vars: vars/known.yml\n"
        "    - include_tasks: more_tasks.yml\n"
        "    - file: {path: '{{ place }}/{{ level }}', state: touch}\n"
        "    - file: {path: '{{ place }}/{{ found.stdout }}', state: touch}\n"
        "    - file: {path: '{{ place }}/{{ found }}', state: touch}\n"
        "      when: found is defined\n"
    )
    inner = "- command: cat /etc/hostname\n  register: found\n  changed_when: no\n"
    file = write_play(tmp_path, tasks, {**GROUPS, "more_tasks.yml": inner})
    (job,) = import_ansible(file, set())
    page = show(job)
    assert "Create the file /srv/high" in page
    assert "Ansible asked found is defined" in page


PROMPTS = """\
  become: yes
  vars_prompt:
    - {name: user_name, prompt: 'Whose account?', private: no}
    - {name: place, default: /srv}
    - {name: user_password}
    - {name: word, encrypt: sha512_crypt}
  tasks:
    - file: {path: '{{ place }}/{{ user_name }}', state: touch}
    - copy: {dest: /srv/a, content: '{{ user_password }}'}
    - copy: {dest: /srv/b, content: '{{ word }}'}
    - group: {name: x}
      when: user_name == 'ann'
"""


def test_what_a_play_asks_for_is_a_field_but_no_secret(tmp_path: Path):
    (job,) = import_ansible(write_play(tmp_path, PROMPTS), set())
    page = show(job)
    assert "Create the file {place}/{user_name}" in page
    assert "description: Whose account?" in page
    assert "description: place default: /srv" in page
    assert "Ansible asked user_name == 'ann'" in page
    secrets = [one.line for one in job.outcomes if "has no place in a request" in one.note]
    assert secrets == [10, 11]


DEPENDENCIES = {
    "roles/web/meta/main.yml": "dependencies:\n  - base\n"
    "  - {role: store, level: high, when: wanted is defined}\n"
    "  - {src: of.others, version: '1'}\n",
    "roles/web/tasks/main.yml": "- file: {path: /srv/web, state: touch}\n",
    "roles/base/tasks/main.yml": "- file: {path: /srv/base, state: touch}\n",
    "roles/base/meta/main.yml": "dependencies: [web, deep]\n",
    "roles/deep/tasks/main.yml": "- file: {path: /srv/deep, state: touch}\n",
    "roles/store/tasks/main.yml": "- file: {path: '/srv/{{ level }}', state: touch}\n",
    "roles/store/defaults/main.yml": "level: low\n",
}


@pytest.mark.parametrize("named", ["web", "web, base, web", "web, {role: base, tags: x}"])
def test_roles_that_a_role_depends_on_are_before_it_once(tmp_path: Path, named: str):
    file = write_play(tmp_path, f"  become: yes\n  roles: [{named}]\n", DEPENDENCIES)
    (job,) = import_ansible(file, set())
    created = [
        step["title"].removeprefix("Create the file /srv/")
        for draft in job.drafts
        for _, _, step in draft.steps
    ]
    assert created == ["deep", "base", "high", "web", *(["base"] if "tags" in named else [])]
    assert show(job).count("Ansible asked wanted is defined") == 1
    notes = " ".join(one.note for one in job.outcomes)
    assert "the role of.others is not beside it" in notes
    (alone,) = import_ansible(tmp_path / "roles" / "web" / "tasks" / "main.yml", set())
    assert "Create the file /srv/deep" in show(alone)
