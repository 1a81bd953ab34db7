"""Policy lint: probable typing errors in a valid policy are reported as warnings."""

from pathlib import Path

import pytest

from bot.policy.lint import list_warnings
from bot.policy.loader import load_policy
from tests.bot.restricted_view import restricted_rules
from tests.policies import get_starter_rules, write_policy

RUNBOOKS = ("abusers clear", "abusers show", "zfs scrub")
FREEZE = """freezes:
  - {name: fair, from: "2026-12-20 18:00", until: "2027-01-04 08:00", but: ["%s"]}
"""


def _lint_after_edit(directory: Path, file: str, was: str, instead: str) -> list[str]:
    path = write_policy(directory / "policy").path / file
    text = path.read_text() if path.exists() else ""
    assert was in text
    path.write_text(text.replace(was, instead, 1) if was else instead)
    return [*map(str, list_warnings(load_policy(path.parent), RUNBOOKS))]


@pytest.mark.parametrize(
    ("file", "was", "instead", "says"),
    [
        ("policy.cedar", 'context.kind == "check"', 'context.runbook == "abuser clear"',
         'rule "checks need no approval": unknown runbook "abuser clear": did you mean "abusers'),
        ("policy.cedar", 'context.kind == "check"', '["zfs scrap"].contains(context.runbook)',
         'unknown runbook "zfs scrap": did you mean "zfs scrub"?'),
        ("freezes.yaml", "", FREEZE % "abuser *", 'freezes.yaml: fair: no runbook matches'),
        ("people.yaml", "roles: [developer]", "roles: [developer, develper]",
         'the role develper, which no rule uses: did you mean "developer"?'),
    ],
)  # fmt: skip
def test_policy_lint_reports_a_typing_error_with_a_suggestion(
    tmp_path: Path, file: str, was: str, instead: str, says: str
):
    warnings = _lint_after_edit(tmp_path, file, was, instead)
    assert len(warnings) == 1
    assert says in warnings[0]


def test_policy_lint_names_the_line_of_the_rule(tmp_path: Path):
    line = next(
        n
        for n, text in enumerate(get_starter_rules().splitlines(), 1)
        if 'kind == "check"' in text
    )
    [warning] = _lint_after_edit(
        tmp_path, "policy.cedar", 'context.kind == "check"', 'context.runbook == "abuser clear"'
    )
    assert warning.startswith(f"policy.cedar, line {line}: ")


@pytest.mark.parametrize(
    ("file", "was", "instead"),
    [
        ("policy.cedar", 'context.kind == "check"', 'context.runbook == "abusers clear"'),
        ("policy.cedar", 'context.kind == "check"', 'context.runbook like "zfs *"'),
        ("freezes.yaml", "", FREEZE % "abusers *"),
        ("people.yaml", "roles: [developer]", "roles: [developer, administrator]"),
    ],
)
def test_policy_lint_does_not_report_known_names(
    tmp_path: Path, file: str, was: str, instead: str
):
    assert _lint_after_edit(tmp_path, file, was, instead) == []


def _list_warnings_of_view(directory: Path, view: str) -> list[str]:
    path = write_policy(directory / "policy", rules=restricted_rules(view)).path
    return [str(slip) for slip in list_warnings(load_policy(path), RUNBOOKS)]


def test_policy_lint_reports_that_no_rule_permits_view(tmp_path: Path):
    [warning] = _list_warnings_of_view(tmp_path, "")
    assert warning.startswith('policy.cedar: no rule permits the action "view"')
    assert "Add a permit to view" in warning


def test_policy_lint_reports_an_owner_who_may_not_view_their_area(tmp_path: Path):
    warnings = _list_warnings_of_view(
        tmp_path,
        'permit (principal, action == Action::"view", resource) unless '
        '{ principal == Person::"stan" && context.runbook == "zfs scrub" };',
    )
    assert warnings == [
        "policy.cedar: stan owns storage but cannot view every run there, so cannot approve "
        "those runs: permit it in a rule, or name another owner"
    ]


def test_policy_lint_reports_nothing_in_the_starter_policy(tmp_path: Path):
    assert list_warnings(write_policy(tmp_path).get_policy(), RUNBOOKS) == []


def test_policy_lint_reports_snmp_2c_with_its_clear_text_community(tmp_path: Path):
    path = write_policy(tmp_path).path
    device = "address: 192.0.2.9, area: edge, platform: snmp, host_key: null"
    hosts = (path / "inventory.yaml").read_text()
    v3 = "{user: keyturn, auth_file: a, privacy_file: p}"
    (path / "inventory.yaml").write_text(
        f"{hosts}  pdu1: {{{device}, snmp: {{community_file: c}}}}\n"
        f"  pdu2: {{{device}, snmp: {v3}}}\n"
    )
    (warning,) = list_warnings(load_policy(path), RUNBOOKS)
    assert str(warning).startswith(
        "inventory.yaml: pdu1: SNMP 2c sends its community in clear text"
    )
