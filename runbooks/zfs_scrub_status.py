from dataclasses import dataclass

from connectors import zfs
from connectors.command import QueryRunner
from connectors.zpool import Pool, Vdev
from runbooks import Check, Host, PoolName, Report, Table, make_host_field


@dataclass(frozen=True)
class ScrubHistory:
    """A pool with its scrubs."""

    pool: Pool
    is_lost_on_import: bool = False
    """Whether an import of the pool deletes its record of scrubs, as with zfs-fuse."""


class ScrubStatus(
    Check[ScrubHistory],
    words="zfs scrub status",
    also_called=("scrub progress", "scrub done"),
    example="nas1 tank",
    columns=("Device", "State", "Read", "Write", "Checksum", "Note"),
):
    """Show the progress of a scrub, or the result of the last one, and damaged files."""

    host: Host = make_host_field("zfs")
    pool: PoolName

    def read(self, run_query: QueryRunner) -> ScrubHistory:
        storage = zfs.read_storage(run_query, self.host)
        return ScrubHistory(
            zfs.find_pool(self.pool, storage), is_lost_on_import=not storage.can_pause
        )

    def report(self, scrubbed: ScrubHistory) -> Report:
        pool = scrubbed.pool
        findings = pool.findings
        findings += [
            f"The {scan.kind} ended with {scan.errors:,} errors that it could not repair"
            for scan in pool.scans
            if scan.errors
        ]
        if pool.was_never_scanned:
            findings.append("Scrub it monthly to find damage while it can be repaired")
        return Report.from_findings(
            f"{self.pool}: {_format_scans(scrubbed)}",
            findings,
            table=Table(
                self.columns,
                [_format_row(vdev) for vdev in pool.vdevs if vdev.is_leaf],
            ),
        )


def _format_scans(scrubbed: ScrubHistory) -> str:
    if scrubbed.pool.was_never_scanned:
        since = " since it was imported" if scrubbed.is_lost_on_import else ""
        return f"never scrubbed{since}"
    running_first = sorted(scrubbed.pool.scans, key=lambda scan: scan.state != "running")
    return "; ".join(scan.description for scan in running_first) or "its scans are unknown"


def _format_row(vdev: Vdev) -> tuple[str, ...]:
    counts = (
        f"{count:,}" for count in (vdev.read_errors, vdev.write_errors, vdev.checksum_errors)
    )
    group = "" if vdev.group == "data" else vdev.group
    return vdev.name, vdev.state, *counts, ", ".join(filter(None, (group, vdev.note)))
