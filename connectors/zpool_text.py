"""Parser of the text of `zpool status`, of OpenZFS and zfs-fuse. No I/O.

OpenZFS prints it in cmd/zpool/zpool_main.c (status_callback and print_scan_*), a block a pool:

      pool: tank
     state: ONLINE
      scan: scrub repaired 0B in 00:00:40 with 0 errors on Sat Nov 21 08:08:44 2026
    config:

            NAME        STATE     READ WRITE CKSUM
            tank        ONLINE       0     0     0
              sdb       ONLINE       0     0     0

    errors: No known data errors

Times are in the host's time zone. zfs-fuse has a line `scrub:` instead of `scan:`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from connectors.errors import ParseError
from connectors.rows import OddRow, Rows, make_odd_row, parse_each
from connectors.zpool import Pool, Scan, ScanKind, ScanState, Vdev, parse_duration, parse_size

_NO_POOLS = "no pools available"
_BLOCK = re.compile(r"(?m)^ {1,3}pool: ")
_HEADING = re.compile(
    r" {0,4}(pool|state|status|action|comment|see|scan|scrub|remove|expand|checkpoint|dedup|config"
    r"|errors): ?(.*)"
)
_COUNT = r"[\d.]+[KMGTPE]?|-"
_VDEV = re.compile(
    rf"\t( *)(\S.*?) {{2,}}([A-Z_]+)(?: +({_COUNT}) +({_COUNT}) +({_COUNT}))?(?: +(\S.*?))? *"
)
# OpenZFS prints a tab behind dedup, special and logs, and none behind cache and spares.
_GROUP = re.compile(r"\t([a-z]+)\s*")
_LOST = re.compile(r"(\d+) data errors, use '-v' for a list")
_FILES = "Permanent errors have been detected in the following files:"

_WHICH = r"(?: \(\S+\))?"
_SCANS = ("scan", "scrub")
_NEVER = re.compile(r"none requested")
_FINISHED = re.compile(
    rf"(?P<kind>scrub repaired|resilvered){_WHICH} (?P<repaired>\S+) in (?P<took>.+) "
    r"with (?P<errors>\d+) errors on (?P<when>.+)"
)
_ENDED = re.compile(
    r"(?P<kind>scrub|resilver) (?P<state>completed|stopped) after (?P<took>\S+) "
    r"with (?P<errors>\d+) errors on (?P<when>.+)"
)
_CANCELED = re.compile(rf"(?P<kind>(?:error )?scrub|resilver){_WHICH} canceled on (?P<when>.+)")
_GOING = re.compile(
    rf"(?P<kind>(?:error )?scrub|resilver){_WHICH} "
    r"(?:in progress (?:since (?P<since>.+)|for (?P<took>\S+), (?P<rest>.+))"
    r"|paused since (?P<paused>.+))"
)
_ERRORS_SCRUBBED = re.compile(r"scrubbed \d+ error blocks in (?P<took>.+) on (?P<when>.+)")
_PERCENT = re.compile(r"(\d+\.\d+)% done")
_REPAIRED = re.compile(r"([\d.]+[BKMGTPE]?) (?:repaired|resilvered),")
_BESIDE = re.compile(r"(\S+) (?:repaired|resilvered)")
_RATES = (
    re.compile(r"issued at (\S+)/s"),
    re.compile(r"scanned at (\S+)/s"),
    re.compile(r"scanned out of \S+ at (\S+)/s"),
)
_LEFT = re.compile(r", ((?:\d+ days? )?[\d:hm]+) to go")


def parse_pools(answer: str) -> Rows[Pool]:
    """Parse `zpool status`, of one pool or of all."""
    text = answer.strip("\n")
    if text in ("", _NO_POOLS):
        return Rows()
    before, *blocks = _BLOCK.split(text)
    if before.strip() or not blocks:
        raise ParseError(f"zpool status printed {text[:200]!r} instead of a pool")
    pools = parse_each(blocks, _parse_pool)
    return Rows(
        (pool for pool, _ in pools), [*pools.odd, *(row for _, odd in pools for row in odd)]
    )


def _parse_pool(block: str) -> tuple[Pool, Sequence[OddRow]]:
    """Return a pool, and its rows that are not understood, each after the name of the pool."""
    name, *lines = block.split("\n")
    parts = list(_split_sections(lines))
    known = dict(parts)
    if "state" not in known or "config" not in known:
        raise ParseError("the pool was cut off: try again")
    vdevs = _parse_vdevs(known["config"][1:])
    sections = [(heading, section) for heading, section in parts if heading in _SCANS]
    scans = parse_each(
        ["\n".join([f"{heading}: {first}", *more]) for heading, (first, *more) in sections],
        lambda printed: _parse_scan(printed, vdevs),
    )
    files = _parse_files(known.get("errors"))
    pool = Pool(
        name.strip(),
        known["state"][0].strip(),
        vdevs,
        scans,
        tuple(row.text for row in scans.odd),
        error_count=len(files) if files else _parse_errors(known.get("errors")),
        damaged_files=files,
        status=_join_lines(known.get("status", ())),
        action=_join_lines(known.get("action", ())),
    )
    # The name of the pool shows which pool the row is about.
    odd = [*vdevs.odd, *scans.odd]
    return pool, [make_odd_row(f"{pool.name}: {row.text}", row.reason) for row in odd]


def _split_sections(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each heading with its lines; the first is the rest of the heading's own line."""
    heading, section = "", list[str]()
    for line in lines:
        if found := _HEADING.fullmatch(line):
            yield heading, section
            heading, section = found[1], [found[2]]
        elif line.strip():
            section.append(line)
    yield heading, section


def _join_lines(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


def _parse_errors(lines: Sequence[str] | None) -> int | None:
    first = lines[0] if lines else ""
    if first == "No known data errors":
        return 0
    found = _LOST.fullmatch(first)
    return int(found[1]) if found else None


def _parse_files(lines: Sequence[str] | None) -> tuple[str, ...]:
    if not lines or lines[0] != _FILES:
        return ()
    return tuple(line.strip() for line in lines[1:])


def _parse_vdevs(lines: Sequence[str]) -> Rows[Vdev]:
    """Return all rows; a row is a leaf unless a deeper one follows it."""
    if not lines or lines[0].split()[:2] != ["NAME", "STATE"]:
        raise ParseError("zpool status printed no table of devices")
    group, placed = "data", list[tuple[str, str]]()
    for line in lines[1:]:
        if found := _GROUP.fullmatch(line):
            group = found[1]
        else:
            placed.append((line, group))
    rows = parse_each(placed, lambda part: _parse_vdev(*part))
    depths = [depth for depth, _ in rows]
    vdevs = (
        replace(vdev, is_leaf=following <= depth)
        for (depth, vdev), following in zip(rows, [*depths[1:], 0], strict=True)
    )
    return Rows(vdevs, rows.odd)


def _parse_vdev(line: str, group: str) -> tuple[int, Vdev]:
    found = _VDEV.fullmatch(line)
    if found is None:
        raise ParseError("it is no device of a pool")
    indent, name, state, *counts, note = found.groups()
    read, write, checksum = (0 if count in (None, "-") else parse_size(count) for count in counts)
    return len(indent), Vdev(name, state, read, write, checksum, note or "", group)


def _parse_scan(printed: str, vdevs: Sequence[Vdev]) -> Scan | None:
    heading, _, section = printed.partition(":")
    scan = _parse_scan_lines(section[1:].split("\n"))
    if scan is None or heading == "scan" or scan.kind == "error scrub":
        return scan
    # zfs-fuse prints the repaired bytes beside each disk, such as `147M repaired`.
    found = (_BESIDE.fullmatch(vdev.note) for vdev in vdevs if vdev.is_leaf)
    return replace(scan, repaired=sum(parse_size(note[1]) for note in found if note))


def _parse_scan_lines(lines: Sequence[str]) -> Scan | None:
    first, text = lines[0], " ".join(line.strip() for line in lines)
    if _NEVER.fullmatch(first):
        return None
    if found := _FINISHED.fullmatch(first):
        kind: ScanKind = "scrub" if found["kind"].startswith("scrub") else "resilver"
        return _make_ended_scan(found, kind, "finished", parse_size(found["repaired"]))
    if found := _ENDED.fullmatch(first):
        state: ScanState = "finished" if found["state"] == "completed" else "stopped"
        return _make_ended_scan(found, _parse_kind(found["kind"]), state, None)
    if found := _CANCELED.fullmatch(first):
        return Scan(_parse_kind(found["kind"]), "stopped", _parse_time(found["when"]))
    if found := _ERRORS_SCRUBBED.fullmatch(first):
        return Scan(
            "error scrub",
            "finished",
            _parse_time(found["when"]),
            seconds_taken=parse_duration(found["took"]),
        )
    if found := _GOING.fullmatch(first):
        return _make_running_scan(found, text)
    raise ParseError("it is no known scan")


def _make_ended_scan(
    found: re.Match[str], kind: ScanKind, state: ScanState, repaired: int | None
) -> Scan:
    return Scan(
        kind,
        state,
        _parse_time(found["when"]),
        seconds_taken=parse_duration(found["took"]),
        repaired=repaired,
        errors=int(found["errors"]),
    )


def _make_running_scan(found: re.Match[str], text: str) -> Scan:
    when = found["paused"] or found["since"]
    percent, repaired, left = (pattern.search(text) for pattern in (_PERCENT, _REPAIRED, _LEFT))
    rate = next((rate for pattern in _RATES if (rate := pattern.search(text))), None)
    return Scan(
        _parse_kind(found["kind"]),
        "paused" if found["paused"] else "running",
        _parse_time(when) if when else None,
        percent=float(percent[1]) if percent else None,
        rate=parse_size(rate[1]) if rate else None,
        seconds_left=parse_duration(left[1]) if left else None,
        repaired=parse_size(repaired[1]) if repaired else None,
    )


def _parse_kind(word: str) -> ScanKind:
    if word == "error scrub":
        return "error scrub"
    return "scrub" if word == "scrub" else "resilver"


def _parse_time(text: str) -> datetime:
    """Parse a time as C's ctime prints it, in the host's time zone."""
    try:
        return datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y")  # noqa: DTZ007 - as said
    except ValueError:
        raise ParseError(f"zpool status printed {text[:40]!r} instead of a date") from None
