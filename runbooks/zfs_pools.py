from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from connectors import zfs
from connectors.amounts import format_count
from connectors.command import QueryRunner
from connectors.zfs import PoolSpace, ZfsStorage
from connectors.zpool import Pool
from runbooks import Check, Host, Report, Table, make_host_field

# Percent: above this, ZFS needs more time to find free space, and snapshots may not fit.
_NEARLY_FULL = 85
_OVERDUE = timedelta(days=40)


@dataclass(frozen=True)
class PoolState:
    """The pools of a host, and their space by name."""

    storage: ZfsStorage
    spaces: Mapping[str, PoolSpace]


class ListPools(
    Check[PoolState],
    words="zfs pools",
    also_called=("disk space", "zpool status", "degraded"),
    example="nas1",
    verifies_tag=True,
    columns=("Pool", "State", "Size", "Allocated", "Full", "Last scan", "Lost data"),
):
    """List the ZFS pools: health, space, last scrub and problems."""

    host: Host = make_host_field("zfs")

    def read(self, run_query: QueryRunner) -> PoolState:
        storage = zfs.read_storage(run_query, self.host)
        spaces = {space.pool: space for space in run_query(self.host, zfs.query_spaces())}
        return PoolState(storage, spaces)

    def report(self, pools: PoolState) -> Report:
        storage = pools.storage
        if not storage.pools and not pools.spaces:
            return Report.from_findings(f"{self.host} has no ZFS pools", [zfs.NO_POOLS])
        unread = pools.spaces.keys() - {pool.name for pool in storage.pools}
        findings = [
            finding
            for pool in storage.pools
            for finding in _list_findings(pool, pools.spaces.get(pool.name), storage)
        ]
        findings += [
            f"{name} is {pools.spaces[name].health}, but `zpool status` did not print it in a "
            "known format: its disks and scrubs are unknown"
            for name in sorted(unread)
        ]
        unhealthy = sum(bool(pool.findings) for pool in storage.pools) + len(unread)
        health = f"{unhealthy} with problems" if unhealthy else "all healthy"
        return Report.from_findings(
            f"{self.host} has {format_count(len(storage.pools) + len(unread), 'pool')}, {health}",
            findings,
            table=Table(
                self.columns,
                [_format_row(pool, pools.spaces.get(pool.name)) for pool in storage.pools],
            ),
        )


def _list_findings(pool: Pool, space: PoolSpace | None, storage: ZfsStorage) -> list[str]:
    found = pool.findings
    if space is None:
        found.append(f"`zpool list` did not print {pool.name}: its space is unknown")
    elif space.capacity is not None and space.capacity >= _NEARLY_FULL:
        found.append(f"{pool.name} is {space.capacity} % full: it becomes slow. Free some space")
    if pool.was_never_scanned:
        since = "" if storage.can_pause else " since it was imported"
        found.append(f"{pool.name} was never scrubbed{since}: request `zfs scrub start`")
    scrub = pool.last_scrub
    if scrub and scrub.state == "stopped":
        found.append(f"The last scrub of {pool.name} was stopped early")
    if scrub and scrub.state == "finished" and scrub.time:
        age = storage.host_time - scrub.time
        if age > _OVERDUE:
            found.append(f"{pool.name} was last scrubbed {age.days} days ago: scrub it monthly")
    return found


def _format_row(pool: Pool, space: PoolSpace | None) -> tuple[str, ...]:
    full = "" if space is None or space.capacity is None else f"{space.capacity} %"
    size, allocated = (space.size, space.allocated) if space else ("unknown", "unknown")
    scan = "; ".join(scan.description for scan in pool.scans)
    lost = "unknown" if pool.error_count is None else f"{pool.error_count:,}"
    nothing = "unknown" if pool.unknown_scans else "none"
    return pool.name, pool.state, size, allocated, full, scan or nothing, lost
