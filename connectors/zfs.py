"""What can be said to ZFS about its pools, OpenZFS and zfs-fuse alike. No I/O."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from connectors.command import Hint, Query, QueryRunner, Shell
from connectors.errors import CommandError, ParseError
from connectors.script import Script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern
from connectors.zpool import OUT_OF_REACH, Pool, parse_size
from connectors.zpool_json import StatusDocument, parse_document
from connectors.zpool_text import parse_pools

_HINTS = (
    Hint(r"no such pool", "this host has no such pool: `zfs pools` lists them"),
    Hint(r"there is no active scrub|no scrub of .* is running", "it has ended by itself already"),
    Hint(
        r"currently resilvering", "a resilver is running, and only it: ask again when it is done"
    ),
    Hint(r"currently scrubbing", "somebody else has started a scrub meanwhile"),
    Hint(r"scrub is paused", "somebody else has paused the scrub meanwhile"),
    Hint(
        r"I/O is currently suspended",
        "the pool has lost its disks and stands still: connect them, then `zpool clear`",
    ),
    Hint(r"currently unavailable", "the pool is not available: look at its disks"),
    *OUT_OF_REACH,
)

# Status 2 means that this zpool has no such option, and then nothing is on standard output.
_OR_NO_SUCH_OPTION = frozenset({0, 2})
_EXACTLY = ("status", "-j", "--json-int", "-T", "u", "-v", "-L", "-P")
# Of a look at traffic.
MAX_SECONDS = 60
_COLUMNS = "name,size,allocated,free,capacity,health"
# On a pool that lost its disks these would wait for ever; zfs-fuse takes some seconds anyway.
_SCRUB_DEADLINE = 60

# zfs-fuse has `scrub -s` stop a resilver too, with status 0, so there we look first. OpenZFS
# refuses by itself.
_STOP_ON_FUSE = Script(
    "zfs-stop-scrub",
    'if zpool status "$1" | grep -q "^ scrub: scrub in progress"; then exec zpool scrub -s "$1"; '
    'else echo "no scrub of $1 is running" >&2; exit 1; fi',
    argument_count=1,
)


@dataclass(frozen=True)
class ZfsStorage:
    """Every pool of a host. now: its clock, in the way that the scans' moments are told.

    can_pause: a scrub can be paused, so this is not zfs-fuse.
    """

    pools: tuple[Pool, ...]
    host_time: datetime
    can_pause: bool = True


@dataclass(frozen=True)
class PoolSpace:
    """One line of `zpool list`: sizes as ZFS writes them. capacity: percent in use, if told."""

    pool: str
    size: str
    allocated: str
    free: str
    capacity: int | None
    health: str


@dataclass(frozen=True)
class LoadAverage:
    """How many programs run or wait for a disk, on average over so many minutes."""

    one: float
    five: float
    fifteen: float


@dataclass(frozen=True)
class DeviceTraffic:
    """What one pool or device did in each second. depth: how deep it stands in its pool."""

    name: str
    depth: int
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int


def read_storage(run_query: QueryRunner, host: str) -> ZfsStorage:
    """Ask for every pool in the most exact form that this ZFS and we know."""
    try:
        document = run_query(host, query_json_status())
    except ParseError:
        document = None
    if document is not None:
        return ZfsStorage(document.pools, document.host_time)
    now = run_query(host, query_clock())
    pools = run_query(host, query_status())
    if pools:
        return ZfsStorage(pools, now)
    return ZfsStorage(run_query(host, query_plain_status()), now, can_pause=False)


def find_pool(name: str, storage: ZfsStorage) -> Pool:
    """Return the pool with this name, or raise CommandError naming those that there are."""
    found = next((pool for pool in storage.pools if pool.name == name), None)
    if found is None:
        others = ", ".join(sorted(pool.name for pool in storage.pools)) or "none"
        raise CommandError(f"this host has no pool {name}; its pools: {others}")
    return found


def query_json_status() -> Query[StatusDocument | None]:
    """Ask OpenZFS 2.3 or later; None from any other."""
    return Query(_make_command("zpool", *_EXACTLY), parse_document, _OR_NO_SUCH_OPTION)


def query_status() -> Query[tuple[Pool, ...]]:
    """Ask OpenZFS before 2.3, with whole paths of devices; nothing from zfs-fuse."""
    return Query(
        _make_command("zpool", "status", "-v", "-L", "-P"), parse_pools, _OR_NO_SUCH_OPTION
    )


def query_plain_status() -> Query[tuple[Pool, ...]]:
    """Query in the words that zfs-fuse knows as well."""
    return Query(_make_command("zpool", "status", "-v"), parse_pools)


def query_clock() -> Query[datetime]:
    """Query what time it is, in the host's own time zone."""
    return Query(Shell(("date", "+%Y-%m-%d %H:%M:%S")), _parse_time)


def query_spaces() -> Query[tuple[PoolSpace, ...]]:
    return Query(_make_command("zpool", "list", "-H", "-o", _COLUMNS), parse_spaces)


def query_load() -> Query[LoadAverage]:
    return Query(Shell(("cat", "/proc/loadavg")), parse_load)


def query_traffic(pool: str, seconds: int) -> Query[tuple[DeviceTraffic, ...]]:
    """Watch a pool, or all for "", and tell what each of its devices did in that time."""
    # The first of two samples is the average since the pool was imported.
    words = ("zpool", "iostat", "-v", *([pool] if pool else []), str(seconds), "2")
    shell = Shell(words, root=True, hints=_HINTS, deadline=seconds + 30)
    return Query(shell, parse_traffic)


def start_scrub(pool: str) -> Shell:
    """Start a scrub, or go on with one that is paused. It runs on by itself."""
    return _make_command("zpool", "scrub", pool, deadline=_SCRUB_DEADLINE)


def stop_scrub(pool: str) -> Shell:
    return _make_command("zpool", "scrub", "-s", pool, deadline=_SCRUB_DEADLINE)


def stop_scrub_on_fuse(pool: str) -> Shell:
    """Stop a scrub of zfs-fuse, and nothing if a resilver has taken its place."""
    return _make_command(_STOP_ON_FUSE, pool, deadline=_SCRUB_DEADLINE)


def pause_scrub(pool: str) -> Shell:
    return _make_command("zpool", "scrub", "-p", pool, deadline=_SCRUB_DEADLINE)


def parse_spaces(answer: str) -> tuple[PoolSpace, ...]:
    return tuple(
        _parse_space(line) for line in answer.splitlines() if line != "no pools available"
    )


def parse_load(answer: str) -> LoadAverage:
    try:
        one, five, fifteen, *_ = answer.split()
        return LoadAverage(float(one), float(five), float(fifteen))
    except ValueError:
        raise ParseError(f"/proc/loadavg reads {answer[:80]!r}") from None


def parse_traffic(answer: str) -> tuple[DeviceTraffic, ...]:
    """Understand `zpool iostat -v … 2`: the rows of the second sample."""
    if answer.strip() in ("", "no pools available"):
        return ()
    rows = list(_parse_rows(answer.splitlines()))
    if not rows:
        raise ParseError(f"zpool iostat answered {answer[:200]!r}")
    starts = [place for place, row in enumerate(rows) if (row[0], row[1]) == rows[0][:2]]
    if len(starts) != 2:
        raise ParseError("zpool iostat was cut off before it had watched the pool: ask again")
    return tuple(_make_traffic(row) for row in rows[starts[1] :] if row[4] != "-")


def _parse_rows(lines: Sequence[str]) -> Iterator[tuple[int, str, str, str, str, str, str, str]]:
    """Yield depth, name and the six columns of each row below the headings."""
    for line in lines:
        name, *columns = line.rsplit(maxsplit=6) if line.strip() else [""]
        if len(columns) != 6 or name.startswith("-") or columns[0] == "alloc":
            continue
        allocated, free, reads, writes, read, written = columns
        depth = len(name) - len(name.lstrip())
        yield depth // 2, name.strip(), allocated, free, reads, writes, read, written


def _make_traffic(row: tuple[int, str, str, str, str, str, str, str]) -> DeviceTraffic:
    depth, name, _, _, reads, writes, read, written = row
    return DeviceTraffic(
        name, depth, parse_size(reads), parse_size(writes), parse_size(read), parse_size(written)
    )


def _parse_space(line: str) -> PoolSpace:
    parts = line.split("\t")
    if len(parts) != 6:
        raise ParseError(f"zpool list answered {line[:200]!r}")
    name, whole, allocated, free, capacity, health = parts
    percent = capacity.removesuffix("%")
    return PoolSpace(
        name, whole, allocated, free, int(percent) if percent.isdecimal() else None, health
    )


def _parse_time(answer: str) -> datetime:
    try:
        return datetime.strptime(answer.strip(), "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - the host's
    except ValueError:
        raise ParseError(f"date answered {answer[:80]!r}") from None


def _make_command(*words: str | Script, deadline: int = 30) -> Shell:
    return Shell(words, root=True, hints=_HINTS, deadline=deadline)


_ZPOOL = "/usr/sbin/zpool"
_POOL = WordPattern(r"[A-Za-z][A-Za-z0-9_.:-]{0,99}")
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
