"""The disks beneath a pool."""

import pytest

from connectors.command import Answer
from connectors.errors import ParseError
from connectors.zfs_disks import query_file_systems, query_layers, read_disks
from connectors.zpool import Pool, Vdev
from tests.scripted_fleet import ScriptedFleet


def pool(*names: str) -> Pool:
    return Pool("tank", "ONLINE", tuple(Vdev(name, "ONLINE") for name in names))


def test_disks_of_a_pool_are_found_beneath_partitions_and_volumes():
    # As lsblk 2.38 prints a volume on a RAID of two partitions.
    below = "/dev/mapper/vg-tank\n/dev/md0\n/dev/sda2\n/dev/sda\n/dev/sdb2\n/dev/sdb\n"
    fleet = ScriptedFleet({("nas1", query_layers(["/dev/dm-0"]).command): below})
    assert {"/dev/sda", "/dev/sdb"} < read_disks(fleet.run_query, "nas1", pool("/dev/dm-0"))


def test_short_vdev_name_is_resolved_to_its_device():
    fleet = ScriptedFleet({("nas1", query_layers(["/dev/sdb"]).command): "/dev/sdb\n"})
    assert read_disks(fleet.run_query, "nas1", pool("sdb")) == {"/dev/sdb"}


def test_vdev_that_lsblk_does_not_know_is_its_own_disk():
    unknown = Answer(64, "/dev/sdb\n", "lsblk: /dev/odd: not a block device\n")
    fleet = ScriptedFleet({("nas1", query_layers(["/dev/sdb", "/dev/odd"]).command): unknown})
    assert read_disks(fleet.run_query, "nas1", pool("sdb", "odd")) == {"/dev/sdb", "/dev/odd"}


def test_file_vdev_lies_on_the_disk_of_its_file_system():
    fleet = ScriptedFleet(
        {
            ("nas1", query_file_systems(["/srv/d0"]).command): "Filesystem\n/dev/vda1\n",
            ("nas1", query_layers(["/dev/vda1"]).command): "/dev/vda1\n/dev/vda\n",
        }
    )
    assert read_disks(fleet.run_query, "nas1", pool("/srv/d0")) == {
        "/srv/d0",
        "/dev/vda1",
        "/dev/vda",
    }


def test_cache_spare_and_missing_vdevs_are_not_disks_of_a_scrub():
    vdevs = (
        Vdev("tank", "DEGRADED", is_leaf=False),
        Vdev("/dev/sdb", "ONLINE"),
        Vdev("12710046040931434167", "UNAVAIL"),
        Vdev("/dev/sdc", "ONLINE", group="cache"),
        Vdev("/dev/sdd", "AVAIL", group="spares"),
        Vdev("/dev/sde", "ONLINE", group="special"),
    )
    fleet = ScriptedFleet({("nas1", query_layers(["/dev/sdb", "/dev/sde"]).command): ""})
    disks = read_disks(fleet.run_query, "nas1", Pool("tank", "DEGRADED", vdevs))
    assert disks == {"/dev/sdb", "/dev/sde"}


@pytest.mark.parametrize("answer", ["", "Filesystem\n", "/dev/vda1\n"])
def test_invalid_df_output_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        query_file_systems(["/srv/d0"]).parse(answer)
