from connectors import zfs
from connectors.command import QueryRunner
from connectors.zfs import ZfsStorage
from runbooks import Change, Host, Plan, PoolName, Refused, Step, make_host_field


class PauseScrub(
    Change[ZfsStorage], words="zfs scrub pause", example="nas1 tank", undo="resumes it"
):
    """Pause a scrub of a ZFS pool; `zfs scrub start` resumes it, also after a reboot."""

    host: Host = make_host_field("zfs")
    pool: PoolName

    def read(self, run_query: QueryRunner) -> ZfsStorage:
        return zfs.read_storage(run_query, self.host)

    def refuse_undo(self, storage: ZfsStorage) -> None:
        pool = zfs.find_pool(self.pool, storage)
        if not any(scan.state == "paused" for scan in pool.scans):
            raise Refused(
                f"the scrub of {pool.name} is not paused any more: request `zfs scrub start`"
            )

    def plan(self, storage: ZfsStorage) -> Plan:
        pool = zfs.find_pool(self.pool, storage)
        running = pool.running_scan
        if running is None:
            paused = next((scan for scan in pool.scans if scan.state == "paused"), None)
            return Plan(
                f"{pool.name}: {paused.description}"
                if paused
                else f"no scrub of {pool.name} is running"
            )
        if running.kind != "scrub":
            raise Refused(
                f"{pool.name} is busy with a {running.description}, which cannot be paused"
            )
        if not storage.can_pause:
            raise Refused(
                "zfs-fuse cannot pause a scrub: `zfs scrub stop` ends it, and the next one starts "
                "over"
            )
        if pool.state == "SUSPENDED":
            raise Refused(f"{pool.name} is SUSPENDED: connect its disks, then request `zfs clear`")
        step = Step(
            f"Pause the scrub of {pool.name}",
            self.host,
            do=zfs.pause_scrub(self.pool),
            undo=zfs.start_scrub(self.pool),
            before="scrub running",
            after="scrub paused",
        )
        return Plan(f"{pool.name}: {running.description}", [step])
