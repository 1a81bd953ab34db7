"""The disks below a ZFS pool, through partitions, RAID, volumes and file systems. No I/O."""

from collections.abc import Sequence

from connectors.command import Query, QueryRunner, Shell
from connectors.errors import ParseError
from connectors.zpool import Pool

# A scrub reads these groups, and not caches and logs.
_SCRUBBED = frozenset({"data", "special", "dedup"})
_PRESENT = frozenset({"ONLINE", "DEGRADED"})


def read_disks(run_query: QueryRunner, host: str, pool: Pool) -> frozenset[str]:
    """Return all devices that a scrub of this pool reads, and all devices below them."""
    paths = [
        vdev.name if vdev.name.startswith("/") else f"/dev/{vdev.name}"
        for vdev in pool.vdevs
        if vdev.is_leaf and vdev.group in _SCRUBBED and vdev.state in _PRESENT
    ]
    devices = [path for path in paths if path.startswith("/dev/")]
    files = [path for path in paths if path not in devices]
    beneath = run_query(host, query_file_systems(files)) if files else frozenset[str]()
    devices += sorted(source for source in beneath if source.startswith("/dev/"))
    below = run_query(host, query_layers(devices)) if devices else frozenset[str]()
    return frozenset(paths) | beneath | below


def query_layers(devices: Sequence[str]) -> Query[frozenset[str]]:
    """Query these block devices and all devices below them, down to the disks."""
    words = ("lsblk", "--noheadings", "--raw", "--paths", "--inverse", "--output", "NAME", "--")
    # 32 and 64: none, or not all, of the devices exist. The others are printed.
    return Query(Shell((*words, *devices)), _parse_names, frozenset({0, 32, 64}))


def query_file_systems(files: Sequence[str]) -> Query[frozenset[str]]:
    """Query the devices of the file systems with these files."""
    return Query(Shell(("df", "--output=source", "--", *files)), _parse_sources)


def _parse_names(answer: str) -> frozenset[str]:
    return frozenset(answer.split("\n")) - {""}


def _parse_sources(answer: str) -> frozenset[str]:
    heading, *sources = answer.splitlines() or [""]
    if heading != "Filesystem" or not sources:
        raise ParseError(f"df printed {answer[:200]!r} instead of file systems")
    return frozenset(source.strip() for source in sources)
