"""Requests of several changes: one plan, one digest, changes one after the other."""

import contextlib
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update

from bot.audit import change_log
from bot.db import runs, tables
from bot.features.rebuild.actions import RebuildActions
from bot.model.errors import InvalidRequestError, NotAllowed, TooLate
from bot.model.run import RequestOrigin, RequestTerms, Run, State
from bot.model.sequence import UndoSelection
from connectors.errors import CommandError
from tests.bot.harness import WEB, Harness, open_harness
from tests.bot.restricted_view import restricted_rules
from tests.campaigns import CHAOS
from tests.drift_keys import read_due_keys
from tests.policies import get_starter_rules
from tests.toy import BreakSwitch, KeepSwitch, SetSwitch

NAMES = ("fan", "lamp", "pump")


@pytest.fixture
def pair(tmp_path: Path) -> Generator[Harness]:
    """A harness with two balancers, whose switches are off, and lb1 rebuilt from three changes."""
    with open_harness(tmp_path) as harness:
        harness.fleet.hosts = {name: dict.fromkeys(NAMES, "off") for name in ("lb1", "lb2")}
        for name in ("lamp", "fan", "pump"):
            keep(harness, name, "on")
        yield harness


def keep(harness: Harness, name: str, value: str, *, host: str = "lb1") -> Run:
    run = harness.approve(harness.request(KeepSwitch(host=host, name=name, value=value)))
    assert run.state is State.SUCCEEDED
    return run


def rebuild(harness: Harness, new_host: str = "lb2", person: str = "dora") -> Run:
    run = harness.service.bind(RebuildActions).request_rebuild(
        "lb1", RequestTerms(person, WEB), new_host=new_host
    )
    harness.run_queued_work()
    return harness.get_run(run.id)


def list_children(harness: Harness, run: Run) -> list[Run]:
    with harness.database.reading() as tx:
        return runs.list_children(tx, run.id)


def list_commands(harness: Harness, host: str = "lb2") -> list[str]:
    return [command for at, command in harness.fleet.sent if at == host]


def test_rebuild_is_one_plan_and_runs_in_the_order_of_the_first_host(pair: Harness):
    run = rebuild(pair)
    assert (run.state, run.title, run.hosts) == (State.PENDING, "rebuild lb1 on lb2", ("lb2",))
    assert run.values == {
        "01 lb2 toy keep": "toy keep lb2 lamp on",
        "02 lb2 toy keep": "toy keep lb2 fan on",
        "03 lb2 toy keep": "toy keep lb2 pump on",
    }
    assert run.plan
    assert [step.title for step in run.plan.steps] == [
        "Set lamp to on",
        "Set fan to on",
        "Set pump to on",
    ]
    assert list_commands(pair) == []
    ended = pair.approve(run)
    assert (ended.state, ended.summary) == (State.SUCCEEDED, "Verified 3 of 3 changes")
    assert list_commands(pair) == ["set lamp on", "set fan on", "set pump on"]
    assert rebuild(pair).state is State.NO_CHANGES


def test_rebuild_stops_at_the_first_change_that_fails(pair: Harness):
    def refuse(host: str, words: str) -> None:
        if (host, words) == ("lb2", "set fan on"):
            raise CommandError("output: the fan is jammed")

    pair.fleet.before_send = refuse
    ended = pair.approve(rebuild(pair))
    assert ended.state is State.FAILED
    assert "toy keep lb2 fan on: Step 1 of 1 failed: output: the fan is jammed" in ended.summary
    assert ended.summary.startswith("Succeeded 1 of 3 changes.")
    states = [child.state for child in list_children(pair, ended)]
    assert states == [State.SUCCEEDED, State.FAILED, State.WITHDRAWN]
    assert list_commands(pair) == ["set lamp on"]


def test_rebuild_sends_nothing_when_one_change_is_refused(pair: Harness):
    pair.fleet.hosts["lb2"]["fan"] = "broken"
    pair.fleet.hosts["lb2"]["pump"] = "stuck"
    run = rebuild(pair)
    assert run.state is State.REFUSED
    assert "toy keep lb2 pump on: pump is stuck" in run.summary


def test_change_of_a_rebuild_without_effect_is_noted_in_the_plan(pair: Harness):
    pair.fleet.hosts["lb2"]["fan"] = "on"
    run = rebuild(pair)
    assert run.plan
    assert [step.title for step in run.plan.steps] == ["Set lamp to on", "Set pump to on"]
    assert "toy keep lb2 fan on: No changes: fan is on" in run.plan.notes
    assert pair.approve(run).state is State.SUCCEEDED


def test_rebuild_skips_undone_changes_and_changes_without_a_lasting_value(pair: Harness):
    last = keep(pair, "lamp", "dim")
    pair.approve(pair.request(SetSwitch(host="lb1", name="fan", value="off")))
    undo = pair.service.request_undo(last.id, RequestTerms("dora", WEB))
    pair.run_queued_work()
    pair.approve(pair.get_run(undo.id))
    left_out = pair.service.bind(RebuildActions).read_rebuild("lb1", view_rights=None)
    assert [(one.key, one.run.values["value"]) for one in left_out.values] == [
        ("switch lamp", "on"),
        ("switch fan", "on"),
        ("switch pump", "on"),
    ]
    assert [act.request for act in left_out.acts] == ["toy set lb1 fan off"]
    assert [one.approvals[0].person for one in left_out.values] == ["olga"] * 3


def test_rebuild_follows_a_second_undo_of_the_same_run(pair: Harness):
    first = keep(pair, "lamp", "dim")
    for again in (True, False):
        undo = pair.service.request_undo(first.id, RequestTerms("olga", WEB))
        pair.run_queued_work()
        assert pair.get_run(undo.id).state is State.SUCCEEDED
        if again:
            keep(pair, "lamp", "dim")
    assert pair.fleet.hosts["lb1"]["lamp"] == "on"
    values = pair.service.bind(RebuildActions).read_rebuild("lb1", view_rights=None).values
    assert [one.run.values["value"] for one in values] == ["on", "on", "on"]


def test_rebuild_lists_what_keyturn_does_not_know(pair: Harness):
    pair.approve(pair.request(BreakSwitch(host="lb1", name="pump")))

    def refuse(_host: str, _words: str) -> None:
        raise CommandError("output: jammed")

    pair.fleet.before_send = refuse
    failed = pair.approve(pair.request(KeepSwitch(host="lb1", name="fan", value="dim")))
    pair.fleet.hosts["lb1"]["lamp"] = "dim"
    with pair.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=0))
    read_due_keys(pair.service)
    unknown = pair.service.bind(RebuildActions).read_rebuild("lb1", view_rights=None).unknown
    assert unknown[0].startswith("What was set up without Keyturn")
    assert (
        f"What run {failed.id} (toy keep lb1 fan dim) left on the host: it has failed" in unknown
    )
    assert any(one.startswith("Why switch lamp is changed outside since") for one in unknown)


def test_rebuild_needs_a_known_value_and_a_known_host(pair: Harness):
    with pytest.raises(InvalidRequestError, match="no value that Keyturn has set on lb2 is known"):
        pair.service.bind(RebuildActions).request_rebuild(
            "lb2", RequestTerms("dora", WEB), new_host="lb1"
        )
    with pytest.raises(InvalidRequestError, match="lb9"):
        pair.service.bind(RebuildActions).request_rebuild(
            "lb1", RequestTerms("dora", WEB), new_host="lb9"
        )


def test_requester_cannot_approve_a_sequence_and_its_digest_binds_every_change(pair: Harness):
    run = rebuild(pair)
    with pytest.raises(NotAllowed):
        pair.service.approve_run(run.id, person="dora", digest=run.digest)
    with pytest.raises(TooLate):
        pair.service.approve_run(run.id, person="adam", digest="0" * 64)
    assert run.plan
    first, *others = run.plan.part_steps
    for labels in ([first.replace("01", "09"), *others], others):
        altered = replace(run.plan, part_steps=dict.fromkeys(labels, 1))
        assert not altered.has_digest(run.digest)


def test_strictest_rule_of_all_changes_of_a_sequence_counts(tmp_path: Path):
    strict = (
        '\n@id("two") @approvals("2") @from("owners")\n'
        'permit (principal, action == Action::"request", resource) '
        'when { context.runbook == "toy keep" };\n'
    )
    with open_harness(tmp_path, rules=get_starter_rules() + strict) as harness:
        harness.fleet.hosts["lb2"] = {"lamp": "off"}
        run = harness.request(KeepSwitch(host="lb1", name="lamp", value="on"))
        harness.service.approve_run(run.id, person="olga", digest=run.digest)
        harness.approve(run, person="adam")
        again = rebuild(harness)
        assert (again.state, again.required_approvals) == (State.PENDING, 2)


def test_altered_child_of_a_sequence_does_not_start(pair: Harness):
    run = rebuild(pair)
    second = list_children(pair, run)[1]
    pair.service.approve_run(run.id, person="olga", digest=run.digest)
    with pair.database.transaction() as tx:
        # The child would set the lamp, which the first change is approved to do, once.
        tx.sql.execute(
            update(tables.run)
            .where(tables.run.c.id == second.id)
            .values(
                request="toy keep lb2 lamp on",
                field_values='{"host":"lb2","name":"lamp","value":"on"}',
                plan=second.plan.to_json().replace("fan", "lamp") if second.plan else None,
            )
        )
    pair.run_queued_work()
    assert list_commands(pair) == ["set lamp on"]
    assert list_children(pair, run)[1].state in {State.STALE, State.REFUSED, State.NO_CHANGES}


def test_started_entry_of_a_sequence_names_the_change(pair: Harness):
    ended = pair.approve(rebuild(pair))
    child = list_children(pair, ended)[0]
    with pair.database.reading() as tx:
        (started,) = change_log.list_entries_of_run(tx, child.id, ["started"])
    assert started.facts["part"] == "toy keep lb2 lamp on"


def test_sequence_is_planned_again_with_the_same_changes(pair: Harness):
    run = rebuild(pair)
    again = pair.service.replan_run(run.id, person="dora", origin=WEB)
    pair.run_queued_work()
    assert pair.get_run(again.id).values == run.values
    assert pair.get_run(run.id).state is State.SUPERSEDED


def test_values_of_a_sequence_cannot_be_edited(pair: Harness):
    run = rebuild(pair)
    with pytest.raises(InvalidRequestError, match="several changes"):
        pair.service.propose_values(run.id, person="olga", changed_values={"value": "dim"})


def test_sequence_is_hidden_from_those_who_may_not_view_one_of_its_changes(tmp_path: Path):
    hides = (
        'permit (principal, action == Action::"view", resource) '
        'unless { principal in Role::"developer" && context.runbook == "toy keep" };'
    )
    with open_harness(tmp_path, rules=restricted_rules(hides)) as harness:
        harness.fleet.hosts["lb2"] = {"lamp": "off"}
        # Everyone may view their own runs.
        kept = harness.request(KeepSwitch(host="lb1", name="lamp", value="on"), person="olga")
        assert harness.get_run(kept.id).state is State.SUCCEEDED
        run = rebuild(harness, person="olga")
        policy = harness.policies.get_policy()
        for person, seen in (("dora", False), ("adam", True), ("olga", True)):
            with harness.database.reading(policy.get_view_rights(person)) as tx:
                assert (run.id in {one.id for one in runs.list_runs(tx, [run.id])}) is seen
                entries = change_log.list_entries_of_run(tx, run.id)
            assert bool(entries) is seen
            known = harness.service.bind(RebuildActions).read_rebuild(
                "lb1", view_rights=tx.view_rights
            )
            assert bool(known.values) is seen
            assert ("Runs that you may not view" in known.unknown) is not seen


VIEW_OF_DEVELOPERS = """
permit (principal in Role::"administrator", action == Action::"view", resource);
permit (principal in Role::"developer", action == Action::"view", resource in Area::"web");
"""


@pytest.fixture
def partial_view(tmp_path: Path) -> Generator[Harness]:
    """A harness in which developers view their own runs, and those of the web servers."""
    with open_harness(tmp_path, rules=restricted_rules(VIEW_OF_DEVELOPERS)) as harness:
        harness.fleet.hosts = {name: dict.fromkeys(NAMES, "off") for name in ("lb1", "lb2")}
        keep(harness, "lamp", "on")
        keep(harness, "fan", "on")
        keep(harness, "pump", "on")
        yield harness


def set_hidden(harness: Harness, name: str, value: str) -> Run:
    return harness.request(KeepSwitch(host="lb1", name=name, value=value), "adam", "hidden")


def test_rebuild_with_a_partial_view_leaves_out_what_a_hidden_run_has_set_last(
    partial_view: Harness,
):
    hidden = set_hidden(partial_view, "lamp", "dim")
    set_hidden(partial_view, "fan", "dim")
    keep(partial_view, "fan", "on")
    run = rebuild(partial_view)
    assert run.values == {
        "01 lb2 toy keep": "toy keep lb2 pump on",
        "02 lb2 toy keep": "toy keep lb2 fan on",
        "left out": "switch lamp, which a run that Dora Developer may not view has set last; "
        "runs that Dora Developer may not view",
    }
    assert run.plan
    assert f"Left out: {run.values['left out']}." in run.plan.notes
    assert partial_view.approve(run).state is State.SUCCEEDED
    assert partial_view.fleet.hosts["lb2"] == {"fan": "on", "lamp": "off", "pump": "on"}
    # A person who may view everything gets the value that is in effect, and no such note.
    whole = rebuild(partial_view, person="olga")
    assert "toy keep lb2 lamp dim" in whole.values.values()
    assert "left out" not in whole.values
    assert str(hidden.id) not in run.values["left out"]


def test_rebuild_with_a_partial_view_follows_a_hidden_undo(partial_view: Harness):
    dimmed = keep(partial_view, "lamp", "dim")
    undo = partial_view.service.request_undo(dimmed.id, RequestTerms("adam", WEB))
    partial_view.run_queued_work()
    assert partial_view.get_run(undo.id).state is State.SUCCEEDED
    assert "toy keep lb2 lamp on" in rebuild(partial_view).values.values()


def test_rebuild_page_of_a_person_with_a_partial_view_names_what_is_left_out(
    partial_view: Harness,
):
    set_hidden(partial_view, "lamp", "dim")
    rights = partial_view.policies.get_policy().get_view_rights("dora")
    known = partial_view.service.bind(RebuildActions).read_rebuild("lb1", view_rights=rights)
    assert [one.key for one in known.values] == ["switch fan", "switch pump"]
    assert (
        "What switch lamp is to be: a run that you may not view has set it last" in known.unknown
    )
    for name in ("fan", "pump"):
        set_hidden(partial_view, name, "dim")
    with pytest.raises(InvalidRequestError, match="may not view has set last"):
        rebuild(partial_view)


def test_undo_of_many_with_a_partial_view_leaves_out_what_a_hidden_run_has_set_last(
    partial_view: Harness,
):
    set_hidden(partial_view, "lamp", "dim")
    asked = undo_person(partial_view, by="dora")
    assert asked.plan
    assert (
        "Left out: switch lamp on lb1, which a run that Dora Developer may not view has set last; "
        "runs that Dora Developer may not view." in asked.plan.notes
    )
    assert partial_view.approve(asked).state is State.SUCCEEDED
    assert partial_view.fleet.hosts["lb1"] == {"fan": "off", "lamp": "dim", "pump": "off"}


def undo_person(harness: Harness, by: str = "olga", *, area: str = "", since: int = 1) -> Run:
    selection = UndoSelection(person="dora", since=since, area=area)
    run = harness.service.request_undo_of_selection(selection, RequestTerms(by, WEB))
    harness.run_queued_work()
    return harness.get_run(run.id)


def test_changes_of_one_person_are_undone_newest_first(pair: Harness):
    ended = undo_person(pair)
    assert ended.title.startswith("undo of changes of Dora Developer since ")
    assert (ended.state, ended.summary) == (State.SUCCEEDED, "Verified 3 of 3 changes")
    assert list_commands(pair, "lb1")[3:] == ["set pump off", "set fan off", "set lamp off"]
    assert pair.service.bind(RebuildActions).read_rebuild("lb1", view_rights=None).values == []
    with pytest.raises(InvalidRequestError, match="no run of these can be undone"):
        undo_person(pair)


def test_several_changes_of_one_value_are_undone_in_one_step(pair: Harness):
    keep(pair, "lamp", "dim")
    keep(pair, "lamp", "red")
    ended = undo_person(pair)
    assert ended.state is State.SUCCEEDED
    assert list_commands(pair, "lb1")[5:] == ["set pump off", "set fan off", "set lamp off"]
    assert pair.fleet.hosts["lb1"] == dict.fromkeys(NAMES, "off")


def test_undo_of_one_person_keeps_a_later_change_of_another(pair: Harness):
    other = pair.request(KeepSwitch(host="lb1", name="lamp", value="dim"), person="olga")
    ended = undo_person(pair, by="adam")
    assert ended.state is State.SUCCEEDED
    assert pair.fleet.hosts["lb1"] == {"fan": "off", "pump": "off", "lamp": "dim"}
    assert ended.plan
    (note,) = [one for one in ended.plan.notes if "not in effect any more" in one]
    assert f"Since then, run {other.id} of Olga Owner set it to dim on " in note
    assert "The undo would overwrite this: lamp is dim" in note


def test_undo_of_a_value_that_changed_outside_names_the_change(pair: Harness):
    pair.fleet.hosts["lb1"]["lamp"] = "red"
    with pair.database.transaction() as tx:
        tx.sql.execute(update(tables.drift_key).values(next_at=0))
    read_due_keys(pair.service)
    run = pair.service.request_undo(1, RequestTerms("dora", WEB))
    pair.run_queued_work()
    ended = pair.get_run(run.id)
    assert ended.state is State.NO_CHANGES
    assert "it changed outside Keyturn, found on " in ended.summary
    assert "overwrite this: lamp is red" in ended.summary


def test_undo_of_one_person_names_irreversible_changes_and_skips_them(pair: Harness):
    broken = pair.approve(pair.request(BreakSwitch(host="lb1", name="pump")))
    run = pair.service.request_undo_of_selection(
        UndoSelection(person="dora", since=1), RequestTerms("dora", WEB)
    )
    left_out = f"run {broken.id}, toy break lb1 pump: irreversible"
    assert run.values["not undone"] == str(broken.id)
    pair.run_queued_work()
    planned = pair.get_run(run.id)
    assert planned.plan
    assert f"Not undone: {left_out}" in planned.plan.notes


def test_undo_of_a_rebuild_is_one_request(pair: Harness):
    rebuilt = pair.approve(rebuild(pair))
    run = pair.service.request_undo(rebuilt.id, RequestTerms("olga", WEB))
    pair.run_queued_work()
    ended = pair.get_run(run.id)
    assert ended.state is State.SUCCEEDED
    assert pair.fleet.hosts["lb2"] == dict.fromkeys(NAMES, "off")
    with pytest.raises(InvalidRequestError, match="is an undo"):
        pair.service.request_undo(run.id, RequestTerms("olga", WEB))


def test_undo_of_changes_in_several_areas_asks_for_one_area(pair: Harness):
    pair.fleet.hosts["web1"] = {"lamp": "off"}
    assert keep(pair, "lamp", "on", host="web1").area == "web"
    with pytest.raises(InvalidRequestError, match="in several areas"):
        undo_person(pair)
    assert undo_person(pair, area="web").hosts == ("web1",)


def test_undo_of_an_api_token_reverts_only_its_changes(pair: Harness):
    token = RequestOrigin("api", user="kt_abc")
    dimmed = KeepSwitch(host="lb1", name="lamp", value="dim")
    asked = pair.service.request_run(dimmed, RequestTerms("dora", token))
    pair.run_queued_work()
    pair.approve(pair.get_run(asked.id))
    run = pair.service.request_undo_of_selection(
        UndoSelection(token="kt_abc", since=1), RequestTerms("olga", WEB)
    )
    pair.run_queued_work()
    assert run.title.startswith("undo of changes with token kt_abc since ")
    assert pair.get_run(run.id).state is State.SUCCEEDED
    assert pair.fleet.hosts["lb1"] == dict.fromkeys(NAMES, "on")


def test_undo_of_a_selection_needs_a_person_and_a_time(pair: Harness):
    with pytest.raises(InvalidRequestError, match="name a person or a token, and since when"):
        pair.service.request_undo_of_selection(
            UndoSelection(person="dora"), RequestTerms("dora", WEB)
        )


VALUES = st.sampled_from(["on", "dim", "off"])
EVENTS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(NAMES), VALUES),
    st.tuples(st.just("undo"), st.integers(0, 9), st.just("")),
    st.tuples(st.just("undo since"), st.integers(0, 9), st.just("")),
)


@settings(max_examples=CHAOS // 10 or 6)
@given(st.lists(EVENTS, min_size=3, max_size=10))
def test_rebuilt_host_equals_the_first_after_a_random_history(
    history: Sequence[tuple[str, str | int, str]],
):
    with tempfile.TemporaryDirectory() as directory, open_harness(Path(directory)) as harness:
        harness.fleet.hosts = {name: dict.fromkeys(NAMES, "off") for name in ("lb1", "lb2")}
        done: list[Run] = []
        for kind, what, value in history:
            if kind == "set":
                keep = KeepSwitch(host="lb1", name=str(what), value=value)
                run = harness.request(keep)
                if run.state is State.PENDING:
                    done.append(harness.approve(run))
            elif done:
                undo_at_random(harness, kind, done[int(what) % len(done)])
        if harness.service.bind(RebuildActions).read_rebuild("lb1", view_rights=None).values:
            run = rebuild(harness)
            assert run.state in {State.PENDING, State.NO_CHANGES}
            if run.state is State.PENDING:
                assert harness.approve(run).state is State.SUCCEEDED
                assert rebuild(harness).state is State.NO_CHANGES
        assert harness.fleet.hosts["lb2"] == harness.fleet.hosts["lb1"]


def undo_at_random(harness: Harness, kind: str, run: Run) -> None:
    """Undo a run, or it and everything after it."""
    if kind == "undo":
        harness.service.request_undo(run.id, RequestTerms("olga", WEB))
    else:
        with contextlib.suppress(InvalidRequestError):
            undo_person(harness, since=run.started_at or 1)
    harness.run_queued_work()
