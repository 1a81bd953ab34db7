from connectors import zfs
from connectors.command import QueryRunner
from connectors.zfs import ZfsStorage
from runbooks import Change, Host, Plan, PoolName, Refused, Step, make_host_field


class StopScrub(
    Change[ZfsStorage],
    words="zfs scrub stop",
    example="nas1 tank",
    undo="starts it again from the beginning",
):
    """Stop a scrub of a ZFS pool for good; `zfs scrub pause` keeps its progress."""

    host: Host = make_host_field("zfs")
    pool: PoolName

    def read(self, run_query: QueryRunner) -> ZfsStorage:
        return zfs.read_storage(run_query, self.host)

    def plan(self, storage: ZfsStorage) -> Plan:
        pool = zfs.find_pool(self.pool, storage)
        if pool.running_resilver:
            raise Refused(
                f"{pool.name} is busy with a {pool.running_resilver.description}: it restores a "
                "disk's data and must not be stopped. No scrub is running"
            )
        if pool.state == "SUSPENDED":
            raise Refused(f"{pool.name} is SUSPENDED: connect its disks, then request `zfs clear`")
        going = next((scan for scan in pool.scans if scan.state in ("running", "paused")), None)
        if going is None:
            return Plan(f"no scrub of {pool.name} is running")
        if going.kind != "scrub":
            raise Refused(
                f"{pool.name} is busy with an {going.description}, which is short: wait for it"
            )
        stop = zfs.stop_scrub if storage.can_pause else zfs.stop_scrub_on_fuse
        step = Step(
            f"Stop the scrub of {pool.name}",
            self.host,
            do=stop(self.pool),
            undo=zfs.start_scrub(self.pool),
            before="scrub running",
            after="no scrub running",
        )
        notes = ["Repaired data stays repaired. Undo starts the scrub from the beginning."]
        if storage.can_pause and going.state == "running":
            notes.append("`zfs scrub pause` keeps its progress instead.")
        return Plan(f"{pool.name}: {going.description}", [step], notes)
