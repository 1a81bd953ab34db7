import pytest
from pydantic import ValidationError

from connectors import zfs
from tests.connectors.test_zpool_text import recorded
from tests.runbooks.declared import load_check
from tests.runbooks.nas import HOSTILE_POOLS
from tests.scripted_fleet import ScriptedFleet

PoolTraffic = load_check("zfs io")

WATCH = PoolTraffic.model_validate({"host": "nas1", "seconds": "1"})


def test_zfs_io_lists_every_pool_and_its_disks():
    fleet = ScriptedFleet({("nas1", zfs.query_traffic("", 1).command): recorded("fuse-iostat")})
    report = WATCH.report(WATCH.read(fleet.run_query))
    assert report.summary == (
        "In 1 s, other was idle; "
        "tank read 974 KiB/s (243 reads/s) and wrote 72.2 MiB/s (3,779 writes/s)"
    )
    assert report.table is not None
    assert report.table.rows[2] == ("tank", "243", "3,779", "974 KiB", "72.2 MiB")
    assert report.table.rows[4][0] == "    /srv/disks/d0"


def test_zfs_io_reports_a_host_without_pools():
    assert WATCH.report(()).summary == "nas1 has no ZFS pools"


def test_zfs_io_watches_one_pool_for_the_requested_seconds():
    one = PoolTraffic.model_validate({"host": "nas1", "pool": "tank", "seconds": 10})
    fleet = ScriptedFleet({("nas1", "zpool iostat -v tank 10 2"): ""})
    assert one.read(fleet.run_query) == ()


@pytest.mark.parametrize("pool", [pool for pool in HOSTILE_POOLS if pool != ""])
def test_zfs_io_refuses_an_invalid_pool_before_any_query(pool: object):
    with pytest.raises(ValidationError):
        PoolTraffic.model_validate({"host": "nas1", "pool": pool})


@pytest.mark.parametrize(
    "seconds", ["0", "-1", "61", "1.5", "", "5;", "5 2", "five", "nan", "0x5", None, [5], "1e1"]
)
def test_zfs_io_refuses_an_invalid_number_of_seconds(seconds: object):
    with pytest.raises(ValidationError):
        PoolTraffic.model_validate({"host": "nas1", "seconds": seconds})
