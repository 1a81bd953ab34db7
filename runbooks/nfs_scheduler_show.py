from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors import block, block_tree, mounts
from connectors.block import Queue
from connectors.block_tree import Node
from connectors.command import Ask
from connectors.mounts import Mount
from runbooks import Check, Host, Report, Table, tagged


@dataclass(frozen=True)
class Exported:
    """One exported path. device: what is mounted there, None where no disk is known behind it.

    disks: the devices whose queues order what goes to it.
    """

    path: str
    mount: Mount
    device: Node | None
    disks: Sequence[Node]


@dataclass(frozen=True)
class Storage:
    """What is exported, and the queues of all devices behind it, by the kernel's names."""

    exported: Sequence[Exported]
    queues: Mapping[str, Queue]


class ShowScheduler(Check[Storage], words="nfs scheduler show", example="nas1"):
    """See how the disks behind the NFS exports order their reads and writes."""

    host: Host = tagged("nfs")

    def read(self, ask: Ask) -> Storage:
        paths = dict.fromkeys(export.path for export in ask(self.host, mounts.exports()))
        if not paths:
            return Storage((), {})
        tree = ask(self.host, block_tree.tree())
        exported = [_traced(path, ask(self.host, mounts.mount_of(path)), tree) for path in paths]
        names = {
            node.kernel
            for each in exported
            for node in (*each.disks, each.device)
            if node is not None and node.type != "part"  # a partition has no queue
        }
        return Storage(exported, ask(self.host, block.queues(sorted(names))) if names else {})

    def report(self, storage: Storage) -> Report:
        if not storage.exported:
            return Report(f"{self.host} exports nothing by NFS")
        disks = {node.kernel for each in storage.exported for node in each.disks}
        exports = len(storage.exported)
        findings = [*_of_exports(storage), *_of_disks(storage, sorted(disks))]
        return Report(
            f"{self.host} exports {exports} director{'y' if exports == 1 else 'ies'} from "
            f"{', '.join(sorted(disks)) or 'no disk that is known'}",
            healthy=not findings,
            findings=findings,
            table=Table(
                _COLUMNS, [row for each in storage.exported for row in _rows(each, storage)]
            ),
        )


_COLUMNS = (
    "Export",
    "Lies on",
    "Disk",
    "Scheduler",
    "Offered",
    "slice_idle",
    "Read-ahead",
    "Requests",
    "Kind",
)


def _traced(path: str, mount: Mount, tree: block_tree.Tree) -> Exported:
    node = tree.mounted(mount.number, mount.source)
    return Exported(path, mount, node, tree.queues_below(node) if node else ())


def _rows(each: Exported, storage: Storage) -> Iterator[tuple[str, ...]]:
    if each.device is None:
        yield each.path, each.mount.source, *["-"] * (len(_COLUMNS) - 2)
        return
    ahead = _read_ahead(each.device, each.disks, storage)
    for node in each.disks:
        queue = storage.queues[node.kernel]
        yield (
            each.path,
            _called(each.device),
            _called(node),
            queue.scheduler,
            " ".join(queue.offered),
            "-" if queue.slice_idle is None else f"{queue.slice_idle} ms",
            f"{ahead} KiB",
            "-" if queue.nr_requests is None else str(queue.nr_requests),
            "turning" if queue.rotational else "not turning",
        )


def _read_ahead(device: Node, disks: Sequence[Node], storage: Storage) -> int:
    """Return what counts for files: the number of the device that is mounted.

    A partition has none of its own, so there it is its disk's.
    """
    name = device.kernel if device.type != "part" else disks[0].kernel
    return storage.queues[name].read_ahead_kb


def _called(node: Node) -> str:
    return node.name if node.name == node.kernel else f"{node.name} ({node.kernel})"


def _of_exports(storage: Storage) -> Iterator[str]:
    for each in storage.exported:
        if each.device is None:
            yield (
                f"{each.path} lies on {each.mount.type} ({each.mount.source}): no block device "
                f"is known behind it{_advice(each.mount.type)}"
            )
            continue
        used = {storage.queues[node.kernel].scheduler for node in each.disks}
        if len(used) > 1:
            yield (
                f"The disks behind {each.path} use different schedulers "
                f"({', '.join(sorted(used))}): the slowest sets the pace, so set them alike"
            )
        if each.mount.type == "btrfs":
            yield f"{each.path} is btrfs, which may have more disks: only one of them is known"


def _advice(kind: str) -> str:
    return ", as ZFS looks after its disks: ask `zfs io`" if kind == "zfs" else ""


def _of_disks(storage: Storage, disks: Sequence[str]) -> Iterator[str]:
    for name in disks:
        queue = storage.queues[name]
        if queue.rotational and queue.slice_idle:
            yield (
                f"{name} waits up to {queue.slice_idle} ms for one process's next request "
                f"(slice_idle). The threads of nfsd take turns, so it often waits in vain: "
                f"`nfs scheduler set` with slice_idle=0 or 1 tries without"
            )
        if queue.rotational and queue.scheduler == "none" and len(queue.offered) > 1:
            yield (
                f"{name} says that it turns, and nothing orders its requests (none): unless a "
                "RAID controller or a hypervisor does, mq-deadline or bfq saves it many seeks"
            )
        if not queue.rotational and queue.scheduler in ("bfq", "cfq"):
            yield (
                f"{name} does not turn: {queue.scheduler} costs it processor time and wins "
                "little; none or mq-deadline suits it"
            )
