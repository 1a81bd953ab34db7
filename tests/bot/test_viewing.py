"""The right to view: rules, queries, and who acts on what they see."""

import ast
import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import bot
from bot.audit import change_log
from bot.audit.event_type import UnknownEvent
from bot.db import runs, search, stats, view_conditions
from bot.db.database import Transaction
from bot.db.runs import NoSuchRun
from bot.db.search import RunFilter
from bot.db.time_counts import get_period
from bot.execution import planner, questions
from bot.execution.questions import create_query_function
from bot.model import request_form
from bot.model.errors import NotAllowed
from bot.model.run import Decision, RequestTerms, Run
from bot.model.view_rights import name_former_host
from bot.policy import Policy
from bot.policy.policy import PolicyRequest
from bot.queries import log_search, timeline
from bot.queries.form_options import FormOptions
from bot.workflow.context import WorkflowContext
from connectors import history
from connectors.command import QueryRunner
from runbooks import query_earlier_report
from tests.bot.databases import DATABASES
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.restricted_view import (
    HIDDEN,
    RESTRICTED_RULES,
    RestrictedHarness,
    fill,
    open_restricted_harness,
    restricted_rules,
)
from tests.policies import write_policy
from tests.toy import LISTS, BreakSwitch, SetSwitch, ShowSwitches, TuneSwitch

CHECKS = """
permit (principal in Role::"administrator", action == Action::"view", resource);
permit (principal in Role::"developer", action == Action::"view", resource)
when { context.kind == "check" };
"""
TAGS = """
permit (principal, action == Action::"view", resource)
when { resource.tags.contains("haproxy") };
forbid (principal, action == Action::"view", resource == Host::"lb2");
"""
OWNERS = """
permit (principal, action == Action::"view", resource)
when { principal in resource.owners };
"""
NOT_ONE = """
permit (principal, action == Action::"view", resource);
forbid (principal, action == Action::"view", resource)
when { context.runbook == "toy show" } unless { principal in Role::"administrator" };
"""
PATTERN = """
permit (principal, action == Action::"view", resource);
forbid (principal in Role::"developer", action == Action::"view", resource)
when { context.runbook like "toy s*" && context.kind == "check" };
"""
BOTH = """
permit (principal, action == Action::"view", resource)
when { ["toy break", "toy set"].contains(context.runbook) && context.kind != "check" };
permit (principal, action == Action::"view", resource in Area::"storage");
"""
FILTERS = (
    RunFilter(),
    RunFilter(host="lb1"),
    RunFilter(host="web1"),
    RunFilter(host="lb*"),
    RunFilter(area="edge"),
    RunFilter(area="web"),
    RunFilter(person="adam"),
    RunFilter(runbook="toy set"),
    RunFilter(runbook="toy break"),
    RunFilter(host="lb1", runbook="toy set", area="edge", text=("lamp",)),
    RunFilter(states=frozenset({"succeeded"})),
    RunFilter(states=frozenset({"succeeded", "pending"})),
    RunFilter(text=("lamp",)),
    RunFilter(text=("lamp", "reason")),
    RunFilter(since=0),
)


@pytest.fixture(params=DATABASES)
def restricted(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[RestrictedHarness]:
    server = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    with open_restricted_harness(tmp_path, server) as restricted:
        yield restricted


def _write_view_rules(harness: Harness, view: str) -> None:
    (harness.policies.path / "policy.cedar").write_text(restricted_rules(view))


def _request_on_several_hosts(harness: Harness) -> None:
    """Ask for what is on several hosts at once, in several areas, and by those who see little."""
    why = "another reason"
    for hosts in (("lb1", "web1"), ("web1",), ("lb1", "lb2"), ("web1", "nas1")):
        harness.service.request_on_hosts(
            [ShowSwitches(host=host) for host in hosts],
            RequestTerms("adam", WEB, why),
            host_pattern=",".join(hosts),
        )
        harness.run_queued_work()
    harness.request(SetSwitch(host="lb1", name="lamp", value="dora"), "dora", why)
    harness.request(BreakSwitch(host="web1", name="lamp"), "olga", why)
    harness.request(ShowSwitches(host="lb2"), "stan", why)


def _may_view(policy: Policy, person: str, run: Run, deciders: set[str]) -> bool:
    """Decide about one run as the rules and the documentation say, without any SQL."""
    request = PolicyRequest(
        run.runbook, run.kind, run.host, "web", run.requested_by, hosts=run.hosts, now=0
    )
    own = person == run.requested_by or person in run.editors or person in deciders
    return own or policy.get_view_ruling(person, request).allowed


def _list_runs_with_deciders(tx: Transaction, numbers: list[int]) -> list[tuple[Run, set[str]]]:
    return [
        (run, {vote.person for vote in runs.list_decisions(tx, run.parent or run.id)})
        for run in runs.get_runs(tx, numbers)
    ]


def test_run_queries_return_exactly_the_runs_that_the_rules_permit(restricted: RestrictedHarness):
    _request_on_several_hosts(restricted.harness)
    with restricted.harness.database.reading() as tx:
        matching = [search.find_run_numbers(tx, wanted, most=100) for wanted in FILTERS]
        everything = _list_runs_with_deciders(
            tx, sorted({number for numbers in matching for number in numbers})
        )
    for view in (RESTRICTED_RULES, CHECKS, TAGS, OWNERS, NOT_ONE, PATTERN, BOTH, ""):
        _write_view_rules(restricted.harness, view)
        policy = restricted.harness.policies.get_policy()
        for person in ("dora", "olga", "adam", "stan"):
            viewable = {
                run.id for run, deciders in everything if _may_view(policy, person, run, deciders)
            }
            with restricted.harness.database.reading(policy.get_view_rights(person)) as tx:
                for wanted, numbers in zip(FILTERS, matching, strict=True):
                    expected = [number for number in numbers if number in viewable]
                    listed = search.find_run_numbers(tx, wanted, most=100)
                    assert listed == expected, (view, person, wanted)
                    page = search.list_run_page(tx, wanted, most=100, whose=person)
                    assert [run.id for run in page.runs] == expected


@pytest.mark.parametrize(
    "wanted",
    [
        RunFilter(host="lb1"),
        RunFilter(host="lb*"),
        RunFilter(host="lb?", person="adam"),
        RunFilter(runbook="toy break"),
        RunFilter(host="web1", runbook="toy break"),
        RunFilter(host="web*", runbook="toy break"),
    ],
)
def test_link_to_older_runs_does_not_reveal_hidden_runs(
    restricted: RestrictedHarness, wanted: RunFilter, monkeypatch: pytest.MonkeyPatch
):
    harness = restricted.harness
    for _ in range(3):
        harness.request(SetSwitch(host="lb1", name="lamp", value="x"), "adam")
        harness.request(BreakSwitch(host="web1", name="lamp"), "olga")
    own = harness.request(SetSwitch(host="lb1", name="lamp", value="own"), "dora")
    for _ in range(3):
        harness.request(SetSwitch(host="lb1", name="lamp", value="y"), "adam")
    monkeypatch.setattr(search, "_WINDOWS", (1, 2))
    expected = [own.id] if wanted.host in {"lb1", "lb*"} else []
    with harness.database.reading(harness.policies.get_policy().get_view_rights("dora")) as tx:
        assert search.find_page_numbers(tx, wanted, 9) == (expected, None)


def test_change_log_queries_return_entries_of_viewable_runs_and_own_entries(
    restricted: RestrictedHarness,
):
    _request_on_several_hosts(restricted.harness)
    for view in (RESTRICTED_RULES, CHECKS, TAGS, OWNERS, PATTERN, ""):
        _check_entries(restricted.harness, view)


def _check_entries(harness: Harness, view: str) -> None:
    _write_view_rules(harness, view)
    policy = harness.policies.get_policy()
    for person in ("dora", "adam", "stan"):
        with harness.database.reading() as tx:
            log = change_log.list_entries_after(tx, 0)
            numbers = sorted({entry.run for entry in log if entry.run is not None})
            fits = {
                run.id
                for run, deciders in _list_runs_with_deciders(tx, numbers)
                if _may_view(policy, person, run, deciders)
            }
        with harness.database.reading(policy.get_view_rights(person)) as tx:
            seqs = {
                entry.seq
                for entry in log_search.find_newest_entries(
                    tx, log_search.EntryFilter(), limit=1000
                )
            }
            whole = view_conditions.can_view_everything(tx)
            times = log_search.find_entry_times(tx, log_search.EntryFilter())
            assert times
            assert (get_period(tx, times) or (0, 0, 0))[2] == len(seqs)
            times = search.find_request_times(tx, RunFilter())
            runs_found = search.find_run_numbers(tx, RunFilter(), most=1000)
            assert ((times and get_period(tx, times)) or (0, 0, 0))[2] == len(runs_found)
        for entry in log:
            if entry.run is not None or not entry.host:
                seen = entry.run in fits or entry.person == person or whole
                assert (entry.seq in seqs) == seen, (view, entry)


def test_host_entry_is_shown_only_with_the_right_to_view_all_runs_on_it(
    restricted: RestrictedHarness,
):
    policy = restricted.harness.policies.get_policy()
    with restricted.harness.database.transaction() as tx:
        on = {
            host: change_log.append_entry(tx, UnknownEvent(kind="event"), host=host).seq
            for host in ("web1", "nas1")
        }

    def list_entries(view: str, person: str) -> set[int]:
        _write_view_rules(restricted.harness, view)
        sight = restricted.harness.policies.get_policy().get_view_rights(person)
        with restricted.harness.database.reading(sight) as tx:
            return {
                entry.seq
                for entry in log_search.find_newest_entries(
                    tx, log_search.EntryFilter(), limit=1000
                )
            }

    assert on["web1"] not in list_entries(RESTRICTED_RULES, "dora"), "not every runbook there"
    assert on["nas1"] in list_entries(OWNERS, "stan")
    assert on["web1"] not in list_entries(OWNERS, "stan")
    assert policy


def test_search_has_no_view_condition_for_people_who_may_view_everything(harness: Harness):
    policy = harness.policies.get_policy()
    with harness.database.reading(policy.get_view_rights("dora")) as tx:
        assert (
            view_conditions.runs_condition(tx).sql
            == view_conditions.entries_condition(tx).sql
            == ""
        )
    _write_view_rules(harness, NOT_ONE)
    policy = harness.policies.get_policy()
    for person, whole in (("adam", True), ("dora", False)):
        with harness.database.reading(policy.get_view_rights(person)) as tx:
            assert view_conditions.can_view_everything(tx) is whole, (
                "also while no such run was ever asked for"
            )


def test_without_a_view_rule_people_see_only_their_own_runs(harness: Harness):
    _write_view_rules(harness, "")
    mine = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    other = harness.request(ShowSwitches(host="lb1"), "adam")
    with harness.database.reading(harness.policies.get_policy().get_view_rights("dora")) as tx:
        assert search.find_run_numbers(tx, RunFilter(), most=10) == [mine.id]
        with pytest.raises(NoSuchRun, match=f"there is no run {other.id}"):
            runs.get_run(tx, other.id)


def test_person_who_decided_a_run_may_always_view_it(restricted: RestrictedHarness):
    harness = restricted.harness
    run = restricted.hidden["pending"]
    sight = harness.policies.get_policy().get_view_rights("dora")
    with harness.database.reading(sight) as tx:
        assert not view_conditions.list_viewable(tx, [run.id])
    with harness.database.transaction() as tx:
        runs.add_decision(tx, Decision(run.id, "dora", True, run.digest, tx.now))
    with harness.database.reading(sight) as tx:
        assert view_conditions.list_viewable(tx, [run.id])


def test_approver_of_a_parent_run_may_view_its_child_runs(restricted: RestrictedHarness):
    harness, whole = restricted.harness, restricted.hidden["both"]
    with harness.database.transaction() as tx:
        runs.add_decision(tx, Decision(whole.id, "dora", True, whole.digest, tx.now))
    with harness.database.reading(harness.policies.get_policy().get_view_rights("dora")) as tx:
        assert [run.host for run in runs.list_children(tx, whole.id)] == ["lb1", "lb2"]


def test_right_to_view_runs_of_a_removed_host_follows_the_area_of_the_run(
    restricted: RestrictedHarness,
):
    inventory = restricted.harness.policies.path / "inventory.yaml"
    text = inventory.read_text()
    for host, seen in (("web1", True), ("lb1", False)):
        inventory.write_text(re.sub(rf"  {host}: .*\n", "", text))
        policy = restricted.harness.policies.get_policy()
        assert host not in policy.inventory.hosts
        with restricted.harness.database.reading(policy.get_view_rights("dora")) as tx:
            assert bool(search.find_run_numbers(tx, RunFilter(host=host), most=10)) is seen


def test_host_cannot_have_the_reserved_name_of_removed_hosts(tmp_path: Path):
    policy = write_policy(tmp_path)
    inventory = policy.path / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("  lb1:", f"  {name_former_host('edge')}:"))
    with pytest.raises(Exception, match="inventory"):
        policy.get_policy()


def test_wait_statistics_count_only_viewable_runs(restricted: RestrictedHarness):
    def counted(person: str) -> int:
        sight = restricted.harness.policies.get_policy().get_view_rights(person)
        with restricted.harness.database.reading(sight) as tx:
            return len(list(stats.list_waits_since(tx, 0)))

    assert counted("dora") == 0
    assert counted("adam") == 1


def test_timeline_shows_only_viewable_runs(restricted: RestrictedHarness):
    def happened(person: str) -> set[int | None]:
        sight = restricted.harness.policies.get_policy().get_view_rights(person)
        with restricted.harness.database.reading(sight) as tx:
            seen = timeline.build_timeline(tx, tx.now, span=3_600_000_000)
            assert seen.omitted == 0
            return {one.run for one in seen.events}

    assert happened("dora") == {restricted.shown.id}
    assert happened("adam") > {restricted.shown.id, restricted.hidden["done"].id}


def test_person_cannot_approve_a_run_that_they_cannot_view(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    policy = harness.policies.get_policy()
    request = PolicyRequest("toy set", "change", "lb1", "web", "dora", now=0)
    ruling = policy.get_request_ruling(request)
    assert policy.get_approval_ruling("olga", request, ruling).allowed
    _write_view_rules(
        harness, 'permit (principal == Person::"adam", action == Action::"view", resource);'
    )
    policy = harness.policies.get_policy()
    answer = policy.get_approval_ruling("olga", request, ruling)
    assert (answer.allowed, answer.policy_notes) == (
        False,
        ("no one can approve a run that they cannot view",),
    )
    assert [person.id for person in policy.list_approvers(request, ruling)] == ["adam"]
    with pytest.raises(NoSuchRun, match=f"there is no run {run.id}"):
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
    assert "approval refused" not in harness.list_entry_kinds(run)


def test_approval_lapses_when_the_approver_loses_the_right_to_view(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    harness.service.approve_run(run.id, person="olga", digest=run.digest)
    _write_view_rules(
        harness, 'permit (principal == Person::"adam", action == Action::"view", resource);'
    )
    harness.run_queued_work()
    assert "0 of 1 required approvals" in harness.get_run(run.id).summary
    assert harness.fleet.sent == []


def test_person_who_may_view_but_not_decide_is_told_who_can(harness: Harness):
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    with pytest.raises(NotAllowed, match="Those who can"):
        harness.service.approve_run(run.id, person="stan", digest=run.digest)


def test_unknown_person_sees_no_runs_and_no_entries(restricted: RestrictedHarness):
    sight = restricted.harness.policies.get_policy().get_view_rights("nobody")
    with restricted.harness.database.reading(sight) as tx:
        assert search.find_run_numbers(tx, RunFilter(), most=10) == []
        assert log_search.find_newest_entries(tx, log_search.EntryFilter(), limit=10) == []


@pytest.mark.parametrize(
    ("when", "closed"),
    [
        ('context.runbook == "toy set"', True),
        ('["a", "b"].contains(context.runbook) || context.runbook != "toy show"', True),
        ('context.kind == "check"', True),
        ('context.runbook like "toy *"', False),
        ('context.runbook == "toy set" || context.runbook like "toy *"', False),
        ("context.runbook == context.kind", False),
        ("context.runbook == principal.name", False),
    ],
)
def test_view_rules_compare_whole_runbook_names_unless_they_use_patterns(
    tmp_path: Path, when: str, *, closed: bool
):
    rule = f'permit (principal, action == Action::"view", resource) when {{ {when} }};'
    policy = write_policy(tmp_path, rules=restricted_rules(rule)).get_policy()
    assert policy.rules.view_rules.compares_runbooks_only is closed


def test_transaction_of_the_service_sees_all_runs(restricted: RestrictedHarness):
    with restricted.harness.database.reading() as tx:
        assert view_conditions.can_view_everything(tx)
        assert len(runs.get_runs(tx, [run.id for run in restricted.hidden.values()])) == 4


def test_check_reports_only_runs_that_its_requester_may_view(restricted: RestrictedHarness):
    since = datetime.now(UTC) - timedelta(hours=1)
    parts, check = restricted.harness.context, ShowSwitches(host="nas1")

    def list_events(person: str, host: str) -> list[str]:
        return [
            event.description
            for event in create_query_function(parts, person=person)(
                host, history.query_keyturn(since)
            ).events
        ]

    assert list_events("dora", "lb1") == []
    assert f"run {restricted.hidden['done'].id}, succeeded: toy set lb1 lamp on" in list_events(
        "adam", "lb1"
    )
    assert [what.split(",")[0] for what in list_events("dora", "web1")] == [
        f"run {restricted.shown.id}"
    ]
    assert create_query_function(parts, person="dora")("nas1", query_earlier_report(check)) is None
    assert (
        create_query_function(parts, person="adam")("nas1", query_earlier_report(check))
        is not None
    )


def test_check_queries_the_history_as_its_requester(
    restricted: RestrictedHarness, monkeypatch: pytest.MonkeyPatch
):
    seen: list[str] = []
    true = questions.create_query_function

    def noted(parts: WorkflowContext, *, person: str = "") -> QueryRunner:
        seen.append(person)
        return true(parts, person=person)

    monkeypatch.setattr(planner, "create_query_function", noted)
    restricted.harness.request(ShowSwitches(host="nas1"), "dora")
    assert set(seen) == {"dora"}


def test_form_options_come_only_from_viewable_runs(restricted: RestrictedHarness):
    harness = restricted.harness
    offering = FormOptions(
        harness.fleet.run_query, harness.database, harness.policies, listers=LISTS
    )
    name = next(
        blank for blank in request_form.list_form_fields(SetSwitch) if blank.name == "value"
    )

    def values(person: str, host: str) -> Sequence[str]:
        return offering.list_options(
            SetSwitch, name, host=host, person=person, source="web", form_values={}
        )

    assert "dim" in values("adam", "lb1")
    assert values("dora", "lb1") == ()
    assert values("dora", "web1") == ("on",)


def test_form_options_read_from_a_host_are_shown_to_permitted_people_only(
    restricted: RestrictedHarness,
):
    harness = restricted.harness
    offering = FormOptions(
        harness.fleet.run_query, harness.database, harness.policies, listers=LISTS
    )
    name = next(
        blank for blank in request_form.list_form_fields(TuneSwitch) if blank.name == "name"
    )
    offering.read_options(TuneSwitch, host="lb1", person="dora", source="web", form_values={})

    def values(person: str) -> Sequence[str]:
        return offering.list_options(
            TuneSwitch, name, host="lb1", person=person, source="web", form_values={}
        )

    assert "fan" in values("dora")
    assert values("nobody") == ()


def test_person_name_is_not_a_pattern_in_the_search_for_editors(restricted: RestrictedHarness):
    """Editors are looked for in a list: a person's name finds that person alone."""
    sight = restricted.harness.policies.get_policy().get_view_rights("dora")
    for name in ("%", "d_ra", "ora"):
        other = replace(sight, person=name)
        run = replace(restricted.hidden["pending"], editors=("dora",))
        assert run.editors
        with restricted.harness.database.transaction() as tx:
            tx.sql.exec_driver_sql(
                f"UPDATE run SET editors = '[\"dora\"]' WHERE id = {run.id}"  # noqa: S608 - ours
            )
        blind = replace(other, decide=_may_view_nothing)
        with restricted.harness.database.reading(blind) as tx:
            assert not view_conditions.list_viewable(tx, [run.id])
    with restricted.harness.database.reading(replace(sight, decide=_may_view_nothing)) as tx:
        assert view_conditions.list_viewable(tx, [restricted.hidden["pending"].id])


def _may_view_nothing(_host: str, _runbook: str, _kind: str) -> bool:
    return False


# Where a door reads for the service, and why that shows nobody anything.
FOR_THE_SERVICE = {
    "web/health.py": "it says how the service is, not what it did",
    "web/login.py": "it tells whom a sign-in link signs in, to whoever holds the link",
    "web/stream.py": "looks are shared by all who watch; each is let in, and looked at again",
    "web/change_feed.py": "it reads for all open pages at once, with the rights of each reader",
    "web/auth.py": "it looks up who is there, and reads on for them",
    "api/long_poll.py": "it looks whether a run is over that its caller was shown",
    "api/auth.py": "it looks up whose token it is",
    "api/metrics.py": "figures of the service; a scraper is nobody",
    "api/idempotency.py": "the caller's own request, by its key",
    "slack/actions.py": "it compares the clicked card; the service looks who may see it",
    "slack/command_forms.py": "it reads the time only",
    "slack/direct_notices.py": "what is listed says whom it is for, and what that person may see",
    "slack/home.py": "it looks which Home is due; what stands in it is read for its person",
    "slack/delegation_command.py": "a person's own delegations and grants",
    "slack/outbox.py": "cards go to channels: who is in one sees them",
}


def _opens_unfiltered_transaction(source: str) -> bool:
    """Say whether a module opens a transaction that reads for nobody in particular."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "reading"
        and not call.args
        and not call.keywords
        for call in calls
    )


def test_web_api_and_slack_modules_read_with_the_rights_of_the_person():
    """A new page or command that forgets whose eyes it reads with is found here."""
    root = Path(bot.__file__).parent
    shown = (
        "web/*",
        "api/*",
        "slack/*",
        "features/*/pages",
        "features/*/routes",
        "features/*/chat",
    )
    modules = {
        str(path.relative_to(root))
        for pattern in shown
        for path in sorted(root.glob(f"{pattern}.py"))
        if _opens_unfiltered_transaction(path.read_text())
    }
    assert modules == set(FOR_THE_SERVICE)


def test_module_that_reads_without_view_rights_is_found():
    assert _opens_unfiltered_transaction("with database.reading() as tx: ...")
    assert not _opens_unfiltered_transaction("with database.reading(visitor.sight) as tx: ...")


def test_restricted_harness_contains_hidden_runs(tmp_path: Path):
    with open_harness(tmp_path, rules=restricted_rules()) as harness:
        restricted = fill(harness)
        with harness.database.reading() as tx:
            assert all(HIDDEN in run.reason for run in restricted.hidden.values())
            assert len(search.find_run_numbers(tx, RunFilter(text=(HIDDEN,)), most=100)) > 4
