"""Commands and status of probations. The acceptance tests run them on real hosts."""

from ipaddress import ip_address

import pytest

from connectors import bond_leg, conntrack, csf_entry, csf_list, hidepid, shaping
from connectors.command import Answer, Shell, SwitchLines, find_failure
from connectors.errors import CommandError, ParseError, SettingError
from connectors.probation import (
    DRILL,
    ArmedChange,
    Probation,
    ProbationStatus,
    find_armed_change,
    find_kept_change,
    parse_status,
    query_probation,
)

CHANGE = "0123456789abcdef"
ALL = (
    csf_list.PROBATION,
    csf_entry.make_probation(ip_address("203.0.113.9")),
    shaping.make_probation("eth0.7"),
    conntrack.PROBATION,
    hidepid.PROBATION,
    bond_leg.make_probation("eth0.7"),
    DRILL,
)
FOR_ROOT = tuple(
    command for probation in ALL for command in (probation.arm(CHANGE), probation.keep(CHANGE))
)
ALL_KINDS = pytest.mark.parametrize("probation", ALL, ids=lambda each: each.name)


@ALL_KINDS
@pytest.mark.parametrize("by_file", [False, True])
def test_probation_commands_are_recognised_in_a_plan(probation: Probation, by_file: bool):
    arm, keep = (
        command.resolve({}, sudo=True, scripts=by_file)
        for command in (probation.arm(CHANGE), probation.keep(CHANGE))
    )
    armed = ArmedChange(probation.name, CHANGE)
    assert (find_armed_change(arm), find_kept_change(keep)) == (armed, armed)
    assert (find_armed_change(keep), find_kept_change(arm)) == (None, None)


@pytest.mark.parametrize(
    "command",
    [Shell(("true",)), SwitchLines(("vlan 7",)), shaping.try_limits("eth0", shaping.Rates())],
)
def test_other_commands_are_not_taken_for_probation_commands(command: Shell | SwitchLines):
    assert find_armed_change(command) is None
    assert find_kept_change(command) is None


@ALL_KINDS
def test_only_the_confirmation_of_a_probation_uses_a_new_connection(probation: Probation):
    assert probation.keep(CHANGE).new_connection
    assert not probation.arm(CHANGE).new_connection


@ALL_KINDS
@pytest.mark.parametrize("value", ["0", "-1", "180; id", "99999", "", "180s"])
def test_invalid_probation_duration_is_refused(probation: Probation, value: str):
    with pytest.raises(SettingError):
        probation.arm(CHANGE).resolve({probation.seconds.name: value}, sudo=False)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", ProbationStatus()),
        (f"armed {CHANGE} 87\n", ProbationStatus(armed=CHANGE, seconds_left=87)),
        (f"armed {CHANGE} -9\n", ProbationStatus(armed=CHANGE, seconds_left=-9)),
        (
            f"restored {CHANGE} 0 1795639306\ndrill 0 4000\n",
            ProbationStatus(restored=CHANGE, drill_seconds=4000),
        ),
        (
            f"restored {CHANGE} 2 1795639306\ndrill 1 4000\n",
            ProbationStatus(restored=CHANGE, restore_status=2),
        ),
    ],
)
def test_probation_status_of_a_host_is_parsed(text: str, status: ProbationStatus):
    assert parse_status(text) == status


@pytest.mark.parametrize("text", ["armed\n", "restored x\n", "armed x soon\n", "drill\n", "ok\n"])
def test_invalid_probation_status_is_a_parse_error(text: str):
    with pytest.raises(ParseError):
        parse_status(text)


def test_probation_timer_is_lost_only_long_after_its_end():
    assert not ProbationStatus(armed=CHANGE, seconds_left=-20).is_lost
    assert ProbationStatus(armed=CHANGE, seconds_left=-1000).is_lost
    assert not ProbationStatus(seconds_left=-1000).is_lost


def test_probation_query_needs_no_root():
    command = query_probation("csf").command
    assert isinstance(command, Shell)
    assert not command.root


@pytest.mark.parametrize(
    ("output", "means"),
    [
        ("csf is on probation already", "wait some minutes"),
        ("nothing is on probation as csf", "has restored what was"),
        ("csf needs systemd or cron", "install cron"),
        ("sh: 1: setsid: not found", "util-linux"),
    ],
)
def test_probation_errors_say_what_to_do(output: str, means: str):
    error = find_failure(DRILL.arm(CHANGE), Answer(1, "", output), frozenset({0}))
    assert isinstance(error, CommandError)
    assert means in str(error)


def test_check_notes_a_change_on_probation():
    assert ProbationStatus().list_notes("the limits") == []
    for left, shown in ((87, "87 s"), (-9, "0 s")):
        (note,) = ProbationStatus(armed=CHANGE, seconds_left=left).list_notes("the limits")
        assert note.startswith(f"the limits are on probation: in {shown} the host restores")
