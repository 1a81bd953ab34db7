import pytest
from pydantic import ValidationError

from connectors import zfs_property
from connectors.zfs_property import ZfsProperty
from runbooks import Plan, Refused
from runbooks.zfs_set import SetProperty
from tests.scripted_fleet import ScriptedFleet


def make_request(name: str, value: str, dataset: str = "tank/home") -> SetProperty:
    values = {"host": "nas1", "dataset": dataset, "property": name, "value": value}
    return SetProperty.model_validate(values)


def make_property(
    name: str, value: str, source: zfs_property.Source = "local", parent: str = ""
) -> ZfsProperty:
    return ZfsProperty("tank/home", name, value, source, parent)


def test_zfs_set_reads_the_property_with_its_source():
    fleet = ScriptedFleet(
        {
            (
                "nas1",
                "zfs get -H -p -o name,property,value,source atime tank/home",
            ): "tank/home\tatime\ton\tinherited from tank\n"
        }
    )
    assert make_request("atime", "off").read(fleet.run_query) == make_property(
        "atime", "on", "inherited", "tank"
    )


@pytest.mark.parametrize(
    ("before", "undo", "shown"),
    [
        (make_property("atime", "on"), "zfs set atime=on tank/home", "on (local)"),
        (make_property("atime", "on", "default"), "zfs inherit atime tank/home", "on (default)"),
        (
            make_property("atime", "on", "inherited", "tank"),
            "zfs inherit atime tank/home",
            "on (inherited from tank)",
        ),
        (
            make_property("atime", "on", "received"),
            "zfs inherit -S atime tank/home",
            "on (received)",
        ),
    ],
)
def test_zfs_set_sets_a_property_and_undo_restores_its_source(
    before: ZfsProperty, undo: str, shown: str
):
    (step,) = make_request("atime", "off").plan(before).steps
    assert (str(step.do), str(step.undo)) == ("zfs set atime=off tank/home", undo)
    assert (step.before, step.after) == (shown, "off")


def test_zfs_set_of_the_same_value_plans_no_steps():
    plan = make_request("atime", "off").plan(make_property("atime", "off", "inherited", "tank"))
    assert plan == Plan("atime of tank/home is off (inherited from tank)")


def test_zfs_set_refuses_sharenfs_of_a_volume():
    with pytest.raises(Refused, match="tank/home has no sharenfs: it is not a file system"):
        make_request("sharenfs", "on").plan(make_property("sharenfs", "-", "none"))


def test_zfs_set_refuses_a_value_hidden_by_a_mount_option():
    with pytest.raises(Refused, match="by a mount option"):
        make_request("atime", "on").plan(make_property("atime", "off", "temporary"))


@pytest.mark.parametrize(
    ("name", "value", "before", "warning"),
    [
        ("sync", "disabled", "standard", "after a crash the last seconds are lost"),
        ("sync", "always", "standard", "it is slow without a fast log device"),
        ("compression", "lz4", "off", "newly written data only"),
        ("sharenfs", "off", "on", "The export ends"),
        ("sharenfs", "on", "off", "every host that can reach this one"),
        ("sharenfs", "ro", "off", "every host that can reach this one"),
        ("sharenfs", "rw=@192.0.2.0/24,no_root_squash", "off", "Root on every client has root"),
        ("sharenfs", "rw=@192.0.2.0/24", "on", "Clients that only the old value (on) allows"),
        ("atime", "off", "on", "inherit it change too"),
    ],
)
def test_zfs_set_notes_the_consequences_of_a_value(
    name: str, value: str, before: str, warning: str
):
    assert any(
        warning in note
        for note in make_request(name, value).plan(make_property(name, before)).notes
    )


def test_zfs_set_of_a_restricted_sharenfs_notes_no_share_for_all():
    notes = (
        make_request("sharenfs", "rw=@192.0.2.0/24").plan(make_property("sharenfs", "off")).notes
    )
    assert notes == ["Child datasets that inherit it change too."]


@pytest.mark.parametrize(
    "name", ["mountpoint", "quota", "exec", "setuid", "com.sun:auto", "", "SYNC"]
)
def test_zfs_set_refuses_other_properties(name: str):
    with pytest.raises(ValidationError):
        make_request(name, "on")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sync", "lz4"),
        ("sync", ""),
        ("atime", "on\n"),
        ("atime", "-r"),
        ("compression", "on tank/other"),
        ("compression", "gzip-0"),
        ("sharenfs", "rw=@192.0.2.0/24; reboot"),
        ("sharenfs", "rw=$(reboot)"),
        ("sharenfs", "rw=a,exec"),
        ("sharenfs", "rw=*"),
        ("sharenfs", "rw=\u202ea"),
        ("sharenfs", "rw=" + "a" * 500),
    ],
)
def test_zfs_set_refuses_an_invalid_value_before_any_query(name: str, value: str):
    with pytest.raises(ValidationError):
        make_request(name, value)


def test_zfs_set_refusal_names_the_valid_values():
    with pytest.raises(ValidationError, match="sync takes standard, always or disabled"):
        make_request("sync", "fast")


@pytest.mark.parametrize(
    "dataset",
    [
        "",
        "-r",
        "/tank",
        "tank/",
        "tank//home",
        "tank/-home",
        "tank home",
        "tank@snapshot",
        "tank#bookmark",
        "tank/%recv",
        "tank;reboot",
        "tank\n",
        "$(reboot)",
        "tank/hömе",
        "tank\u200b",
        "a" * 101,
        "tank" + "/a" * 21,
        7,
        None,
    ],
)
def test_zfs_set_refuses_an_invalid_dataset_before_any_query(dataset: object):
    values = {"host": "nas1", "dataset": dataset, "property": "atime", "value": "on"}
    with pytest.raises(ValidationError):
        SetProperty.model_validate(values)
