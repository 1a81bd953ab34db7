from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import block, block_tree, mounts
from connectors.amounts import format_count
from connectors.block import BlockQueue
from connectors.block_tree import BlockDevice
from connectors.command import QueryRunner
from connectors.errors import CommandError, ParseError
from connectors.mounts import Mount
from runbooks import Check, Host, Report, Table, make_host_field


@dataclass(frozen=True)
class ExportedPath:
    """One exported path."""

    path: str
    mount: Mount | None
    """None if it could not be read."""
    device: BlockDevice | None
    """The mounted device; None where no block device is known."""
    disks: Sequence[BlockDevice]
    """The devices whose queues order its requests."""
    error: str = ""
    """Why the mount could not be read."""


@dataclass(frozen=True)
class ExportState:
    """The NFS exports, and the queues of the devices behind them."""

    exports: Sequence[ExportedPath]
    queues: Mapping[str, BlockQueue]
    """By kernel name, without those that are not understood."""


_MISSING = (
    "the kernel has no exports: check /etc/exports, run `exportfs -ra`, or remove the tag nfs"
)


class ShowScheduler(
    Check[ExportState],
    words="nfs scheduler show",
    example="nas1",
    columns=(
        "Export",
        "Device",
        "Disk",
        "Scheduler",
        "Available",
        "slice_idle",
        "Read-ahead",
        "Requests",
        "Kind",
    ),
):
    """Show the I/O schedulers of the disks behind the NFS exports."""

    host: Host = make_host_field("nfs")

    def read(self, run_query: QueryRunner) -> ExportState:
        paths = dict.fromkeys(
            export.path for export in run_query(self.host, mounts.query_exports())
        )
        if not paths:
            return ExportState((), {})
        tree = run_query(self.host, block_tree.query_tree())
        exported = [self._read_export(run_query, path, tree) for path in paths]
        names = {
            node.kernel_name
            for each in exported
            for node in (*each.disks, each.device)
            if node is not None and node.type != "part"  # a partition has no queue
        }
        return ExportState(
            exported, run_query(self.host, block.query_queues(sorted(names))) if names else {}
        )

    def _read_export(
        self, run_query: QueryRunner, path: str, tree: block_tree.BlockTree
    ) -> ExportedPath:
        try:
            mount = run_query(self.host, mounts.query_mount(path))
        except (CommandError, ParseError) as error:  # such as a directory that is gone
            return ExportedPath(path, None, None, (), str(error))
        node = tree.find_mounted(mount.device_number, mount.source)
        return ExportedPath(path, mount, node, tree.list_queue_devices(node) if node else ())

    def report(self, storage: ExportState) -> Report:
        if not storage.exports:
            return Report.from_findings(f"{self.host} exports nothing by NFS", [_MISSING])
        disks = {node.kernel_name for each in storage.exports for node in each.disks}
        exports = len(storage.exports)
        return Report.from_findings(
            f"{self.host} exports {format_count(exports, 'directory', 'directories')} from "
            f"{', '.join(sorted(disks)) or 'unknown disks'}",
            [*_list_export_findings(storage), *_list_disk_findings(storage, sorted(disks))],
            table=Table(
                self.columns,
                [row for each in storage.exports for row in _list_rows(each, storage)],
            ),
        )


def _list_rows(each: ExportedPath, storage: ExportState) -> Iterator[tuple[str, ...]]:
    if each.device is None:
        source = each.mount.source if each.mount else "unknown"
        yield each.path, source, *["-"] * (len(ShowScheduler.columns) - 2)
        return
    ahead = _get_read_ahead(each.device, each.disks, storage)
    for node in each.disks:
        queue = storage.queues.get(node.kernel_name)
        names = (each.path, _format_device(each.device), _format_device(node))
        yield (*names, *_format_queue(queue, ahead))


def _format_queue(queue: BlockQueue | None, ahead: str) -> tuple[str, ...]:
    if queue is None:
        return "unknown", "-", "-", ahead, "-", "-"
    return (
        queue.scheduler,
        " ".join(queue.available_schedulers),
        "-" if queue.slice_idle is None else f"{queue.slice_idle} ms",
        ahead,
        "-" if queue.nr_requests is None else str(queue.nr_requests),
        "HDD" if queue.rotational else "SSD",
    )


def _get_read_ahead(
    device: BlockDevice, disks: Sequence[BlockDevice], storage: ExportState
) -> str:
    """Return the read-ahead for files: that of the mounted device, or of a partition's disk."""
    name = device.kernel_name if device.type != "part" else disks[0].kernel_name
    return f"{storage.queues[name].read_ahead_kb} KiB" if name in storage.queues else "unknown"


def _format_device(node: BlockDevice) -> str:
    return node.name if node.name == node.kernel_name else f"{node.name} ({node.kernel_name})"


def _list_export_findings(storage: ExportState) -> Iterator[str]:
    for each in storage.exports:
        if each.mount is None:
            yield f"the mount of {each.path} is unknown: {each.error}"
            continue
        if each.device is None:
            yield (
                f"{each.path} is on {each.mount.type} ({each.mount.source}): its block devices "
                f"are unknown{_format_advice(each.mount.type)}"
            )
            continue
        queues = (storage.queues.get(node.kernel_name) for node in each.disks)
        used = {queue.scheduler for queue in queues if queue}
        if len(used) > 1:
            yield (
                f"The disks behind {each.path} use different schedulers "
                f"({', '.join(sorted(used))}): the slowest limits all, so set the same for all"
            )
        if each.mount.type == "btrfs":
            yield f"{each.path} is btrfs, which may have more disks: only one of them is known"


def _format_advice(kind: str) -> str:
    return ", because ZFS manages its disks: run `zfs io`" if kind == "zfs" else ""


def _list_disk_findings(storage: ExportState, disks: Sequence[str]) -> Iterator[str]:
    for name in disks:
        queue = storage.queues.get(name)
        if queue is None:
            continue  # its odd row is a finding
        if queue.rotational and queue.slice_idle:
            yield (
                f"{name} waits up to {queue.slice_idle} ms for one process's next request "
                f"(slice_idle). The threads of nfsd alternate, so this is often useless: try "
                f"`nfs scheduler set` with slice_idle=0 or 1"
            )
        if queue.rotational and queue.scheduler == "none" and len(queue.available_schedulers) > 1:
            yield (
                f"{name} is a hard disk without a scheduler (none): unless a RAID controller or "
                "a hypervisor orders its requests, mq-deadline or bfq saves many seeks"
            )
        if not queue.rotational and queue.scheduler in ("bfq", "cfq"):
            yield (
                f"{name} is not a hard disk: {queue.scheduler} uses processor time with little "
                "benefit. Use none or mq-deadline"
            )
