"""One request for several hosts: planned at once, approved as one, started in waves."""

import shlex
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bot.db import locks, runs, search
from bot.execution import fanout
from bot.integrations import webhook_queue
from bot.model import request_form
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import NEEDS_ATTENTION, RequestTerms, Run, State
from bot.model.run_states import describe_outcome, is_on_hold
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.policy import Policy
from bot.policy.explain import PreviewQuestion, evaluate_preview
from bot.policy.freezes import FreezeList
from bot.workflow.requests import SENSITIVE_REQUEST_MESSAGE
from connectors.errors import CommandError, UnknownOutcomeError, UnreachableError
from runbooks import AnyRunbook
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import AREAS, INVENTORY
from tests.toy import BreakSwitch, SetSwitch, ShowSwitches, TuneSwitch

HOURLY = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
HOSTS_APART = ("lb1", "web1")
NAMES = [f"lb{n}" for n in range(1, 13)]


@pytest.fixture
def crowd(tmp_path: Path) -> Generator[Harness]:
    """A harness with twelve balancers, each with a lamp that is off."""
    with open_harness(tmp_path) as harness:
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in NAMES[2:])
        (harness.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        rules = harness.policies.path / "policy.cedar"
        rules.write_text(
            rules.read_text().replace('@approvals("1")', '@approvals("1") @hosts("12")')
        )
        harness.fleet.hosts = {name: {"lamp": "off"} for name in NAMES}
        yield harness


def _request_on_hosts(
    harness: Harness, names: list[str], person: str = "dora", value: str = "on"
) -> Run:
    requests = [SetSwitch(host=name, name="lamp", value=value) for name in names]
    run = harness.service.request_on_hosts(requests, RequestTerms(person, WEB), host_pattern="lb*")
    harness.run_queued_work()
    return harness.get_run(run.id)


def _list_child_runs(harness: Harness, run: Run) -> list[Run]:
    with harness.database.reading() as tx:
        return runs.list_children(tx, run.id)


def _list_hosts_sent_to(harness: Harness) -> list[str]:
    return [host for host, _ in harness.fleet.sent]


def test_request_for_several_hosts_has_one_plan_and_one_approval(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES)
    assert run.state is State.PENDING
    assert run.title == "toy set lb* lamp on"
    assert run.plan
    assert [step.host for step in run.plan.steps] == NAMES
    assert crowd.fleet.sent == []

    done = crowd.approve(run)
    assert (done.state, done.summary) == (State.SUCCEEDED, "Verified on 12 of 12 hosts")
    assert sorted(_list_hosts_sent_to(crowd)) == sorted(NAMES)
    assert {child.state for child in _list_child_runs(crowd, run)} == {State.SUCCEEDED}


def test_fan_out_waves_are_one_host_then_a_tenth_then_the_rest(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES)
    crowd.service.approve_run(run.id, person="olga", digest=run.digest)
    waves: list[list[str]] = []
    while crowd.dispatcher.enqueued:
        batch, crowd.dispatcher.enqueued = crowd.dispatcher.enqueued, []
        before = len(crowd.fleet.sent)
        for number in batch:
            crowd.service.advancer.advance_run(number)
        if wave := _list_hosts_sent_to(crowd)[before:]:
            waves.append(wave)
    assert waves == [["lb1"], ["lb2", "lb3"], NAMES[3:]]


@pytest.mark.parametrize(("bad", "reached"), [("lb1", 1), ("lb3", 3), ("lb9", 12)])
def test_fan_out_starts_no_further_wave_after_a_failure(crowd: Harness, bad: str, reached: int):
    def refuse(host: str, _words: str) -> None:
        if host == bad:
            raise CommandError("output: the lamp is glued")

    crowd.fleet.before_send = refuse
    ended = crowd.approve(_request_on_hosts(crowd, NAMES))
    assert ended.state is State.FAILED
    assert f"{bad}: Step 1 of 1 failed: output: the lamp is glued" in ended.summary
    states = [child.state for child in _list_child_runs(crowd, ended)]
    assert states.count(State.WITHDRAWN) == 12 - reached
    assert len(crowd.fleet.sent) == reached - 1


def test_without_waves_every_host_is_changed_despite_a_failure(
    crowd: Harness, monkeypatch: pytest.MonkeyPatch
):
    def refuse(host: str, _words: str) -> None:
        if host == "lb1":
            raise CommandError("output: the lamp is glued")

    monkeypatch.setattr(fanout, "_count_next_wave", len)
    crowd.fleet.before_send = refuse
    crowd.approve(_request_on_hosts(crowd, NAMES))
    assert len(crowd.fleet.sent) == len(NAMES) - 1


def _request_with_unknown_outcome_on(crowd: Harness, lost: str) -> Run:
    def cut(host: str, _words: str) -> None:
        if host == lost:
            raise UnknownOutcomeError("the connection was lost")

    crowd.fleet.before_send = cut
    return crowd.approve(_request_on_hosts(crowd, NAMES[:2]))


@pytest.mark.parametrize("succeeded", [True, False])
def test_child_run_with_unknown_outcome_holds_the_others_until_it_is_resolved(
    crowd: Harness, *, succeeded: bool
):
    held = _request_with_unknown_outcome_on(crowd, "lb1")
    assert (held.state, describe_outcome(held)) == (
        State.RUNNING,
        "Waits until the outcome of lb1 is known",
    )
    first, second = _list_child_runs(crowd, held)
    assert (first.state, second.state) == (State.UNKNOWN, State.PENDING)
    crowd.service.resolve_run(
        first.id, person="olga", succeeded=succeeded, reason="I looked at the lamp"
    )
    crowd.run_queued_work()
    ended = crowd.get_run(held.id)
    states = [child.state for child in _list_child_runs(crowd, ended)]
    if succeeded:
        assert (ended.state, ended.summary) == (State.SUCCEEDED, "Verified on 2 of 2 hosts")
    else:
        assert (ended.state, states) == (State.FAILED, [State.FAILED, State.WITHDRAWN])


def test_stop_ends_the_runs_that_a_child_run_with_unknown_outcome_holds(crowd: Harness):
    held = _request_with_unknown_outcome_on(crowd, "lb1")
    crowd.service.stop_run(held.id, person="dora")
    crowd.run_queued_work()
    first, second = _list_child_runs(crowd, held)
    assert (first.state, second.state) == (State.UNKNOWN, State.STOPPED)
    crowd.service.resolve_run(
        first.id, person="olga", succeeded=True, reason="I looked at the lamp"
    )
    crowd.run_queued_work()
    assert crowd.get_run(held.id).is_ended
    assert crowd.fleet.sent == []


def test_parent_run_is_unknown_outcome_until_its_last_child_run_is_resolved(crowd: Harness):
    ended = _request_with_unknown_outcome_on(crowd, "lb2")
    assert ended.state is State.UNKNOWN
    _, last = _list_child_runs(crowd, ended)
    with pytest.raises(InvalidRequestError, match="resolve the runs of its hosts"):
        crowd.service.resolve_run(
            ended.id, person="olga", succeeded=True, reason="looked at them all"
        )
    crowd.service.resolve_run(
        last.id, person="olga", succeeded=True, reason="the lamp is on indeed"
    )
    crowd.run_queued_work()
    assert crowd.get_run(ended.id).state is State.SUCCEEDED
    with crowd.database.reading() as tx:
        assert locks.get_lock(tx, "lb2") is None


def test_fan_out_fails_at_planning_when_one_host_is_unreachable(crowd: Harness):
    def gone(host: str) -> None:
        if host == "lb2":
            raise UnreachableError("no route")

    crowd.fleet.before_query = gone
    run = _request_on_hosts(crowd, NAMES[:3])
    assert (run.state, run.summary) == (
        State.FAILED,
        "lb2: no route. Nothing was sent to any host.",
    )
    states = [child.state for child in _list_child_runs(crowd, run)]
    assert states == [State.WITHDRAWN, State.FAILED, State.WITHDRAWN]


def test_fan_out_sends_nothing_to_hosts_that_are_as_requested(crowd: Harness):
    crowd.fleet.hosts["lb2"]["lamp"] = "on"
    run = _request_on_hosts(crowd, NAMES[:3])
    assert run.plan
    assert [step.host for step in run.plan.steps] == ["lb1", "lb3"]
    assert crowd.approve(run).summary == "Verified on 3 of 3 hosts"
    assert _list_hosts_sent_to(crowd) == ["lb1", "lb3"]


def test_fan_out_without_changes_needs_no_approval(crowd: Harness):
    assert _request_on_hosts(crowd, NAMES[:3], value="off").state is State.NO_CHANGES


def test_child_run_whose_host_changed_after_approval_is_stale_and_stops_the_rest(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES)
    crowd.fleet.hosts["lb2"]["lamp"] = "dim"
    ended = crowd.approve(run)
    assert ended.state is State.FAILED
    assert _list_child_runs(crowd, ended)[1].state is State.STALE
    assert "lb2" not in _list_hosts_sent_to(crowd)


def test_child_run_cannot_be_approved_denied_or_withdrawn_alone(crowd: Harness):
    child = _list_child_runs(crowd, _request_on_hosts(crowd, NAMES[:2]))[0]
    with pytest.raises(InvalidRequestError, match="decide that"):
        crowd.service.approve_run(child.id, person="olga", digest=child.digest)
    with pytest.raises(InvalidRequestError, match="deny that"):
        crowd.service.deny_run(child.id, person="olga", reason="not today")
    with pytest.raises(InvalidRequestError, match="withdraw that"):
        crowd.service.withdraw_run(child.id, person="dora")


def test_child_run_queued_without_its_parent_is_withdrawn(crowd: Harness):
    """The gate stands in front of each host: a child that is merely ready is not enough."""
    child = _list_child_runs(crowd, _request_on_hosts(crowd, NAMES[:2]))[0]
    with crowd.database.transaction() as tx:
        runs.move_run(tx, runs.get_run(tx, child.id), State.QUEUED)
    crowd.service.advancer.advance_run(child.id)
    assert crowd.fleet.sent == []
    assert crowd.get_run(child.id).state is State.WITHDRAWN


def test_child_run_whose_plan_is_not_in_the_approved_plan_is_stale(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES[:2])
    child = _list_child_runs(crowd, run)[0]
    assert child.plan
    step = replace(child.plan.steps[0], before="bright")
    other = replace(child.plan, steps=(step,))
    crowd.fleet.hosts["lb1"]["lamp"] = "bright"
    with crowd.database.transaction() as tx:
        runs.amend_run(tx, runs.get_run(tx, child.id), plan=other, digest=other.digest)
    crowd.approve(run)
    assert "lb1" not in _list_hosts_sent_to(crowd)
    assert crowd.get_run(child.id).state is State.STALE


def test_denial_and_withdrawal_of_a_parent_run_end_every_child_run(crowd: Harness):
    denied = _request_on_hosts(crowd, NAMES[:3])
    crowd.service.deny_run(denied.id, person="olga", reason="no")
    assert {child.state for child in _list_child_runs(crowd, denied)} == {State.WITHDRAWN}
    with pytest.raises(TooLate):
        crowd.approve(denied)
    withdrawn = _request_on_hosts(crowd, NAMES[:3])
    crowd.service.withdraw_run(withdrawn.id, person="dora")
    crowd.run_queued_work()
    assert {child.state for child in _list_child_runs(crowd, withdrawn)} == {State.WITHDRAWN}
    assert crowd.fleet.sent == []


def test_fan_out_changes_no_further_host_when_its_requester_leaves(crowd: Harness):
    def dismiss(host: str, _words: str) -> None:
        people = crowd.policies.path / "people.yaml"
        people.write_text(people.read_text().replace("dora:", "dolores:"))

    crowd.fleet.after_send = dismiss
    ended = crowd.approve(_request_on_hosts(crowd, NAMES))
    assert ended.state is State.FAILED
    assert _list_hosts_sent_to(crowd) == ["lb1"]


def test_policy_rule_limits_the_number_of_hosts_of_a_request(crowd: Harness):
    rules = crowd.policies.path / "policy.cedar"
    rules.write_text(rules.read_text().replace('@hosts("12")', '@hosts("3")'))
    run = _request_on_hosts(crowd, NAMES)
    assert run.state is State.REFUSED
    assert "at most 3 hosts per request, and this has 12" in run.summary
    assert _list_child_runs(crowd, run) == []


def test_without_the_host_limit_a_request_for_too_many_hosts_is_pending(
    crowd: Harness, monkeypatch: pytest.MonkeyPatch
):
    rules = crowd.policies.path / "policy.cedar"
    rules.write_text(rules.read_text().replace('@hosts("12")', '@hosts("3")'))
    alone = Policy._get_host_ruling  # pyright: ignore[reportPrivateUsage] - what there is but for the ceiling
    monkeypatch.setattr(Policy, "_get_ruling", alone)
    assert _request_on_hosts(crowd, NAMES).state is State.PENDING


def test_requester_cannot_approve_their_own_request_for_several_hosts(crowd: Harness):
    requests = [BreakSwitch(host=name, name="lamp") for name in NAMES[:2]]
    run = crowd.service.request_on_hosts(requests, RequestTerms("olga", WEB), host_pattern="lb*")
    crowd.run_queued_work()
    with pytest.raises(NotAllowed, match="you requested it"):
        crowd.approve(crowd.get_run(run.id), person="olga")


def test_parent_check_needs_attention_when_one_host_does(crowd: Harness):
    requests = [ShowSwitches(host=name) for name in NAMES[:3]]
    well = crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    crowd.run_queued_work()
    crowd.fleet.hosts["lb2"]["lamp"] = "broken"
    ill = crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    crowd.run_queued_work()
    with crowd.database.reading() as tx:
        statuses = {run.id: run.status for run in runs.list_runs(tx, [well.id, ill.id])}
        parts = {run.host: run.status for run in runs.list_children(tx, ill.id)}
        wanted = search.RunFilter(states=frozenset({NEEDS_ATTENTION}))
        numbers = search.find_run_numbers(tx, wanted, most=9)
        of_host = search.find_run_numbers(tx, replace(wanted, host="lb2"), most=9)
    assert statuses == {well.id: "succeeded", ill.id: NEEDS_ATTENTION}
    assert parts == {"lb1": "succeeded", "lb2": NEEDS_ATTENTION, "lb3": "succeeded"}
    assert numbers == [ill.id]
    assert len(of_host) == 1


def test_change_of_hosts_in_several_areas_is_rejected(crowd: Harness):
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in HOSTS_APART]
    with pytest.raises(InvalidRequestError, match="in several areas"):
        crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="*")


def test_rejected_request_for_several_areas_names_the_command_for_each_area(crowd: Harness):
    """It is understood at every door, in a shell too, and together it is what was asked for."""
    hosts = crowd.policies.get_policy().inventory.tags
    spelled, requests = request_form.parse_request_for_hosts(
        SetSwitch, ["*b*", "lamp", "on"], hosts
    )
    with pytest.raises(InvalidRequestError) as no:
        crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern=spelled)
    suggestion = str(no.value).partition("separately. ")[2]
    assert suggestion == "edge: toy set 'lb*' lamp on; web: toy set web1 lamp on"
    typed = [shlex.split(one.partition(": toy set ")[2]) for one in suggestion.split("; ")]
    each = [request_form.parse_request_for_hosts(SetSwitch, values, hosts)[1] for values in typed]
    assert [one.target for part in each for one in part] == [one.target for one in requests]


def test_rejected_request_for_several_areas_does_not_repeat_a_secret(crowd: Harness):
    crowd.database.redactor.add_secrets("of-a-switch-2")
    requests = [SetSwitch(host=name, name="lamp", value="of-a-switch-2") for name in HOSTS_APART]
    with pytest.raises(InvalidRequestError) as no:
        crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="*")
    assert str(no.value) == SENSITIVE_REQUEST_MESSAGE


def test_rejected_request_for_many_areas_shortens_its_message(tmp_path: Path):
    with open_harness(tmp_path) as harness:
        areas = "".join(f"  a{n:02}: {{title: a{n:02}, owners: [olga]}}\n" for n in range(40))
        hosts = "".join(f"  h{n:02}: {{area: a{n:02}}}\n" for n in range(40))
        (tmp_path / "policy" / "areas.yaml").write_text(AREAS + areas)
        (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY + hosts)
        requests = [SetSwitch(host=f"h{n:02}", name="lamp", value="on") for n in range(40)]
        with pytest.raises(InvalidRequestError) as no:
            harness.service.request_on_hosts(
                requests, RequestTerms("dora", WEB), host_pattern="h*"
            )
    assert "a07: toy set h07 lamp on; and so on for a08, a09, " in str(no.value)
    assert len(str(no.value)) < 1000


def _request_checks_on_three_hosts(crowd: Harness) -> Run:
    crowd.fleet.hosts["web1"] = {"lamp": "on"}
    requests = [ShowSwitches(host=name) for name in ("lb1", "lb2", "web1")]
    return crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="*")


def _find_runs_in_area(crowd: Harness, area: str, **also: str) -> list[int]:
    with crowd.database.reading() as tx:
        return search.find_run_numbers(tx, search.RunFilter(area=area, **also), most=9)  # pyright: ignore[reportArgumentType] - each is text


def test_check_of_hosts_in_several_areas_is_one_report_found_by_each_area(crowd: Harness):
    run = _request_checks_on_three_hosts(crowd)
    crowd.run_queued_work()
    finished = crowd.get_run(run.id)
    assert (finished.state, finished.summary) == (State.SUCCEEDED, "3 of 3 hosts are healthy")
    assert (finished.area, finished.areas) == ("edge, web", ["edge", "web"])
    parts = {part.host: part for part in _list_child_runs(crowd, run)}
    assert {host: part.area for host, part in parts.items()} == {
        "lb1": "edge",
        "lb2": "edge",
        "web1": "web",
    }
    alone = crowd.service.request_run(ShowSwitches(host="lb1"), RequestTerms("dora", WEB))
    crowd.run_queued_work()
    assert _find_runs_in_area(crowd, "edge") == [alone.id, run.id]
    assert _find_runs_in_area(crowd, "edge", person="dora") == [alone.id, run.id]
    assert (
        _find_runs_in_area(crowd, "web")
        == _find_runs_in_area(crowd, "web", runbook="toy show")
        == [run.id]
    )
    assert _find_runs_in_area(crowd, "storage") == []
    assert _find_runs_in_area(crowd, "web", host="web1") == [parts["web1"].id]
    assert _find_runs_in_area(crowd, "edge", host="web1") == []


def test_check_of_several_areas_is_refused_with_the_forbidden_area(crowd: Harness):
    rules = crowd.policies.path / "policy.cedar"
    closed = """
@id("closed")
@description("the web servers are nobody's business")
forbid (principal, action == Action::"request", resource in Area::"web");
"""
    rules.write_text(rules.read_text() + closed)
    run = _request_checks_on_three_hosts(crowd)
    crowd.run_queued_work()
    refused = crowd.get_run(run.id)
    why = "The policy refuses: in the web servers: the web servers are nobody's business"
    assert (refused.state, refused.summary) == (State.REFUSED, why)
    assert (crowd.fleet.asked, _list_child_runs(crowd, run)) == (0, [])


def test_webhook_filter_for_one_area_excludes_a_check_of_several_areas(
    crowd: Harness,
):
    run = crowd.get_run(_request_checks_on_three_hosts(crowd).id)
    accepted = [
        webhook_queue.SubscriptionFilter(("check",), frozenset(areas), ()).accepts_run(run)
        for areas in (["edge"], ["edge", "web"], [])
    ]
    assert accepted == [False, True, True]


def test_preview_of_a_check_of_several_areas_is_one_answer(crowd: Harness):
    policy = crowd.policies.get_policy()
    hosts = ("lb1", "lb2", "web1")

    def foreseen_of(runbook: type[AnyRunbook]) -> list[tuple[str, Sequence[str]]]:
        seen = evaluate_preview(
            policy, PreviewQuestion(runbook, hosts), person="dora", source="web", now=0
        )
        return [(answer.area, answer.hosts) for answer in seen.areas]

    assert foreseen_of(ShowSwitches) == [("the edge and the web servers", hosts)]
    assert foreseen_of(SetSwitch) == [
        ("the edge", ("lb1", "lb2")),
        ("the web servers", ("web1",)),
    ]


def test_schedule_of_a_check_of_several_areas_is_rejected(crowd: Harness):
    requests = [ShowSwitches(host=name) for name in ("lb1", "web1")]
    with pytest.raises(InvalidRequestError, match="request each area"):
        crowd.service.request_on_hosts(
            requests, RequestTerms("dora", WEB, timing=HOURLY), host_pattern="*"
        )


def test_check_of_several_hosts_is_one_report(crowd: Harness):
    crowd.fleet.hosts["lb2"].clear()
    requests = [ShowSwitches(host=name) for name in NAMES[:3]]
    run = crowd.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    crowd.run_queued_work()
    finished = crowd.get_run(run.id)
    assert (finished.state, finished.summary) == (State.SUCCEEDED, "3 of 3 hosts are healthy")
    assert finished.report
    assert finished.report.findings == ["lb1: lamp=off", "lb2: 0 switches", "lb3: lamp=off"]


def test_undo_of_a_parent_run_reverts_every_host(crowd: Harness):
    done = crowd.approve(_request_on_hosts(crowd, NAMES[:3]))
    crowd.fleet.sent.clear()
    undo = crowd.service.request_undo(done.id, RequestTerms("dora", WEB))
    crowd.run_queued_work()
    ended = crowd.approve(crowd.get_run(undo.id))
    assert ended.state is State.SUCCEEDED
    assert sorted(crowd.fleet.sent) == [(name, "set lamp off") for name in NAMES[:3]]


def test_undo_of_a_child_run_reverts_only_its_host(crowd: Harness):
    done = crowd.approve(_request_on_hosts(crowd, NAMES[:3]))
    crowd.fleet.sent.clear()
    undo = crowd.service.request_undo(
        _list_child_runs(crowd, done)[1].id, RequestTerms("dora", WEB)
    )
    crowd.run_queued_work()
    assert crowd.approve(crowd.get_run(undo.id)).state is State.SUCCEEDED
    assert crowd.fleet.sent == [("lb2", "set lamp off")]


def test_history_lists_the_parent_run_and_by_host_its_child_run(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES[:3])
    with crowd.database.reading() as tx:
        assert [listed.id for listed in search.find_newest_runs(tx, search.RunFilter())] == [
            run.id
        ]
        by_host = search.find_newest_runs(tx, search.RunFilter(host="lb2"))
    assert [(listed.host, listed.parent) for listed in by_host] == [("lb2", run.id)]


def test_fan_out_continues_after_a_crash_between_waves(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES[:3])
    crowd.service.approve_run(run.id, person="olga", digest=run.digest)
    for _ in range(3):
        crowd.service.advancer.advance_run(crowd.dispatcher.enqueued.pop(0))
    crowd.dispatcher.enqueued.clear()
    crowd.service.advancer.recover_unfinished_runs()
    crowd.run_queued_work()
    assert crowd.get_run(run.id).state is State.SUCCEEDED
    assert sorted(_list_hosts_sent_to(crowd)) == NAMES[:3]


HOSTS = {
    "lb1": frozenset({"haproxy"}),
    "lb2": frozenset({"haproxy", "old"}),
    "lb9": frozenset({"nginx"}),
}


@pytest.mark.parametrize(
    ("typed", "spelled", "hosts"),
    [
        (["lb1", "203.0.113.9"], "", ["lb1"]),
        (["lb*", "203.0.113.9"], "lb*", ["lb1", "lb2"]),
        (["lb?", "203.0.113.9", "table=http"], "lb?", ["lb1", "lb2"]),
        (["@old", "203.0.113.9"], "@old", ["lb2"]),
        (["address=203.0.113.9", "host=lb*"], "lb*", ["lb1", "lb2"]),
        (["--host=@haproxy", "203.0.113.9"], "@haproxy", ["lb1", "lb2"]),
        (["address=203.0.113.9", "lb*"], "lb*", ["lb1", "lb2"]),
        (["lb2,lb1", "203.0.113.9"], "lb2,lb1", ["lb2", "lb1"]),
        (["@old,lb*", "203.0.113.9"], "@old,lb*", ["lb2", "lb1"]),
        (["host=lb1, @old", "203.0.113.9"], "lb1,@old", ["lb1", "lb2"]),
    ],
)
def test_hosts_of_a_request_are_named_by_name_pattern_or_tag(
    typed: list[str], spelled: str, hosts: list[str]
):
    from runbooks.abusers_clear import ClearAbuser

    pattern, requests = request_form.parse_request_for_hosts(ClearAbuser, typed, HOSTS)
    assert (pattern, [request.target for request in requests]) == (spelled, hosts)


def test_host_pattern_without_a_match_is_rejected():
    from runbooks.abusers_clear import ClearAbuser

    with pytest.raises(
        request_form.RequestSyntaxError, match="no host tagged haproxy matches 'db\\*'"
    ):
        request_form.parse_request_for_hosts(ClearAbuser, ["db*", "203.0.113.9"], HOSTS)


def test_wrong_name_in_a_list_of_hosts_is_reported(crowd: Harness):
    with pytest.raises(request_form.RequestSyntaxError, match="separate hosts with a comma"):
        request_form.parse_request_for_hosts(SetSwitch, ["lb1,", "lb2", "lamp", "on"], HOSTS)
    hosts = crowd.policies.get_policy().inventory.tags
    for typed, message in (("lb1,lb99", "no host 'lb99'"), ("lb1,nas1", "nas1 is not tagged")):
        spelled, requests = request_form.parse_request_for_hosts(
            TuneSwitch, [typed, "lamp"], hosts
        )
        with pytest.raises(InvalidRequestError, match=message):
            crowd.service.request_on_hosts(
                requests, RequestTerms("dora", WEB), host_pattern=spelled
            )


def test_freeze_holds_a_fan_out_until_it_ends(crowd: Harness):
    freezing = crowd.policies.path / "freezes.yaml"
    freezing.write_text(
        'freezes: [{name: fair, from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]\n'
    )
    run = _request_on_hosts(crowd, NAMES[:3])
    held = crowd.approve(run)
    for _ in range(3):
        crowd.service.advancer.wake_stalled_runs()
        crowd.run_queued_work()
    assert (held.state, is_on_hold(held)) == (State.QUEUED, True)
    assert crowd.list_entry_kinds(run).count("on hold") == 1
    assert crowd.fleet.sent == []
    crowd.policies.get_policy().freezes = FreezeList()
    crowd.service.advancer.wake_stalled_runs()
    crowd.run_queued_work()
    assert crowd.get_run(run.id).state is State.SUCCEEDED


def test_host_without_changes_does_not_count_as_the_first_wave(crowd: Harness):
    for name in NAMES[:3]:
        crowd.fleet.hosts[name]["lamp"] = "on"

    def refuse(_host: str, _words: str) -> None:
        raise CommandError("output: the lamp is glued")

    crowd.fleet.before_send = refuse
    ended = crowd.approve(_request_on_hosts(crowd, NAMES))
    states = [child.state for child in _list_child_runs(crowd, ended)]
    assert states.count(State.FAILED) == 1
    assert states.count(State.WITHDRAWN) == 8


def test_fan_out_starts_no_further_host_when_the_policy_becomes_invalid(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES[:3])
    crowd.service.approve_run(run.id, person="olga", digest=run.digest)
    for _ in range(2):
        crowd.service.advancer.advance_run(crowd.dispatcher.enqueued.pop(0))
    (crowd.policies.path / "policy.cedar").write_text("permit (")
    crowd.run_queued_work()
    ended = crowd.get_run(run.id)
    assert ended.state is State.FAILED
    assert "No further host was started, because there is no valid policy" in ended.summary
    assert _list_hosts_sent_to(crowd) == ["lb1"]


def test_parent_run_is_refused_when_the_policy_becomes_invalid_before_it_starts(crowd: Harness):
    run = _request_on_hosts(crowd, NAMES[:3])
    crowd.service.approve_run(run.id, person="olga", digest=run.digest)
    (crowd.policies.path / "policy.cedar").write_text("permit (")
    crowd.run_queued_work()
    ended = crowd.get_run(run.id)
    assert ended.state is State.REFUSED
    assert "There is no valid policy: policy.cedar" in ended.summary


def test_parent_run_with_unknown_outcome_follows_its_child_runs_after_a_crash(crowd: Harness):
    whole = _request_with_unknown_outcome_on(crowd, "lb1")
    first = _list_child_runs(crowd, whole)[0]
    crowd.service.resolve_run(
        first.id, person="olga", succeeded=True, reason="the lamp is on indeed"
    )
    crowd.dispatcher.enqueued.clear()
    crowd.service.advancer.recover_unfinished_runs()
    crowd.run_queued_work()
    assert crowd.get_run(whole.id).state is State.SUCCEEDED


def test_expired_child_run_ends_its_parent_run(crowd: Harness):
    def cut(_host: str, _words: str) -> None:
        raise UnknownOutcomeError("the connection was lost")

    crowd.fleet.before_send = cut
    crowd.approve(crowd.request(SetSwitch(host="lb1", name="lamp", value="on")))
    run = crowd.approve(_request_on_hosts(crowd, NAMES[:2]))
    assert run.state is State.RUNNING
    assert _list_child_runs(crowd, run)[0].state is State.QUEUED
    with crowd.database.transaction() as tx:
        for one in [runs.get_run(tx, run.id), *runs.list_children(tx, run.id)]:
            runs.amend_run(tx, one, expires_at=tx.now)
    crowd.service.advancer.expire_runs()
    crowd.run_queued_work()
    assert [child.state for child in _list_child_runs(crowd, run)] == [
        State.EXPIRED,
        State.WITHDRAWN,
    ]
    assert crowd.get_run(run.id).state is State.FAILED


def test_parent_run_does_not_wait_in_the_queue_of_its_first_host(crowd: Harness):
    """Or it would be woken in the place of a run that waits there, which then sleeps on."""
    whole = _request_on_hosts(crowd, NAMES[:2])
    single = crowd.request(SetSwitch(host="lb1", name="lamp", value="dim"))
    crowd.service.approve_run(whole.id, person="olga", digest=whole.digest)
    crowd.service.approve_run(single.id, person="olga", digest=single.digest)
    with crowd.database.reading() as tx:
        following = locks.get_next_run(tx, "lb1")
    assert following
    assert following.id == single.id


@pytest.mark.parametrize(
    ("spelled", "says"),
    [("lb[1\u202e]*", r"U\+202E"), ("lb[" + "1" * 200 + "]*", "100 characters")],
)
def test_host_pattern_with_invisible_or_too_many_characters_is_rejected(
    crowd: Harness, spelled: str, says: str
):
    with pytest.raises(InvalidRequestError, match=says):
        crowd.service.request_on_hosts(
            [SetSwitch(host="lb1", name="lamp", value="on")],
            RequestTerms("dora", WEB),
            host_pattern=spelled,
        )
