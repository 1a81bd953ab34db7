"""The change log as CSV that spreadsheets do not execute, as RFC 5424 syslog, and as OCSF."""

import csv
import io
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.queries import log_formats

ENTRY: dict[str, Any] = {
    "seq": 7,
    "at": 1_772_375_405_000_001,
    "kind": "step succeeded",
    "run": None,
    "person": "dora",
    "host": 'we"b]1\\',
    "body": '{"why":"☃\\nsecond line"}',
    "hash": "1" * 64,
}


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cell_that_begins_like_a_formula_is_escaped(begin: str):
    (row,) = csv.reader(
        io.StringIO(log_formats.format_csv_row([f"{begin}1+1", "x=1"]), newline="")
    )
    assert row == [f"'{begin}1+1", "x=1"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_csv_row_is_read_back_unchanged_and_never_begins_a_formula(cells: list[str]):
    line = log_formats.format_csv_row(["first", *cells])
    assert line.endswith("\r\n")
    (row,) = csv.reader(io.StringIO(line, newline=""))
    assert [cell.removeprefix("'") for cell in row[1:]] == [c.removeprefix("'") for c in cells]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)


def test_archive_csv_row_has_a_cell_for_each_column():
    (row,) = csv.reader(io.StringIO(log_formats.format_archive_csv(ENTRY), newline=""))
    cells = dict(zip(log_formats.ARCHIVE_COLUMNS, row, strict=True))
    assert (cells["at"], cells["run"]) == ("2026-03-01T14:30:05.000001Z", "")
    assert json.loads(cells["body"]) == {"why": "☃\nsecond line"}


def test_archive_syslog_entry_is_one_line_of_rfc_5424():
    line = log_formats.format_archive_syslog(ENTRY, "bastion 1")
    # RFC 5424: header, structured data with " \ ] escaped, and then what is said.
    form = (
        r"<109>1 2026-03-01T14:30:05\.000001Z bastion-1 keyturn - step-succeeded "
        r'\[keyturn@32473( \w+="(?:[^"\\\]]|\\["\\\]])*")+\] (?P<said>[\x20-\x7e]*)\n'
    )
    match = re.fullmatch(form, line)
    assert match
    assert 'host="we\\"b\\]1\\\\"' in line
    assert json.loads(match["said"]) == {"why": "☃\nsecond line"}


# What OCSF 1.2.0 requires of api_activity, and of its objects: events/application/api.json,
# events/base_event.json, objects/*.json and dictionary.json of github.com/ocsf/ocsf-schema.
_REQUIRED = {
    *("activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"),
    *("actor", "api", "src_endpoint"),
}
_KNOWN = _REQUIRED | {"activity_name", "resources", "status", "status_id", "unmapped"}


@pytest.mark.parametrize(
    ("kind", "body", "severity", "status"),
    [
        ("succeeded", '{"summary":"Verified"}', 1, 1),
        ("no_changes", "{}", 1, 1),
        ("failed", "{}", 3, 2),
        ("step succeeded", '{"step":1}', 1, None),
        ("of another version", "not JSON", 1, None),
    ],
)
def test_archive_ocsf_entry_has_what_the_schema_requires(
    kind: str, body: str, severity: int, status: int | None
):
    line = log_formats.format_archive_ocsf(
        {**ENTRY, "kind": kind, "body": body, "run": 4}, "bastion"
    )
    assert line.count("\n") == 1
    event = json.loads(line)
    assert _REQUIRED <= event.keys() <= _KNOWN
    assert event["class_uid"] // 1000 == event["category_uid"]
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
    assert (event["severity_id"], event.get("status_id")) == (severity, status)
    assert (event["time"], event["activity_name"]) == (1_772_375_405_000, kind)
    assert event["metadata"].keys() >= {"version", "product"}
    assert (event["metadata"]["sequence"], event["api"]["operation"]) == (7, kind)
    assert event["actor"] == {"user": {"uid": "dora", "name": "dora"}}
    assert [one["type"] for one in event["resources"]] == ["host", "run"]


def test_archive_ocsf_entry_of_keyturn_itself_has_no_user():
    line = log_formats.format_archive_ocsf({**ENTRY, "person": "", "host": ""}, "bastion")
    event = json.loads(line)
    assert (event["actor"], event["resources"]) == ({"app_name": "Keyturn"}, [])
    assert event["unmapped"] == {"why": "☃\nsecond line"}
