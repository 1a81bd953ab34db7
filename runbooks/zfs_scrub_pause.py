from connectors import zfs
from connectors.command import Ask
from connectors.zfs import Storage
from runbooks import Change, Host, Plan, PoolName, Refused, Step, tagged


class PauseScrub(
    Change[Storage], words="zfs scrub pause", example="nas1 tank", undo="lets it go on"
):
    """Pause a scrub of a ZFS pool; `zfs scrub start` goes on from there, after a reboot too."""

    host: Host = tagged("zfs")
    pool: PoolName

    def read(self, ask: Ask) -> Storage:
        return zfs.storage(ask, self.host)

    def refuse_undo(self, storage: Storage) -> None:
        pool = zfs.pick(self.pool, storage)
        if not any(scan.state == "paused" for scan in pool.scans):
            raise Refused(
                f"the scrub of {pool.name} is not paused any more: ask for `zfs scrub start`"
            )

    def plan(self, storage: Storage) -> Plan:
        pool = zfs.pick(self.pool, storage)
        running = pool.running
        if running is None:
            paused = next((scan for scan in pool.scans if scan.state == "paused"), None)
            return Plan(
                f"{pool.name}: {paused.story}" if paused else f"No scrub of {pool.name} is running"
            )
        if running.kind != "scrub":
            raise Refused(f"{pool.name} is busy with a {running.story}, which cannot be paused")
        if not storage.can_pause:
            raise Refused(
                "zfs-fuse cannot pause a scrub: `zfs scrub stop` ends it, and the next one begins "
                "anew"
            )
        if pool.state == "SUSPENDED":
            raise Refused(
                f"{pool.name} is SUSPENDED and takes no orders: connect its disks, then "
                "`zpool clear`"
            )
        step = Step(
            f"Pause the scrub of {pool.name}",
            self.host,
            do=zfs.pause_scrub(self.pool),
            undo=zfs.start_scrub(self.pool),
            before="being scrubbed",
            after="scrub paused",
        )
        return Plan(f"{pool.name}: {running.story}", [step])
