"""The run page: content, buttons by person and state, actions and live updates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from sqlalchemy import update

from bot.audit import change_log, verification
from bot.db import locks, runs, stops, tables
from bot.model.run import RequestTerms, State
from connectors.command import Shell
from connectors.errors import CommandError, UnknownOutcomeError
from runbooks import Report, load_catalogue
from runbooks.abusers_clear import ClearAbuser
from runbooks.service_control import RestartService
from tests.bot.harness import WEB
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_check,
    add_ended_run,
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    approve,
    build_plan,
    clear_step,
    start_run,
)
from tests.ticket_system import require_unreachable_tickets
from tests.toy import BreakSwitch, SetAll, SetSwitch, ShowSwitches, WarmUp

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")
BUTTONS = ("approve", "deny", "withdraw", "undo", "resolve")


def buttons(site: Site, person: str, number: int) -> set[str]:
    forms = Page(site.browser(person).get(f"/runs/{number}").text).forms
    return {word for word in BUTTONS for form in forms if form == f"/runs/{number}/{word}"}


# --- what it shows ---


def test_run_page_shows_commands_reason_digest_and_approvers(site: Site) -> None:
    run = site.harness.request(LAMP_ON, reason="the cellar is dark")
    words = Page(site.browser("olga").get(f"/runs/{run.id}").text).text
    for part in (
        "Needs approval",
        "set lamp on",
        "set lamp off",
        "Before: − off After: + on",
        "the cellar is dark",
        run.short_digest,
        run.digest,
        "Approvers: Adam Admin, Olga Owner",
        "the owners of the edge",
        "Developers may request any change; an owner of the area approves it.",
    ):
        assert part in words


def test_run_page_timeline_shows_every_event_in_order(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    words = Page(site.browser("dora").get(f"/runs/{run.id}").text).text
    timeline = words.split("Timeline")[2].split("Change log")[0]
    titles = [
        "Requested by Dora Developer on the web",
        "Planned",
        "Approved by Olga Owner",
        "Started",
        "Step 1 sent",
        "Step 1 succeeded",
        "Verified",
        "Succeeded",
    ]
    places = [timeline.index(part) for part in titles]
    assert places == sorted(places)
    assert "lamp is on now" in words
    assert "exit status 0" in words


def test_run_page_shows_change_log_entries_with_their_hashes(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    html = site.browser("dora").get(f"/runs/{run.id}").text
    with site.database.reading() as tx:
        entries = change_log.list_entries_of_run(tx, run.id)
    assert len(entries) == 9
    for entry in entries:
        assert f">{entry.hash}<" in html


def test_run_page_shows_why_a_plan_is_irreversible(site: Site) -> None:
    run = site.harness.request(BreakSwitch(host="lb1", name="lamp"))
    words = Page(site.browser("olga").get(f"/runs/{run.id}").text).text
    assert "Cannot be undone: gone" in words
    assert "1 command, irreversible" in words
    assert run.plan is not None
    assert f"“{run.plan.steps[0].title}” cannot be undone: gone" in words


def test_approval_of_an_irreversible_plan_is_refused_until_it_is_confirmed(site: Site) -> None:
    run = site.harness.request(BreakSwitch(host="lb1", name="lamp"))
    browser, address = site.browser("olga"), f"/runs/{run.id}/approve"
    refused = browser.post(address, data={"digest": run.digest})
    assert refused.status_code == 422
    assert "Confirm that “" in refused.text
    assert "cannot be undone: gone." in refused.text
    assert site.harness.get_run(run.id).state is State.PENDING
    confirmed = browser.post(address, data={"digest": run.digest, "confirmed": "yes"})
    assert confirmed.status_code == 303
    assert site.harness.get_run(run.id).state is State.QUEUED


def test_denial_is_refused_without_a_reason(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    for reason in ({}, {"reason": " "}):
        answer = site.browser("olga").post(f"/runs/{run.id}/deny", data=reason)
        assert answer.status_code == 422
        assert f"ive a reason to deny run {run.id}" in answer.text
    assert site.harness.get_run(run.id).state is State.PENDING


def test_run_page_of_a_failed_check_shows_its_error(site: Site) -> None:
    with site.database.transaction() as tx:
        run = add_ended_run(
            tx, add_requested_run(tx, kind="check"), State.FAILED, "lb1 does not answer"
        )
        going = add_requested_run(tx, kind="check")
    browser = site.browser("dora")
    words = Page(browser.get(f"/runs/{run.id}").text).text
    assert "Result lb1 does not answer The check returned no result." in words
    assert f"/runs/{going.id}/stop" in Page(browser.get(f"/runs/{going.id}").text).forms


def test_run_page_of_a_failed_step_shows_the_output_of_the_host(site: Site) -> None:
    def refuse(_host: str, _words: str) -> None:
        raise CommandError("the lamp is loose: fasten it")

    site.harness.fleet.before_send = refuse
    run = site.harness.approve(site.harness.request(SetAll(host="lb1", value="on")))
    words = Page(site.browser("olga").get(f"/runs/{run.id}").text).text
    assert "the lamp is loose: fasten it" in words
    assert "Not run" in words


def test_run_page_of_a_check_shows_findings_and_table(site: Site) -> None:
    with site.database.transaction() as tx:
        run = add_check(tx)
        well = add_check(tx, Report("all is well"))
    browser = site.browser("dora")
    html = browser.get(f"/runs/{run.id}").text
    assert "198.51.100.7 comes again and again" in html
    assert '<th scope="col">expires in</th>' in html
    assert "Needs attention" in html
    assert "Healthy" in browser.get(f"/runs/{well.id}").text


def _read_timeline(site: Site, number: int) -> str:
    words = Page(site.browser("dora").get(f"/runs/{number}").text).text
    return words.split("Timeline")[2].split("Change log")[0]


@pytest.mark.parametrize(("lamp", "text"), [("broken", "Needs attention"), ("on", "Succeeded")])
def test_timeline_of_a_check_ends_with_the_label_of_the_lists(
    site: Site, lamp: str, text: str
) -> None:
    site.harness.fleet.hosts["lb1"]["lamp"] = lamp
    run = site.harness.request(ShowSwitches(host="lb1"))
    timeline = _read_timeline(site, run.id)
    assert [word for word in ("Needs attention", "Succeeded") if word in timeline] == [text]


@pytest.mark.parametrize(
    ("became", "text"),
    [("burnt", "Follow-up finished: needs attention"), ("off", "Follow-up finished")],
)
def test_timeline_shows_the_result_of_a_follow_up(site: Site, became: str, text: str) -> None:
    run = site.harness.approve(site.harness.request(WarmUp(host="lb1", name="lamp", value="on")))
    site.harness.fleet.hosts["lb1"]["warming"] = became
    with site.database.transaction() as tx:
        tx.sql.execute(update(tables.follow_up).values(next_at=tx.now))
    site.harness.service.advancer.run_due_follow_ups()
    timeline = _read_timeline(site, run.id)
    assert text in timeline
    assert ("attention" in timeline) == ("attention" in text)
    assert "Succeeded" in timeline


def test_run_page_names_the_run_that_holds_the_host_lock(site: Site) -> None:
    with site.database.transaction() as tx:
        holder = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))
        locks.take_lock(tx, "lb1", holder.id)
        other = approve(tx, add_pending_run(tx, add_requested_run(tx)))
    words = Page(site.browser("dora").get(f"/runs/{other.id}").text).text
    assert f"lb1 is locked by run {holder.id} since" in words


def test_run_page_opens_without_buttons_for_a_host_removed_from_the_inventory(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    inventory = site.policy / "inventory.yaml"
    kept = [line for line in inventory.read_text().splitlines(True) if "lb1" not in line]
    inventory.write_text("".join(kept))
    assert site.browser("olga").get(f"/runs/{run.id}").status_code == 200
    assert buttons(site, "olga", run.id) == set()


# --- who finds which buttons ---

_DECIDE = {"approve", "deny"}
BUTTONS_BY_PERSON: Mapping[str, Mapping[str, set[str]]] = {
    "pending": {"olga": _DECIDE, "adam": _DECIDE, "dora": {"withdraw"}, "stan": set()},
    "own": {"olga": {"withdraw"}, "adam": _DECIDE, "dora": set(), "stan": set()},
    "planning": {"olga": {"deny"}, "adam": set(), "dora": {"withdraw"}},
    "queued": {"olga": {"deny"}, "adam": set(), "dora": {"withdraw"}},
    "running": {"olga": set(), "dora": set(), "stan": set()},
    "unknown": {"olga": {"resolve"}, "adam": {"resolve"}, "dora": set(), "stan": set()},
    "succeeded": {"olga": {"undo"}, "dora": {"undo"}, "stan": {"undo"}},
    "failed": {"olga": set(), "dora": set()},
    "denied": {"olga": set(), "adam": set()},
    "checked": {"olga": set(), "dora": set()},
}


@pytest.mark.parametrize("exhibit", BUTTONS_BY_PERSON)
def test_run_page_has_the_buttons_of_its_state_and_reader(site: Site, exhibit: str) -> None:
    number = add_sample_runs(site.database)[exhibit]
    shown = {person: buttons(site, person, number) for person in BUTTONS_BY_PERSON[exhibit]}
    assert shown == BUTTONS_BY_PERSON[exhibit]


# --- what they do ---


def test_approval_on_the_run_page_executes_the_run(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    browser = site.browser("olga")
    page = Page(browser.get(f"/runs/{run.id}").text)
    answer = browser.post(
        f"/runs/{run.id}/approve", data={"digest": page.values["digest"], "reason": "go on"}
    )
    assert answer.status_code == 303
    assert "Your approval is recorded" in browser.get(answer.headers["location"]).text
    site.harness.run_queued_work()
    assert site.harness.get_run(run.id).state is State.SUCCEEDED
    assert site.harness.fleet.sent == [("lb1", "set lamp on")]
    assert "go on" in browser.get(f"/runs/{run.id}").text


@pytest.mark.parametrize("digest", ["", "0" * 64, "0" * 10, "%", "f" * 5000])
def test_approval_with_another_digest_is_refused(site: Site, digest: str) -> None:
    run = site.harness.request(LAMP_ON)
    answer = site.browser("olga").post(f"/runs/{run.id}/approve", data={"digest": digest})
    assert answer.status_code == 409
    assert "is not that of the plan" in Page(answer.text).text
    assert site.harness.get_run(run.id).state is State.PENDING


def test_approval_without_a_digest_is_refused(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    assert site.browser("olga").post(f"/runs/{run.id}/approve").status_code == 409
    assert site.harness.get_run(run.id).state is State.PENDING


@pytest.mark.parametrize("person", ["dora", "stan"])
@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_decision_without_the_right_is_refused_with_those_who_can(
    site: Site, person: str, verb: str
) -> None:
    run = site.harness.request(LAMP_ON)
    answer = site.browser(person).post(f"/runs/{run.id}/{verb}", data={"digest": run.digest})
    assert answer.status_code == 403
    assert "Those who can: Adam Admin, Olga Owner" in Page(answer.text).text
    assert site.harness.get_run(run.id).state is State.PENDING


def test_question_answer_and_reassignment_are_made_on_the_run_page(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    olga, dora = site.browser("olga"), site.browser("dora")
    assert "asks you a question" not in dora.get(f"/runs/{run.id}").text
    answer = olga.post(f"/runs/{run.id}/question", data={"text": "which <b>ticket</b>?"})
    assert answer.headers["location"] == f"/runs/{run.id}?done=asked"
    page = dora.get(f"/runs/{run.id}").text
    assert "asks you a question" in page
    assert "which &lt;b&gt;ticket&lt;/b&gt;?" in page
    assert 'name="person"' not in page
    assert f"/runs/{run.id}/question" not in page
    answer = dora.post(f"/runs/{run.id}/answer", data={"text": "4711"})
    assert answer.headers["location"] == f"/runs/{run.id}?done=answered"
    assert "asks you a question" not in dora.get(f"/runs/{run.id}").text
    assert '<option value="adam">' in olga.get(f"/runs/{run.id}").text
    answer = olga.post(f"/runs/{run.id}/reassign", data={"person": "adam", "reason": "yours"})
    page = Page(olga.get(answer.headers["location"]).text).text
    assert "The run is assigned to another approver, who is notified." in page
    assert "Assigned to Adam Admin by Olga Owner" in page
    assert "Dora Developer answered" in page
    refused = olga.post(f"/runs/{run.id}/question", data={"text": " "})
    assert (refused.status_code, "is empty" in refused.text) == (422, True)


def test_run_is_approved_for_a_time_and_held_on_its_page(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    olga = site.browser("olga")
    form = {"digest": run.digest, "start": "at lunch"}
    refused = olga.post(f"/runs/{run.id}/approve", data=form)
    assert (refused.status_code, "is not a time" in refused.text) == (422, True)
    olga.post(f"/runs/{run.id}/approve", data=form | {"start": "3 hours"})
    site.harness.run_queued_work()
    shown = olga.get(f"/runs/{run.id}").text
    # Two of them would cover each other.
    assert shown.count("kt-sticky") == 1
    page = Page(shown).text
    assert "You can deny this request for good until it starts." in page
    assert "Starts later" in page
    assert "Approved by Olga Owner to start" in page
    assert f"/runs/{run.id}/hold" not in site.browser("stan").get(f"/runs/{run.id}").text
    answer = olga.post(f"/runs/{run.id}/hold", data={"reason": "the sale began"})
    page = Page(olga.get(answer.headers["location"]).text).text
    assert "The run is held. It needs its approvals again before it starts." in page
    assert "Held by Olga Owner" in page
    assert site.harness.get_run(run.id).state is State.PENDING
    assert site.harness.fleet.sent == []


def test_denial_on_the_run_page_ends_the_run(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    answer = site.browser("olga").post(f"/runs/{run.id}/deny", data={"reason": "not today"})
    assert answer.status_code == 303
    assert site.harness.get_run(run.id).summary == "Olga Owner denied it: not today"


def test_approval_after_a_denial_names_who_denied(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    site.harness.service.deny_run(run.id, person="olga", reason="not today")
    answer = site.browser("adam").post(f"/runs/{run.id}/approve", data={"digest": run.digest})
    assert answer.status_code == 409
    assert "was denied by Olga Owner" in Page(answer.text).text


def test_run_is_withdrawn_by_its_requester_only(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    assert site.browser("olga").post(f"/runs/{run.id}/withdraw").status_code == 403
    assert site.browser("dora").post(f"/runs/{run.id}/withdraw").status_code == 303
    assert site.harness.get_run(run.id).state is State.WITHDRAWN


def test_undo_button_plans_a_new_run_with_its_reason(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    browser = site.browser("dora")
    answer = browser.post(f"/runs/{run.id}/undo", data={"reason": "too bright"})
    assert answer.headers["location"] == f"/runs/{run.id + 1}?done=undo"
    site.harness.run_queued_work()
    words = Page(browser.get(answer.headers["location"]).text).text
    assert f"Undoes run {run.id}" in words
    assert "too bright" in words
    assert site.harness.get_run(run.id + 1).state is State.PLANNED


def test_undo_has_the_ticket_of_its_run_or_a_new_one(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    with site.database.transaction() as tx:
        tx.sql.execute(update(tables.run).where(tables.run.c.id == run.id).values(ticket="CHG1"))
    browser = site.browser("dora")
    assert "Change ticket" not in browser.get(f"/runs/{run.id}").text
    require_unreachable_tickets(site.policy)
    page = Page(browser.get(f"/runs/{run.id}").text)
    assert "Change ticket (default: CHG1)" in page.text
    assert (page.values["ticket"], page.unlabelled) == ("", [])
    for ticket in ("", "CHG7"):
        browser.post(f"/runs/{run.id}/undo", data={"ticket": ticket})
    tickets = [site.harness.get_run(run.id + n).ticket for n in (1, 2)]
    assert tickets == ["CHG1", "CHG7"]


def find_again_link(site: Site, number: int) -> str:
    links = Page(site.browser("dora").get(f"/runs/{number}").text).links
    return next((link for link in links if link.startswith(("/runbooks/form?", "/runs/1#"))), "")


def test_request_again_link_fills_in_the_values_of_the_run(site: Site) -> None:
    values = {"host": "lb1", "address": "203.0.113.9", "table": "web/clients", "mark": "gpc1"}
    run = site.harness.request(ClearAbuser.model_validate(values))
    assert run.is_ended
    form = Page(site.browser("dora").get(find_again_link(site, run.id)).text)
    assert {name: form.values[f"field-{name}"] for name in values} == values


def test_request_again_link_is_absent_until_the_run_has_ended(site: Site) -> None:
    words = {"runbook": "abusers clear", "field-host": "lb1", "field-address": "203.0.113.9"}
    site.browser("dora").post("/runbooks", data=words)
    assert find_again_link(site, 1) == ""
    site.harness.run_queued_work()
    assert find_again_link(site, 1) != ""


def test_request_again_link_leaves_out_the_request_time(site: Site) -> None:
    run = site.harness.request(RestartService.model_validate({"host": "lb1", "service": "nginx"}))
    assert "since" in run.values
    assert (
        find_again_link(site, run.id)
        == "/runbooks/form?runbook=service+restart&host=lb1&service=nginx"
    )


def test_request_again_link_of_an_undo_leads_to_the_undone_run(site: Site) -> None:
    run = site.harness.approve(site.harness.request(LAMP_ON))
    site.browser("dora").post(f"/runs/{run.id}/undo")
    site.harness.run_queued_work()
    site.browser("dora").post(f"/runs/{run.id + 1}/withdraw")
    assert find_again_link(site, run.id + 1) == f"/runs/{run.id}#undo"


def test_unknown_outcome_is_resolved_by_an_owner_with_a_reason(site: Site) -> None:
    def break_off(_host: str, _words: str) -> None:
        raise UnknownOutcomeError("lb1 closed the connection")

    site.harness.fleet.before_send = break_off
    run = site.harness.approve(site.harness.request(LAMP_ON))
    assert run.state is State.UNKNOWN
    address = f"/runs/{run.id}/resolve"
    why = "the lamp is dark, I looked"
    olga = site.browser("olga")
    assert (
        site.browser("dora").post(address, data={"outcome": "failed", "reason": why}).status_code
        == 403
    )
    assert olga.post(address, data={"outcome": "failed", "reason": "dark"}).status_code == 422
    assert olga.post(address, data={"outcome": "maybe", "why": why}).status_code == 422
    assert olga.post(address, data={"why": why}).status_code == 422
    assert site.harness.get_run(run.id).state is State.UNKNOWN
    assert olga.post(address, data={"outcome": "failed", "reason": why}).status_code == 303
    settled = site.harness.get_run(run.id)
    assert (settled.state, settled.summary) == (
        State.FAILED,
        f"Resolved as failed by Olga Owner: {why}",
    )


def test_denial_reason_with_an_invisible_character_is_refused(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    answer = site.browser("olga").post(f"/runs/{run.id}/deny", data={"reason": "no\u202e!"})
    assert answer.status_code == 422
    assert "invisible character" in answer.text
    assert site.harness.get_run(run.id).state is State.PENDING


@pytest.mark.parametrize("verb", BUTTONS)
def test_action_on_a_missing_run_is_not_found(site: Site, verb: str) -> None:
    form = {"digest": "0" * 64, "outcome": "failed", "reason": "I looked at it"}
    answer = site.browser("olga").post(f"/runs/99/{verb}", data=form)
    assert answer.status_code == 404
    assert "There is no run 99" in answer.text


def test_run_page_shows_only_known_notices(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    browser = site.browser("olga")
    assert "is recorded" not in browser.get(f"/runs/{run.id}?done=your+account+is+locked").text
    assert "your account" not in browser.get(f"/runs/{run.id}?done=your+account+is+locked").text


def test_fan_out_page_offers_to_run_again_on_the_hosts_without_success(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = cast("dict[str, Any]", load_catalogue())
    monkeypatch.setitem(known, SetSwitch.words, SetSwitch)
    both = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    run = site.harness.service.request_on_hosts(
        both, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    site.harness.run_queued_work()

    def refuse(host: str, _words: str) -> None:
        if host == "lb2":
            raise CommandError("the lamp is loose: fasten it")

    site.harness.fleet.before_send = refuse
    done = site.harness.approve(site.harness.get_run(run.id))
    assert done.is_ended
    browser = site.browser("dora")
    page = Page(browser.get(f"/runs/{run.id}").text)
    assert "Run again on the hosts without success" in page.text
    [again] = [link for link in page.links if "host=lb2" in link and "/form?" in link]
    values = Page(browser.get(again).text).values
    assert (values["field-host"], values["field-value"]) == ("lb2", "on")


# --- how it keeps up ---


def test_run_page_polls_for_updates_until_the_run_ends(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    browser = site.browser("dora")
    assert f'hx-get="/runs/{run.id}/live?stamp=' in browser.get(f"/runs/{run.id}").text
    site.harness.approve(run)
    assert f'hx-get="/runs/{run.id}/' not in browser.get(f"/runs/{run.id}").text


def test_live_update_of_an_unchanged_run_is_204(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    browser = site.browser("dora")

    def address() -> str:
        path = f"/runs/{run.id}/live"
        return path + browser.get(f"/runs/{run.id}").text.split(f'hx-get="{path}')[1].split('"')[0]

    before = address()
    assert browser.get(before).status_code == 204
    site.harness.service.approve_run(run.id, person="olga", digest=run.digest)
    moved = browser.get(before)
    assert moved.status_code == 200
    assert "Olga Owner" in moved.text
    assert address() != before
    assert browser.get(address()).status_code == 204


def test_live_update_equals_the_part_of_the_whole_run_page(site: Site) -> None:
    for number in add_sample_runs(site.database).values():
        browser = site.browser("olga")
        live, head = browser.get(f"/runs/{number}/live").text.split('<div class="kt-head"')
        page = browser.get(f"/runs/{number}").text
        assert live.split("</h2>")[0].strip() in page
        assert head.replace(" hx-swap-oob=true", "").strip() in page


# --- the entries of the run, verified ---


def test_run_page_verifies_the_change_log_entries_of_the_run(site: Site) -> None:
    with site.database.transaction() as tx:
        verification.open_log(tx)
    run = site.harness.approve(site.harness.request(LAMP_ON))
    words = Page(site.browser("dora").post(f"/runs/{run.id}/verify").text).text
    assert "Verified: all 9 entries are intact." in words
    assert "The hashes of entries 2 to 10 were recomputed" in words
    assert "1 stored output matches its hash in the log" in words


def test_run_page_reports_an_altered_change_log_entry(site: Site) -> None:
    with site.database.transaction() as tx:
        verification.open_log(tx)
    run = site.harness.approve(site.harness.request(LAMP_ON))
    with site.database.engine.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER entry_no_update")
        connection.exec_driver_sql("UPDATE entry SET person = 'adam' WHERE seq = 4")
        connection.commit()
    words = Page(site.browser("dora").post(f"/runs/{run.id}/verify").text).text
    assert "entry 4 was altered: its content does not have its hash" in words


def test_run_page_shows_the_freeze_that_holds_the_run_after_approval(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    browser = site.browser("olga")
    assert "Once approved" not in Page(browser.get(f"/runs/{run.id}").text).text
    (site.policy / "freezes.yaml").write_text(
        'freezes:\n  - {name: the sale, areas: [edge], from: "2000-01-01 00:00",'
        ' until: "2200-01-01 00:00"}\n'
    )
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    text = Page(browser.get(f"/runs/{run.id}").text).text
    assert (
        "After approval the run stays on hold: "
        "the edge is frozen until 2200-01-01 00:00 UTC (the sale)." in text
    )


def freeze_edge(site: Site) -> None:
    (site.policy / "freezes.yaml").write_text(
        'freezes:\n  - {name: the sale, areas: [edge], from: "2000-01-01 00:00",'
        ' until: "2200-01-01 00:00"}\n'
    )


# --- one fact, one sentence ---


@pytest.mark.parametrize("done", ["requested", "accepted", "asked", "countered"])
def test_notice_of_an_action_foretells_nothing(site: Site, done: str) -> None:
    run = site.harness.request(LAMP_ON)
    browser = site.browser("dora")

    def read_notice() -> str:
        return Page(browser.get(f"/runs/{run.id}?done={done}").text).text

    pending = read_notice()
    site.harness.service.deny_run(run.id, person="olga", reason="not today")
    for text in (pending, read_notice()):
        assert "starts as soon as" not in text
        assert "stays pending" not in text
        assert "now needs approval" not in text


def test_children_of_a_planned_request_are_planned(site: Site) -> None:
    harness = site.harness
    both = [LAMP_ON, SetSwitch(host="lb2", name="lamp", value="on")]
    number = harness.service.request_on_hosts(
        both, RequestTerms("dora", WEB, plan_only=True), host_pattern="lb*"
    ).id
    harness.run_queued_work()
    parent = harness.get_run(number)
    assert parent.state is State.PLANNED
    browser = site.browser("dora")
    page = Page(browser.get(f"/runs/{parent.id}").text).text
    assert "Needs approval" not in page
    assert "pending" not in page
    with site.database.reading() as tx:
        child = runs.list_children(tx, parent.id)[0]
    assert child.state is State.PENDING
    text = Page(browser.get(f"/runs/{child.id}").text).text
    assert "Needs approval" not in text, text
    assert "approval needed" not in text
    assert f"Decided as part of run {parent.id}" in text


def test_plan_that_needs_no_approval_does_not_run_at_once_in_a_freeze(site: Site) -> None:
    run = site.harness.request(LAMP_ON, person="olga", plan_only=True)
    browser = site.browser("olga")
    text = Page(browser.get(f"/runs/{run.id}").text).text
    assert "It needs no approval: it runs as soon as you request it." in text
    freeze_edge(site)
    text = Page(browser.get(f"/runs/{run.id}").text).text
    assert "as soon as you request it" not in text
    assert "After approval" not in text
    assert "It needs no approval, but a freeze holds it: the edge is frozen until" in text


def test_plan_names_the_stop_that_ends_it_when_it_is_requested(site: Site) -> None:
    run = site.harness.request(LAMP_ON, person="olga", plan_only=True)
    with site.database.transaction() as tx:
        stops.add_stop(tx, stops.EVERYTHING, person="adam", why="a breach")
    text = Page(site.browser("olga").get(f"/runs/{run.id}").text).text
    assert "as soon as you request it" not in text


def test_state_of_the_plan_is_that_before_the_run_once_it_has_started(site: Site) -> None:
    run = site.harness.request(LAMP_ON)
    browser = site.browser("dora")
    page = Page(browser.get(f"/runs/{run.id}").text).text
    assert "Current state" not in page
    assert "State at" in page
    site.harness.approve(run)
    page = Page(browser.get(f"/runs/{run.id}").text).text
    assert "Verified: lamp is on" in page
    assert "State before lamp is off" in page
    assert "State at" not in page


def test_only_a_run_with_an_earlier_one_links_to_the_comparison(site: Site) -> None:
    first = site.harness.approve(site.harness.request(LAMP_ON))
    browser = site.browser("dora")
    assert "Previous run" not in Page(browser.get(f"/runs/{first.id}").text).text
    second = site.harness.request(LAMP_ON)
    page = browser.get(f"/runs/{second.id}").text
    assert f"/runs/compare?a={first.id}&amp;b={second.id}" in page


def test_run_page_says_that_the_reader_approved_and_that_an_empty_plan_sent_nothing(
    site: Site,
) -> None:
    shown = add_sample_runs(site.database)
    olga = site.browser("olga")
    queued = Page(olga.get(f"/runs/{shown['queued']}").text).text
    assert "You have approved this request. You can still deny it until it starts." in queued
    assert "You cannot approve" not in queued
    unchanged = Page(olga.get(f"/runs/{shown['no_changes']}").text).text
    assert "The plan has no steps. No command was sent." in unchanged
    assert "No changes" in unchanged
    assert "No_changes" not in unchanged


def test_long_command_is_shown_whole_below_its_number_of_lines(site: Site) -> None:
    script = Shell(("sh",), stdin="\n".join(f"echo {n}" for n in range(48)))
    with site.database.transaction() as tx:
        requested = add_requested_run(tx)
        step = replace(clear_step("lb1"), command=script, undo=script)
        run = add_pending_run(tx, requested, build_plan(requested, step))
    olga = site.browser("olga")
    words = Page(olga.get(f"/runs/{run.id}").text).text
    lead, command, undo = words.split("Script of 48 lines, scroll to read all of it:")
    assert step.title in lead
    for shown in (command, undo):
        assert "echo 0 echo 1" in shown
        assert "echo 46 echo 47" in shown
    home = Page(olga.get("/").text).text
    assert "Script of 48 lines, on the page of the run" in home
    assert "echo 1" not in home
