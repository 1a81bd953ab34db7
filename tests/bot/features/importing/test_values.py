"""Values that files decide, and those that a request, an inventory or a run brings."""

from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from tests.bot.features.importing.test_public_steps import show, write_role

ANCHORS = """\
- file: &made {path: /srv/a, state: directory}
- file: {<<: *made, path: /srv/b}
- file: *made
  when: &never [wanted is defined]
- file: {path: /srv/c, state: directory}
  when: *never
"""


def test_anchors_stand_for_their_values(tmp_path: Path):
    page = show(write_role(tmp_path, {"tasks/main.yml": ANCHORS}))
    assert page.count("title: Create the directory /srv/a") == 2
    assert page.count("title: Create the directory /srv/b") == 1
    assert "Ansible asked wanted is defined" in page


SOMETIMES = {
    "tasks/main.yml": "- include_vars: {file: '{{ own }}'}\n  when: found.stdout == 'x'\n"
    "- file: {path: '{{ place }}/{{ name }}', state: directory}\n"
    "- file: {path: '{{ place }}/{{ level }}', state: directory}\n",
    "defaults/main.yml": "own: small.yml\nplace: /srv\nname: web\nlevel: high\n",
    "vars/small.yml": "level: low\n",
}


def test_file_of_variables_that_is_read_sometimes_decides_only_its_own(tmp_path: Path):
    job = write_role(tmp_path, SOMETIMES)
    page = show(job)
    assert "Create the directory /srv/web" in page
    assert "high" not in page
    assert "low" not in page
    assert "own" in next(one.note for one in job.outcomes if one.what == "defaults of the role")


@pytest.mark.parametrize("value", ["'{{ x.stdout }}'", "/etc/small.yml", "../../small.yml"])
def test_file_of_variables_that_is_not_known_may_set_any(tmp_path: Path, value: str):
    files = {**SOMETIMES, "defaults/main.yml": f"own: {value}\nplace: /srv\nname: web\n"}
    assert "/srv/web" not in show(write_role(tmp_path, files))


def test_file_of_variables_that_only_an_inventory_names_is_asked_about(tmp_path: Path):
    files = {**SOMETIMES, "defaults/main.yml": "place: /srv\nname: web\nlevel: high\n"}
    page = show(write_role(tmp_path, files))
    assert "Create the directory /srv/web" in page
    assert "Create the directory /srv/high" in page
    assert "does no inventory or play set own?" in page
    more = "- command: date\n  register: own\n"
    again = {**files, "tasks/main.yml": files["tasks/main.yml"] + more}
    assert "/srv/web" not in show(write_role(tmp_path / "again", again))


def test_files_of_a_role_are_found_by_its_path(tmp_path: Path):
    tasks = (
        "- include_tasks: '{{ role_path }}/tasks/more.yml'\n"
        "- copy: {dest: /srv/path, content: '{{ role_path }}'}\n"
        "- copy: {dest: /srv/other, src: '{{ role_path }}/../other'}\n"
    )
    files = {
        "tasks/main.yml": tasks,
        "tasks/more.yml": "- template: {src: '{{ role_path }}/templates/{{ item }}.j2', "
        "dest: '/srv/{{ item }}'}\n  loop: [a]\n",
        "templates/a.j2": "text of a\n",
    }
    job = write_role(tmp_path, files)
    page = show(job)
    assert "text of a" in page
    assert "Create /srv/path" not in page
    notes = " ".join(one.note for one in job.outcomes)
    assert "its content is a path on the machine where Ansible runs" in notes
    assert "is no file beside the playbook" in notes


MARKED = {
    "tasks/main.yml": "- file: {path: '{{ item.path }}', mode: '{{ item.mode }}', "
    "state: directory}\n"
    "  loop:\n"
    "    - {path: '{{ base }}/data', mode: '0750', on: true}\n"
    "    - {path: '{{ base }}/off', mode: '0750', on: false}\n"
    "  when: item.on\n"
    "- file: {path: '{{ base }}/x', state: touch}\n  when: base == '/srv'\n"
    "- copy: {dest: /srv/a, content: '{{ base | upper }}'}\n"
    "- file: {path: '/srv/{{ item }}', state: touch}\n  loop: ['{{ either }}']\n"
    "- file: {path: '{{ item }}', state: touch}\n  loop: ['{{ base }}/one', /srv/two]\n"
    "  when: item != '/srv/two'\n",
    "defaults/main.yml": "base: '{{ top }}/app'\n",
}


def test_values_joined_to_what_a_request_brings_stay_joined_and_nothing_is_computed(
    tmp_path: Path,
):
    job = write_role(tmp_path, MARKED)
    page = show(job)
    assert "Create the directory {top}/app/data" in page
    assert "/app/off" not in page, "the files decide that"
    assert "Ansible asked base == '/srv'" in page, "and not this"
    assert "APP" not in page
    assert "Create the file /srv/{either}" in page, "of a list, a request is for one, as anywhere"
    assert "Create the file {top}/app/one" in page
    assert "Ansible asked item != '/srv/two'" in page
    assert "/srv/two" not in page.replace("item != '/srv/two'", "")


PARTS = {
    "tasks/main.yml": "- file: {path: '{{ item }}', state: directory, owner: '{{ app.owner }}'}\n"
    "  with_items: ['{{ app.data }}', '{{ app[\"log\"].dir | default(\"/var/log/app\") }}']\n"
    "- file: {path: '/srv/{{ app.data }}', state: touch}\n  when: app.data != '/'\n"
    "- copy: {dest: /srv/a, content: '{{ app.data | upper }}'}\n"
    "- copy: {dest: /srv/b, content: '{{ found.stdout }}'}\n"
    "- copy: {dest: /srv/c, content: '{{ groups.web }}'}\n"
    "- copy: {dest: /srv/d, content: '{{ conf.part }}'}\n"
    "- copy: {dest: /srv/e, content: x}\n  when: app.tls is defined and app.tls\n"
    "- file: {path: '/srv/f{{ app.name | default(omit) }}', state: touch}\n",
    "defaults/main.yml": "conf: {other: x}\n",
}


def test_part_of_a_value_that_no_file_sets_is_a_field(tmp_path: Path):
    job = write_role(tmp_path, PARTS)
    page = show(job)
    assert "description: app.data" in page
    assert "Create the directory {app_data}" in page
    assert "Create the directory {app_log_dir}" in page
    assert "description: app.log.dir default: /var/log/app" in page
    assert "Set the owner of {app_log_dir} to {app_owner}" in page
    assert "Ansible asked app.data != '/'" in page
    assert "APP" not in page
    assert "Ansible asked app.tls is defined and app.tls" in page
    left_out = [one.line for one in job.outcomes if one.kind == "left out" and not one.is_setting]
    assert left_out == [5, 6, 7, 8, 11]


def test_what_runs_where_ansible_runs_is_asked_about_once(tmp_path: Path):
    tasks = (
        "- file: {path: /srv/a, state: directory}\n  delegate_to: localhost\n"
        "- local_action: {module: copy, dest: /srv/b, content: x}\n"
        "- local_action: command touch /srv/c\n"
        "- file: {path: /srv/d, state: directory}\n  delegate_to: db1\n"
        "- file: {path: /srv/e, state: directory}\n"
    )
    job = write_role(tmp_path, {"tasks/main.yml": tasks})
    page = show(job)
    assert "TODO: who does the 3 tasks, such as that of line 1, which Ansible did" in page
    assert [name for name in "abcde" if f"/srv/{name}" in page] == ["e"]
    assert [one.line for one in job.outcomes if "where Ansible runs" in one.note] == [1, 3, 4]
    assert [one.line for one in job.outcomes if "it runs on another host" in one.note] == [5]


def test_file_that_a_line_creates_is_in_its_directory(tmp_path: Path):
    task = "- command: openssl genrsa -out ca.key\n  args: {chdir: /srv/ca, creates: ca.key}\n"
    page = show(write_role(tmp_path, {"tasks/main.yml": task}))
    assert "no such file" in page
    assert "/srv/ca/ca.key is there" in page


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ("ansible_distribution_major_version is version('12', '>=')", True),
        ("'1.10' is version_compare('1.9', '<')", False),
        ("ansible_distribution is match('Deb')", True),
        ("ansible_distribution is search('^eb')", False),
        ("on is truthy and (names | ansible.builtin.unique) == ['a']", True),
    ],
)
def test_tests_of_ansible_are_decided_as_ansible_decides_them(
    tmp_path: Path, condition: str, runs: bool
):
    files = {
        "tasks/main.yml": f'- file: {{path: /srv/a, state: touch}}\n  when: "{condition}"\n',
        "defaults/main.yml": "on: true\nnames: [a, a]\n",
    }
    page = show(write_role(tmp_path, files))
    assert ("Create the file /srv/a" in page) == runs
    assert "Ansible asked" not in page


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        ("ansible_distribution_version is version('11.4', '>=')", True),
        ("ansible_facts['distribution_version'] is version('12', '>=')", True),
        ("ansible_distribution_version is version('13', '<')", True),
        ("ansible_distribution_version is version('12', '<')", False),
        ("ansible_distribution_version is version('12', '==')", None),
        ("ansible_distribution_version is version('12.4', '>')", None),
        ("ansible_distribution_version == '12.4'", None),
        ("ansible_distribution_version is defined", True),
        ("ansible_python_version is version('3', '>=')", True),
        ("ansible_python_version is version('3.9', '>=')", None),
        ("ansible_python.version.major == 3", True),
        ("'1.0rc1' is version('1.0.1', '<')", None),
        ("'1.0rc1' is version('1.0', '<', strict=true)", None),
        ("'' is version('1.0', '<')", None),
    ],
)
def test_version_is_compared_as_far_as_it_is_known(
    tmp_path: Path, condition: str, runs: bool | None
):
    task = f'- file: {{path: /srv/a, state: touch}}\n  when: "{condition}"\n'
    page = show(write_role(tmp_path, {"tasks/main.yml": task}))
    assert ("Create the file /srv/a" in page) == (runs is not False)
    assert ("Ansible asked" in page) == (runs is None)


TOO_MUCH = {
    "templates/base.j2": "{% block x %}x{% endblock %}",
    "templates/self.j2": "{% include 'self.j2' %}",
    **{f"templates/twice{at}.j2": f"{{% include 'twice{at + 1}.j2' %}}" * 2 for at in range(40)},
    "templates/twice40.j2": "x",
}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for one in [1] %}{% include 'base.j2' %}{% endfor %}", "others in a loop"),
        ("{% for one in [1] %}{% block y %}{% endblock %}{% endfor %}", "others in a loop"),
        ("{% include 'self.j2' %}", "includes too many others"),
        ("{% include 'twice0.j2' %}", "includes too many others"),
        ("{% extends 'base.j2' %}{% block x %}{{ super() }}{{ super() }}{% endblock %}", "once"),
        (
            "{% extends 'base.j2' %}{% block x %}{% for one in [1] %}{{ super() }}{% endfor %}"
            "{% endblock %}",
            "others in a loop",
        ),
        ("{% block join %}{{ self.join() }}{% endblock %}", "its own blocks again"),
        ("{% set a = 'x' %}" + "{% set a = a ~ a %}" * 40, "more than 50,000 characters"),
        ("{% set a %}x{% endset %}", "has assignblock"),
        ("{% include '../tasks/main.yml' %}", "no file beside the playbook"),
        ("{% include '/etc/passwd' %}", "no file beside the playbook"),
        ("{% include 'none.j2' ignore missing %}", "not beside the playbook"),
        ("{% extends 'none.j2' %}", "not beside the playbook"),
        ("{% import 'base.j2' as base %}", "has import"),
        ("{{ range(99999999) | list }}", "more than 256 numbers"),
        ("{{ range(99) | product(range(99)) | list }}", "more than 1000 values"),
        ("{{ '%99d' | format(1) }}", "in another way"),
        (
            "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}x{% endmacro %}{{ a() }}",
            "macros",
        ),
        (
            "{% macro a() %}{% for x in [1] %}{% for y in [1] %}{% endfor %}{% endfor %}"
            "{% endmacro %}{% for z in [1] %}{{ a() }}{% endfor %}",
            "loops in loops",
        ),
        ("{% macro a() %}{{ a.__class__ }}{% endmacro %}{{ a() }}", "computes a value"),
        ("{{ lookup('file', 'a') }}", "only a run knows"),
        ("{{ lookup('env', 'HOME') }}", "only a run knows"),
        ("{{ query('pipe', 'id') }}", "only a run knows"),
        ("{{ hostvars['db1'].port }}", "known only in a run"),
        ("{{ groups['web'][0] }}", "known only in a run"),
    ],
)
def test_template_that_takes_too_much_or_leads_elsewhere_is_left_out(
    tmp_path: Path, template: str, reason: str
):
    files = {"tasks/main.yml": "- template: {src: a.j2, dest: /srv/a}\n", **TOO_MUCH}
    job = write_role(tmp_path, {**files, "templates/a.j2": template})
    (outcome,) = (one for one in job.outcomes if not one.is_setting)
    assert (str(outcome.kind), reason in outcome.note) == ("left out", True), outcome.note


SHARED = {
    "tasks/main.yml": "- template: {src: a.j2, dest: /srv/a}\n"
    "- template: {src: c.j2, dest: /srv/c}\n",
    "templates/a.j2": "{% set own = 'x' %}{{ own }} {{ port }}\n{% include 'b.j2' %}",
    "templates/b.j2": "{{ own }} {{ port }} {{ name | default('b') }}",
    "templates/c.j2": "{% extends 'd.j2' %}{% block one %}{{ level }}{% endblock %}",
    "templates/d.j2": "{% set level = 2 %}{% block one %}{% endblock %}",
}


def test_values_of_a_request_stand_in_templates_that_others_include(tmp_path: Path):
    job = write_role(tmp_path, SHARED)
    assert "x {port} x {port} {name}" in show(job)
    (left_out,) = (one for one in job.outcomes if one.kind == "left out" and not one.is_setting)
    assert (left_out.line, "names that another one sets" in left_out.note) == (2, True)


@pytest.mark.parametrize(
    ("play", "home"),
    [
        ("become: yes", "/root"),
        ("remote_user: root", "/root"),
        ("vars: {x: y}", "/root"),
        ("become: yes, become_user: ann", None),
        ("become: no", None),
    ],
)
def test_home_is_that_of_root_where_root_gathers_the_facts(
    tmp_path: Path, play: str, home: str | None
):
    place = "{{ ansible_env.HOME }}{{ ansible_facts.user_dir }}/{{ ansible_user_id }}"
    task = f"file: {{path: '{place}', state: touch, owner: ann, group: ann}}"
    (tmp_path / "site.yml").write_text(f"- {{hosts: all, {play}, tasks: [{task}]}}\n")
    (job,) = import_ansible(tmp_path / "site.yml", set())
    assert (f"Create the file {home}{home}/root" in show(job)) == (home is not None)
    assert "os_release" not in show(job)


def test_roles_are_found_where_a_configuration_or_a_collection_has_them(tmp_path: Path):
    role = tmp_path / "ours" / "web" / "tasks"
    role.mkdir(parents=True)
    (role / "main.yml").write_text("- file: {path: /srv/web, state: touch}\n")
    play = tmp_path / "plays" / "site.yml"
    play.parent.mkdir()
    play.write_text("- hosts: all\n  become: true\n  roles: [web]\n")
    assert not import_ansible(play, set())[0].drafts
    (tmp_path / "ansible.cfg").write_text("[defaults]\nroles_path = ~/x:/etc/y:./ours\n")
    assert "/srv/web" in show(import_ansible(play, set())[0])
    (tmp_path / "ansible.cfg").write_text("[defaults]\nroles_path = plays/../ours\n")
    assert not import_ansible(play, set())[0].drafts
    (tmp_path / "ansible.cfg").unlink()
    (tmp_path / "galaxy.yml").write_text("name: x\n")
    (tmp_path / "ours").rename(tmp_path / "roles")
    assert "/srv/web" in show(import_ansible(play, set())[0])


def test_values_whose_long_names_begin_alike_are_two(tmp_path: Path):
    long = "a_name_that_is_longer_than_a_field_may_be"
    tasks = f"- copy: {{dest: '/srv/{{{{ {long}_1 }}}}', content: '{{{{ {long}_2 }}}}'}}\n"
    page = show(write_role(tmp_path, {"tasks/main.yml": tasks}))
    assert "/srv/{a_name_that_is_longer_than_a_fie}" in page
    assert "{a_name_that_is_longer_than_a_2}" in page


@pytest.mark.parametrize(
    ("header", "filled"),
    [
        ('#jinja2: lstrip_blocks: "True"', "a\nb\n"),
        ("#jinja2:trim_blocks:True", "a\n  b\n  \n"),
        ("#jinja2: trim_blocks: False", ""),
        ("#jinja2: block_start_string: x", ""),
    ],
)
def test_header_of_a_template_says_how_it_is_read(tmp_path: Path, header: str, filled: str):
    files = {
        "tasks/main.yml": "- template: {src: a.j2, dest: /srv/a}\n",
        "defaults/main.yml": "on: true\n",
        "templates/a.j2": f"{header}\na\n  {{% if on %}}\nb\n  {{% endif %}}\n",
    }
    job = write_role(tmp_path, files)
    (draft,) = job.drafts
    texts = [step["do"].get("stdin", "") for _, _, step in draft.steps]
    assert texts[0] == filled


LOOKS = {
    "tasks/main.yml": "- stat: {path: '{{ tool }}'}\n  register: found\n"
    "- file: {path: /srv/a, state: directory}\n  when: not found.stat.exists\n"
    "- command: make install\n  when: not found.stat.exists\n"
    "- command: make check\n  when: [found.stat.exists | bool, x.stdout == 'y']\n"
    "- file: {path: '{{ item }}', state: directory}\n  loop: [/srv/b, /srv/c]\n"
    "  when: [found.stat.exists, item != '/srv/c']\n",
    "defaults/main.yml": "tool: /usr/local/bin/tool\n",
}


def test_condition_that_a_path_is_there_is_read(tmp_path: Path):
    job = write_role(tmp_path, LOOKS)
    steps = [step for _, _, step in job.drafts[0].steps]
    is_there = "file_usr_local_bin_tool"
    assert [step["when"] for step in steps][:2] == [
        f'{is_there} == "" && (!file_srv_a.startsWith("directory,"))',
        f'{is_there} == ""',
    ]
    assert "x.stdout == 'y'" in str(steps[2])
    assert steps[3]["when"] == f'{is_there} != "" && (!file_srv_b.startsWith("directory,"))'
    assert len(steps) == 4
    notes = [(str(one.kind), one.line) for one in job.outcomes if not one.is_setting]
    assert notes == [("left out", 1), *[("carried over", at) for at in (3, 5)], ("blind", 7),
                     ("carried over", 9)]  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        # What may make the path before it is looked for, or is another value of the name.
        "- command: make install\n",
        "- file: {path: /usr/local/bin/tool, state: touch}\n",
        "- ini_file: {path: /srv/x}\n",
        "- stat: {path: /srv/x}\n  register: found\n  when: x.stdout == 'y'\n",
        "- stat: {path: '{{ x.stdout }}'}\n  register: found\n",
        "- stat: {path: /srv/x, follow: yes}\n  register: found\n",
        "- stat: {path: /srv/x}\n  register: found\n  delegate_to: localhost\n",
        "- command: ls /srv\n  register: found\n  changed_when: false\n",
    ],
)
def test_condition_of_a_path_that_may_have_changed_is_asked_for(tmp_path: Path, before: str):
    tasks = LOOKS["tasks/main.yml"]
    first = "- stat: {path: '{{ tool }}'}\n  register: found\n"
    is_after = "register: found" in before
    text = tasks.replace(first, first + before if is_after else before + first)
    page = show(write_role(tmp_path, {**LOOKS, "tasks/main.yml": text}))
    assert "Ansible asked not found.stat.exists. Add it to: !file_srv_a" in page
    assert 'file_usr_local_bin_tool == "" && (!file_srv_a' not in page


LOOK = "- command: %s\n  register: found\n  changed_when: no\n  failed_when: no\n"
USE = "- file: {path: /srv/a, state: directory}\n  when: %s\n"


@pytest.mark.parametrize(
    ("command", "condition", "shown"),
    [
        ("systemctl is-active web", "found.rc != 0", 'systemctl_is_active_web != "active" && '),
        (
            "systemctl is-active web",
            "found.stdout == 'active'",
            'systemctl_is_active_web == "active"',
        ),
        ("grep '^a b$' /etc/x", "found is succeeded", 'grep_a_b_etc_x != ""'),
        ("grep -q '^a' /etc/x", "found.stdout == ''", None),
        ("grep 'a*' /etc/x", "found.rc == 0", None),
        ("grep -c a /etc/x", "found.rc == 0", None),
        ("rpm -q web", "found.rc == 0", None),
        ("cat /etc/x", "found.rc == 0", None),
        ("cat /etc/x", "found.stdout == 'a' or wanted", None),
        ("cat /etc/x", "found.stdout == wanted", None),
        ("touch /etc/x", "found.stdout == ''", None),
        ("cat $HOME/x", "found.stdout == ''", None),
        ("cat ~ann/x", "found.stdout == ''", None),
        ("pidof web", "found.rc == 0", None),
    ],
)
def test_condition_on_what_a_command_reads_is_read_where_that_is_exact(
    tmp_path: Path, command: str, condition: str, shown: str | None
):
    tasks = LOOK % command + USE % condition
    page = show(write_role(tmp_path, {"tasks/main.yml": tasks}))
    assert (shown or f"Ansible asked {condition}") in page
    assert ("Ansible asked" in page) == (shown is None)


def test_condition_on_what_a_command_reads_is_asked_for_after_other_steps(tmp_path: Path):
    before = "- file: {path: /srv/b, state: directory}\n"
    condition = "found.stdout == 'a'"
    tasks = before + LOOK % "cat /etc/x" + USE % condition
    assert f"Ansible asked {condition}" in show(write_role(tmp_path, {"tasks/main.yml": tasks}))
    # A page that begins after all steps of the one before it reads what the task read.
    packages = "- package: {name: web}\n"
    after = packages + LOOK % "cat /etc/x" + USE % condition
    page = show(write_role(tmp_path / "after", {"tasks/main.yml": after}))
    assert 'cat_etc_x == "a" && (!file_srv_a' in page
    other = packages + LOOK % "cat /etc/x" + packages.replace("web", "db") + USE % condition
    page = show(write_role(tmp_path / "other", {"tasks/main.yml": other}))
    assert f"Ansible asked {condition}" in page


def test_lines_that_what_was_read_shows_to_be_needed_are_carried_over_only_if_it_is_missing(
    tmp_path: Path,
):
    tasks = LOOK % "grep ^a /etc/x" + "- command: make\n  when: found.rc != 0\n"
    job = write_role(tmp_path, {"tasks/main.yml": tasks})
    assert str(job.outcomes[-1].kind) == "carried over"
    assert job.drafts[0].steps[0][2]["when"] == 'grep_a_etc_x == ""'
    job = write_role(tmp_path / "x", {"tasks/main.yml": tasks.replace("!=", "==")})
    assert str(job.outcomes[-1].kind) == "blind"


def test_condition_of_a_path_is_asked_for_on_the_next_page(tmp_path: Path):
    more = "- file: {path: '/srv/{{ item }}', state: directory}\n  loop: [%s]\n"
    text = LOOKS["tasks/main.yml"] + more % ", ".join(f"d{at}" for at in range(18))
    text += "- file: {path: /srv/z, state: directory}\n  when: not found.stat.exists\n"
    job = write_role(tmp_path, {**LOOKS, "tasks/main.yml": text})
    assert len(job.drafts) == 2
    assert "Ansible asked not found.stat.exists" in job.drafts[1].render()


def test_template_for_an_architecture_refuses_hosts_of_another_one(tmp_path: Path):
    files = {
        "tasks/main.yml": "- template: {src: a.j2, dest: /srv/a}\n",
        "templates/a.j2": "{% if ansible_architecture == 'x86_64' %}\narch=b64\n{% endif %}\n",
    }
    page = show(write_role(tmp_path, files))
    assert "stdin: | arch=b64" in page
    assert '- when: machine != "x86_64"' in page
    assert "os_release" not in page
