"""The policy summary: the rulings in few sentences that hold for every host and runbook."""

import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

from bot.model.runbook_info import RunbookInfo, list_runbook_info
from bot.policy import Policy, PolicyDirectory
from bot.policy.summary import render
from bot.policy.summary.build import summarise_policy
from bot.policy.summary.model import PeopleSummary, PolicySummary
from bot.policy.summary.probes import PolicyProbe, RequestKind
from tests.bot.restricted_view import restricted_rules
from tests.policies import get_starter_rules, write_policy

NOW = datetime(2026, 3, 4, 10, 0, tzinfo=UTC)
ALL = list_runbook_info()


def summarise(
    tmp_path: Path, more: str = "", *, instead: str = "", person: str = ""
) -> PolicySummary:
    return summarise_policy(_policy(tmp_path, more, instead), ALL, now=NOW, person=person)


def _policy(tmp_path: Path, more: str = "", instead: str = "") -> Policy:
    return write_policy(tmp_path, rules=instead or get_starter_rules() + more).get_policy()


def get_people_summary(summary: PolicySummary, person: str) -> PeopleSummary:
    return next(chapter for chapter in summary.chapters if person in chapter.people)


def list_sentences(summary: PolicySummary, person: str, section: str) -> list[str]:
    return [clause.sentence for clause in getattr(get_people_summary(summary, person), section)]


def test_policy_summary_of_a_developer_lists_checks_and_changes(tmp_path: Path):
    summary = summarise(tmp_path)
    assert list_sentences(summary, "dora", "without_approval") == ["Every check, everywhere."]
    assert list_sentences(summary, "dora", "with_approval") == [
        "Every change, everywhere: 1 approval from the owners of the area.",
        "When the change leaves at most one leg of a service: every change, "
        "everywhere: 2 approvals from the owners of the area or people with the administrator "
        "role.",
    ]
    clause = get_people_summary(summary, "dora").with_approval[0]
    assert clause.approver_names == (
        "the edge: Adam Admin or Olga Owner; the web servers: Olga Owner; storage: Stan Storage"
    )
    assert clause.rules == (
        (
            "developers request, owners approve",
            "Developers may request any change; an owner of the area approves it.",
        ),
    )
    assert get_people_summary(summary, "dora").can_approve == []


def test_policy_summary_of_an_owner_lists_reversible_changes_without_approval(tmp_path: Path):
    summary = summarise(tmp_path)
    assert "Every change that can be undone, in the edge and the web servers." in list_sentences(
        summary, "olga", "without_approval"
    )
    assert "Every change, in storage: 1 approval from the owners of storage." in list_sentences(
        summary, "olga", "with_approval"
    )
    assert list_sentences(summary, "olga", "can_approve") == [
        "Every change, in the edge and the web servers."
    ]


def test_policy_summary_reports_a_change_that_nobody_can_approve(tmp_path: Path):
    lonely = [
        clause
        for clause in get_people_summary(summarise(tmp_path), "stan").with_approval
        if not clause.has_enough_approvers
    ]
    assert [(clause.sentence, clause.approver_names) for clause in lonely] == [
        (
            "Every change that cannot be undone, in storage: "
            "1 approval from the owners of storage.",
            "no one under the current policy",
        )
    ]


def test_policy_summary_reports_areas_with_too_few_approvers(tmp_path: Path):
    rules = (
        '@id("x") @approvals("2") @from("owners") permit (principal, action == Action::"request",'
        ' resource) when { context.kind == "change" };'
        '@id("y") permit (principal, action == Action::"approve", resource);'
        '@id("z") permit (principal, action == Action::"view", resource);'
    )
    summary = summarise(tmp_path, instead=rules)
    (clause,) = get_people_summary(summary, "dora").with_approval
    assert clause.areas_short_of_approvers == ("the web servers", "storage")
    assert clause.approver_names.endswith(
        "– too few in the web servers and storage under the current policy"
    )
    assert (
        "the edge" in get_people_summary(summary, "olga").with_approval[0].areas_short_of_approvers
    )


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


def test_policy_summary_groups_people_with_the_same_rights(tmp_path: Path):
    directory = write_policy(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(
        people.read_text()
        + "  dave: {name: Dave Developer, roles: [developer]}\n"
        + "  erin: {name: Erin, roles: [developer, oncall]}\n"
        + "  gus: {name: Gus Guest}\n"
    )
    summary = summarise_policy(directory.get_policy(), ALL, now=NOW)
    together = get_people_summary(summary, "dora")
    assert list(together.people) == ["dave", "dora", "erin"]
    assert together.title == "developer"
    assert get_people_summary(summary, "gus").title == "no role"
    assert list_sentences(summary, "gus", "refused") == ["Every change, everywhere."]


def test_policy_summary_lists_a_person_named_by_a_rule_alone(tmp_path: Path):
    directory = write_policy(
        tmp_path,
        rules=get_starter_rules()
        + '@id("not dave") forbid (principal == Person::"dave",'
        + ' action == Action::"request", resource);',
    )
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text() + "  dave: {name: Dave, roles: [developer]}\n")
    summary = summarise_policy(directory.get_policy(), ALL, now=NOW)
    assert list(get_people_summary(summary, "dora").people) == ["dora"]
    assert list_sentences(summary, "dave", "refused") == [
        "Every check and every change, everywhere."
    ]
    assert get_people_summary(summary, "dave").refused[0].rules == (("not dave", "not dave"),)


@pytest.mark.parametrize(
    ("when", "sentence"),
    [
        (
            'context.runbook like "abusers *" && context.kind == "change"',
            "Every “abusers *” change, everywhere.",
        ),
        (
            'context.runbook == "service restart"',
            "“service restart”, everywhere.",
        ),
        (
            'context.kind == "change" && context.runbook != "service restart"',
            "Every change but “service restart”, everywhere.",
        ),
        (
            'resource.tags.contains("zfs") && context.kind == "change" && !context.reversible',
            "Every change that cannot be undone, in storage.",
        ),
        (
            'context.runbook == "zfs set" && !context.reversible && resource == Host::"nas1"',
            "“zfs set” where it cannot be undone, in storage.",
        ),
        ('resource == Host::"lb2"', "Every check and every change, on lb2."),
    ],
)
def test_policy_summary_names_runbooks_and_hosts_briefly(tmp_path: Path, when: str, sentence: str):
    more = (
        '@id("x") forbid (principal in Role::"developer", action == Action::"request", resource)'
        f" when {{ {when} }};"
    )
    assert list_sentences(summarise(tmp_path, more, person="dora"), "dora", "refused") == [
        sentence
    ]


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ('context.source == "schedule"', "When requested by a schedule: "),
        (
            'context.source == "slack" || context.source == "api"',
            "When requested in chat or through the API: ",
        ),
        ("context.hour < 6 || context.hour >= 22", "When the time is 22:00 to 06:00: "),
        (
            'context.weekday == "sat" || context.weekday == "sun"',
            "When it is Saturday or Sunday: ",
        ),
        ("context.hosts > 3", "When the request is for 4 hosts or more: "),
        ("context.first_time", "When the runbook has never succeeded for the requester: "),
        ("context.frozen", "When a freeze is active: "),
    ],
)
def test_policy_summary_names_the_conditions_of_a_rule(tmp_path: Path, when: str, words: str):
    more = (
        '@id("x") forbid (principal in Role::"developer", action == Action::"request", resource)'
        f' when {{ context.kind == "change" && ({when}) }};'
    )
    assert list_sentences(summarise(tmp_path, more, person="dora"), "dora", "refused") == [
        f"{words}every change, everywhere."
    ]


def test_policy_summary_lists_the_annotations_of_a_rule(tmp_path: Path):
    rules = """
        @id("two") @approvals("2") @from("owners & role:administrator") @stepup @hosts("3")
        @reason("required") @remind("15m") @escalate("role:administrator")
        @description("Two approvals.")
        permit (principal in Role::"developer", action == Action::"request", resource);
        @id("all") permit (principal, action == Action::"approve", resource);
    """
    summary = summarise(tmp_path, instead=rules)
    clause = get_people_summary(summary, "dora").with_approval[0]
    assert clause.required_approvals == 2
    assert clause.sentence == (
        "Every check and every change, everywhere: 2 approvals from the owners of the area and "
        "people with the administrator role, one of each."
    )
    assert clause.notes == (
        "requests and approvals need a reason",
        "approvals need a second factor, on the web pages",
        "approvers are reminded after 15 min",
        "without a decision, people with the administrator role may also approve after 30 min",
        "at most 3 hosts per request",
    )


def test_policy_summary_works_without_hosts(tmp_path: Path):
    directory = write_policy(tmp_path)
    (tmp_path / "inventory.yaml").write_text("hosts: {}\n")
    summary = summarise_policy(directory.get_policy(), ALL, now=NOW)
    assert list_sentences(summary, "dora", "with_approval")[0] == (
        "Every change, everywhere: 1 approval from the owners of the area."
    )
    assert [domain.description for domain in summary.areas] == ["no hosts yet"] * 3


def test_policy_summary_of_one_person_equals_their_part_of_the_whole(tmp_path: Path):
    everyone = summarise(tmp_path)
    for person in ("dora", "olga", "stan"):
        alone = summarise(tmp_path, person=person)
        assert [list(chapter.people) for chapter in alone.chapters] == [[person]]
        assert get_people_summary(alone, person) == get_people_summary(everyone, person)


@pytest.mark.parametrize(
    ("condition", "request_groups"),
    [
        ('context.runbook like "abusers *"', len(ALL) + sum(bool(one.undo) for one in ALL)),
        ('context.runbook == "abusers clear"', 5),
        ('["abusers clear", "zfs set"].contains(context.runbook)', 7),
        ('context.runbook != "abusers clear" && context.runbook != "abusers show"', 6),
    ],
)
def test_policy_summary_groups_have_the_same_ruling_for_every_member(
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
        for (host, kind), ruling in probe.list_request_rulings(representative).items():
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
def test_policy_summary_lists_current_and_future_freezes(
    tmp_path: Path, freeze: str, holds: bool, begins: str
):
    directory = write_policy(tmp_path)
    (tmp_path / "freezes.yaml").write_text(f"freezes:\n  - {{name: x, {freeze}}}\n")
    (frost,) = summarise_policy(directory.get_policy(), ALL, now=NOW).freezes
    assert (frost.is_active, f"{frost.begins_at:%Y-%m-%d %H:%M}") == (holds, begins)


def test_policy_summary_omits_freezes_that_have_ended(tmp_path: Path):
    directory = write_policy(tmp_path)
    (tmp_path / "freezes.yaml").write_text(
        'freezes:\n  - {name: x, from: "2026-03-01 00:00", until: "2026-03-02 00:00"}\n'
    )
    assert summarise_policy(directory.get_policy(), ALL, now=NOW).freezes == []


def test_policy_summary_is_rendered_as_text_html_and_data(tmp_path: Path):
    people = (tmp_path / "people.yaml").resolve()
    directory: PolicyDirectory = write_policy(tmp_path)
    people.write_text(people.read_text() + "  eve: {name: <script>alert(1)</script>}\n")
    summary = summarise_policy(directory.get_policy(), ALL, now=NOW)
    text = render.render_text(summary)
    assert "Every change, everywhere: 1 approval from the owners of the area." in text
    assert max(map(len, text.splitlines())) <= 100
    page = render.render_html(summary)
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    data = json.loads(json.dumps(render.render_data(summary)))
    assert data["chapters"][0]["without_approval"][0]["sentence"] == "Every check, everywhere."


def test_policy_summary_shows_who_can_view_which_runs(tmp_path: Path):
    summary = summarise(tmp_path)
    assert list_sentences(summary, "dora", "can_view") == [
        "Every check and every change, everywhere."
    ]
    assert "Can view\n    - Every check and every change, everywhere." in render.render_text(
        summary
    )


def test_policy_summary_shows_a_restricted_right_to_view(tmp_path: Path):
    summary = summarise(tmp_path, instead=restricted_rules())
    assert list_sentences(summary, "dora", "can_view") == [
        "Every check and every change, in the web servers."
    ]
    clause = get_people_summary(summary, "dora").can_view[0]
    assert clause.rules[0][0] == "developers view the web servers"
    assert list_sentences(summary, "olga", "can_view") == [
        "Every check and every change, everywhere."
    ]


def test_policy_summary_says_when_people_view_only_their_own_runs(tmp_path: Path):
    summary = summarise(tmp_path, instead=restricted_rules(""))
    assert list_sentences(summary, "dora", "can_view") == []
    sentence = "an view only runs that they requested or decided."
    assert sentence in render.render_text(summary)
    assert "nly runs that they requested or decided." in render.render_html(summary)
    data = render.render_data(summary)
    assert [chapter["can_view"] for chapter in data["chapters"]] == [[]] * len(data["chapters"])
