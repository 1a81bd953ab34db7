"""Parser of `zpool status -j --json-int -T u`, of OpenZFS 2.3 and later. No I/O.

The format is that of status_callback_json in OpenZFS's cmd/zpool/zpool_main.c: numbers are exact,
times are seconds since 1970, and counters of zero may be missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from connectors.errors import ParseError
from connectors.rows import OddRow, Rows, make_odd_row, parse_named
from connectors.zpool import Pool, Scan, ScanKind, ScanState, Vdev

# The names of these states in the text format.
_STATES = {"CANT_OPEN": "UNAVAIL", "HEALTHY": "ONLINE"}
_KINDS: Mapping[str, ScanKind] = {"SCRUB": "scrub", "RESILVER": "resilver"}
# An error scrub has fields of its own.
_NO_SCANS = ("NONE", "ERRORSCRUB")
_ENDS: Mapping[str, ScanState] = {"FINISHED": "finished", "CANCELED": "stopped"}
_REBUILD_ENDS: Mapping[str, ScanState] = {"COMPLETE": "finished", "CANCELED": "stopped"}
_VERSION = 0


class _Vdev(BaseModel):
    name: str
    # OpenZFS 2.3 prints none of a dRAID group.
    state: str = "UNKNOWN"
    read_errors: int = 0
    write_errors: int = 0
    checksum_errors: int = 0
    aux: str = ""
    was: str = ""
    vdevs: "Mapping[str, _Vdev]" = {}


class _Rebuild(BaseModel):
    state: str
    start_time: int = 0
    end_time: int = 0
    errors: int = 0
    scanned: int = 0
    to_scan: int = 0
    rebuilt: int = 0


class _Scan(BaseModel):
    """pass_start and issued_bytes_per_scan are since the last start, import or resume."""

    function: str = "NONE"
    state: str = "NONE"
    start_time: int = 0
    end_time: int = 0
    to_examine: int = 0
    skipped: int = 0
    processed: int = 0
    errors: int = 0
    pass_start: int = 0
    scrub_pause: int = 0
    scrub_spent_paused: int = 0
    issued_bytes_per_scan: int = 0
    issued: int = 0
    err_scrub_state: str = "NONE"
    err_scrub_start_time: int = 0
    err_scrub_examined: int = 0
    err_scrub_to_examine: int = 0
    err_scrub_pause: int = 0
    rebuild_stats: Mapping[str, _Rebuild] = {}


class _Pool(BaseModel):
    """errlist: the damaged files, or one text with the reason why they cannot be listed."""

    name: str
    state: str
    status: str = ""
    action: str = ""
    scan_stats: _Scan | None = None
    vdevs: Mapping[str, _Vdev]
    special: Mapping[str, _Vdev] = {}
    dedup: Mapping[str, _Vdev] = {}
    logs: Mapping[str, _Vdev] = {}
    l2cache: Mapping[str, _Vdev] = {}
    spares: Mapping[str, _Vdev] = {}
    error_count: int | None = None
    errlist: tuple[str, ...] | str = ()


class _Version(BaseModel):
    command: str
    vers_major: int


class _Document(BaseModel):
    output_version: _Version
    pools: Mapping[str, Any]
    time: int


class _OtherFormat(BaseModel):
    output_version: _Version


@dataclass(frozen=True)
class StatusDocument:
    """The parsed document."""

    host_time: datetime
    """The host's clock, in UTC."""
    pools: Rows[Pool]


def parse_document(answer: str) -> StatusDocument | None:
    """Parse the JSON format; None if there is none, or a newer version of it."""
    if not answer.strip():
        return None
    try:
        if _OtherFormat.model_validate_json(answer).output_version.vers_major != _VERSION:
            return None
        document = _Document.model_validate_json(answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ParseError(
            f"zpool status -j printed a document in an unknown format: {where or 'all of it'} "
            f"({first['msg']})"
        ) from None
    found = parse_named(
        document.pools, lambda _, pool: _make_pool(_Pool.model_validate(pool), document.time)
    )
    odd = [*found.odd, *(row for _, rows in found.values() for row in rows)]
    pools = Rows((pool for pool, _ in found.values()), odd)
    return StatusDocument(_convert_time(document.time), pools)


def _make_pool(pool: _Pool, now: int) -> tuple[Pool, Sequence[OddRow]]:
    """Return a pool, and its scans that are not understood, each after the name of the pool."""
    groups = {
        "data": pool.vdevs,
        "special": pool.special,
        "dedup": pool.dedup,
        "logs": pool.logs,
        "cache": pool.l2cache,
        "spares": pool.spares,
    }
    vdevs = [
        vdev
        for group, rows in groups.items()
        for row in rows.values()
        for vdev in _make_vdevs(row, group)
    ]
    scans = _make_scans(pool.scan_stats, now) if pool.scan_stats else Rows[Scan]()
    made = Pool(
        pool.name,
        pool.state,
        tuple(vdevs),
        tuple(scans),
        tuple(row.text for row in scans.odd),
        error_count=pool.error_count,
        damaged_files=() if isinstance(pool.errlist, str) else pool.errlist,
        status=" ".join(pool.status.split()),
        action=" ".join(pool.action.split()),
    )
    return made, [make_odd_row(f"{pool.name}: {row.text}", row.reason) for row in scans.odd]


def _make_vdevs(row: _Vdev, group: str) -> Iterator[Vdev]:
    note = f"was {row.was}" if row.was else row.aux.lower().replace("_", " ")
    yield Vdev(
        row.name,
        _STATES.get(row.state, row.state),
        row.read_errors,
        row.write_errors,
        row.checksum_errors,
        "" if note == "none" else note,
        group,
        is_leaf=not row.vdevs,
    )
    for child in row.vdevs.values():
        yield from _make_vdevs(child, group)


def _make_scans(stats: _Scan, now: int) -> Rows[Scan]:
    is_resilver = _KINDS.get(stats.function) == "resilver"
    # zpool's text has the later of the last resilver and the last rebuild.
    since = stats.end_time if is_resilver else 0
    rebuilds = [
        each
        for each in stats.rebuild_stats.values()
        if each.state == "ACTIVE" or each.end_time > since
    ]
    made = [_make_last_scan(stats, now), *map(_make_rebuild, rebuilds)]
    if stats.err_scrub_state == "ERRORSCRUBBING":
        made.insert(1, _make_error_scrub(stats))
    return Rows(
        (each for each in made if isinstance(each, Scan)),
        (each for each in made if isinstance(each, OddRow)),
    )


def _make_last_scan(stats: _Scan, now: int) -> Scan | OddRow | None:
    kind = _KINDS.get(stats.function)
    if stats.function in _NO_SCANS:
        return None
    if kind and stats.state == "SCANNING":
        return _make_running_scan(stats, kind, now)
    if kind is None or stats.state not in _ENDS:
        return make_odd_row(f"{stats.function} {stats.state}", "it is no known scan")
    return Scan(
        kind,
        _ENDS[stats.state],
        _convert_time(stats.end_time),
        seconds_taken=max(0, stats.end_time - stats.start_time),
        repaired=stats.processed,
        errors=stats.errors,
    )


def _make_rebuild(rebuild: _Rebuild) -> Scan | OddRow:
    """Make a sequential resilver, which ZFS calls a rebuild."""
    if rebuild.state == "ACTIVE":
        return Scan(
            "resilver",
            "running",
            _convert_time(rebuild.start_time),
            percent=_compute_percent(rebuild.scanned, rebuild.to_scan),
            repaired=rebuild.rebuilt,
        )
    if rebuild.state not in _REBUILD_ENDS:
        return make_odd_row(f"rebuild {rebuild.state}", "it is no known scan")
    return Scan(
        "resilver",
        _REBUILD_ENDS[rebuild.state],
        _convert_time(rebuild.end_time),
        seconds_taken=max(0, rebuild.end_time - rebuild.start_time),
        repaired=rebuild.rebuilt,
        errors=rebuild.errors,
    )


def _make_running_scan(stats: _Scan, kind: ScanKind, now: int) -> Scan:
    """Compute the rate and the time left as zpool does for its text."""
    total = stats.to_examine - stats.skipped
    elapsed = max(1, now - stats.pass_start - stats.scrub_spent_paused)
    rate = stats.issued_bytes_per_scan // elapsed
    paused = stats.scrub_pause > 0
    left = (total - stats.issued) // rate if rate and total >= stats.issued else None
    return Scan(
        kind,
        "paused" if paused else "running",
        _convert_time(stats.scrub_pause if paused else stats.start_time),
        percent=_compute_percent(stats.issued, total),
        rate=None if paused else rate,
        seconds_left=None if paused else left,
        repaired=stats.processed,
    )


def _make_error_scrub(stats: _Scan) -> Scan:
    paused = stats.err_scrub_pause > 0
    return Scan(
        "error scrub",
        "paused" if paused else "running",
        _convert_time(stats.err_scrub_pause if paused else stats.err_scrub_start_time),
        percent=_compute_percent(
            stats.err_scrub_examined, stats.err_scrub_to_examine + stats.err_scrub_examined
        ),
    )


def _compute_percent(part: int, total: int) -> float:
    return 100 * part / total if total > 0 else 0.0


def _convert_time(since_1970: int) -> datetime:
    return datetime.fromtimestamp(since_1970, UTC)
