from typing import Any

import pytest
from pydantic import ValidationError

from connectors import hidepid
from connectors.command import Answer
from connectors.hidepid import ProcMount
from runbooks import Change
from tests.connectors.storage import recorded
from tests.runbooks.declared import load_change
from tests.scripted_fleet import ScriptedFleet

SetHidepid = load_change("hidepid set")


def make_request(value: object) -> Change[Any]:
    return SetHidepid.model_validate({"host": "web1", "value": value})


def test_hidepid_set_adds_a_line_to_fstab_and_remounts_proc():
    plan = make_request("2").plan(ProcMount(0, None, None))
    fstab, mount = plan.steps
    assert fstab.do == hidepid.add_fstab_line("defaults,hidepid=2")
    assert fstab.undo == hidepid.remove_fstab_line("defaults,hidepid=2")
    assert (mount.do, mount.undo) == (hidepid.remount_proc(2), hidepid.remount_proc(0))
    assert plan.current_state == "hidepid=0 is in force; fstab has no line for /proc"
    assert "Monitoring" in plan.notes[0]


def test_hidepid_set_keeps_other_options_of_the_fstab_line():
    plan = make_request("2").plan(ProcMount(1, 5, "defaults,hidepid=1,gid=5"))
    fstab, _ = plan.steps
    assert fstab.do == hidepid.set_fstab_options("defaults,gid=5,hidepid=2")
    assert fstab.undo == hidepid.set_fstab_options("defaults,hidepid=1,gid=5")
    assert not any("Monitoring" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("proc", "titles"),
    [
        (ProcMount(2, None, "hidepid=2"), []),
        (ProcMount(2, None, "defaults,hidepid=invisible"), []),
        (ProcMount(2, None, "defaults"), ["Set hidepid=2 for /proc in fstab"]),
        (ProcMount(0, None, "hidepid=2"), ["Remount /proc with hidepid=2"]),
    ],
)
def test_hidepid_set_plans_only_missing_steps(proc: ProcMount, titles: list[str]):
    assert [step.title for step in make_request("2").plan(proc).steps] == titles


def test_hidepid_set_to_0_remounts_proc_without_notes():
    plan = make_request("0").plan(ProcMount(2, None, None))
    assert [step.title for step in plan.steps] == ["Remount /proc with hidepid=0"]
    assert not plan.notes


def test_hidepid_set_reads_the_mount_and_fstab():
    fleet = ScriptedFleet(hosts=["web1"])
    fleet.script("web1", hidepid.query_current().command, recorded("findmnt-proc-noaccess-gid"))
    fleet.script("web1", hidepid.query_fstab().command, Answer(1, ""))
    assert make_request("1").read(fleet.run_query) == ProcMount(1, 5, None)


@pytest.mark.parametrize(
    "value",
    [
        "3",
        "4",
        "-1",
        "",
        " 2",
        "2 ",
        "2\n",
        "two",
        "invisible",
        "2,gid=0",
        "2;x",
        2.0,
        None,
        ["2"],
    ],
)
def test_invalid_hidepid_value_is_refused(value: object):
    with pytest.raises(ValidationError):
        make_request(value)
