"""Who is on duty by the calendars of oncall.yaml, and the rules that use it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.features.oncall.duties import compute_duty
from bot.features.oncall.rows import CalendarReading
from bot.features.oncall.shift import Shift
from bot.model.text import format_sentence
from bot.policy import NoPolicyError, Policy, PolicyRequest
from bot.policy.explain import evaluate_request
from bot.policy.loader import load_policy
from bot.policy.matrix import build_matrix
from bot.policy.oncall import NO_DUTIES, DutyCalendar
from tests.bot.duties import add_calendar
from tests.policies import get_starter_rules, write_policy

NOW = 1_800_000_000_000_000
MINUTE, HOUR = 60_000_000, 3_600_000_000
CALENDARS = "oncall:\n  edge: {file: edge.ics, areas: [edge]}\n"
ALONE = """
@id("on call and alone")
@overrides
@review
permit (principal in Role::"oncall:edge", action == Action::"request", resource)
when { context.kind == "change" && context.reversible && context.oncall == 1 };
"""
CHANGE = PolicyRequest(
    runbook="abusers clear",
    kind="change",
    host="lb1",
    source="web",
    requested_by="dora",
    now=NOW,
)


def load_policy_with(tmp_path: Path, calendars: str = CALENDARS, rules: str = ALONE) -> Policy:
    directory = write_policy(tmp_path, rules=get_starter_rules() + rules)
    add_calendar(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text().replace("dora@example.com", "Dora@Example.com"))
    (tmp_path / "oncall.yaml").write_text(calendars)
    return directory.get_policy()


def build_shift(*addresses: str, starts: int = -HOUR, ends: int = HOUR, title: str = "") -> Shift:
    return Shift(NOW + starts, NOW + ends, addresses, title)


def add_shifts(policy: Policy, *shifts: Shift, now: int = NOW) -> Policy:
    """Return the policy as of *now*, with a reading of NOW."""
    calendar = policy.calendars["edge"]
    reading = CalendarReading(calendar.source, NOW, 0, shifts, "")
    duty = compute_duty(calendar, reading, policy, now)
    return policy.with_duties({"edge": duty})


def test_person_on_duty_has_the_on_call_role_during_the_shift(
    tmp_path: Path,
) -> None:
    policy = load_policy_with(tmp_path)
    shift = build_shift("dora@example.com", starts=0, ends=10 * MINUTE)
    for after, roles in [
        (-1, {"developer"}),
        (0, {"developer", "oncall:edge"}),
        (10 * MINUTE - 1, {"developer", "oncall:edge"}),
        (10 * MINUTE, {"developer"}),
    ]:
        on_duty = add_shifts(policy, shift, now=NOW + after)
        assert {*on_duty.organisation.people["dora"].roles} == roles
        assert on_duty.list_on_duty("edge") == ({"dora"} if len(roles) > 1 else set())
        assert on_duty.list_on_duty("storage") == set()
    assert [*on_duty.with_duties({}).organisation.people["dora"].roles] == ["developer"]


def test_outdated_or_foreign_calendar_reading_puts_nobody_on_duty(
    tmp_path: Path,
) -> None:
    policy = load_policy_with(tmp_path)
    shift = build_shift("dora@example.com", ends=24 * HOUR)
    assert add_shifts(policy, shift, now=NOW + HOUR - 1).count_on_duty("edge") == 1
    assert add_shifts(policy, shift, now=NOW + HOUR).count_on_duty("edge") == 0
    calendar = policy.calendars["edge"]
    other = calendar.model_copy(update={"file": "other.ics"})
    reading = CalendarReading(other.source, NOW, 0, (shift,), "")
    assert not compute_duty(calendar, reading, policy, NOW).is_known
    assert not compute_duty(calendar, None, policy, NOW).is_known


def test_forecast_says_that_no_reading_is_current_only_where_that_matters(tmp_path: Path) -> None:
    policy = load_policy_with(tmp_path)
    shift = build_shift("adam@example.com")
    stale = add_shifts(policy, shift, now=NOW + HOUR)
    says = "No one counts as on duty, because on-call calendars are not current: edge."
    refused = replace(CHANGE, requested_by="someone")
    for judged, request, note in (
        (stale, CHANGE, says),
        (
            policy,
            CHANGE,
            f"{NO_DUTIES[:1].upper()}{NO_DUTIES[1:]}: the service may decide otherwise.",
        ),
        (add_shifts(policy, shift), CHANGE, ""),
        (stale, replace(CHANGE, runbook="abusers show", kind="check"), ""),
        (stale, replace(CHANGE, host="nas1"), ""),
        (stale, refused, ""),
    ):
        lines = evaluate_request(judged, request).describe()
        assert [line for line in lines if "on duty" in line] == [note] * bool(note)
    # The same text goes into refusals.
    assert says == format_sentence(
        stale.describe_unknown_duty(CHANGE, stale.get_request_ruling(CHANGE))
    )
    for summarised, is_said in ((policy, True), (stale, False)):
        matrix = build_matrix(summarised, [], now=datetime.now(UTC))
        assert (NO_DUTIES[1:] in matrix.description) is is_said


def test_only_a_person_alone_on_duty_changes_without_approval(tmp_path: Path) -> None:
    policy = load_policy_with(tmp_path)
    alone = add_shifts(policy, build_shift("dora@example.com"))
    ruling = alone.get_request_ruling(CHANGE)
    assert (ruling.required_approvals, ruling.requires_review) == (0, True)
    for twin in (
        policy,
        add_shifts(policy, build_shift("dora@example.com", "adam@example.com")),
        add_shifts(
            policy, build_shift("dora@example.com"), build_shift("x@example.com", title="Xaver")
        ),
        add_shifts(policy, build_shift("adam@example.com")),
    ):
        ruling = twin.get_request_ruling(CHANGE)
        assert (ruling.required_approvals, ruling.requires_review) == (1, False)
    # An earlier run that no one reviewed in time: the rule does not count.
    overdue = replace(CHANGE, is_review_overdue=True)
    assert alone.get_request_ruling(overdue).required_approvals == 1
    irreversible = replace(CHANGE, reversible=False)
    assert alone.get_request_ruling(irreversible).required_approvals == 1


def test_event_that_is_not_understood_gives_no_one_a_right(tmp_path: Path) -> None:
    policy = load_policy_with(tmp_path)
    dora = build_shift("dora@example.com")
    unclear = replace(build_shift(title="Night (UID 1)"), problem="STATUS:X is not known")
    alone, doubtful = add_shifts(policy, dora), add_shifts(policy, dora, unclear)
    assert (alone.list_on_duty("edge"), alone.count_on_duty("edge")) == ({"dora"}, 1)
    # Others keep their role, but how many people are on duty is not known.
    assert (doubtful.list_on_duty("edge"), doubtful.count_on_duty("edge")) == ({"dora"}, 0)
    ruling = doubtful.get_request_ruling(CHANGE)
    assert ruling.required_approvals == 1
    assert doubtful.describe_unknown_duty(CHANGE, ruling) == (
        "it is not known who is on duty, because events of the on-call calendar edge are not "
        "understood: Night (UID 1)"
    )
    # The twin is over.
    over = add_shifts(policy, dora, replace(unclear, ends_at=NOW))
    assert over.get_request_ruling(CHANGE).required_approvals == 0


def test_two_calendars_of_an_area_count_together_only_when_both_are_known(
    tmp_path: Path,
) -> None:
    both = f"{CALENDARS}  network: {{file: network.ics}}\n"
    policy = load_policy_with(tmp_path, both)
    edge = add_shifts(policy, build_shift("dora@example.com")).duties["edge"]
    assert policy.with_duties({"edge": edge}).count_on_duty("edge") == 0
    assert policy.with_duties({"edge": edge, "network": edge}).count_on_duty("edge") == 1
    network = replace(edge, people=("adam",))
    assert policy.with_duties({"edge": edge, "network": network}).count_on_duty("edge") == 2
    assert policy.with_duties({"edge": edge, "network": network}).count_on_duty("storage") == 1


def test_rule_with_approval_by_the_on_call_role_names_the_person_on_duty(tmp_path: Path) -> None:
    rule = """
@id("asks the person on duty")
@approvals("1")
@from("role:oncall:edge")
@overrides
permit (principal, action == Action::"request", resource) when { context.kind == "change" };
permit (principal in Role::"oncall:edge", action == Action::"approve", resource);
"""
    policy = add_shifts(load_policy_with(tmp_path, rules=rule), build_shift("adam@example.com"))
    ruling = policy.get_request_ruling(CHANGE)
    assert policy.describe_approver_groups(ruling.requirements) == (
        "the person on duty (oncall:edge)"
    )
    assert [one.id for one in policy.list_approvers(CHANGE, ruling)] == ["adam"]


@pytest.mark.parametrize(
    ("calendars", "says"),
    [
        ("oncall:\n  edge: {}\n", "set one of address, address_file or file"),
        ("oncall:\n  edge: {address: 'http://example.com/x'}\n",
         "oncall.yaml, line 2: oncall.edge.address: must be an address that begins with https://"),
        ("oncall:\n  edge: {file: x, areas: [egde]}\n",
         "oncall.yaml, line 2: edge: area egde is not in areas.yaml"),
        ("oncall:\n  edge: {file: x, max_age_minutes: 1}\n", "oncall.yaml, line 2"),
        ("oncall:\n  night: {file: x}\n",
         'role "oncall:edge" is not in people.yaml, which has administrator, developer, '
         "oncall:night: correct it, or name the calendar in oncall.yaml"),
    ],
)  # fmt: skip
def test_mistake_in_oncall_yaml_is_rejected_with_its_line(
    tmp_path: Path, calendars: str, says: str
) -> None:
    with pytest.raises(NoPolicyError) as caught:
        load_policy_with(tmp_path, calendars)
    assert says in str(caught.value)


def test_people_yaml_cannot_assign_an_on_call_role(tmp_path: Path) -> None:
    load_policy_with(tmp_path)
    people = tmp_path / "people.yaml"
    people.write_text(people.read_text().replace("[developer]", "['oncall:edge']"))
    with pytest.raises(NoPolicyError, match=r"people\.dora\.roles"):
        load_policy(tmp_path)


def test_calendar_source_changes_with_the_fields_that_affect_its_shifts() -> None:
    calendar = DutyCalendar(name="edge", file="edge.ics")
    again = calendar.model_copy(update={"areas": ("edge",), "max_age_minutes": 90})
    assert again.source == calendar.source
    elsewhere = calendar.model_copy(update={"zone": "Asia/Tokyo"})
    assert elsewhere.source != calendar.source
