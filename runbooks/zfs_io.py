from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from connectors import zfs
from connectors.amounts import format_size
from connectors.command import QueryRunner
from connectors.zfs import DeviceTraffic
from connectors.zpool import POOL
from runbooks import Check, Host, Report, Table, make_host_field


class PoolTraffic(
    Check[Sequence[DeviceTraffic]],
    words="zfs io",
    example="nas1 tank 10",
    columns=("Device", "Reads/s", "Writes/s", "Read/s", "Written/s"),
):
    """Measure for some seconds what the disks of ZFS pools read and write."""

    host: Host = make_host_field("zfs")
    pool: Annotated[
        str,
        Field(
            pattern=rf"^({POOL})?$",
            description="The ZFS pool; all if left empty",
            json_schema_extra={"lists": "pools"},
        ),
    ] = ""
    seconds: Annotated[int, Field(ge=1, le=zfs.MAX_SECONDS, description="How long to measure")] = 5

    def read(self, run_query: QueryRunner) -> Sequence[DeviceTraffic]:
        return run_query(self.host, zfs.query_traffic(self.pool, self.seconds))

    def report(self, traffic: Sequence[DeviceTraffic]) -> Report:
        pools = [each for each in traffic if each.depth == 0]
        if not pools:
            return Report.from_findings(f"{self.host} has no ZFS pools", [zfs.NO_POOLS])
        return Report(
            f"In {self.seconds} s, {'; '.join(_format_traffic(pool) for pool in pools)}",
            table=Table(
                self.columns,
                [_format_row(each) for each in traffic],
            ),
        )


def _format_traffic(pool: DeviceTraffic) -> str:
    if not pool.reads and not pool.writes:
        return f"{pool.name} was idle"
    return (
        f"{pool.name} read {format_size(pool.read_bytes)}/s ({pool.reads:,} reads/s) and wrote "
        f"{format_size(pool.written_bytes)}/s ({pool.writes:,} writes/s)"
    )


def _format_row(each: DeviceTraffic) -> tuple[str, ...]:
    name = "  " * each.depth + each.name
    sizes = format_size(each.read_bytes), format_size(each.written_bytes)
    return name, f"{each.reads:,}", f"{each.writes:,}", *sizes
