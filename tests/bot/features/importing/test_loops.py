"""Loops go through what Ansible goes through, or their task is left out."""

from pathlib import Path

import pytest

from tests.bot.features.importing.test_public_steps import show, write_role

FILES = {
    "defaults/main.yml": "people:\n  - {name: ann, keys: [a, b], deep: {parts: [x]}}\n"
    "  - {name: ben, keys: [c]}\n  - {name: cy}\n",
    "files/one.conf": "1\n",
    "files/two.conf": "2\n",
    "files/three.txt": "3\n",
    "templates/four.j2": "4\n",
    "../outside.conf": "no\n",
}


@pytest.mark.parametrize(
    ("loop", "shown", "created"),
    [
        (
            "with_subelements: ['{{ people }}', keys, {skip_missing: yes}]",
            "item.0.name }}-{{ item.1",
            ["ann-a", "ann-b", "ben-c"],
        ),
        (
            "loop: \"{{ people | subelements('deep.parts', skip_missing=True) }}\"",
            "item[0].name }}-{{ item[1]",
            ["ann-x"],
        ),
        ("with_sequence: start=1 end=5 stride=2", "item", ["1", "3", "5"]),
        ("with_sequence: count=2 format=web%02d", "item", ["web01", "web02"]),
        ("with_indexed_items: [[a], b]", "item.0 }}{{ item.1", ["0a", "1b"]),
        ("loop: '{{ range(0, 5, 2) | list }}'", "item", ["0", "2", "4"]),
        ("loop: [a, b]\n  loop_control: {index_var: at}", "at }}{{ item", ["0a", "1b"]),
        ("loop: \"{{ ['a', 'b'] | product(['c']) | list }}\"", "item.0 }}{{ item.1", ["ac", "bc"]),
        ("with_fileglob: '*.conf'", "item | basename", ["one.conf", "two.conf"]),
        (
            "with_fileglob: [../templates/*.j2, t*.txt]",
            "item | basename",
            ["four.j2", "three.txt"],
        ),
    ],
)
def test_loop_goes_through_its_values(tmp_path: Path, loop: str, shown: str, created: list[str]):
    task = f"- file: {{path: '/srv/{{{{ {shown} }}}}', state: touch}}\n".replace("'", '"')
    job = write_role(tmp_path / "role", {**FILES, "tasks/main.yml": task + f"  {loop}\n"})
    titles = [step["title"] for draft in job.drafts for _, _, step in draft.steps]
    assert titles == [f"Create the file /srv/{one}" for one in created]


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("with_subelements: ['{{ people }}', keys]", "an item has no list keys"),
        ("with_sequence: start=1 end=999", "more than 100 numbers"),
        ("with_sequence: end=3 format=%9999d", "not plain ones"),
        ("with_sequence: '{{ found.stdout }}'", "not in the file"),
        ("with_fileglob: ../../*.conf", "it loops over no values"),
        ("with_fileglob: /etc/*.conf", "not beside the playbook"),
        ("with_fileglob: none/*.conf", "not beside the playbook"),
        ("with_fileglob: '{{ found.stdout }}/*.conf'", "known only in a run"),
        ("with_first_found: [none.conf]", "not beside the playbook"),
        ("with_random_choice: [a, b]", "not in the file"),
    ],
)
def test_loop_over_what_is_not_known_is_left_out(tmp_path: Path, loop: str, reason: str):
    task = f"- file: {{path: '/srv/{{{{ item }}}}', state: touch}}\n  {loop}\n"
    task += "- command: date\n  register: found\n  changed_when: no\n"
    job = write_role(tmp_path / "role", {**FILES, "tasks/main.yml": task})
    (outcome,) = (one for one in job.outcomes if one.line == 1 and not one.is_setting)
    assert (str(outcome.kind), reason in outcome.note) == ("left out", True), outcome.note


SOURCES = {
    "tasks/main.yml": "- copy: {src: '{{ item }}', dest: /srv/conf/}\n"
    "  with_fileglob: ['*.conf']\n"
    "- template: {src: '{{ item }}', dest: /srv/own}\n"
    "  with_first_found: ['{{ ansible_distribution }}.j2', four.j2, five.j2]\n",
    **FILES,
    "templates/five.j2": "5\n",
}


def test_files_of_a_loop_are_those_beside_the_playbook(tmp_path: Path):
    job = write_role(tmp_path / "role", SOURCES)
    (draft,) = job.drafts
    written = {
        step["title"]: step["do"]["stdin"]
        for _, _, step in draft.steps
        if step["title"].startswith("Create ")
    }
    assert written == {
        "Create /srv/conf/one.conf": "1\n",
        "Create /srv/conf/two.conf": "2\n",
        "Create /srv/own": "4\n",
    }


OPEN = {
    "tasks/main.yml": "- file: {path: '/srv/{{ item.0.name }}/{{ item.1 }}', state: touch}\n"
    "  with_subelements: ['{{ users }}', keys]\n"
    "- file: {path: '/etc/{{ item.1.name | default(\"x\") }}', state: touch}\n"
    "  loop: \"{{ users | default([]) | subelements('parts', {'skip_missing': True}) }}\"\n",
}


def test_loop_over_parts_of_what_an_inventory_has_asks_for_one_of_them(tmp_path: Path):
    job = write_role(tmp_path, OPEN)
    page = show(job)
    assert "Create the file /srv/{users_name}/{users_keys_item}" in page
    assert "Create the file /etc/{users_parts_name}" in page
    assert "It is for one item of users. Ansible took all: request it for each." in page


@pytest.mark.parametrize(
    ("given", "is_open"),
    [
        ("'{{ rules | default({}) }}'", True),
        ("'{{ rules | d([], true) }}'", True),
        ("'{{ others | default({}) }}'", False),
        ("'{{ rules | default(found.json) }}'", False),
    ],
)
def test_list_that_a_task_has_empty_by_default_is_one_of_the_inventory(
    tmp_path: Path, given: str, *, is_open: bool
):
    tasks = (
        f"- set_fact: {{rules: {given}}}\n"
        "- file: {path: '/srv/{{ item.key }}', state: touch}\n  with_dict: '{{ rules }}'\n"
    )
    job = write_role(tmp_path, {"tasks/main.yml": tasks})
    assert ("Create the file /srv/{rules_key}" in show(job)) == is_open
