"""Entries of the change log as text, JSON, CSV, OCSF and syslog lines."""

import csv
import io
import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from bot.audit import change_log
from bot.audit.change_log import Entry
from bot.audit.checkpoints import parse_note
from bot.audit.event_type import parse_event, parse_facts
from bot.audit.events import RUN_ENDS
from bot.db import cosignatures, outputs
from bot.db.database import Transaction
from bot.model.run import State
from bot.model.run_states import Tone
from bot.model.times import format_iso

T = TypeVar("T")


def format_entry_as_json(entry: Entry) -> str:
    """Return the entry as one JSON object, with its facts instead of its body."""
    members = {name: value for name, value in vars(entry).items() if name != "body"}
    readable = {"at": format_iso(entry.at), "facts": entry.facts}
    return json.dumps(members | readable, ensure_ascii=False)


ARCHIVE_COLUMNS = (
    "seq",
    "at",
    "kind",
    "run",
    "person",
    "host",
    "body",
    "hash",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
# Facility 13, log audit; severity 5, notice.
_SYSLOG_PRIORITY = 13 * 8 + 5
# Keyturn has no registered enterprise number; this one is reserved for examples (RFC 5612).
_STRUCTURED_DATA_ID = "keyturn@32473"
_UNPRINTABLE = re.compile(r"[^!-~]+")


def format_archive_json(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def format_csv_row(cells: Sequence[object]) -> str:
    """Return one CSV record with its line end; cells that look like a formula are escaped."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([_escape_formula(cell) for cell in cells])
    return line.getvalue()


def format_archive_csv(entry: Mapping[str, Any]) -> str:
    known = dict(entry) | {"at": _format_iso(entry["at"])}
    return format_csv_row([known[name] for name in ARCHIVE_COLUMNS])


def format_archive_syslog(entry: Mapping[str, Any], hostname: str) -> str:
    """Return one line. hostname: of this machine. The message is the body as JSON in ASCII."""
    kind = _UNPRINTABLE.sub("-", entry["kind"])[:32] or "-"
    named = ("seq", "run", "person", "host", "hash")
    data = " ".join(f'{name}="{_escape_syslog_value(entry[name])}"' for name in named)
    message = json.dumps(json.loads(entry["body"]))
    origin = _UNPRINTABLE.sub("-", hostname)[:255] or "-"
    return (
        f"<{_SYSLOG_PRIORITY}>1 {_format_iso(entry['at'])} {origin} keyturn - {kind} "
        f"[{_STRUCTURED_DATA_ID} {data}] {message}\n"
    )


# API Activity, of the category Application Activity; what was done has a name of its own.
_OCSF_VERSION = "1.2.0"
_OCSF_CATEGORY, _OCSF_CLASS, _OCSF_OTHER = 6, 6003, 99
# By tone: Low and Medium; all others are Informational.
_OCSF_SEVERITIES = {Tone.WARNING: 2, Tone.DANGER: 3}
_OCSF_STATUSES = {
    RUN_ENDS[State.SUCCEEDED].kind: (1, "Success"),
    RUN_ENDS[State.NO_CHANGES].kind: (1, "Success"),
    RUN_ENDS[State.FAILED].kind: (2, "Failure"),
}


def format_archive_ocsf(entry: Mapping[str, Any], hostname: str) -> str:
    """Return one line, an event of https://schema.ocsf.io. hostname: of this machine.

    What OCSF has no attribute for is under `unmapped`.
    """
    kind = entry["kind"]
    event = parse_event(kind, entry["body"])
    person, host, run = entry["person"], entry["host"], entry["run"]
    service = {"name": "Keyturn"}
    resources = [{"type": "host", "name": host, "uid": host}] if host else []
    resources += [{"type": "run", "name": f"run {run}", "uid": str(run)}] if run else []
    document: dict[str, Any] = {
        "category_uid": _OCSF_CATEGORY,
        "class_uid": _OCSF_CLASS,
        "activity_id": _OCSF_OTHER,
        "activity_name": kind,
        "type_uid": _OCSF_CLASS * 100 + _OCSF_OTHER,
        "time": entry["at"] // 1000,
        "severity_id": _OCSF_SEVERITIES.get(event.get_shown().tone, 1),
        "metadata": {
            "version": _OCSF_VERSION,
            "product": {"name": "Keyturn", "vendor_name": "Keyturn"},
            "log_name": "change log",
            "sequence": entry["seq"],
            "uid": entry["hash"],
        },
        "actor": {"user": {"uid": person, "name": person}} if person else {"app_name": "Keyturn"},
        "api": {"operation": kind, "service": service},
        "src_endpoint": {"hostname": hostname or "keyturn", "svc_name": "keyturn"},
        "resources": resources,
        "unmapped": parse_facts(entry["body"]),
    }
    if status := _OCSF_STATUSES.get(kind):
        document["status_id"], document["status"] = status
    return json.dumps(document, ensure_ascii=False) + "\n"


def _escape_formula(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS):
        return f"'{cell}"
    return "" if cell is None else cell


def _escape_syslog_value(value: object) -> str:
    text = "" if value is None else str(value)
    return re.sub(r'(["\\\]])', r"\\\1", text).replace("\n", " ")


def _format_iso(at: int) -> str:
    return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def iterate_export(tx: Transaction) -> Generator[dict[str, Any]]:
    """Yield the members of every entry.

    `output` if it binds output, None once erased; `checkpoint` if one has it as its newest entry,
    and then `time_stamp`, in base64, if an authority stamped that.
    """
    outputs_of = _follow((seq, (salt, text)) for seq, salt, text in outputs.iterate_all_output(tx))
    cosigned = _follow(cosignatures.iterate_cosignatures(tx))
    stamps = _follow(cosignatures.iterate_time_stamps(tx))
    with change_log.read_rows(tx) as rows:
        for *row, note in rows:
            members: dict[str, Any] = dict(zip(ARCHIVE_COLUMNS, row, strict=True))
            seq, at, *_ = row
            for salt, text in outputs_of(seq):
                members["output"] = None if text is None else {"salt": salt, "text": text}
            if note is not None:
                point = parse_note(str(note), at)
                lines = tuple(cosigned(seq))
                members["checkpoint"] = replace(point, cosignatures=lines).note if point else ""
                for stamp in stamps(seq):
                    members["time_stamp"] = stamp
            yield members


def _follow(items: Iterator[tuple[int, T]]) -> Callable[[int], list[T]]:
    """Return a function that returns the values of a number; it is called with growing numbers."""
    ahead = next(items, None)

    def take_values(number: int) -> list[T]:
        nonlocal ahead
        found = list[T]()
        while ahead is not None and ahead[0] <= number:
            found += [ahead[1]] if ahead[0] == number else []
            ahead = next(items, None)
        return found

    return take_values
