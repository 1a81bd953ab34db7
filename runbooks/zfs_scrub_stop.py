"""Pause or stop a scrub of a ZFS pool."""

from connectors import zfs
from connectors.command import QueryRunner
from connectors.zfs import ZfsStorage
from connectors.zpool import Pool
from runbooks import Change, Host, Plan, PoolName, Refused, Step, make_host_field


class _EndScrub(Change[ZfsStorage]):
    """Ends a scrub for now or for good; subclasses say which."""

    host: Host = make_host_field("zfs")
    pool: PoolName

    def read(self, run_query: QueryRunner) -> ZfsStorage:
        return zfs.read_storage(run_query, self.host)


class PauseScrub(_EndScrub, words="zfs scrub pause", example="nas1 tank", undo="resumes it"):
    """Pause a scrub of a ZFS pool; `zfs scrub start` resumes it, also after a reboot."""

    def refuse_undo(self, storage: ZfsStorage) -> None:
        pool = zfs.find_pool(self.pool, storage)
        if pool.paused_scan is None:
            raise Refused(
                f"the scrub of {pool.name} is not paused any more: request `zfs scrub start`"
            )

    def plan(self, storage: ZfsStorage) -> Plan:
        pool = zfs.find_pool(self.pool, storage)
        running, paused = pool.running_scan, pool.paused_scan
        if running is None:
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
        _refuse_suspended(pool)
        step = Step(
            f"Pause the scrub of {pool.name}",
            self.host,
            do=zfs.pause_scrub(self.pool),
            undo=zfs.start_scrub(self.pool),
            before="scrub running",
            after="scrub paused",
        )
        return Plan(f"{pool.name}: {running.description}", [step])


class StopScrub(
    _EndScrub,
    words="zfs scrub stop",
    also_called=("cancel scrub",),
    example="nas1 tank",
    undo="starts it again from the beginning",
):
    """Stop a scrub of a ZFS pool for good; `zfs scrub pause` keeps its progress."""

    def plan(self, storage: ZfsStorage) -> Plan:
        pool = zfs.find_pool(self.pool, storage)
        if pool.running_resilver:
            raise Refused(
                f"{pool.name} is busy with a {pool.running_resilver.description}: it restores a "
                "disk's data and must not be stopped. No scrub is running"
            )
        _refuse_suspended(pool)
        going = pool.running_scan or pool.paused_scan
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


def _refuse_suspended(pool: Pool) -> None:
    if pool.state == "SUSPENDED":
        raise Refused(f"{pool.name} is SUSPENDED: connect its disks, then request `zfs clear`")
