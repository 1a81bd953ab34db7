"""ZFS pools: status, space, traffic, scrubs. For OpenZFS and zfs-fuse. No I/O.

Formats: zpool-list(8) with `-H`, which separates columns by tabs; zpool-iostat(8) with `-v`. Those
of `zpool status` are in zpool_text and zpool_json.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from connectors.command import Hint, Query, QueryRunner, Shell
from connectors.errors import CommandError, ParseError
from connectors.rows import Rows, parse_each
from connectors.script import Script, load_script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern
from connectors.zpool import OUT_OF_REACH, POOL, Pool, parse_size
from connectors.zpool_json import StatusDocument, parse_document
from connectors.zpool_text import parse_pools

_HINTS = (
    Hint(r"no such pool", "this host has no such pool: `zfs pools` lists them"),
    Hint(r"there is no active scrub|no scrub of .* is running", "the scrub has already ended"),
    Hint(r"currently resilvering", "a resilver is running: try again when it has ended"),
    Hint(r"currently scrubbing", "someone else has started a scrub meanwhile"),
    Hint(r"scrub is paused", "someone else has paused the scrub meanwhile"),
    Hint(
        r"I/O is currently suspended",
        "the pool has lost its disks and is suspended: connect them, then request `zfs clear`",
    ),
    Hint(r"currently unavailable", "the pool is not available: check its disks"),
    *OUT_OF_REACH,
)

# Status 2 means that this zpool has no such option; standard output is then empty.
_OR_NO_SUCH_OPTION = frozenset({0, 2})
_EXACTLY = ("status", "-j", "--json-int", "-T", "u", "-v", "-L", "-P")
# The longest measurement of traffic.
MAX_SECONDS = 60
NO_POOLS = (
    "`zpool list` is empty: `zpool import` on the host lists pools that were not imported at the "
    "start; import them, or remove the tag zfs"
)
_COLUMNS = "name,size,allocated,free,capacity,health"
# On a pool that lost its disks these would wait forever; zfs-fuse takes some seconds anyway.
_SCRUB_DEADLINE = 60

_STOP_ON_FUSE = load_script("zfs-stop-scrub", argument_count=1)


@dataclass(frozen=True)
class ZfsStorage:
    """All pools of a host."""

    pools: tuple[Pool, ...]
    host_time: datetime
    """The host's clock, in UTC or in local time like the times of scans."""
    can_pause: bool = True
    """Whether a scrub can be paused; zfs-fuse cannot."""


@dataclass(frozen=True)
class PoolSpace:
    """One line of `zpool list`, with sizes as ZFS prints them."""

    pool: str
    size: str
    allocated: str
    free: str
    capacity: int | None
    """Percent in use, if ZFS prints it."""
    health: str


@dataclass(frozen=True)
class LoadAverage:
    """Programs that run or wait for a disk, averaged over 1, 5 and 15 minutes."""

    one: float
    five: float
    fifteen: float


@dataclass(frozen=True)
class DeviceTraffic:
    """The traffic of one pool or device, per second."""

    name: str
    depth: int
    """Its level below the pool; 0 for the pool."""
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int


def read_storage(run_query: QueryRunner, host: str) -> ZfsStorage:
    """Read all pools, in the most precise format that this ZFS supports."""
    try:
        document = run_query(host, query_json_status())
    except ParseError:
        document = None
    if document is not None:
        return ZfsStorage(document.pools, document.host_time)
    now = run_query(host, query_clock())
    pools = run_query(host, query_status())
    if pools or pools.odd:
        return ZfsStorage(pools, now)
    return ZfsStorage(run_query(host, query_plain_status()), now, can_pause=False)


def find_pool(name: str, storage: ZfsStorage) -> Pool:
    """Return the pool with this name, or raise CommandError, naming the others."""
    found = next((pool for pool in storage.pools if pool.name == name), None)
    if found is None:
        others = ", ".join(sorted(pool.name for pool in storage.pools)) or "none"
        raise CommandError(f"this host has no pool {name}; its pools: {others}")
    return found


def query_json_status() -> Query[StatusDocument | None]:
    """Query OpenZFS 2.3 or later; None from any other."""
    return Query(_make_command("zpool", *_EXACTLY), parse_document, _OR_NO_SUCH_OPTION)


def query_status() -> Query[Rows[Pool]]:
    """Query OpenZFS before 2.3, with full paths of devices; () from zfs-fuse."""
    return Query(
        _make_command("zpool", "status", "-v", "-L", "-P"), parse_pools, _OR_NO_SUCH_OPTION
    )


def query_plain_status() -> Query[Rows[Pool]]:
    """Query with the options that zfs-fuse also has."""
    return Query(_make_command("zpool", "status", "-v"), parse_pools)


def query_clock() -> Query[datetime]:
    """Query the host's clock, in its own time zone."""
    return Query(Shell(("date", "+%Y-%m-%d %H:%M:%S")), _parse_time)


def query_spaces() -> Query[tuple[PoolSpace, ...]]:
    return Query(_make_command("zpool", "list", "-H", "-o", _COLUMNS), parse_spaces)


def query_load() -> Query[LoadAverage]:
    return Query(Shell(("cat", "/proc/loadavg")), parse_load)


def query_traffic(pool: str, seconds: int) -> Query[tuple[DeviceTraffic, ...]]:
    """Query the traffic of each device of a pool, or of all pools for "", over some seconds."""
    # The first of two samples is the average since the pool was imported.
    words = ("zpool", "iostat", "-v", *([pool] if pool else []), str(seconds), "2")
    shell = Shell(words, root=True, hints=_HINTS, deadline=seconds + 30)
    return Query(shell, parse_traffic)


def start_scrub(pool: str) -> Shell:
    """Start a scrub, or resume one that is paused. It runs in the background."""
    return _make_command("zpool", "scrub", pool, deadline=_SCRUB_DEADLINE)


def stop_scrub(pool: str) -> Shell:
    return _make_command("zpool", "scrub", "-s", pool, deadline=_SCRUB_DEADLINE)


def stop_scrub_on_fuse(pool: str) -> Shell:
    """Stop a scrub of zfs-fuse. It does not stop a resilver."""
    return _make_command(_STOP_ON_FUSE, pool, deadline=_SCRUB_DEADLINE)


def pause_scrub(pool: str) -> Shell:
    return _make_command("zpool", "scrub", "-p", pool, deadline=_SCRUB_DEADLINE)


def parse_spaces(answer: str) -> Rows[PoolSpace]:
    lines = (line for line in answer.splitlines() if line != "no pools available")
    return parse_each(lines, _parse_space)


def parse_load(answer: str) -> LoadAverage:
    try:
        one, five, fifteen, *_ = answer.split()
        return LoadAverage(float(one), float(five), float(fifteen))
    except ValueError:
        raise ParseError(f"/proc/loadavg has an unknown format: {answer[:80]!r}") from None


def parse_traffic(answer: str) -> Rows[DeviceTraffic]:
    """Parse `zpool iostat -v … 2` and return the rows of the second sample."""
    if answer.strip() in ("", "no pools available"):
        return Rows()
    _, *samples = re.split(r"(?m)^ +capacity +operations +bandwidth *$", answer)
    if len(samples) != 2:
        raise ParseError(f"zpool iostat was cut off before its second sample: {answer[-200:]!r}")
    return parse_each(samples[1].splitlines(), _parse_traffic_line)


def _parse_traffic_line(line: str) -> DeviceTraffic | None:
    name, *columns = line.rsplit(maxsplit=6) if line.strip(" -") else [""]
    if not name or columns[:1] == ["alloc"]:
        return None
    _, _, reads, writes, read, written = columns
    depth = len(name) - len(name.lstrip())
    if reads == "-":
        return None  # a heading of devices, such as logs
    return DeviceTraffic(
        name.strip(),
        depth // 2,
        parse_size(reads),
        parse_size(writes),
        parse_size(read),
        parse_size(written),
    )


def _parse_space(line: str) -> PoolSpace:
    parts = line.split("\t")
    if len(parts) != 6:
        raise ParseError("it is no pool")
    name, size, allocated, free, capacity, health = parts
    percent = capacity.removesuffix("%")
    return PoolSpace(
        name, size, allocated, free, int(percent) if percent.isdecimal() else None, health
    )


def _parse_time(answer: str) -> datetime:
    try:
        return datetime.strptime(answer.strip(), "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - the host's
    except ValueError:
        raise ParseError(f"date printed {answer[:80]!r} instead of a time") from None


def _make_command(*words: str | Script, deadline: int = 30) -> Shell:
    return Shell(words, root=True, hints=_HINTS, deadline=deadline)


_ZPOOL = "/usr/sbin/zpool"
_POOL = WordPattern(POOL)
_SECONDS = WordPattern(make_range_pattern(1, MAX_SECONDS))
SUDO = (
    SudoRule(_ZPOOL, *_EXACTLY, read_only=True),
    SudoRule(_ZPOOL, "status", "-v", "-L", "-P", read_only=True),
    SudoRule(_ZPOOL, "status", "-v", read_only=True),
    SudoRule(_ZPOOL, "list", "-H", "-o", _COLUMNS, read_only=True),
    SudoRule(_ZPOOL, "iostat", "-v", _SECONDS, "2", read_only=True),
    SudoRule(_ZPOOL, "iostat", "-v", _POOL, _SECONDS, "2", read_only=True),
    SudoRule(_ZPOOL, "scrub", _POOL),
    SudoRule(_ZPOOL, "scrub", "-s", _POOL),
    SudoRule(_ZPOOL, "scrub", "-p", _POOL),
    SudoRule(_STOP_ON_FUSE, _POOL),
)
