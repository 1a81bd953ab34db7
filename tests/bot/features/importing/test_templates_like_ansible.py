"""Templates are filled as Ansible itself fills them, or left out."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from bot.features.importing.drafts import Draft

VALUES = """\
names: [web, db, 'a b']
deep: {one: {port: 80, up: true}, two: {port: 443, up: false}}
people: [{name: ann, keys: [k1, k2]}, {name: ben, keys: []}, {name: cy, keys: [k3], up: true}]
number: 7
text: "it's"
"""
FILES = {
    "base.conf": "top\n{% block first %}\nfirst {{ number }}\n{% endblock %}\n"
    "{% block second %}\nsecond\n{% endblock %}\nend {{ number }}\n",
    "part.conf": "part {{ number }}{% if text is defined %} {{ text }}{% endif %}\n\n",
    "plain.conf": "plain\n",
    "name.conf": "name {{ name }}\n",
}
TEMPLATES = {
    "blocks": "{% extends 'base.conf' %}\n{% block second %}\n{{ super() }}own {{ text }}\n"
    "{% endblock %}\nnot shown\n",
    "a block alone": "a\n{% block x %}\nb {{ number }}\n{% endblock x %}\nc\n",
    "blocks and what they set": "{% extends 'base.conf' %}\n{% set number = 8 %}\n"
    "{% block first %}\nown {{ number }}\n{% endblock %}\n",
    "an include": "a\n{% include 'part.conf' %}\nb\n{% include 'plain.conf' %}",
    "an include that is given a value": "{% set name = 'ann' %}\n{% include 'name.conf' %}\nend\n",
    "a macro": "{% macro say(who, level=2) %}\n{{ who }}={{ level }}\n{% endmacro %}\n"
    "{{ say('a') }}{% for one in names %}{{ say(one, level=loop.index) }}{% endfor %}\n",
    "a comment": "a {# not {{ number }} #} b\n{#- all -#}\n c\n",
    "what is raw": "{% raw %}\n{{ number }} {% if %}\n{% endraw %}\n{{ number }}\n",
    "numbers": "{{ number * 3 }} {{ number % 4 }} {{ number // 2 }} {{ range(2, 8, 3) | list }}\n",
    "a list in a text": "a {{ names }} {{ deep.one }}\n",
    "pairs": "{% for one in ['a', 'b'] | product([1, 2]) %}{{ one.0 }}{{ one[1] }} {% endfor %}"
    "{% for one in names | zip([1, 2, 3]) %}{{ one[0] }}{{ one[1] }} {% endfor %}\n",
    "parts": "{% for one in people | subelements('keys') %}{{ one.0.name }}:{{ one.1 }} "
    "{% endfor %}{{ people | selectattr('up', 'defined') | map(attribute='name') | list | first }}"
    " {{ people | rejectattr('keys') | map(attribute='name') | join(',') }}\n",
    "mappings": "{% for one in deep | dict2items(key_name='k', value_name='v') %}"
    "{{ one.k }}={{ one.v.port }} {% endfor %}"
    "{{ ([{'key': 'a', 'value': 1}] | items2dict).a }} "
    "{{ (deep | combine({'one': {'port': 81}}, recursive=true)).one | to_json }} "
    "{{ (deep | combine({'one': {'port': 81}})).one | to_json }} "
    "{{ ([{'a': 1}, {'a': 2}] | combine).a }}\n",
    "texts": "{{ 'a,b' | split(',') | last }} {{ '/a/b.tar' | splitext | last }} "
    "{{ ['/a', 'b'] | path_join }} {{ '%s-%d' | format(text, number) }} "
    '{{ (\'{"a": [1, "x"]}\' | from_json).a[1] }} {{ text | mandatory }} '
    "{{ (number > 3) | ternary('more', 'less') }} {{ [[1, [2]], 3] | flatten | length }}\n",
    "versions": "{{ '1.0rc1' is version('1.0', '<') }} "
    "{{ '2.4.1-1ubuntu' is version('2.4', '>') }} {{ '10.5-MariaDB' is version('10.3') }} "
    "{{ '1.10' is version('1.9', 'gt', strict=true) }}\n",
    "own variables": "{{ hostvars[inventory_hostname].ansible_system }} {{ vars['text'] }} "
    "{{ hostvars[inventory_hostname]['ansible_system'] | lower }}\n",
}


def write(place: Path, destination: str) -> Path:
    for name, text in {**FILES, **TEMPLATES}.items():
        (place / "templates").mkdir(parents=True, exist_ok=True)
        (place / "templates" / name).write_text(text)
    (place / "defaults").mkdir()
    (place / "defaults" / "main.yml").write_text(VALUES)
    tasks = place / "tasks" / "main.yml"
    tasks.parent.mkdir()
    lines = [
        f"- template: {{src: '{name}', dest: '{destination}/{name.replace(' ', '_')}'}}\n"
        for name in TEMPLATES
    ]
    tasks.write_text("".join(lines))
    return tasks


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Have Ansible fill each template; return where they are then."""
    base = tmp_path_factory.mktemp("ansible")
    (base / "out").mkdir()
    write(base / "roles" / "one", f"{base}/out")
    play = base / "site.yml"
    play.write_text("- hosts: all\n  gather_facts: yes\n  roles: [one]\n")
    words = ["-i", "localhost,", "-c", "local", "-e"]
    program = shutil.which("ansible-playbook", path=str(Path(sys.executable).parent))
    assert program
    environment = {"HOME": str(base), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    answer = subprocess.run(
        [program, *words, f"ansible_python_interpreter={sys.executable}", play],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return base / "out"


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Return what a draft writes into each file."""
    place = tmp_path_factory.mktemp("own") / "roles" / "one"
    (job,) = import_ansible(write(place, "/srv"), set())
    assert not [one for one in job.outcomes if one.kind == "left out" and not one.is_setting]

    def list_steps(draft: Draft) -> list[tuple[str, str]]:
        return [
            (step["title"].removeprefix("Create /srv/").replace("_", " "), step["do"]["stdin"])
            for _, _, step in draft.steps
            if step["title"].startswith("Create ")
        ]

    return {name: text for draft in job.drafts for name, text in list_steps(draft)}


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_is_filled_as_ansible_fills_it(
    filled: Path, drafts: Mapping[str, str], name: str
):
    assert drafts[name] == (filled / name.replace(" ", "_")).read_text()
