"""Policy replay: past requests evaluated with another policy."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bot.db import history
from bot.db.history import PastRequest
from bot.features.wait_report.replay import (
    Replay,
    ReplayOutcome,
    replay_requests,
    summarise_replay,
)
from bot.model.errors import NotAllowed
from bot.model.run import Run, State
from bot.policy import Policy
from bot.policy.loader import load_policy
from tests.agents import (
    add_agent,
    build_agent_origin,
    get_rules_for_agents,
    request_as_agent,
)
from tests.bot.harness import Harness, open_harness
from tests.policies import get_starter_rules, write_policy
from tests.toy import BreakSwitch, SetSwitch, ShowSwitches

DEVELOPERS = 'principal in Role::"developer", action == Action::"request", resource'


def _replay(harness: Harness, tmp_path: Path, *, more: str = "", instead: str = "") -> Replay:
    return replay_requests(
        _build_new_policy(tmp_path, more, instead), _list_past_requests(harness)
    )


def _build_new_policy(tmp_path: Path, more: str = "", instead: str = "") -> Policy:
    return write_policy(tmp_path / "new", rules=instead or get_starter_rules() + more).get_policy()


def _list_past_requests(harness: Harness) -> list[PastRequest]:
    with harness.database.reading() as tx:
        return list(history.list_past_requests(tx, 0))


def _request_lamp(
    harness: Harness, value: str = "on", person: str = "dora", host: str = "lb1"
) -> Run:
    return harness.request(SetSwitch(host=host, name="lamp", value=value), person)


def _list_outcomes(replay: Replay) -> list[str]:
    return [one.outcome.value for one in replay.requests]


def test_policy_replay_with_the_same_policy_reports_no_differences(
    harness: Harness, tmp_path: Path
):
    harness.approve(_request_lamp(harness))
    _request_lamp(harness, "off", "olga")
    harness.request(ShowSwitches(host="lb1"), "dora")
    harness.request(BreakSwitch(host="lb1", name="lamp"), "olga")
    replay = _replay(harness, tmp_path)
    assert set(_list_outcomes(replay)) == {"as it was"}
    assert len(replay.requests) == 4
    assert summarise_replay(replay) == "no differences"


def test_policy_replay_counts_more_approvals_refusals_and_no_waiting(
    harness: Harness, tmp_path: Path
):
    harness.approve(_request_lamp(harness))
    _request_lamp(harness, "off", "olga")
    harness.request(BreakSwitch(host="lb1", name="fan"), "olga")
    rules = f"""
        @id("1") permit ({DEVELOPERS});
        @id("2") @approvals("2") @from("owners") permit (principal in Role::"administrator",
            action == Action::"request", resource) when {{ context.reversible }};
        @id("3") permit (principal, action == Action::"approve", resource);
        @id("4") @description("Nothing is broken.")
        forbid (principal, action == Action::"request", resource) when {{ !context.reversible }};
    """
    replay = _replay(harness, tmp_path, instead=rules)
    assert _list_outcomes(replay) == ["without waiting", "more approvals", "refused"]
    assert [one.description for one in replay.requests] == [
        "0 approvals instead of 1",
        "2 instead of 0, from the owners of the edge",
        "Nothing is broken.",
    ]
    assert summarise_replay(replay) == "2 more approvals, 1 refused, 1 without waiting"
    assert replay.count_outcomes_by(lambda one: one.requested_by)["olga"] == {
        ReplayOutcome.MORE: 1,
        ReplayOutcome.REFUSED: 1,
    }


def test_policy_replay_reports_approvals_that_no_longer_count(harness: Harness, tmp_path: Path):
    harness.approve(_request_lamp(harness), "adam")
    new = _build_new_policy(tmp_path)
    areas = tmp_path / "new" / "areas.yaml"
    areas.write_text(areas.read_text().replace("[olga, adam]", "[olga]"))
    changed = replay_requests(load_policy(tmp_path / "new"), _list_past_requests(harness))
    assert (
        replay_requests(new, _list_past_requests(harness)).list_with_outcome(
            ReplayOutcome.LOST_APPROVALS
        )
        == []
    )
    (lost,) = changed.list_with_outcome(ReplayOutcome.LOST_APPROVALS)
    assert lost.description == "approved by adam, but needs approval from the owners of the edge"


def test_policy_replay_names_people_and_hosts_that_were_removed(harness: Harness, tmp_path: Path):
    harness.approve(_request_lamp(harness), "adam")
    harness.approve(_request_lamp(harness, host="lb2"))
    _build_new_policy(tmp_path)
    new = tmp_path / "new"
    people = (new / "people.yaml").read_text().splitlines(keepends=True)
    (new / "people.yaml").write_text("".join(line for line in people if " adam:" not in line))
    (new / "areas.yaml").write_text(
        (new / "areas.yaml").read_text().replace("[olga, adam]", "[olga]")
    )
    hosts = (new / "inventory.yaml").read_text().splitlines(keepends=True)
    (new / "inventory.yaml").write_text("".join(line for line in hosts if " lb2:" not in line))
    replay = replay_requests(load_policy(tmp_path / "new"), _list_past_requests(harness))
    assert _list_outcomes(replay) == ["approvals that would not count", "gone"]
    assert replay.requests[1].description == "lb2: not in the inventory any more"
    assert replay.unknown_approvers == {"adam": 1}
    assert replay.unknown_requesters == {}


def test_policy_replay_distinguishes_refusals_by_rule_and_by_runbook(
    harness: Harness, tmp_path: Path
):
    rules = harness.policies.path / "policy.cedar"
    harness.fleet.hosts["lb1"]["fan"] = "stuck"
    harness.request(SetSwitch(host="lb1", name="fan", value="on"))
    rules.write_text(get_starter_rules() + f"forbid ({DEVELOPERS});")
    _request_lamp(harness)
    states = [one.state for one in _list_past_requests(harness)]
    assert states == [State.REFUSED, State.REFUSED]
    assert _list_outcomes(_replay(harness, tmp_path)) == ["as it was", "no longer refused"]


def test_policy_replay_evaluates_hours_at_the_time_of_the_request(
    harness: Harness, tmp_path: Path
):
    harness.approve(_request_lamp(harness))
    (one,) = _list_past_requests(harness)
    more = (
        f'@id("n") @description("Not at night.") forbid ({DEVELOPERS})'
        " when { context.hour < 6 };"
    )
    new = _build_new_policy(tmp_path, more)
    day = one.requested_at // 86_400_000_000 * 86_400_000_000
    at = [replace(one, requested_at=day + hour * 3_600_000_000) for hour in (0, 5, 6, 23)]
    assert _list_outcomes(replay_requests(new, at)) == [
        "refused",
        "refused",
        "as it was",
        "as it was",
    ]


def test_policy_replay_knows_the_first_success_of_a_requester(harness: Harness, tmp_path: Path):
    harness.approve(_request_lamp(harness))
    harness.approve(_request_lamp(harness, "off"))
    assert [one.is_first_success for one in _list_past_requests(harness)] == [True, False]
    more = (
        f'@id("n") forbid ({DEVELOPERS})'
        ' when { context.kind == "change" && context.first_time };'
    )
    assert _list_outcomes(_replay(harness, tmp_path, more=more)) == ["refused", "as it was"]


def test_policy_replay_reports_missing_second_factors_and_freezes(
    harness: Harness, tmp_path: Path
):
    harness.approve(_request_lamp(harness))
    _build_new_policy(
        tmp_path, instead=get_starter_rules().replace('@approvals("1")', '@approvals("1") @stepup')
    )
    (tmp_path / "new" / "freezes.yaml").write_text(
        'freezes: [{name: x, from: "2000-01-01 00:00", until: "2999-01-01 00:00"}]\n'
    )
    (one,) = replay_requests(load_policy(tmp_path / "new"), _list_past_requests(harness)).requests
    assert (one.outcome, one.lacks_second_factor, one.was_frozen) == (
        ReplayOutcome.SAME,
        True,
        True,
    )


def test_policy_replay_reads_only_requests_since_a_time(harness: Harness):
    _request_lamp(harness)
    with harness.database.reading() as tx:
        assert len(list(history.list_past_requests(tx, tx.now - 3_600_000_000))) == 1
        assert list(history.list_past_requests(tx, tx.now + 1)) == []


def test_policy_replay_writes_no_log_entry(harness: Harness, tmp_path: Path):
    harness.approve(_request_lamp(harness))
    before = harness.list_entry_kinds()
    _replay(harness, tmp_path)
    assert harness.list_entry_kinds() == before


@pytest.mark.parametrize(
    "more",
    ["", 'forbid (principal, action == Action::"request", resource) when { context.frozen };'],
)
def test_policy_replay_of_ten_thousand_requests_takes_seconds(
    harness: Harness, tmp_path: Path, more: str
):
    harness.approve(_request_lamp(harness))
    harness.request(BreakSwitch(host="lb1", name="fan"), "olga")
    few: Sequence[PastRequest] = _list_past_requests(harness)
    many = [
        replace(few[n % 2], id=n, requested_at=few[0].requested_at - n * 600_000_000)
        for n in range(10_000)
    ]
    new = _build_new_policy(tmp_path, more)
    began = time.monotonic()
    assert len(replay_requests(new, many).requests) == 10_000
    assert time.monotonic() - began < 20


def test_policy_replay_ignores_refused_approvals(harness: Harness):
    run = _request_lamp(harness)
    with pytest.raises(NotAllowed):
        harness.service.approve_run(run.id, person="stan", digest=run.digest)
    assert [one.approvers for one in _list_past_requests(harness)] == [()]


def test_policy_replay_includes_past_requests_of_agents(tmp_path: Path):
    with open_harness(tmp_path, rules=get_rules_for_agents()) as company:
        add_agent(company)
        request_as_agent(company, ShowSwitches(host="lb1"))
        [past] = _list_past_requests(company)
        assert past.agent == build_agent_origin().agent
        replayed = replay_requests(company.policies.get_policy(), [past])
    assert replayed.outcome_counts == {ReplayOutcome.SAME: 1}
