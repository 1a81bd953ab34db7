from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from connectors import zfs
from connectors.command import Ask
from connectors.zfs import Traffic
from connectors.zpool import written
from runbooks import Check, Host, Report, Table, tagged


class PoolTraffic(Check[Sequence[Traffic]], words="zfs io", example="nas1 tank 10"):
    """Watch for some seconds what the disks of ZFS pools read and write."""

    host: Host = tagged("zfs")
    pool: Annotated[
        str,
        Field(
            pattern=r"^([A-Za-z][A-Za-z0-9_.:-]{0,99})?$",
            description="The ZFS pool; all of them if left out",
        ),
    ] = ""
    seconds: Annotated[int, Field(ge=1, le=zfs.MOST_SECONDS, description="How long to watch")] = 5

    def read(self, ask: Ask) -> Sequence[Traffic]:
        return ask(self.host, zfs.traffic(self.pool, self.seconds))

    def report(self, traffic: Sequence[Traffic]) -> Report:
        pools = [each for each in traffic if each.depth == 0]
        if not pools:
            return Report(f"{self.host} has no ZFS pools")
        return Report(
            f"In {self.seconds} s, {'; '.join(_story(pool) for pool in pools)}",
            table=Table(
                ("Device", "Reads/s", "Writes/s", "Read/s", "Written/s"),
                [_row(each) for each in traffic],
            ),
        )


def _story(pool: Traffic) -> str:
    if not pool.reads and not pool.writes:
        return f"{pool.name} was idle"
    return (
        f"{pool.name} read {written(pool.read_bytes)}/s ({pool.reads:,} reads/s) and wrote "
        f"{written(pool.written_bytes)}/s ({pool.writes:,} writes/s)"
    )


def _row(each: Traffic) -> tuple[str, ...]:
    name = "  " * each.depth + each.name
    sizes = written(each.read_bytes), written(each.written_bytes)
    return name, f"{each.reads:,}", f"{each.writes:,}", *sizes
