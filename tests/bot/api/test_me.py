"""Pending actions, delegations, the policy in words, and field options over the API."""

from dataclasses import replace
from typing import Any

from bot.db import break_glass
from bot.queries.form_options import FormOptions
from tests.bot.api.conftest import ApiHarness
from tests.bot.web.sample_runs import (
    add_pending_run,
    add_planned_run,
    add_requested_run,
    add_sample_runs,
)
from tests.toy import ABUSERS, LISTS, SetSwitch


def _list_pending(api_harness: ApiHarness, person: str) -> list[int]:
    pending = api_harness.program(person).get("/pending").json()
    return [run["id"] for run in pending["runs"]]


def test_pending_lists_approvals_and_unknown_outcomes_of_a_person(api_harness: ApiHarness):
    numbers = add_sample_runs(api_harness.database)
    assert _list_pending(api_harness, "olga")[0] == numbers["unknown"]
    assert numbers["pending"] in _list_pending(api_harness, "olga")
    assert _list_pending(api_harness, "dora") == []
    api_harness.harness.service.deny_run(numbers["pending"], person="olga", reason="not now")
    assert numbers["pending"] not in _list_pending(api_harness, "olga")


def test_counter_proposals_and_plans_are_pending_for_their_requester(api_harness: ApiHarness):
    harness = api_harness.harness
    run = harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    change = {"values": {"value": "dim"}, "reason": "too bright"}
    answer = api_harness.program("olga", "approve").post(f"/runs/{run.id}/counter", json=change)
    proposal = answer.json()["id"]
    harness.run_queued_work()
    with api_harness.database.transaction() as tx:
        plan = add_planned_run(tx).id
    pending = api_harness.program("dora").get("/pending").json()
    (one,) = pending["counter_proposals"]
    assert (one["run"]["id"], one["proposed_by"], one["reason"]) == (
        proposal,
        "olga",
        "too bright",
    )
    assert one["changes"] == [{"field": "value", "requested": "on", "proposed": "dim"}]
    assert [run["id"] for run in pending["planned"]] == [plan]
    others = api_harness.program("olga").get("/pending").json()
    assert (others["counter_proposals"], others["planned"]) == ([], [])


def test_pending_lists_open_questions_and_assigned_runs(api_harness: ApiHarness):
    def look(person: str) -> dict[str, Any]:
        return api_harness.program(person).get("/pending").json()

    service, other = api_harness.harness.service, SetSwitch(host="lb2", name="lamp", value="on")
    first = api_harness.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    newest = api_harness.harness.request(other)
    assert (look("dora")["questions"], look("adam")["assigned"]) == ([], [])
    service.ask_question(first.id, person="olga", text="which ticket?")
    service.reassign_run(first.id, person="olga", assignee="adam", reason="it is yours")
    [question] = look("dora")["questions"]
    assert (question["run"]["id"], question["person"], question["text"]) == (
        first.id,
        "olga",
        "which ticket?",
    )
    mine = look("adam")
    assert [run["id"] for run in mine["runs"]] == [first.id, newest.id]
    [assigned] = mine["assigned"]
    assert (assigned["run"], assigned["assigned_by"]) == (first.id, "olga")
    assert assigned["reason"] == "it is yours"
    assert [run["id"] for run in look("olga")["runs"]] == [newest.id, first.id]
    assert (look("olga")["assigned"], look("olga")["questions"]) == ([], [])
    service.answer_question(first.id, person="dora", text="4711")
    assert look("dora")["questions"] == []
    service.deny_run(first.id, person="adam", reason="not now")
    assert look("adam")["assigned"] == []


def test_pending_lists_break_glass_runs_until_they_are_reviewed(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        run = add_pending_run(tx, add_requested_run(tx))
        break_glass.request_break_glass(
            tx, run=run.id, person="adam", reason="the shop is down, nobody is awake"
        )
        break_glass.activate_break_glass(tx, run.id, until=tx.now, factor="f")
    (one,) = api_harness.program("olga").get("/pending").json()["to_review"]
    assert (one["run"], one["person"]) == (run.id, "adam")
    review = {"findings": "the shop was down indeed"}
    reviewed = api_harness.program("olga", "approve").post(f"/runs/{run.id}/review", json=review)
    assert reviewed.status_code == 200, reviewed.text
    assert api_harness.program("olga").get("/pending").json()["to_review"] == []
    mine = api_harness.program("adam", "approve").post(f"/runs/{run.id}/review", json=review)
    assert mine.status_code == 409


def test_access_lists_a_delegation_to_both_people_only(api_harness: ApiHarness):
    with api_harness.database.reading() as tx:
        until = tx.now + 3_600_000_000
    api_harness.harness.service.delegations.create_delegation(
        delegator="olga", delegate="adam", ends_at=until, area="", reason="away", source="cli"
    )
    for person in ("olga", "adam"):
        (one,) = api_harness.program(person).get("/access").json()["delegations"]
        assert (one["delegator"], one["delegate"], one["reason"]) == ("olga", "adam", "away")
    assert api_harness.program("dora").get("/access").json() == {"delegations": [], "grants": []}


def test_api_describes_the_policy_of_everyone_or_one_person(api_harness: ApiHarness):
    program = api_harness.program("dora")
    whole = program.get("/policy").json()
    alone = program.get("/policy", params={"person": "dora"}).json()
    assert {name for one in whole["people"] for name in one["people"]} >= {"dora", "olga"}
    assert [list(one["people"]) for one in alone["people"]] == [["dora"]]
    check = alone["people"][0]["rights"][0]
    assert (check["what"], check["where"], check["sentence"]) == (
        "every check",
        "everywhere",
        "may",
    )
    assert "toy break" in whole["irreversible_changes"]
    assert {"edge", "storage"} <= {area["name"] for area in whole["areas"]}
    assert program.get("/policy", params={"person": "eve"}).status_code == 422


def test_api_returns_field_options_read_from_the_host(api_harness: ApiHarness):
    harness = api_harness.harness
    api_harness.api.state.parts = replace(
        api_harness.api.state.parts,
        form_options=FormOptions(harness.fleet.run_query, harness.database, harness.policies),
    )
    harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    program = api_harness.program("dora")
    options = program.get("/hosts/lb1/options", params={"runbook": "toy set"}).json()
    assert {one["field"]: one["values"] for one in options["fields"]} == {
        "name": ["lamp"],
        "value": ["on"],
    }
    for wrong in ("/hosts/lb9/choices?runbook=toy+set", "/hosts/lb1/choices?runbook=nope"):
        assert program.get(wrong).status_code == 404


def test_api_returns_blocked_addresses_of_the_chosen_table(api_harness: ApiHarness):
    harness = api_harness.harness
    offering = FormOptions(
        harness.fleet.run_query, harness.database, harness.policies, listers=LISTS
    )
    api_harness.api.state.parts = replace(api_harness.api.state.parts, form_options=offering)
    program = api_harness.program("dora")
    for given, table in (([], "http"), (["table=www"], "www")):
        query = {"runbook": "abusers clear", "given": given}
        options = program.get("/hosts/lb1/options", params=query).json()
        values = {one["field"]: one["values"] for one in options["fields"]}
        assert values["address"] == sorted(ABUSERS[table])


def test_api_returns_field_names_when_the_host_offers_no_options(api_harness: ApiHarness):
    options = (
        api_harness.program("dora").get("/hosts/lb1/options", params={"runbook": "toy set"}).json()
    )
    assert [one["field"] for one in options["fields"]] == ["name", "value"]
