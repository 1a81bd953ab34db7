"""The right to view: what rules decide, what queries leave out, and who acts on what they see."""

import ast
import re
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import bot
from bot.audit import change_log, query, timeline
from bot.db import runs, schedules, search, stats, view_conditions
from bot.db.database import Database, Transaction
from bot.db.runs import NoSuchRun
from bot.db.search import RunFilter
from bot.execution import planner, questions
from bot.execution.questions import create_query_function
from bot.model import request_form
from bot.model.errors import NotAllowed
from bot.model.run import Decision, Run
from bot.model.view_rights import name_former_host
from bot.policy import Policy
from bot.policy.policy import PolicyRequest
from bot.queries.form_options import FormOptions
from bot.workflow.context import WorkflowContext
from connectors import history
from connectors.command import QueryRunner
from runbooks import query_earlier_report
from tests.bot.narrow import HIDDEN, NARROW, Narrow, a_narrow_office, fill, narrow_rules
from tests.bot.office import WEB, Office, an_office
from tests.policies import a_policy
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


@pytest.fixture
def narrow(tmp_path: Path, database: Database) -> Generator[Narrow]:
    with a_narrow_office(tmp_path, database) as narrow:
        yield narrow


def _rule(office: Office, view: str) -> None:
    (office.policies.path / "policy.cedar").write_text(narrow_rules(view))


def _more(office: Office) -> None:
    """Ask for what is on several hosts at once, in several areas, and by those who see little."""
    why = "another reason"
    for hosts in (("lb1", "web1"), ("web1",), ("lb1", "lb2"), ("web1", "nas1")):
        office.workflow.request_fanout_run(
            [ShowSwitches(host=host) for host in hosts],
            host_pattern=",".join(hosts),
            person="adam",
            origin=WEB,
            reason=why,
        )
        office.work()
    office.ask(SetSwitch(host="lb1", name="lamp", value="dora"), "dora", why)
    office.ask(BreakSwitch(host="web1", name="lamp"), "olga", why)
    office.ask(ShowSwitches(host="lb2"), "stan", why)


def _seen(tx: Transaction, policy: Policy, person: str, run: Run) -> bool:
    """Decide about one run as the rules and the documentation say, without any SQL."""
    request = PolicyRequest(
        run.runbook, run.kind, run.host, "web", run.requested_by, hosts=run.hosts, now=0
    )
    votes = [vote.person for vote in runs.list_decisions(tx, run.parent or run.id)]
    own = person == run.requested_by or person in run.editors or person in votes
    return own or policy.get_view_ruling(person, request).allowed


def test_queries_find_what_the_rules_let_a_person_view(narrow: Narrow):
    _more(narrow.office)
    for view in (NARROW, CHECKS, TAGS, OWNERS, NOT_ONE, PATTERN, BOTH, ""):
        _check_queries(narrow.office, view)


def _check_queries(office: Office, view: str) -> None:
    _rule(office, view)
    policy = office.policies.get_policy()
    for person in ("dora", "olga", "adam", "stan"):
        sight = policy.get_view_rights(person)
        for wanted in FILTERS:
            with office.database.reading() as tx:
                everything = runs.get_runs(tx, search.find_run_numbers(tx, wanted, most=100))
                expected = [run.id for run in everything if _seen(tx, policy, person, run)]
            with office.database.reading(sight) as tx:
                found = search.find_run_numbers(tx, wanted, most=100)
                assert found == expected, (view, person, wanted)
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
def test_how_many_hidden_runs_there_are_is_not_shown_by_a_link_to_older_ones(
    narrow: Narrow, wanted: RunFilter, monkeypatch: pytest.MonkeyPatch
):
    office = narrow.office
    for _ in range(3):
        office.ask(SetSwitch(host="lb1", name="lamp", value="x"), "adam")
        office.ask(BreakSwitch(host="web1", name="lamp"), "olga")
    own = office.ask(SetSwitch(host="lb1", name="lamp", value="own"), "dora")
    for _ in range(3):
        office.ask(SetSwitch(host="lb1", name="lamp", value="y"), "adam")
    monkeypatch.setattr(search, "_WINDOWS", (1, 2))
    expected = [own.id] if wanted.host in {"lb1", "lb*"} else []
    with office.database.reading(office.policies.get_policy().get_view_rights("dora")) as tx:
        assert search.find_page_numbers(tx, wanted, 9) == (expected, None)


def test_entries_are_those_of_runs_that_may_be_viewed_and_ones_own(narrow: Narrow):
    _more(narrow.office)
    for view in (NARROW, CHECKS, TAGS, OWNERS, PATTERN, ""):
        _check_entries(narrow.office, view)


def _check_entries(office: Office, view: str) -> None:
    _rule(office, view)
    policy = office.policies.get_policy()
    for person in ("dora", "adam", "stan"):
        with office.database.reading() as tx:
            log = change_log.list_entries_after(tx, 0)
            known = {run.id: run for run in runs.get_runs(tx, [entry.run or 0 for entry in log])}
            fits = {number for number, run in known.items() if _seen(tx, policy, person, run)}
        with office.database.reading(policy.get_view_rights(person)) as tx:
            found = {
                entry.seq
                for entry in query.find_newest_entries(tx, query.EntryFilter(), limit=1000)
            }
            whole = view_conditions.can_view_everything(tx)
        for entry in log:
            if entry.run is not None or not entry.host:
                seen = entry.run in fits or entry.person == person or whole
                assert (entry.seq in found) == seen, (view, entry)


def test_an_entry_about_a_host_is_for_those_who_may_view_every_run_there(narrow: Narrow):
    policy = narrow.office.policies.get_policy()
    with narrow.office.database.transaction() as tx:
        on = {
            host: change_log.append_entry(tx, "event", host=host).seq for host in ("web1", "nas1")
        }

    def told(view: str, person: str) -> set[int]:
        _rule(narrow.office, view)
        sight = narrow.office.policies.get_policy().get_view_rights(person)
        with narrow.office.database.reading(sight) as tx:
            return {
                entry.seq
                for entry in query.find_newest_entries(tx, query.EntryFilter(), limit=1000)
            }

    assert on["web1"] not in told(NARROW, "dora"), "not every runbook there"
    assert on["nas1"] in told(OWNERS, "stan")
    assert on["web1"] not in told(OWNERS, "stan")
    assert policy


def test_who_may_view_everything_searches_without_any_condition(office: Office):
    policy = office.policies.get_policy()
    with office.database.reading(policy.get_view_rights("dora")) as tx:
        assert (
            view_conditions.runs_condition(tx).sql
            == view_conditions.entries_condition(tx).sql
            == ""
        )
    _rule(office, NOT_ONE)
    policy = office.policies.get_policy()
    for person, whole in (("adam", True), ("dora", False)):
        with office.database.reading(policy.get_view_rights(person)) as tx:
            assert view_conditions.can_view_everything(tx) is whole, (
                "also while no such run was ever asked for"
            )


def test_without_a_rule_that_permits_it_one_sees_ones_own_alone(office: Office):
    _rule(office, "")
    mine = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    other = office.ask(ShowSwitches(host="lb1"), "adam")
    with office.database.reading(office.policies.get_policy().get_view_rights("dora")) as tx:
        assert search.find_run_numbers(tx, RunFilter(), most=10) == [mine.id]
        with pytest.raises(NoSuchRun, match=f"there is no run {other.id}"):
            runs.get_run(tx, other.id)


def test_what_somebody_decided_or_edited_they_always_see(narrow: Narrow):
    office = narrow.office
    run = narrow.hidden["pending"]
    sight = office.policies.get_policy().get_view_rights("dora")
    with office.database.reading(sight) as tx:
        assert not view_conditions.list_viewable(tx, [run.id])
    with office.database.transaction() as tx:
        runs.add_decision(tx, Decision(run.id, "dora", True, run.digest, tx.now))
    with office.database.reading(sight) as tx:
        assert view_conditions.list_viewable(tx, [run.id])


def test_what_was_decided_for_several_hosts_is_seen_on_each(narrow: Narrow):
    office, whole = narrow.office, narrow.hidden["both"]
    with office.database.transaction() as tx:
        runs.add_decision(tx, Decision(whole.id, "dora", True, whole.digest, tx.now))
    with office.database.reading(office.policies.get_policy().get_view_rights("dora")) as tx:
        assert [run.host for run in runs.list_children(tx, whole.id)] == ["lb1", "lb2"]


def test_of_a_host_that_left_the_inventory_the_area_of_the_run_decides(narrow: Narrow):
    inventory = narrow.office.policies.path / "inventory.yaml"
    text = inventory.read_text()
    for host, seen in (("web1", True), ("lb1", False)):
        inventory.write_text(re.sub(rf"  {host}: .*\n", "", text))
        policy = narrow.office.policies.get_policy()
        assert host not in policy.inventory.hosts
        with narrow.office.database.reading(policy.get_view_rights("dora")) as tx:
            assert bool(search.find_run_numbers(tx, RunFilter(host=host), most=10)) is seen


def test_no_host_can_be_called_as_those_that_left(tmp_path: Path):
    policy = a_policy(tmp_path)
    inventory = policy.path / "inventory.yaml"
    inventory.write_text(inventory.read_text().replace("  lb1:", f"  {name_former_host('edge')}:"))
    with pytest.raises(Exception, match="inventory"):
        policy.get_policy()


def test_figures_are_of_what_may_be_viewed(narrow: Narrow):
    def counted(person: str) -> int:
        sight = narrow.office.policies.get_policy().get_view_rights(person)
        with narrow.office.database.reading(sight) as tx:
            return len(list(stats.list_waits_since(tx, 0)))

    assert counted("dora") == 0
    assert counted("adam") == 1


def test_what_happened_around_a_moment_tells_of_what_may_be_viewed(narrow: Narrow):
    def happened(person: str) -> set[int | None]:
        sight = narrow.office.policies.get_policy().get_view_rights(person)
        with narrow.office.database.reading(sight) as tx:
            seen = timeline.build_timeline(tx, tx.now, span=3_600_000_000)
            assert seen.omitted == 0
            return {one.run for one in seen.events}

    assert happened("dora") == {narrow.shown.id}
    assert happened("adam") > {narrow.shown.id, narrow.hidden["done"].id}


def test_a_schedule_is_seen_with_its_request(narrow: Narrow):
    def listed(person: str) -> set[int]:
        sight = narrow.office.policies.get_policy().get_view_rights(person)
        with narrow.office.database.reading(sight) as tx:
            return {one.id for one in schedules.list_schedules(tx)}

    assert listed("dora") == {narrow.shown_schedule}
    assert listed("adam") == {narrow.shown_schedule, narrow.schedule}


def test_nobody_approves_what_they_may_not_view(office: Office):
    run = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    policy = office.policies.get_policy()
    request = PolicyRequest("toy set", "change", "lb1", "web", "dora", now=0)
    ruling = policy.get_request_ruling(request)
    assert policy.get_approval_ruling("olga", request, ruling).allowed
    _rule(office, 'permit (principal == Person::"adam", action == Action::"view", resource);')
    policy = office.policies.get_policy()
    answer = policy.get_approval_ruling("olga", request, ruling)
    assert (answer.allowed, answer.policy_notes) == (
        False,
        ("no one can approve a run that they cannot view",),
    )
    assert [person.id for person in policy.list_approvers(request, ruling)] == ["adam"]
    with pytest.raises(NoSuchRun, match=f"there is no run {run.id}"):
        office.workflow.approve_run(run.id, person="olga", digest=run.digest)
    assert "approval refused" not in office.entries(run)


def test_an_approval_lapses_with_the_right_to_view(office: Office):
    run = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    office.workflow.approve_run(run.id, person="olga", digest=run.digest)
    _rule(office, 'permit (principal == Person::"adam", action == Action::"view", resource);')
    office.work()
    assert "0 of 1 required approvals" in office.run(run.id).summary
    assert office.fleet.told == []


def test_who_sees_a_run_and_may_not_decide_it_is_told_so(office: Office):
    run = office.ask(SetSwitch(host="lb1", name="lamp", value="on"))
    with pytest.raises(NotAllowed, match="Those who can"):
        office.workflow.approve_run(run.id, person="stan", digest=run.digest)


def test_who_is_shut_out_or_unknown_sees_nothing(narrow: Narrow):
    sight = narrow.office.policies.get_policy().get_view_rights("nobody")
    with narrow.office.database.reading(sight) as tx:
        assert search.find_run_numbers(tx, RunFilter(), most=10) == []
        assert query.find_newest_entries(tx, query.EntryFilter(), limit=10) == []


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
def test_runbooks_that_no_rule_names_are_alike_unless_rules_look_at_parts(
    tmp_path: Path, when: str, *, closed: bool
):
    rule = f'permit (principal, action == Action::"view", resource) when {{ {when} }};'
    policy = a_policy(tmp_path, rules=narrow_rules(rule)).get_policy()
    assert policy.rules.view_rules.compares_runbooks_only is closed


def test_the_service_itself_sees_everything(narrow: Narrow):
    with narrow.office.database.reading() as tx:
        assert view_conditions.can_view_everything(tx)
        assert len(runs.get_runs(tx, [run.id for run in narrow.hidden.values()])) == 4


def test_a_check_tells_of_runs_that_its_requester_may_view(narrow: Narrow):
    since = datetime.now(UTC) - timedelta(hours=1)
    parts, check = narrow.office.parts, ShowSwitches(host="nas1")

    def told(person: str, host: str) -> list[str]:
        return [
            event.description
            for event in create_query_function(parts, person=person)(
                host, history.query_keyturn(since)
            ).events
        ]

    assert told("dora", "lb1") == []
    assert f"run {narrow.hidden['done'].id}, succeeded: toy set lb1 lamp on" in told("adam", "lb1")
    assert [what.split(",")[0] for what in told("dora", "web1")] == [f"run {narrow.shown.id}"]
    assert create_query_function(parts, person="dora")("nas1", query_earlier_report(check)) is None
    assert (
        create_query_function(parts, person="adam")("nas1", query_earlier_report(check))
        is not None
    )


def test_a_check_is_asked_in_the_name_of_its_requester(
    narrow: Narrow, monkeypatch: pytest.MonkeyPatch
):
    seen: list[str] = []
    true = questions.create_query_function

    def noted(parts: WorkflowContext, *, person: str = "") -> QueryRunner:
        seen.append(person)
        return true(parts, person=person)

    monkeypatch.setattr(planner, "create_query_function", noted)
    narrow.office.ask(ShowSwitches(host="nas1"), "dora")
    assert set(seen) == {"dora"}


def test_a_form_offers_values_of_runs_that_may_be_viewed(narrow: Narrow):
    office = narrow.office
    offering = FormOptions(office.fleet.run_query, office.database, office.policies, listers=LISTS)
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


def test_a_form_offers_what_a_host_lists_to_those_who_may_have_it_asked(narrow: Narrow):
    office = narrow.office
    offering = FormOptions(office.fleet.run_query, office.database, office.policies, listers=LISTS)
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


def test_a_name_is_no_pattern(narrow: Narrow):
    """Editors are looked for in a list: a person's name finds that person alone."""
    sight = narrow.office.policies.get_policy().get_view_rights("dora")
    for name in ("%", "d_ra", "ora"):
        other = replace(sight, person=name)
        run = replace(narrow.hidden["pending"], editors=("dora",))
        assert run.editors
        with narrow.office.database.transaction() as tx:
            tx.sql.exec_driver_sql(
                f"UPDATE run SET editors = '[\"dora\"]' WHERE id = {run.id}"  # noqa: S608 - ours
            )
        blind = replace(other, decide=_nothing)
        with narrow.office.database.reading(blind) as tx:
            assert not view_conditions.list_viewable(tx, [run.id])
    with narrow.office.database.reading(replace(sight, decide=_nothing)) as tx:
        assert view_conditions.list_viewable(tx, [narrow.hidden["pending"].id])


def _nothing(_host: str, _runbook: str, _kind: str) -> bool:
    return False


# Where a door reads for the service, and why that shows nobody anything.
FOR_THE_SERVICE = {
    "web/health.py": "it says how the service is, not what it did",
    "web/login.py": "it tells whom a sign-in link signs in, to whoever holds the link",
    "web/stream.py": "looks are shared by all who watch; each is let in, and looked at again",
    "web/auth.py": "it looks up who is there, and reads on for them",
    "api/long_poll.py": "it looks whether a run is over that its caller was shown",
    "api/auth.py": "it looks up whose token it is",
    "api/metrics.py": "figures of the service; a scraper is nobody",
    "api/idempotency.py": "the caller's own request, by its key",
    "api/webhooks_out.py": "what subscriptions are told is configured, and belongs to no person",
    "slack/stop_command.py": "everybody is told that everything is stopped",
    "slack/actions.py": "it compares the clicked card; the workflow looks who may see it",
    "slack/home.py": "it looks which Home is due; what stands in it is read for its person",
    "slack/delegation_command.py": "a person's own delegations and grants",
    "slack/outbox.py": "cards go to channels: who is in one sees them",
}


def _reads_for_the_service(source: str) -> bool:
    """Say whether a module opens a transaction that reads for nobody in particular."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "reading"
        and not call.args
        and not call.keywords
        for call in calls
    )


def test_doors_read_for_the_person_who_asks():
    """A new page or command that forgets whose eyes it reads with is found here."""
    root = Path(bot.__file__).parent
    found = {
        str(path.relative_to(root))
        for door in ("web", "api", "slack")
        for path in sorted((root / door).glob("*.py"))
        if _reads_for_the_service(path.read_text())
    }
    assert found == set(FOR_THE_SERVICE)


def test_a_door_that_reads_for_the_service_is_found():
    assert _reads_for_the_service("with database.reading() as tx: ...")
    assert not _reads_for_the_service("with database.reading(visitor.sight) as tx: ...")


def test_the_office_of_these_tests_holds_what_is_hidden(tmp_path: Path):
    with an_office(tmp_path, rules=narrow_rules()) as office:
        narrow = fill(office)
        with office.database.reading() as tx:
            assert all(HIDDEN in run.reason for run in narrow.hidden.values())
            assert len(search.find_run_numbers(tx, RunFilter(text=(HIDDEN,)), most=100)) > 4
