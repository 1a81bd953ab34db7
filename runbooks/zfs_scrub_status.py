from dataclasses import dataclass

from connectors import zfs
from connectors.command import Ask
from connectors.zpool import Pool, Vdev
from runbooks import Check, Host, PoolName, Report, Table, tagged


@dataclass(frozen=True)
class Scrubbed:
    """A pool, and whether ZFS forgets its scrubs when the pool is imported anew."""

    pool: Pool
    forgetful: bool = False


class ScrubStatus(Check[Scrubbed], words="zfs scrub status", example="nas1 tank"):
    """See how far a scrub is, or how the last one ended, and which files are damaged."""

    host: Host = tagged("zfs")
    pool: PoolName

    def read(self, ask: Ask) -> Scrubbed:
        storage = zfs.storage(ask, self.host)
        return Scrubbed(zfs.pick(self.pool, storage), forgetful=not storage.can_pause)

    def report(self, scrubbed: Scrubbed) -> Report:
        pool = scrubbed.pool
        findings = pool.complaints
        findings += [
            f"The {scan.kind} ended with {scan.errors:,} errors that it could not repair"
            for scan in pool.scans
            if scan.errors
        ]
        if not pool.scans:
            findings.append("A scrub once a month finds damage while it can be repaired")
        return Report(
            f"{self.pool}: {_story(scrubbed)}",
            healthy=not findings,
            findings=findings,
            table=Table(
                ("Device", "State", "Read", "Write", "Checksum", "Remark"),
                [_row(vdev) for vdev in pool.vdevs if vdev.leaf],
            ),
        )


def _story(scrubbed: Scrubbed) -> str:
    if not scrubbed.pool.scans:
        since = " since it was imported" if scrubbed.forgetful else ""
        return f"never scrubbed{since}"
    running_first = sorted(scrubbed.pool.scans, key=lambda scan: scan.state != "running")
    return "; ".join(scan.story for scan in running_first)


def _row(vdev: Vdev) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (vdev.read, vdev.write, vdev.checksum))
    group = "" if vdev.group == "data" else vdev.group
    return vdev.name, vdev.state, *counts, ", ".join(filter(None, (group, vdev.note)))
