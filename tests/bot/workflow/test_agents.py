"""Agents request and never decide, and are paused, ended and limited."""

import inspect
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from bot.audit import change_log, events, verification
from bot.audit.event_type import Event
from bot.auth import agents, tokens
from bot.db import tables
from bot.db.database import Database
from bot.maintenance.key_rotation import rotate_signing_key
from bot.model.errors import (
    InvalidRequestError,
    NoSuchSchedule,
    NotAllowed,
    TooLate,
    TooManyRequestsError,
)
from bot.model.run import Run, State
from bot.model.signing import load_signing_key
from bot.policy import PolicyRequest
from bot.policy.cedar import Rules, RulesError
from bot.workflow import agent_limits
from tests.agents import (
    TRIAGE,
    add_agent,
    build_agent_origin,
    get_rules_for_agents,
    request_as_agent,
)
from tests.bot.databases import create_sqlite_database
from tests.bot.harness import Harness, open_harness
from tests.events import build_event
from tests.policies import get_starter_rules
from tests.toy import BreakSwitch, SetSwitch, ShowSwitches

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
SHOW = ShowSwitches(host="lb1")


@pytest.fixture
def company(tmp_path: Path) -> Generator[Harness]:
    with open_harness(tmp_path, rules=get_rules_for_agents()) as harness:
        add_agent(harness)
        yield harness


def match_nobody(_request: PolicyRequest, _person: str) -> bool:
    """Stand where the guard stood."""
    return False


def open_harness_with_rules(directory: Path, more: str) -> Any:
    return open_harness(directory, rules=get_rules_for_agents(more))


def test_starter_rules_give_agents_nothing(harness: Harness):
    add_agent(harness)
    run = request_as_agent(harness, SHOW)
    assert run.state is State.REFUSED
    assert "no rule of the policy permits it to the agent triage-bot" in run.summary


def test_agent_needs_a_permit_for_itself_and_for_its_person(company: Harness, tmp_path: Path):
    assert request_as_agent(company, SHOW).state is State.SUCCEEDED
    forbid = """
    @id("not dora") @description("Dora stays away from the balancers.")
    forbid (principal == Person::"dora", action == Action::"request", resource in Area::"edge");
    """
    with open_harness_with_rules(tmp_path / "other", forbid) as other:
        add_agent(other)
        refused = request_as_agent(other, SHOW)
        assert refused.state is State.REFUSED
        assert "Dora stays away" in refused.summary
        assert request_as_agent(other, SHOW, behalf="").state is State.SUCCEEDED


def test_stricter_rule_for_everyone_applies_to_agents(tmp_path: Path):
    stricter = """
    @id("two for lamps") @approvals("2") @from("owners")
    permit (principal, action == Action::"request", resource)
    when { context.runbook == "toy set" };
    """
    with open_harness_with_rules(tmp_path, stricter) as harness:
        add_agent(harness)
        assert request_as_agent(harness, LAMP_ON, behalf="").required_approvals == 2


def test_rules_see_the_agent_and_its_person(tmp_path: Path):
    forbid = """
    @id("only for dora") @description("It acts for Dora only.")
    forbid (principal, action == Action::"request", resource)
    when { context.source == "mcp" && context.agent == "triage-bot" && context.behalf != "dora" };
    """
    with open_harness_with_rules(tmp_path, forbid) as harness:
        add_agent(harness)
        assert request_as_agent(harness, SHOW).state is State.SUCCEEDED
        assert "for Dora only" in request_as_agent(harness, SHOW, behalf="olga").summary


@pytest.mark.parametrize("action", ["approve", "break-glass", "stop", "resume", "ban"])
def test_rule_that_lets_agents_decide_is_invalid(action: str):
    Rules(get_starter_rules())
    rule = f'permit (principal == Agent::"triage-bot", action == Action::"{action}", resource);'
    with pytest.raises(RulesError):
        Rules(get_starter_rules() + rule)


@pytest.mark.parametrize("person", ["dora", "adam"])
def test_approval_by_the_person_or_owner_of_an_agent_is_refused(company: Harness, person: str):
    run = request_as_agent(company, LAMP_ON, behalf="dora")
    assert run.state is State.PENDING
    with pytest.raises(NotAllowed, match=r"through an agent|requested"):
        company.service.approve_run(run.id, person=person, digest=run.digest)
    assert company.approve(run, "olga").state is State.SUCCEEDED


def test_gate_refuses_approval_of_the_owner_of_an_agent(
    company: Harness, monkeypatch: pytest.MonkeyPatch
):
    run = request_as_agent(company, LAMP_ON)
    with monkeypatch.context() as patch:
        patch.setattr(PolicyRequest, "_is_for", match_nobody)
        company.service.approve_run(run.id, person="adam", digest=run.digest)
    company.run_queued_work()
    assert company.get_run(run.id).state is State.REFUSED
    assert company.fleet.sent == []


def test_without_the_guard_the_owner_of_an_agent_approves_its_request(
    company: Harness, monkeypatch: pytest.MonkeyPatch
):
    run = request_as_agent(company, LAMP_ON)
    monkeypatch.setattr(PolicyRequest, "_is_for", match_nobody)
    assert company.approve(run, "adam").state is State.SUCCEEDED
    assert company.fleet.sent == [("lb1", "set lamp on")]


@pytest.mark.parametrize("person", ["dora", "adam"])
def test_person_and_owner_of_an_agent_withdraw_its_request(company: Harness, person: str):
    run = request_as_agent(company, LAMP_ON)
    with pytest.raises(NotAllowed):
        company.service.withdraw_run(run.id, person="stan")
    assert company.service.withdraw_run(run.id, person=person).state is State.WITHDRAWN


@pytest.mark.parametrize("member", ["behalf", "owner"])
def test_gate_refuses_agent_run_whose_person_or_owner_was_altered(company: Harness, member: str):
    run = request_as_agent(company, LAMP_ON)
    company.service.approve_run(run.id, person="olga", digest=run.digest)
    with company.database.transaction() as tx:
        column = tables.run.c.origin
        text = tx.sql.execute(select(column).where(tables.run.c.id == run.id)).scalar_one()
        old = {"behalf": '"dora"', "owner": '"adam"'}[member]
        assert old in text
        tx.sql.execute(
            update(tables.run)
            .where(tables.run.c.id == run.id)
            .values(origin=text.replace(old, '"stan"'))
        )
    company.run_queued_work()
    refused = company.get_run(run.id)
    assert refused.state is State.REFUSED
    assert "change log does not confirm" in refused.summary


# What an agent may do, as long as the rules permit it.
_ALLOWED = {"request_run", "request_on_hosts", "request_plan", "withdraw_run"}
_OWN_ID = ("person", "banned_by", "unbanned_by", "granted_by", "delegator", "viewer")


def list_actions(harness: Harness) -> dict[str, Callable[..., object]]:
    """Return everything that the service lets a person do, by name."""
    service = harness.service
    parts = {"": service} | {
        name: part
        for name, part in vars(service).items()
        if not name.startswith("_") and type(part).__module__.startswith("bot.workflow")
    }
    actions: dict[str, Callable[..., object]] = {}
    for prefix, part in parts.items():
        for name, method in inspect.getmembers(part, inspect.ismethod):
            parameters = inspect.signature(method).parameters
            if not name.startswith("_") and any(one in parameters for one in _OWN_ID):
                actions[f"{prefix}.{name}".lstrip(".")] = method
    return actions


def call_as_agent(method: Callable[..., object], run: Run) -> object:
    """Call an action as the agent, with plausible arguments."""
    known: dict[str, object] = {
        **dict.fromkeys(_OWN_ID, TRIAGE),
        "number": run.id,
        "digest": run.digest,
        "reason": "a reason of more than twenty characters",
        "origin": build_agent_origin(),
        "succeeded": True,
        "changed_values": {"value": "off"},
        "name": "triage-bot",
        "owner": "adam",
        "purpose": "more",
        "scopes": ["read"],
        "days": 1,
        "source": "web",
        "runbook": LAMP_ON,
    }
    parameters = inspect.signature(method).parameters
    given = {
        name: known.get(name, "dora")
        for name, one in parameters.items()
        if name in known or one.default is inspect.Parameter.empty
    }
    positional = [
        given.pop(name)
        for name, one in parameters.items()
        if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name in given
    ]
    return method(*positional, **given)


def test_agent_never_decides_whatever_it_calls(company: Harness):
    run = request_as_agent(company, LAMP_ON)
    actions = list_actions(company)
    assert {"approve_run", "deny_run", "stop_everything", "ban_person"} < set(actions)
    before = company.list_entry_kinds()
    done: list[str] = []
    for name in sorted(set(actions) - _ALLOWED):
        try:
            call_as_agent(actions[name], run)
        except (NotAllowed, InvalidRequestError, TooLate, NoSuchSchedule):
            continue
        except (AttributeError, TypeError):
            # An argument of another kind: nothing was done either, see the log below.
            continue
        done.append(name)
    written = company.list_entry_kinds()[len(before) :]
    assert [kind for kind in written if not kind.endswith("refused")] == []
    assert company.get_run(run.id).state is State.PENDING
    # There is nothing to release, and the end of an enrolment needs an entry.
    harmless = ("release_leg", "factor_enrolment.")
    assert [name for name in done if not name.startswith(harmless)] == []


@pytest.mark.parametrize(
    "event_type",
    [events.Approved, events.Denied, events.GrantCreated, events.Banned, events.Scheduled],
)
def test_log_accepts_no_decision_of_an_agent(company: Harness, event_type: type[Event]):
    event = build_event(event_type)
    with company.database.transaction() as tx, pytest.raises(NotAllowed, match="never decides"):
        change_log.append_entry(tx, event, person=TRIAGE)
    with company.database.transaction() as tx:
        change_log.append_entry(tx, event, person="olga")


def test_agent_is_added_by_one_person_and_confirmed_by_another(tmp_path: Path):
    with open_harness_with_rules(tmp_path, "") as harness:
        actions = harness.service.agents
        with pytest.raises(NotAllowed):
            actions.add_agent("bot", owner="adam", purpose="p", days=1, person="dora")
        actions.add_agent("triage-bot", owner="adam", purpose="p", days=1, person="olga")
        with pytest.raises(NotAllowed, match="not confirmed"):
            request_as_agent(harness, SHOW)
        with pytest.raises(NotAllowed, match="Another person"):
            actions.confirm_agent("triage-bot", person="olga")
        with pytest.raises(InvalidRequestError, match="not confirmed"):
            actions.create_token("triage-bot", behalf="", days=1)
        actions.confirm_agent("triage-bot", person="stan")
        assert request_as_agent(harness, SHOW).state is State.SUCCEEDED
        kinds = [kind for kind in harness.list_entry_kinds() if kind.startswith("agent ")]
        assert kinds == ["agent added", "agent refused", "agent confirmed"]
        with pytest.raises(InvalidRequestError, match="never reused"):
            actions.add_agent("triage-bot", owner="adam", purpose="p", days=1, person="olga")


def test_ended_agent_requests_nothing_and_what_it_requested_does_not_start(company: Harness):
    run = request_as_agent(company, LAMP_ON)
    company.service.approve_run(run.id, person="olga", digest=run.digest)
    _, secret = company.service.agents.create_token("triage-bot", behalf="dora", days=1)
    company.service.agents.end_agent("triage-bot", person="", reason="not needed")
    company.run_queued_work()
    assert company.get_run(run.id).state is State.REFUSED
    assert company.fleet.sent == []
    with pytest.raises(NotAllowed, match="has ended"):
        request_as_agent(company, SHOW)
    with company.database.reading() as tx:
        token = tokens.find_token(tx, secret)
        assert token is not None
        assert not token.is_active(tx.now)


def test_restored_row_of_an_ended_agent_gives_no_access(company: Harness):
    with company.database.reading() as tx:
        row = tx.sql.execute(select(tables.agent)).mappings().one()
    company.service.agents.end_agent("triage-bot", person="", reason="not needed")
    with company.database.transaction() as tx:
        tx.sql.execute(delete(tables.agent))
        tx.sql.execute(tables.agent.insert().values(**row))
    with company.database.reading() as tx:
        agent = agents.find_agent(tx, "triage-bot")
        assert agent is not None
        assert agent.get_state(tx.now) == "ended"


def test_agent_whose_row_was_altered_requests_nothing(company: Harness):
    with company.database.transaction() as tx:
        tx.sql.execute(update(tables.agent).values(owner="olga"))
    with pytest.raises(NotAllowed, match="no agent"):
        request_as_agent(company, SHOW)


def test_agent_of_a_banned_owner_or_person_requests_nothing(company: Harness):
    company.service.ban_person("adam", banned_by="olga", reason="lost his laptop")
    policy = company.policies.get_policy().without_people(["adam"])
    ruling = policy.get_request_ruling(
        PolicyRequest(
            "toy show", "check", "lb1", "mcp", TRIAGE, now=0, agent=build_agent_origin().agent
        )
    )
    assert not ruling.allowed
    policy = company.policies.get_policy().without_people(["dora"])
    assert not policy.get_request_ruling(
        PolicyRequest(
            "toy show", "check", "lb1", "mcp", TRIAGE, now=0, agent=build_agent_origin().agent
        )
    ).allowed


def test_third_denial_pauses_an_agent_until_another_person_resumes_it(company: Harness):
    for value in ("on", "dim", "red"):
        run = request_as_agent(company, SetSwitch(host="lb1", name="lamp", value=value))
        company.service.deny_run(run.id, person="olga", reason="no")
    with pytest.raises(NotAllowed, match="paused: 3 of its requests were denied"):
        request_as_agent(company, SHOW)
    company.service.agents.resume_agent("triage-bot", person="olga", reason="instructed again")
    assert request_as_agent(company, SHOW).state is State.SUCCEEDED
    run = request_as_agent(company, LAMP_ON)
    company.service.deny_run(run.id, person="olga", reason="no")
    assert request_as_agent(company, SHOW).state is State.SUCCEEDED


def test_person_who_paused_an_agent_cannot_resume_it(company: Harness):
    actions = company.service.agents
    actions.pause_agent("triage-bot", person="olga", reason="nonsense")
    with pytest.raises(NotAllowed):
        actions.resume_agent("triage-bot", person="olga", reason="fixed")
    actions.resume_agent("triage-bot", person="stan", reason="fixed")


def test_identical_agent_request_returns_the_open_run(company: Harness):
    first = request_as_agent(company, LAMP_ON)
    assert request_as_agent(company, LAMP_ON).id == first.id
    assert request_as_agent(company, LAMP_ON, plan_only=True).id == first.id
    other = request_as_agent(company, LAMP_ON, behalf="stan")
    assert other.id != first.id


def test_plan_of_an_identical_agent_request_returns_the_open_run(company: Harness):
    plans = [
        request_as_agent(company, LAMP_ON, plan_only=True),
        request_as_agent(company, LAMP_ON, plan_only=True),
    ]
    requested = [
        company.service.request_plan(plan.id, person=TRIAGE, digest=plan.digest, reason="alert")
        for plan in plans
    ]
    assert [run.id for run in requested] == [plans[0].id] * 2
    assert requested[0].state is State.PENDING


def test_agent_is_limited_in_open_requests_and_requests_an_hour(
    company: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_limits, "MAX_OPEN_REQUESTS", 1)
    monkeypatch.setattr(agent_limits, "MAX_REQUESTS_AN_HOUR", 3)
    request_as_agent(company, LAMP_ON)
    other = BreakSwitch(host="lb1", name="lamp")
    with pytest.raises(NotAllowed, match="are open"):
        request_as_agent(company, other)
    plan = request_as_agent(company, other, plan_only=True)
    with pytest.raises(TooManyRequestsError, match="are open"):
        company.service.request_plan(plan.id, person=TRIAGE, digest=plan.digest)
    request_as_agent(company, SetSwitch(host="lb1", name="fan", value="on"), plan_only=True)
    with pytest.raises(NotAllowed, match="an hour"):
        request_as_agent(company, other, plan_only=True)


def test_stopped_agent_is_paused_and_its_open_runs_end(company: Harness):
    run = request_as_agent(company, LAMP_ON)
    stopped = company.service.agents.stop_agent("triage-bot", person="", reason="stop it")
    assert stopped == [run.id]
    assert company.get_run(run.id).state is State.STOPPED
    with pytest.raises(NotAllowed, match="paused: stop it"):
        request_as_agent(company, SHOW)


def test_agent_requests_approvals_and_limits_hold_on_each_database(
    tmp_path: Path, database: Database
):
    with open_harness(tmp_path, rules=get_rules_for_agents(), database=database) as harness:
        add_agent(harness)
        plan = request_as_agent(harness, LAMP_ON, plan_only=True)
        run = harness.service.request_plan(
            plan.id, person=TRIAGE, digest=plan.digest, reason="an alert"
        )
        assert request_as_agent(harness, LAMP_ON).id == run.id
        with pytest.raises(NotAllowed):
            harness.service.approve_run(run.id, person="adam", digest=run.digest)
        assert harness.approve(run, "olga").state is State.SUCCEEDED
        for value in ("dim", "red", "off"):
            run = request_as_agent(harness, SetSwitch(host="lb1", name="lamp", value=value))
            harness.service.deny_run(run.id, person="olga", reason="no")
        with pytest.raises(NotAllowed, match="paused"):
            request_as_agent(harness, SHOW)
        harness.service.agents.end_agent("triage-bot", person="", reason="not needed")
        with database.reading() as tx:
            [agent] = agents.list_agents(tx)
            assert agent.get_state(tx.now) == "ended"


def test_identical_concurrent_agent_requests_become_one(tmp_path: Path, database: Database):
    with open_harness(tmp_path, rules=get_rules_for_agents(), database=database) as harness:
        add_agent(harness)
        plans = [request_as_agent(harness, LAMP_ON, plan_only=True) for _ in range(4)]

        def request(plan: Run) -> int:
            return harness.service.request_plan(
                plan.id, person=TRIAGE, digest=plan.digest, reason="an alert"
            ).id

        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(request, plans))) == 1


def test_agent_and_its_token_survive_a_key_rotation(tmp_path: Path):
    key = tmp_path / "changelog.key"
    database = create_sqlite_database(tmp_path / "keyturn.db", load_signing_key(key))
    with database.transaction() as tx:
        verification.open_log(tx)
    with open_harness(tmp_path, rules=get_rules_for_agents(), database=database) as harness:
        add_agent(harness)
        _, secret = harness.service.agents.create_token("triage-bot", behalf="dora", days=1)
        assert rotate_signing_key(database, key).ended == []
    after = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", load_signing_key(key))
    with after.reading() as tx:
        agent, token = agents.find_agent(tx, "triage-bot"), tokens.find_token(tx, secret)
        assert agent is not None
        assert token is not None
        assert (agent.get_state(tx.now), token.behalf) == ("active", "dora")
    after.close()
