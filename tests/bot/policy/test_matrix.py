"""The policy as a matrix: the rulings in few rows that hold for every host and runbook."""

import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from bot.cli.policy_page import render_html, render_text
from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy import Policy, PolicyDirectory
from bot.policy.matrix import PeopleGroup, PolicyMatrix, PolicyProbe, RequestKind, build_matrix
from tests.bot.restricted_view import restricted_rules
from tests.policies import get_starter_rules, write_policy

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
ALL = list_runbook_info()
NO_ONE = "no one under the current policy"


def build(tmp_path: Path, more: str = "", *, instead: str = "", person: str = "") -> PolicyMatrix:
    return build_matrix(_policy(tmp_path, more, instead), ALL, now=NOW, person=person)


def _policy(tmp_path: Path, more: str = "", instead: str = "") -> Policy:
    return write_policy(tmp_path, rules=instead or get_starter_rules() + more).get_policy()


def get_group(matrix: PolicyMatrix, person: str) -> PeopleGroup:
    return next(group for group in matrix.groups if person in group.people)


def list_answers(matrix: PolicyMatrix, person: str) -> list[tuple[str, str, str]]:
    return [(one.what, one.where, one.sentence) for one in get_group(matrix, person).rights]


def list_refused(matrix: PolicyMatrix, person: str) -> list[tuple[str, str]]:
    return [
        (one.what, one.where)
        for one in get_group(matrix, person).rights
        if one.answer == "refused"
    ]


def test_policy_matrix_of_a_developer_lists_checks_and_changes_by_area(tmp_path: Path):
    matrix = build(tmp_path)
    approvals = [
        ("the edge", "1 approval from the owners of the edge: Adam Admin or Olga Owner"),
        ("the web servers", "1 approval from the owners of the web servers: Olga Owner"),
        ("storage", "1 approval from the owners of storage: Stan Storage"),
    ]
    assert list_answers(matrix, "dora") == [
        ("every check", "everywhere", "may"),
        *(("every reversible change", *one) for one in approvals),
        *(("every irreversible change", *one) for one in approvals),
    ]
    rights = get_group(matrix, "dora").rights[1]
    name = "developers request, owners approve"
    note = "Developers may request any change; an owner of the area approves it."
    assert (name, note) in rights.rules
    assert not any(one.can_approve for one in get_group(matrix, "dora").rights)


def test_policy_matrix_of_an_owner_lists_reversible_changes_without_approval(tmp_path: Path):
    matrix = build(tmp_path)
    mine = ("every reversible change", "the edge and the web servers", "may")
    assert mine in list_answers(matrix, "olga")
    other = "1 approval from the owners of storage: Stan Storage"
    assert ("every reversible change", "storage", other) in list_answers(matrix, "olga")
    approving = {
        (one.what, one.where) for one in get_group(matrix, "olga").rights if one.can_approve
    }
    assert approving == {
        mine[:2],
        ("every irreversible change", "the edge"),
        ("every irreversible change", "the web servers"),
    }
    glass = {one.what for one in get_group(matrix, "olga").rights if one.can_break_glass}
    assert glass == {"every reversible change"}
    assert get_group(matrix, "olga").orders[0] == "stop everything"


def test_policy_matrix_reports_a_change_that_nobody_can_approve(tmp_path: Path):
    lonely = [
        (one.what, one.where, one.sentence)
        for one in get_group(build(tmp_path), "stan").rights
        if not one.has_enough_approvers
    ]
    sentence = f"1 approval from the owners of storage: {NO_ONE}"
    assert lonely == [("every irreversible change", "storage", sentence)]


def test_policy_matrix_reports_areas_with_too_few_approvers(tmp_path: Path):
    rules = (
        '@id("x") @approvals("2") @from("owners") permit (principal, action == Action::"request",'
        ' resource) when { context.kind == "change" };'
        '@id("y") permit (principal, action == Action::"approve", resource);'
        '@id("z") permit (principal, action == Action::"view", resource);'
    )
    matrix = build(tmp_path, instead=rules)
    short = [one for one in get_group(matrix, "dora").rights if not one.has_enough_approvers]
    assert {one.where for one in short} == {"the web servers", "storage"}
    assert all(one.sentence.endswith(", too few under the current policy") for one in short)
    mine = [one for one in get_group(matrix, "olga").rights if not one.has_enough_approvers]
    assert "the edge" in {one.where for one in mine}


def test_ruling_lists_its_rules_in_file_order(tmp_path: Path):
    more = "".join(
        f'@id("{name}") permit (principal in Role::"developer", action == Action::"request",'
        " resource)"
        ' when { context.kind == "check" };'
        for name in ("zoe", "anna", "mia", "bob", "kim", "lea")
    )
    policy = _policy(tmp_path, more)
    probe = PolicyProbe(policy, ALL, NOW)
    request = probe.build_request("dora", ("lb1", RequestKind("abusers show", "check")))
    names = {tuple(policy.get_request_ruling(request).rules) for _ in range(20)}
    assert names == {("checks need no approval", "zoe", "anna", "mia", "bob", "kim", "lea")}


def test_policy_matrix_groups_people_with_the_same_rights(tmp_path: Path):
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(
        people.read_text()
        + "  dave: {name: Dave Developer, roles: [developer]}\n"
        + "  erin: {name: Erin, roles: [developer, oncall]}\n"
        + "  gus: {name: Gus Guest}\n"
    )
    matrix = build_matrix(directory.get_policy(), ALL, now=NOW)
    together = get_group(matrix, "dora")
    assert list(together.people) == ["dave", "dora", "erin"]
    assert together.roles == ["developer"]
    assert get_group(matrix, "gus").roles == []
    refused = [(f"every {noun} change", "everywhere") for noun in ("reversible", "irreversible")]
    assert list_refused(matrix, "gus") == refused
    cells = {row.what: [one.answer for one in row.cells] for row in matrix.rows}
    assert cells["every check"] == ["allowed"] * len(matrix.groups)


def test_policy_matrix_lists_a_person_named_by_a_rule_alone(tmp_path: Path):
    directory = write_policy(
        tmp_path,
        rules=get_starter_rules()
        + '@id("not dave") forbid (principal == Person::"dave",'
        + ' action == Action::"request", resource);',
    )
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text() + "  dave: {name: Dave, roles: [developer]}\n")
    matrix = build_matrix(directory.get_policy(), ALL, now=NOW)
    assert list(get_group(matrix, "dora").people) == ["dora"]
    kinds = ("check", "reversible change", "irreversible change")
    assert list_refused(matrix, "dave") == [(f"every {kind}", "everywhere") for kind in kinds]
    assert get_group(matrix, "dave").rights[0].rules[0] == ("not dave", "not dave")


@pytest.mark.parametrize(
    ("when", "refused"),
    [
        (
            'context.runbook == "service restart"',
            [("“service restart” (irreversible change)", "everywhere")],
        ),
        (
            'context.runbook == "abusers show" || context.runbook == "uptime check"',
            [("“abusers show” and “uptime check”", "everywhere")],
        ),
        (
            'context.kind == "change" && context.runbook != "service restart"',
            [
                ("every reversible change", "everywhere"),
                ("every other irreversible change", "everywhere"),
            ],
        ),
        (
            'resource.tags.contains("zfs") && context.kind == "change" && !context.reversible',
            [("every irreversible change", "storage")],
        ),
        (
            'resource == Host::"lb2" && context.kind == "check"',
            [("every check", "lb2")],
        ),
    ],
)
def test_policy_matrix_names_runbooks_and_hosts_briefly(
    tmp_path: Path, when: str, refused: list[tuple[str, str]]
):
    more = (
        '@id("x") forbid (principal in Role::"developer", action == Action::"request", resource)'
        f" when {{ {when} }};"
    )
    assert list_refused(build(tmp_path, more, person="dora"), "dora") == refused


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ('context.source == "schedule"', "the source of the request"),
        ("context.hour < 6 || context.hour >= 22", "the time of day"),
        ('context.weekday == "sat" || context.weekday == "sun"', "the day of the week"),
        ("context.hosts > 3", "the number of hosts"),
        ("context.first_time", "earlier runs of the requester"),
        ("context.frozen", "freezes"),
        ('context.now < datetime("2027-01-01T00:00:00Z")', "the date"),
    ],
)
def test_policy_matrix_lists_rules_that_depend_on_more(tmp_path: Path, when: str, words: str):
    more = (
        '@id("x") forbid (principal in Role::"developer", action == Action::"request", resource)'
        f' when {{ context.kind == "change" && ({when}) }};'
    )
    matrix = build(tmp_path, more, person="dora")
    found = {one.name: one for one in matrix.conditional_rules}
    assert found["x"].depends_on == [words]
    assert when in found["x"].text
    assert "checks need no approval" not in found
    assert f"x: depends on {words}." in render_text(matrix)


def test_policy_matrix_lists_the_annotations_of_a_rule(tmp_path: Path):
    rules = """
        @id("two") @approvals("2") @from("owners & role:administrator") @stepup @hosts("3")
        @reason("required") @remind("15m") @escalate("role:administrator")
        @description("Two approvals.")
        permit (principal in Role::"developer", action == Action::"request", resource);
        @id("all") permit (principal, action == Action::"approve", resource);
    """
    matrix = build(tmp_path, instead=rules)
    rights = get_group(matrix, "dora").rights[0]
    assert (rights.required_approvals, rights.label) == (2, "2 approvals")
    assert rights.approvals_from == (
        "the owners of the edge and people with the administrator role, one of each"
    )
    assert rights.notes == (
        "requests and approvals need a reason",
        "approvals need a second factor, on the web pages",
        "approvers are reminded after 15 min",
        "without a decision, people with the administrator role may also approve after 30 min",
        "at most 3 hosts per request",
    )


def test_policy_matrix_works_without_hosts(tmp_path: Path):
    directory = write_policy(tmp_path)
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n")
    matrix = build_matrix(directory.get_policy(), ALL, now=NOW)
    assert ("every check", "everywhere", "may") in list_answers(matrix, "dora")
    assert {row.where for row in matrix.rows} >= {"storage", "the edge"}
    assert [area.description for area in matrix.areas] == ["no hosts yet"] * 3


def test_policy_matrix_of_one_person_equals_their_part_of_the_whole(tmp_path: Path):
    everyone = build(tmp_path)
    for person in ("dora", "olga", "stan"):
        alone = build(tmp_path, person=person)
        assert [list(group.people) for group in alone.groups] == [[person]]
        assert get_group(alone, person) == get_group(everyone, person)


@pytest.mark.parametrize(
    ("condition", "request_groups"),
    [
        ('context.runbook like "abusers *"', len(ALL) + sum(bool(one.undo) for one in ALL)),
        ('context.runbook == "abusers clear"', 5),
        ('["abusers clear", "zfs set"].contains(context.runbook)', 7),
        ('context.runbook != "abusers clear" && context.runbook != "abusers show"', 6),
    ],
)
def test_policy_matrix_groups_have_the_same_ruling_for_every_member(
    tmp_path: Path, condition: str, request_groups: int
):
    """The ruling on one of a group is the ruling on each of them."""
    policy = _policy(
        tmp_path,
        'forbid (principal, action == Action::"request", resource == Host::"lb2")'
        f' when {{ {condition} && principal in Role::"developer" }};',
    )
    probe = PolicyProbe(policy, ALL, NOW)
    for representative, people in probe.people.items():
        for (host, kind), ruling in probe.rulings[representative].items():
            alike = set(product(people, probe.hosts[host], probe.requests[kind]))
            for person, other, request_kind in alike - {(representative, host, kind)}:
                request = probe.build_request(person, (other, request_kind))
                assert policy.get_request_ruling(request).allowed == ruling.allowed
    assert len(probe.hosts) == 4
    assert len(probe.requests) == request_groups
    assert sum(map(len, probe.requests.values())) == len(_list_request_kinds(ALL))


def _list_request_kinds(runbooks: list[RunbookInfo]) -> list[RequestKind]:
    both = [one for one in runbooks if one.undo]
    return [RequestKind(one.name, one.kind) for one in [*runbooks, *both]]


@pytest.mark.parametrize(
    ("freeze", "holds", "begins"),
    [
        ('from: "2026-03-01 00:00", until: "2026-03-09 00:00"', True, "2026-03-01 00:00"),
        ('from: "2026-04-01 00:00", until: "2026-04-09 00:00"', False, "2026-04-01 00:00"),
        ('days: [fri], from: "18:00", until: "08:00"', False, "2026-03-06 18:00"),
        ('days: [wed], from: "09:00", until: "11:00"', True, "2026-03-04 09:00"),
        ('days: [wed], from: "08:00", until: "09:00"', False, "2026-03-11 08:00"),
        ('days: [tue], from: "12:00", until: "11:00"', True, "2026-03-03 12:00"),
    ],
)
def test_policy_matrix_lists_current_and_future_freezes(
    tmp_path: Path, freeze: str, holds: bool, begins: str
):
    directory = write_policy(tmp_path)
    (tmp_path / "freezes.yaml").write_text(f"freezes:\n  - {{name: x, {freeze}}}\n")
    (frost,) = directory.get_policy().list_freeze_periods(NOW)
    assert (frost.is_active, f"{frost.begins_at:%Y-%m-%d %H:%M}") == (holds, begins)


def test_policy_matrix_omits_freezes_that_have_ended(tmp_path: Path):
    directory = write_policy(tmp_path)
    (tmp_path / "freezes.yaml").write_text(
        'freezes:\n  - {name: x, from: "2026-03-01 00:00", until: "2026-03-02 00:00"}\n'
    )
    assert directory.get_policy().list_freeze_periods(NOW) == []


def test_policy_matrix_is_rendered_as_text_html_and_data(tmp_path: Path):
    people = (tmp_path / "people.yaml").resolve()
    directory: PolicyDirectory = write_policy(tmp_path)
    people.write_text(people.read_text() + "  eve: {name: <script>alert(1)</script>}\n")
    matrix = build_matrix(directory.get_policy(), ALL, now=NOW)
    text = render_text(matrix)
    assert "- Every check, everywhere: may. Requests of others: view." in text
    assert max(map(len, text.splitlines())) <= 100
    page = render_html(matrix)
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    data = json.loads(json.dumps(matrix.to_data))
    assert data["groups"][0]["rights"][0]["what"] == "every check"


def test_policy_matrix_shows_who_can_view_which_runs(tmp_path: Path):
    matrix = build(tmp_path, instead=restricted_rules())
    seen = {one.where for one in get_group(matrix, "dora").rights if one.can_view}
    assert seen == {"the web servers"}
    assert all(one.can_view for one in get_group(matrix, "olga").rights)
    (check,) = [
        one
        for one in get_group(matrix, "dora").rights
        if one.can_view and one.what == "every check"
    ]
    assert "developers view the web servers" in dict(check.rules)
    none = build(tmp_path, instead=restricted_rules(""))
    assert not any(one.can_view for one in get_group(none, "dora").rights)
    assert "Requests of others: none." in render_text(none)
