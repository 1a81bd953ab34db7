from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from connectors import zfs
from connectors.command import Ask
from connectors.trouble import NotUnderstood
from connectors.zfs import Space, Storage
from connectors.zpool import Pool
from runbooks import Check, Host, Report, Table, tagged

# ZFS looks for room longer and longer from here on, and copies of snapshots may not fit.
_NEARLY_FULL = 85
_OVERDUE = timedelta(days=40)


@dataclass(frozen=True)
class Pools:
    """The pools of a host and, by their names, the room that they have."""

    storage: Storage
    spaces: Mapping[str, Space]


class ListPools(Check[Pools], words="zfs pools", example="nas1"):
    """See every ZFS pool: its health, its room, its last scrub and what is wrong with it."""

    host: Host = tagged("zfs")

    def read(self, ask: Ask) -> Pools:
        storage = zfs.storage(ask, self.host)
        spaces = {space.pool: space for space in ask(self.host, zfs.spaces())}
        # zpool says "no pools available" where we do not hear it, so silence must be confirmed.
        if spaces.keys() != {pool.name for pool in storage.pools}:
            raise NotUnderstood("zpool status and zpool list tell of different pools: ask again")
        return Pools(storage, spaces)

    def report(self, pools: Pools) -> Report:
        storage = pools.storage
        if not storage.pools:
            return Report(f"{self.host} has no ZFS pools")
        findings = [
            finding
            for pool in storage.pools
            for finding in _findings(pool, pools.spaces[pool.name], storage)
        ]
        ailing = sum(bool(pool.complaints) for pool in storage.pools)
        count = f"{len(storage.pools)} pool{'s' if len(storage.pools) > 1 else ''}"
        health = f"{ailing} with trouble" if ailing else "all healthy"
        return Report(
            f"{self.host} has {count}, {health}",
            healthy=not findings,
            findings=findings,
            table=Table(
                ("Pool", "State", "Size", "Allocated", "Full", "Last scan", "Lost data"),
                [_row(pool, pools.spaces[pool.name]) for pool in storage.pools],
            ),
        )


def _findings(pool: Pool, space: Space, storage: Storage) -> list[str]:
    found = pool.complaints
    if space.capacity is not None and space.capacity >= _NEARLY_FULL:
        found.append(f"{pool.name} is {space.capacity} % full: from here on it becomes slow")
    if not pool.scans:
        since = "" if storage.can_pause else " since it was imported"
        found.append(f"{pool.name} was never scrubbed{since}: `zfs scrub start` does it")
    scrub = pool.scrub
    if scrub and scrub.state == "stopped":
        found.append(f"The last scrub of {pool.name} was stopped before its end")
    if scrub and scrub.state == "finished" and scrub.when:
        age = storage.now - scrub.when
        if age > _OVERDUE:
            found.append(f"{pool.name} was scrubbed {age.days} days ago: once a month is good")
    return found


def _row(pool: Pool, space: Space) -> tuple[str, ...]:
    full = "" if space.capacity is None else f"{space.capacity} %"
    scan = "; ".join(scan.story for scan in pool.scans) or "none"
    lost = "unknown" if pool.errors is None else f"{pool.errors:,}"
    return pool.name, pool.state, space.size, space.allocated, full, scan, lost
