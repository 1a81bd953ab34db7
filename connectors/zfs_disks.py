"""Which disks lie beneath a pool, through partitions, RAID, volumes and file systems. No I/O."""

from collections.abc import Sequence

from connectors.command import Query, QueryRunner, Shell
from connectors.errors import ParseError
from connectors.zpool import Pool

# A scrub reads these; caches and logs it leaves alone.
_SCRUBBED = frozenset({"data", "special", "dedup"})
_PRESENT = frozenset({"ONLINE", "DEGRADED"})


def read_disks(run_query: QueryRunner, host: str, pool: Pool) -> frozenset[str]:
    """Return all that a scrub of this pool reads: its devices, and everything they lie on."""
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
    """Query these block devices and all below them, down to the disks."""
    words = ("lsblk", "--noheadings", "--raw", "--paths", "--inverse", "--output", "NAME", "--")
    # 32 and 64: none, or not all, of them are known. Those stand for themselves alone.
    return Query(Shell((*words, *devices)), _parse_names, frozenset({0, 32, 64}))


def query_file_systems(files: Sequence[str]) -> Query[frozenset[str]]:
    """Query what the file systems that hold these files lie on."""
    return Query(Shell(("df", "--output=source", "--", *files)), _parse_sources)


def _parse_names(answer: str) -> frozenset[str]:
    return frozenset(answer.split("\n")) - {""}


def _parse_sources(answer: str) -> frozenset[str]:
    heading, *sources = answer.splitlines() or [""]
    if heading != "Filesystem" or not sources:
        raise ParseError(f"df answered {answer[:200]!r}")
    return frozenset(source.strip() for source in sources)
