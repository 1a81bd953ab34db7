"""Options in sections of a file: as the module ini_file of Ansible sets them, and back."""

from pathlib import Path

import pytest

from bot.features.importing.ansible.importer import import_ansible
from runbooks import NoUndo, Refused
from tests.bot.features.importing.test_applied import apply, load, make_plan, undo
from tests.bot.features.importing.test_trees import import_notes

TASK = "- ini_file: {path: DIR/conf, section: x, option: a, value: 'VALUE'}\n"
# What is there, and what becomes of it where the value is 5: as ini_file of community.general 11
# leaves it, and whether that can be undone.
CHANGES = {
    "": ("\n[x]\na = 5\n", True),
    "b = 1\n": ("b = 1\n[x]\na = 5\n", True),
    "[x]\n": ("[x]\na = 5\n", True),
    "[x]\nb = 1\n\n# c\n\n[y]\na = 1\n": ("[x]\nb = 1\na = 5\n\n# c\n\n[y]\na = 1\n", True),
    "[x]\n; a\nab = 1\n": ("[x]\n; a\nab = 1\na = 5\n", True),
    "[x]\na=1\n": ("[x]\na = 5\n", False),
    "[x]\na=5\n": ("[x]\na = 5\n", False),
    "[x]\n#a = 1\nb\n": ("[x]\na = 5\nb\n", False),
    "[x]\na = 1\n# a = 5\nb\n": ("[x]\na = 5\nb\n", False),
    "[x]\n  a = 1\na = 2\n; a = 3\n": ("[x]\na = 5\n", False),
    "a = 1\n[y]\na = 2\n[x]\nb\n[z]\n": ("a = 1\n[y]\na = 2\n[x]\nb\na = 5\n[z]\n", True),
}


@pytest.mark.parametrize("before", CHANGES)
def test_option_is_set_once_in_its_section(tmp_path: Path, before: str):
    wanted, is_undone = CHANGES[before]
    conf = tmp_path / "conf"
    conf.write_text(before)
    conf.chmod(0o640)
    runbook = load(tmp_path, TASK.replace("VALUE", "5"))
    plan = make_plan(runbook)
    (step,) = plan.steps
    assert isinstance(step.undo, NoUndo) != is_undone
    apply(plan)
    assert conf.read_text() == wanted
    assert conf.stat().st_mode & 0o777 == 0o640
    assert not make_plan(runbook).steps
    if is_undone:
        undo(plan)
        assert conf.read_text() == before
    assert [one.name for one in tmp_path.iterdir() if "conf" in one.name] == ["conf"]


def test_options_of_a_new_section_follow_each_other_and_their_undo_takes_it_away(tmp_path: Path):
    task = (
        "- ini_file: {path: DIR/conf, section: x.y, option: '{{ item }}', value: 'a [b] \\ c', "
        "no_extra_spaces: yes, mode: '0600'}\n  loop: [a, b]\n"
    )
    runbook = load(tmp_path, task)
    plan = make_plan(runbook)
    apply(plan)
    conf = tmp_path / "conf"
    assert conf.read_text() == "\n[x.y]\na=a [b] \\ c\nb=a [b] \\ c\n"
    assert not make_plan(runbook).steps
    undo(plan)
    assert not conf.exists()
    conf.write_text("[xzy]\n")
    conf.chmod(0o600)
    plan = make_plan(runbook)
    apply(plan)
    assert conf.read_text() == "[xzy]\n[x.y]\na=a [b] \\ c\nb=a [b] \\ c\n"
    undo(plan)
    assert conf.read_text() == "[xzy]\n"


def test_section_that_is_there_several_times_or_no_file_is_refused(tmp_path: Path):
    (tmp_path / "conf").write_text("[x]\n[y]\n[x]\n")
    with pytest.raises(Refused, match=r"has the section .x. several times"):
        make_plan(load(tmp_path, TASK.replace("VALUE", "5")))


def test_value_is_asked_about_where_two_tasks_set_another_one(tmp_path: Path):
    tasks = TASK.replace("DIR", "/etc")
    (tmp_path / "tasks.yml").write_text(tasks.replace("VALUE", "1") + tasks.replace("VALUE", "2"))
    ((draft,),) = [one.drafts for one in import_ansible(tmp_path / "tasks.yml", set())]
    asked = [str(one) for one in draft.list_questions()]
    assert any("steps here set the option a of [x] of /etc/conf to" in one for one in asked)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("section: x, option: a, state: absent", "takes an option away"),
        ("section: x, option: a, value: ''", "its value is empty"),
        ("section: x, option: a, value: ' b'", "begins or ends with a blank"),
        ('section: x, option: a, value: "b\\nc"', "invisible character"),
        ("option: a, value: b", "is not read"),
        ("section: 'x y', option: a, value: b", "is not read"),
        ("section: 'x/w', option: a, value: b", "is not read"),
        ("section: x, option: 'a b', value: b", "is not read"),
        ("section: x, option: a, value: b, exclusive: no", "exclusive is not read"),
        ("section: x, option: a, values: [b]", "values is not read"),
        ("section: x, option: a, value: b, allow_no_value: yes", "allow_no_value is not read"),
        ("section: x, option: a, value: '{{ v }}'", "a value of the request"),
    ],
)
def test_option_that_is_not_set_as_ansible_does_is_left_out(tmp_path: Path, more: str, said: str):
    (note,) = import_notes(tmp_path, f"ini_file: {{path: /etc/app.ini, {more}}}")
    assert said in note
    (note,) = import_notes(
        tmp_path, "ini_file: {path: /etc/security/x, section: a, option: b, value: c}"
    )
    assert "access to a host may depend" in note
