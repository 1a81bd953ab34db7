from dataclasses import replace

import pytest
from pydantic import ValidationError

from connectors import conntrack
from connectors.conntrack import Conntrack
from runbooks import NoUndo, Plan, Refused
from tests.connectors.test_conntrack import IN_USE
from tests.plans import list_work
from tests.runbooks.declared import load_change
from tests.scripted_fleet import ScriptedFleet

SetConntrack = load_change("conntrack set")

SET = SetConntrack.model_validate({"host": "lb1", "maximum": "524288"})
KEY = "net.netfilter.nf_conntrack_max"
NOW = Conntrack(200_000, 262_144, 65_536, 2**34, 0, 0)


def test_conntrack_limit_is_raised_and_undo_restores_it():
    plan = SET.plan(NOW)
    (step,) = plan.steps
    assert str(step.do) == "sysctl -w net.netfilter.nf_conntrack_max=524288"
    assert str(step.undo) == "sysctl -w net.netfilter.nf_conntrack_max=262144"
    assert (step.before, step.after) == ("262,144 connections", "524,288 connections")
    assert "about 200 MiB" in plan.notes[0]


def test_conntrack_limit_that_is_as_requested_plans_no_steps():
    assert SET.plan(replace(NOW, maximum=524_288)) == Plan("the limit is 524,288 connections")


def test_conntrack_plan_is_not_stale_when_the_connection_count_moves():
    assert list_work(SET.plan(replace(NOW, count=150_000))) == list_work(SET.plan(NOW))


def test_conntrack_limit_below_the_connections_in_use_is_refused():
    low = SetConntrack.model_validate({"host": "lb1", "maximum": 249_999})
    with pytest.raises(Refused, match="set 250,000 or more"):
        low.plan(NOW)


def test_conntrack_limit_that_needs_too_much_memory_is_refused():
    with pytest.raises(Refused, match="set 335,544 or fewer"):
        SET.plan(replace(NOW, memory_bytes=2**30))


def test_conntrack_plan_notes_long_hash_chains():
    assert not any("buckets" in note for note in SET.plan(NOW).notes)
    assert any("1,024 buckets" in note for note in SET.plan(replace(NOW, buckets=1024)).notes)


def test_conntrack_limit_and_boot_files_are_read_from_the_host():
    fleet = ScriptedFleet(
        {
            ("lb1", conntrack.query_conntrack().command): IN_USE,
            (
                "lb1",
                conntrack.query_boot_limits().command,
            ): f"{conntrack.BOOT_FILE}:{KEY} = 9000\n",
        }
    )
    state = SET.read(fleet.run_query)
    assert (state.maximum, state.boot_limits) == (262_144, {conntrack.BOOT_FILE: 9000})


def test_conntrack_limit_is_written_for_boot_and_undo_restores_the_file():
    boot = SetConntrack.model_validate({"host": "lb1", "maximum": 524288, "boot": "same"})
    now, keep = boot.plan(NOW).steps
    assert now == SET.plan(NOW).steps[0]
    assert (keep.do, keep.undo) == (
        conntrack.keep_maximum(524288),
        conntrack.keep_maximum(None),
    )
    other = replace(NOW, maximum=524_288, boot_limits={conntrack.BOOT_FILE: 262_144})
    (only,) = boot.plan(other).steps
    assert only.undo == conntrack.keep_maximum(262_144)
    kept = replace(NOW, maximum=524_288, boot_limits={conntrack.BOOT_FILE: 524_288})
    assert boot.plan(kept).steps == ()


def test_conntrack_plan_notes_sysctl_files_with_another_limit():
    state = replace(NOW, boot_limits={"/etc/sysctl.conf": 65_536})
    boot = SetConntrack.model_validate({"host": "lb1", "maximum": 524288, "boot": "same"})
    assert any("65,536 in /etc/sysctl.conf" in note for note in boot.plan(state).notes)
    assert any("another limit: 65,536" in note for note in SET.plan(state).notes)
    assert any("another limit: the kernel's own" in note for note in SET.plan(NOW).notes)


def test_conntrack_plan_notes_an_undo_below_the_connections_in_use():
    full = replace(NOW, count=262_000)
    assert any("Undo restores 262,144" in note for note in SET.plan(full).notes)
    assert not any("Undo restores" in note for note in SET.plan(NOW).notes)


@pytest.mark.parametrize(
    "maximum",
    [
        0,
        -1,
        4095,
        16_777_217,
        "",
        "-x",
        "1e6",
        "524288; id",
        "524288\n",
        "0x80000",
        "many",
        "5 24288",
        524288.5,
        None,
        [524288],
    ],
)
def test_invalid_conntrack_limit_is_refused_before_any_query(maximum: object):
    with pytest.raises(ValidationError):
        SetConntrack.model_validate({"host": "lb1", "maximum": maximum})


@pytest.mark.parametrize("before", [1024, 20_000_000])
def test_conntrack_limit_out_of_range_has_no_undo(before: int):
    (step,) = SET.plan(replace(NOW, maximum=before, count=0)).steps
    assert isinstance(step.undo, NoUndo)
    assert f"{before:,}" in step.undo.reason
