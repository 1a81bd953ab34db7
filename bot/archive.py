"""The change log for archives: an entry as a line of JSON, of CSV and of syslog. Pure.

CSV is as in RFC 4180. A spreadsheet takes a cell that begins with = + - @, a tab or a carriage
return for a formula: such a cell begins with an apostrophe instead. Syslog is as in RFC 5424.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

COLUMNS = ("seq", "at", "kind", "run", "person", "host", "body", "prev", "hash", "signature")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Facility 13, log audit; severity 5, notice.
_PRIORITY = 13 * 8 + 5
# No number is registered for Keyturn: this one stands for examples (RFC 5612).
_ID = "keyturn@32473"
_UNPRINTABLE = re.compile(r"[^!-~]+")


def as_json(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, ensure_ascii=False) + "\n"


def csv_line(cells: Sequence[object]) -> str:
    """Return one record and its end: quoted where it must be, and never a formula."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow([_harmless(cell) for cell in cells])
    return line.getvalue()


def as_csv(entry: Mapping[str, Any]) -> str:
    known = dict(entry) | {"at": _iso(entry["at"])}
    return csv_line([known[name] for name in COLUMNS])


def as_syslog(entry: Mapping[str, Any], machine: str) -> str:
    """Return one line. machine: which one says it. What is said of the entry is JSON in ASCII."""
    kind = _UNPRINTABLE.sub("-", entry["kind"])[:32] or "-"
    named = ("seq", "run", "person", "host", "prev", "hash", "signature")
    data = " ".join(f'{name}="{_escaped(entry[name])}"' for name in named)
    said = json.dumps(json.loads(entry["body"]))
    origin = _UNPRINTABLE.sub("-", machine)[:255] or "-"
    return f"<{_PRIORITY}>1 {_iso(entry['at'])} {origin} keyturn - {kind} [{_ID} {data}] {said}\n"


def _harmless(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULA):
        return f"'{cell}"
    return "" if cell is None else cell


def _escaped(value: object) -> str:
    text = "" if value is None else str(value)
    return re.sub(r'(["\\\]])', r"\\\1", text).replace("\n", " ")


def _iso(at: int) -> str:
    return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
