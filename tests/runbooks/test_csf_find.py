from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from bot.cli.runbook_kit.hostile_values import HOSTILE_ADDRESSES
from connectors import csf_grep
from connectors.csf_grep import CsfMatch
from tests.runbooks.declared import load_check
from tests.scripted_fleet import ScriptedFleet

FindInCsf = load_check("csf find")

ANSWERS = Path(__file__).parent.parent / "connectors" / "answers"
FIND = FindInCsf.model_validate({"host": "web1", "address": "198.51.100.7"})
RULE = CsfMatch("filter ALLOWIN", "ACCEPT 198.51.100.7 to 0.0.0.0/0")
ALLOWED = CsfMatch("csf.allow", "198.51.100.7 # x")
DENIED = CsfMatch("csf.deny", "198.51.100.7 # y")


def test_csf_find_searches_one_address():
    answer = (ANSWERS / "csf-grep-rules.txt").read_text()
    fleet = ScriptedFleet({("web1", "/usr/sbin/csf -g 198.51.100.7"): answer})
    assert FIND.read(fleet.run_query) == csf_grep.parse_matches(answer)
    report = FIND.report(FIND.read(fleet.run_query))
    assert report.summary == (
        "web1 has 198.51.100.7 in filter ALLOWIN, filter ALLOWOUT, csf.allow"
    )
    assert report.table
    assert len(report.table.rows) == 9


@pytest.mark.parametrize(
    ("finds", "findings"),
    [
        ([RULE, ALLOWED], 0),
        ([CsfMatch("set chain_ALLOW", "198.51.100.7"), ALLOWED], 0),
        ([ALLOWED], 1),
        ([RULE, ALLOWED, DENIED], 1),
    ],
)
def test_csf_find_reports_entries_and_rules_that_differ(finds: Sequence[CsfMatch], findings: int):
    assert len(FIND.report(finds).findings) == findings


def test_csf_find_reports_an_address_without_entries():
    assert FIND.report([]).summary == "csf on web1 has no entry for 198.51.100.7"


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_csf_find_refuses_an_invalid_address_before_anything_is_sent(address: object):
    with pytest.raises(ValidationError):
        FindInCsf.model_validate({"host": "web1", "address": address})
