"""What a preview and a plan say of a request beforehand is what then happens."""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from bot.db import stops
from bot.db.stops import EVERYTHING
from bot.model.errors import InvalidRequestError
from bot.model.request_form import get_field_texts
from bot.model.run import RefusedBy, RequestOrigin, RequestTerms, Run, State
from bot.model.run_states import is_on_hold
from bot.policy.explain import AreaEvaluation, Evaluation, Preview, PreviewQuestion
from bot.policy.oncall import Duty
from bot.queries.banned_people import PolicyWithoutBanned
from bot.queries.preview import preview_request
from bot.queries.run_view import RunView, build_run_view
from bot.service import KeyturnService
from connectors.errors import DomainError
from runbooks import load_catalogue
from tests.bot.api.conftest import create_api_harness
from tests.bot.db.test_delegations import delegate
from tests.bot.db.test_grants import grant
from tests.bot.duties import add_calendar, build_duties, with_facts
from tests.bot.harness import Harness, open_harness
from tests.bot.slack.chat import open_chat
from tests.bot.slack.conftest import patient
from tests.bot.web.conftest import create_site
from tests.policies import get_signed_rules, get_starter_rules, write_policy
from tests.toy import RUNBOOKS as RUNBOOKS_BY_WORDS
from tests.toy import BreakSwitch, MeltSwitch, SetSwitch, ShowSwitches, TakeDown

__all__ = ["patient"]
REQUEST = 'permit (principal, action == Action::"request", resource)'
CONDITIONS = (
    *(["true"] * 4),
    "context.reversible",
    "!context.reversible",
    "context.margin < 2",
    "context.margin >= 2",
    "context.frozen",
    "!context.frozen",
    'context.source == "web"',
    "context.first_time",
    "context.oncall == 0",
    'principal in Role::"oncall:edge"',
    'principal in Role::"developer"',
    'resource.tags.contains("haproxy")',
    'context.runbook == "toy restart"',
    "context.granted",
)
RUNBOOKS = (SetSwitch, SetSwitch, TakeDown, BreakSwitch, MeltSwitch, ShowSwitches)
FREEZE = (
    'freezes: [{name: fair, areas: [edge], from: "1999-01-01 00:00", until: "2999-01-01 00:00"}]'
)


@dataclass(frozen=True)
class Rule:
    approvals: int
    source: str
    condition: str

    def render(self, number: int) -> str:
        head = f'@id("rule {number}")\n'
        if self.approvals < 0:
            return f"{head}{REQUEST.replace('permit', 'forbid')} when {{ {self.condition} }};\n"
        # Of two groups, at least two people approve.
        groups = self.source if self.approvals > 1 else self.source.split(" & ")[0]
        numbers = f'@approvals("{self.approvals}") @from("{groups}")\n'
        numbers = numbers if self.approvals else ""
        return f"{head}{numbers}{REQUEST} when {{ {self.condition} }};\n"


RULES = st.builds(
    Rule,
    st.sampled_from([0, 0, 1, 1, 2, -1]),
    st.sampled_from(["owners", "role:administrator", "area:edge & role:administrator"]),
    st.sampled_from(CONDITIONS),
)


@dataclass(frozen=True)
class World:
    rules: Sequence[Rule]
    runbook: type[SetSwitch] | type[BreakSwitch] | type[ShowSwitches]
    hosts: Sequence[str]
    person: str
    is_frozen: bool
    is_stopped: bool
    has_grant: bool
    on_duty: Sequence[str] = field(default_factory=tuple)
    has_succeeded: bool = False
    source: str = "web"
    banned: Sequence[str] = ()
    delegator: str = ""
    """Stan decides on behalf of this person."""

    @property
    def is_check(self) -> bool:
        return self.runbook is ShowSwitches


WORLDS = st.builds(
    World,
    st.lists(RULES, min_size=2, max_size=4),
    st.sampled_from(RUNBOOKS),
    st.sampled_from(
        [("lb1",), ("lb2",), ("web1",), ("lb1", "lb2"), ("lb1", "web1"), ("lb2", "lb1", "web1")]
    ),
    st.sampled_from(["dora", "olga", "adam"]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    st.booleans(),
    st.sampled_from([(), ("dora",), ("olga", "adam")]),
    st.booleans(),
    st.sampled_from(["web", "slack", "api", "cli"]),
    st.sampled_from([(), (), ("olga",), ("adam",), ("olga", "adam"), ("stan",), ("dora",)]),
    st.sampled_from(["", "adam", "olga"]),
)


def _get_rules_without_requests() -> str:
    """Return the rules of the starter that are about anything but requests."""
    kept = [part for part in get_starter_rules().split("\n\n") if 'Action::"request"' not in part]
    return "\n\n".join(kept)


def _build_world(directory: Path, harness: Harness, world: World) -> Harness:
    """Let everything be as in *world*; return a harness that knows who is on duty."""
    harness.fleet.hosts = {h: {"lamp": "off", "fan": "off"} for h in ("lb1", "lb2", "web1")}
    if world.has_succeeded:
        done = harness.request(_build_runbook(world, world.hosts[0], "fan"), "olga")
        assert done.state in {State.SUCCEEDED, State.PENDING, State.REFUSED}
    if world.has_grant:
        with suppress(DomainError):  # such as a grant to its giver
            grant(harness, words=world.runbook.words, person=world.person)
    if world.delegator:
        with harness.database.reading() as tx:
            ends_at = tx.now + 3_600_000_000
        harness.service.delegations.create_delegation(
            delegator=world.delegator, delegate="stan", ends_at=ends_at, area="", source="web"
        )
    rules = "\n".join(rule.render(n) for n, rule in enumerate(world.rules))
    write_policy(directory, rules=f"{_get_rules_without_requests()}\n{rules}")
    add_calendar(directory)
    inventory = directory / "inventory.yaml"
    inventory.write_text(f"{inventory.read_text()}redundant: [lb1, lb2]\n")
    (directory / "freezes.yaml").write_text(FREEZE if world.is_frozen else "freezes: []\n")
    if world.is_stopped:
        with harness.database.transaction() as tx:
            stops.add_stop(tx, EVERYTHING, person="stan", why="smoke")
    with harness.database.transaction() as tx:
        for person in world.banned:
            stops.add_ban(tx, person, by="stan", why="gone")
    duties = build_duties(edge=Duty(world.on_duty, unmatched=("Edge",), is_known=True))
    facts = [*harness.context.hooks.policy_facts, duties]
    context = replace(
        harness.context,
        policies=PolicyWithoutBanned(
            with_facts(harness.policies, harness.database, *facts), harness.database
        ),
        hooks=replace(harness.context.hooks, policy_facts=facts),
    )
    return replace(harness, context=context, service=KeyturnService(context))


def _build_runbook(world: World, host: str, name: str) -> SetSwitch | BreakSwitch | ShowSwitches:
    values = {"host": host, "name": name}
    if world.runbook is ShowSwitches:
        return ShowSwitches(host=host)
    if issubclass(world.runbook, SetSwitch):
        return world.runbook(**values, value="on")
    return world.runbook(**values)


def _preview(harness: Harness, world: World) -> Preview:
    runbook = _build_runbook(world, world.hosts[0], "lamp")
    question = PreviewQuestion(world.runbook, world.hosts, get_field_texts(runbook))
    policy = harness.context.policies.get_policy()
    with harness.database.reading() as tx:
        return preview_request(tx, policy, question, person=world.person, source=world.source)


def _view(harness: Harness, run: Run) -> RunView:
    with harness.database.reading() as tx:
        return build_run_view(tx, run.id, harness.context.policies.get_policy())


@given(WORLDS)
@settings(
    max_examples=25,
    # Each example is a request from start to end, so shrinking would take minutes.
    phases=[Phase.explicit, Phase.generate],
)
def test_forecast_of_a_request_is_what_then_happens(world: World):
    with tempfile.TemporaryDirectory() as folder, open_harness(Path(folder)) as plain:
        harness = _build_world(Path(folder) / "policy", plain, world)
        preview = _preview(harness, world)
        note(f"{preview.describe()}")
        if len(preview.areas) > 1 and not preview.stop:
            assert "request each area separately" in preview.describe()[0]
            with pytest.raises(InvalidRequestError, match="request each area separately"):
                _request(harness, world, world.hosts)
        for area in preview.areas:
            _check_forecast_of_area(harness, world, preview, area)


def _request(harness: Harness, world: World, hosts: Sequence[str]) -> Run:
    """Request a check, or the plan of a change."""
    terms = RequestTerms(world.person, RequestOrigin(world.source), plan_only=not world.is_check)
    runbooks = [_build_runbook(world, host, "lamp") for host in hosts]
    pattern = ",".join(hosts) if len(hosts) > 1 else ""
    run = harness.service.request_on_hosts(runbooks, terms, host_pattern=pattern)
    harness.run_queued_work()
    return harness.get_run(run.id)


def _check_forecast_of_area(
    harness: Harness, world: World, preview: Preview, area: AreaEvaluation
) -> None:
    preview = replace(preview, areas=[area])
    run = _request(harness, world, area.hosts)
    note(f"{preview.describe()} then {run.state}: {run.summary}")
    _check_text_of_preview(preview, area)
    if preview.stop or run.state is State.STOPPED:
        assert preview.stop
        assert run.state is State.STOPPED
        return
    if run.state is State.REFUSED and run.refused_by is RefusedBy.POLICY:
        plan_is_known = run.plan is not None
        known = _get_evaluation(area, run) if plan_is_known else area.evaluation
        assert not known.allowed or (plan_is_known and known.is_lower_bound)
        return
    evaluation = _get_evaluation(area, run)
    assert evaluation.allowed
    if world.is_check:
        # It needs no approval, whatever the rules about changes say.
        assert run.state is State.SUCCEEDED
        assert not evaluation.required_approvals
        return
    assert run.state is State.PLANNED
    view = _view(harness, run)
    note(f"plan: {view.forecast}")
    _check_approvals_of_plan(area, evaluation, view)
    _check_request_of_plan(harness, world, view)


def _get_evaluation(area: AreaEvaluation, run: Run) -> Evaluation:
    is_reversible = run.plan is None or run.plan.is_reversible
    if area.if_irreversible is not None and not is_reversible:
        return area.if_irreversible
    return area.evaluation


def _check_text_of_preview(preview: Preview, area: AreaEvaluation) -> None:
    text = " ".join(preview.describe())
    held = preview.stop or area.freeze or not area.evaluation.allowed
    assert not (held and ("Runs immediately" in text or "Runs without" in text)), text
    if area.evaluation.is_lower_bound and not preview.stop and area.evaluation.allowed:
        assert "at least" in text
    assert bool(preview.stop) == ("ends without a command" in text)


def _check_approvals_of_plan(area: AreaEvaluation, evaluation: Evaluation, view: RunView) -> None:
    is_reversible = view.run.plan is not None and view.run.plan.is_reversible
    expected = 0 if area.grant and is_reversible else evaluation.required_approvals
    if evaluation.is_lower_bound:
        assert view.missing_approvals >= (0 if area.possible_grant else expected)
    else:
        assert view.missing_approvals == expected
        if expected:
            assert view.approver_names == evaluation.approvers
            assert view.approvals_from == evaluation.approvals_from


def _check_request_of_plan(harness: Harness, world: World, view: RunView) -> None:
    harness.service.request_plan(view.run.id, person=world.person, digest=view.run.digest)
    harness.run_queued_work()
    run = harness.get_run(view.run.id)
    note(f"requested: {run.state}: {run.summary}")
    if run.refused_by is RefusedBy.GUARD:
        return
    runs_now = "as soon as you request it" in view.forecast
    if view.may_need_more and run.state is State.PENDING:
        assert run.required_approvals >= max(view.missing_approvals, 1)
        assert "at least" in view.forecast
        return
    if view.missing_approvals:
        assert (run.state, run.required_approvals) == (State.PENDING, view.missing_approvals)
        assert is_frozen_after(harness, run) == ("stays on hold" in view.forecast)
    else:
        assert is_on_hold(run) == ("a freeze holds it" in view.forecast)
        # One of several hosts may wait until the one before it is up again.
        assert (run.state in {State.SUCCEEDED, State.RUNNING}) == runs_now
    assert not (runs_now and (view.missing_approvals or is_on_hold(run)))


def is_frozen_after(harness: Harness, run: Run) -> bool:
    with harness.database.reading() as tx:
        policy = harness.context.policies.get_policy()
        return policy.find_freeze(run.target_hosts, runbook=run.runbook, now=tx.now) is not None


STOPPED = "Everything is stopped by Adam Admin: smoke. A request now ends without a command."
REDUNDANT = "redundant: [lb1, lb2]\n"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """People can type the words of the toy runbooks."""
    known = cast("dict[str, Any]", load_catalogue())
    for words, runbook in RUNBOOKS_BY_WORDS.items():
        monkeypatch.setitem(known, words, runbook)


def _stop_everything(harness: Harness) -> None:
    with harness.database.transaction() as tx:
        stops.add_stop(tx, EVERYTHING, person="adam", why="smoke")


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("host", ["lb1", "web1"])
def test_form_api_and_command_line_say_that_a_stop_ends_a_request(harness: Harness, host: str):
    _stop_everything(harness)
    browser = create_site(harness).browser("olga")
    for runbook in ("toy set", "toy show"):
        form = browser.get("/runbooks/preview", params={"runbook": runbook, "field-host": host})
        assert STOPPED in form.text
        assert "Runs immediately" not in form.text
        api = create_api_harness(harness).program("olga", "read")
        shown = api.get("/policy/preview", params={"request": f"{runbook} {host}"}).json()
        assert shown["sentences"] == [STOPPED]
        assert shown["stop"] == "Everything is stopped by Adam Admin: smoke"
    browser.close()
    assert harness.request(SetSwitch(host=host, name="lamp", value="on"), "olga").state is (
        State.STOPPED
    )


@pytest.mark.anyio
@pytest.mark.usefixtures("toys")
async def test_chat_says_that_a_stop_ends_a_request(harness: Harness, anyio_backend: str):
    assert anyio_backend
    async with open_chat(harness) as chat:
        await chat.type("plan toy set lb1 lamp on", "U0OLGA")
        [plan] = chat.slack.posted
        assert "It needs no approval: it runs as soon as you request it." in plan.words
        _stop_everything(harness)
        assert (await chat.type("can-i toy set lb1", "U0OLGA")).text == STOPPED


@pytest.mark.usefixtures("toys")
def test_preview_of_a_frozen_request_without_approvals_does_not_run_immediately(harness: Harness):
    (harness.policies.path / "freezes.yaml").write_text(FREEZE)
    api = create_api_harness(harness).program("olga", "read")
    shown = api.get("/policy/preview", params={"request": "toy set lb1"}).json()["sentences"]
    assert shown[0] == "Needs no approval."
    assert "Currently on hold: the edge is frozen until 2999-01-01 00:00 UTC (fair)." in shown
    # A check is not frozen.
    check = api.get("/policy/preview", params={"request": "toy show lb1"}).json()["sentences"]
    assert check[0] == "Runs immediately, no approval needed."


@pytest.mark.usefixtures("toys")
def test_preview_says_at_least_where_a_rule_depends_on_the_redundancy_of_the_plan(
    harness: Harness,
):
    inventory = harness.policies.path / "inventory.yaml"
    inventory.write_text(inventory.read_text() + REDUNDANT)
    api = create_api_harness(harness).program("dora", "read")
    shown = api.get("/policy/preview", params={"request": "toy restart lb1"}).json()
    assert shown["sentences"][0].startswith(
        "Needs at least 1 approval from the owners of the edge"
    )
    assert shown["areas"][0]["at_least"]
    run = harness.request(TakeDown(host="lb1", name="lamp", value="on"), plan_only=True)
    assert run.required_approvals == 2
    assert "It needs at least 2 approvals" in _view(harness, run).forecast
    # The twin: without redundancy in the policy, the number is exact.
    inventory.write_text(inventory.read_text().replace(REDUNDANT, ""))
    exact = api.get("/policy/preview", params={"request": "toy restart lb1"}).json()
    assert exact["sentences"][0].startswith("Needs 1 approval from the owners of the edge")


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("both", "the plan first, and then the approvers."),
        ("approver", "Approvers sign the plan."),
        ("", ""),
    ],
)
def test_forecast_of_a_plan_says_who_signs_it_as_the_preview_does(
    tmp_path: Path, who: str, said: str
):
    with open_harness(tmp_path, rules=get_signed_rules(who) if who else None) as harness:
        api = create_api_harness(harness).program("dora", "read")
        shown = api.get("/policy/preview", params={"request": "toy set lb1 lamp on"}).json()
        run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"), plan_only=True)
        forecast = _view(harness, run).forecast
        assert forecast.endswith(said)
        assert any(one.endswith(said) for one in shown["sentences"])
        assert ("sign" in forecast) == bool(who)


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("person", ["adam", "dora"])
def test_preview_names_delegates_also_for_an_irreversible_step(harness: Harness, person: str):
    """Adam needs no approval for what can be undone, and Dora has a grant for it."""
    delegate(harness, "olga", "stan")
    grant(harness)
    api = create_api_harness(harness).program(person, "read")
    shown = api.get("/policy/preview", params={"request": "toy set lb1 lamp on"}).json()
    [other] = [one for one in shown["sentences"] if one.startswith("If a step is irreversible")]
    assert "Stan Storage on behalf of Olga Owner" in other
