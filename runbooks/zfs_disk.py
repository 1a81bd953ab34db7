from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from connectors import zfs, zpool_disk
from connectors.command import QueryRunner
from connectors.zpool import Pool
from runbooks import (
    Change,
    Host,
    NoUndo,
    Plan,
    PoolName,
    Refused,
    Report,
    Step,
    make_host_field,
)

DiskName = Annotated[
    str,
    Field(
        pattern=rf"^{zpool_disk.DISK}$",
        description="The disk of the pool, as zpool status prints it",
    ),
]


@dataclass(frozen=True)
class DiskState:
    """The pool, and where the path of a new disk leads."""

    pool: Pool
    new_path: str = ""


class _PoolChange(Change[DiskState]):
    """Reads the pool; subclasses repair it."""

    host: Host = make_host_field("zfs")
    pool: PoolName

    def read(self, run_query: QueryRunner) -> DiskState:
        return DiskState(zfs.find_pool(self.pool, zfs.read_storage(run_query, self.host)))


class ReplaceDisk(
    _PoolChange,
    words="zfs replace",
    example="nas1 tank sdb /dev/disk/by-id/wwn-0x5000c500a1b2c3d4",
):
    """Replace a disk of a ZFS pool, and copy its data to the new one. It has no undo."""

    disk: DiskName
    new_disk: Annotated[
        str,
        Field(
            pattern=rf"^{zpool_disk.NEW_DISK}$",
            title="New disk",
            description="The path of the new, empty disk, such as one in /dev/disk/by-id",
        ),
    ]

    def read(self, run_query: QueryRunner) -> DiskState:
        path = run_query(self.host, zpool_disk.query_device_path(self.new_disk))
        return replace(super().read(run_query), new_path=path)

    def plan(self, state: DiskState) -> Plan:
        pool = state.pool
        old = zpool_disk.find_disk(pool, self.disk)
        new = next(
            filter(None, (zpool_disk.find_disk(pool, n) for n in (self.new_disk, state.new_path))),
            None,
        )
        if new is not None and (old is None or old is not new):
            return Plan(f"{new.name} is in {self.pool} ({new.state})")
        if old is None or new is not None:
            raise Refused(
                f"{self.disk} is not a disk of {self.pool} that {self.new_disk} could replace: "
                f"its disks are {zpool_disk.list_disk_names(pool)}"
            )
        if pool.running_resilver:
            raise Refused(
                f"{self.pool} is busy with a {pool.running_resilver.description}: try again when "
                "it has ended"
            )
        step = Step(
            f"Replace {old.name} by {self.new_disk}",
            self.host,
            do=zpool_disk.replace_disk(self.pool, self.disk, self.new_disk),
            undo=NoUndo("the old disk leaves the pool as soon as its data is copied"),
            before=f"{old.name} in {self.pool}",
            after=f"{self.new_disk} in {self.pool}",
        )
        notes = [
            f"{self.new_disk} is {state.new_path} now, and everything on it is overwritten. ZFS "
            "refuses a disk that it recognises as used.",
            f"Copying reads all data of the group and slows down {self.pool}; this run reports "
            "when it ends.",
        ]
        if old.state == "ONLINE":
            notes.append(f"{old.name} is ONLINE: check that it is the disk to replace.")
        return Plan(f"{self.pool} is {pool.state}, {old.name} is {old.state}", [step], notes)

    def report_progress(self, state: DiskState) -> Report:
        pool, running = state.pool, state.pool.running_resilver
        if running:
            return Report(f"{pool.name}: {running.description}", running=True)
        return Report.from_findings(f"{pool.name} is {pool.state}", pool.findings)


class OnlineDisk(
    _PoolChange, words="zfs online", example="nas1 tank sdb", undo="takes the disk offline again"
):
    """Bring a disk of a ZFS pool online that someone took offline."""

    disk: DiskName

    def plan(self, state: DiskState) -> Plan:
        disk = zpool_disk.find_disk(state.pool, self.disk)
        if disk is None:
            raise Refused(
                f"{self.pool} has no disk {self.disk}: its disks are "
                f"{zpool_disk.list_disk_names(state.pool)}"
            )
        if disk.state == "ONLINE":
            return Plan(f"{disk.name} is ONLINE")
        if disk.state not in ("OFFLINE", "REMOVED"):
            raise Refused(
                f"{disk.name} is {disk.state}, not OFFLINE: check the disk and its cable, then "
                "request zfs clear, or zfs replace"
            )
        undo = zpool_disk.take_offline(self.pool, self.disk)
        step = Step(
            f"Bring {disk.name} online",
            self.host,
            do=zpool_disk.bring_online(self.pool, self.disk),
            undo=undo if disk.state == "OFFLINE" else NoUndo("it was REMOVED, not OFFLINE"),
            before=disk.state,
            after="ONLINE",
        )
        notes = ["ZFS copies what was written meanwhile to the disk, which may take a while."]
        return Plan(f"{disk.name} of {self.pool} is {disk.state}", [step], notes)


class ClearErrors(_PoolChange, words="zfs clear", example="nas1 tank"):
    """Clear the error counters of a ZFS pool, and retry its faulted disks. It has no undo."""

    def plan(self, state: DiskState) -> Plan:
        pool = state.pool
        disks = [vdev for vdev in pool.vdevs if vdev.is_leaf]
        bad = [disk for disk in disks if disk.error_text or disk.state == "FAULTED"]
        if not bad and pool.state != "SUSPENDED":
            return Plan(f"{self.pool} has no errors to clear")
        counted = ", ".join(f"{disk.name}: {disk.error_text or disk.state}" for disk in bad)
        step = Step(
            f"Clear the errors of {self.pool}",
            self.host,
            do=zpool_disk.clear_errors(self.pool),
            undo=NoUndo("ZFS forgets the counters"),
            before="errors counted",
            after="no errors counted",
        )
        notes = [
            f"Counted so far: {counted or pool.state}.",
            "Find the cause first: a disk that counts errors again is failing.",
        ]
        return Plan(f"{self.pool} is {pool.state}", [step], notes)
