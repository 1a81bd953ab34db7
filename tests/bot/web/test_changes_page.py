"""The changes page: what changed around a time, and who approved it."""

import re

import pytest

from bot.audit import change_log, events
from bot.db import runs
from bot.model import times
from bot.model.run import Decision, RequestTerms, State
from bot.queries import log_search, timeline
from bot.web import changes
from tests.bot.harness import WEB
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_check,
    add_ended_run,
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    add_succeeded_run,
)
from tests.toy import SetSwitch


def test_changes_page_shows_changes_of_a_host_with_their_approver(site: Site):
    with site.database.transaction() as tx:
        done = add_succeeded_run(tx, add_requested_run(tx, host="lb1"))
        other = add_succeeded_run(tx, add_requested_run(tx, host="web1"))
    browser = site.browser("dora")
    assert "/changes?within=1+h" in Page(browser.get("/").text).links
    page = Page(browser.get("/changes?host=lb1").text)
    assert page.strange == []
    assert f"/runs/{done.id}" in page.links
    assert f"/runs/{other.id}" not in page.links
    row = page.text[page.text.index(f"run {done.id}") :]
    for words in ("Change", "Succeeded", "lb1", "Dora Developer", "Olga Owner"):
        assert words in row


def test_delegate_is_shown_with_the_owner_wherever_approvers_are_listed(site: Site):
    with site.database.transaction() as tx:
        waiting = add_pending_run(tx, add_requested_run(tx, host="lb1"))
        runs.add_decision(
            tx, Decision(waiting.id, "stan", True, waiting.digest, tx.now, on_behalf_of="olga")
        )
        (event,) = timeline.build_timeline(tx, tx.now, span=times.HOUR).events
        votes = runs.list_decisions(tx, waiting.id)
        text = timeline.describe_event(
            event, votes, site.harness.policies.get_policy().person_names
        )
    who = "Stan Storage on behalf of Olga Owner"
    assert f"approved by {who}" in text
    browser = site.browser("dora")
    for path in ("/changes?host=lb1", "/runs", f"/runs/{waiting.id}"):
        assert who in Page(browser.get(path).text).text, path


def test_changes_page_ranks_changes_before_denied_runs_checks_and_events(site: Site):
    with site.database.transaction() as tx:
        check = add_check(tx)
        tried = add_ended_run(
            tx, add_pending_run(tx, add_requested_run(tx)), State.EXPIRED, "Nobody decided in time"
        )
        done = add_succeeded_run(tx, add_requested_run(tx))
        change_log.append_entry(
            tx, events.ExternalEvent(hosts=("lb1",), source="deploys", title="web 4.2 went out")
        )
        change_log.append_entry(
            tx, events.ExternalEvent(hosts=("nas1",), source="deploys", title="elsewhere")
        )
    text = Page(site.browser("dora").get("/changes?host=lb1").text).text
    text = text.partition("Approved by Time")[2]
    places = [text.index(f"run {run.id}") for run in (done, tried)]
    seen = [text.index(f"run {check.id}"), text.index("deploys: web 4.2 went out")]
    assert max(places) < min(seen)
    assert places == sorted(places)
    assert "elsewhere" not in text
    assert "2 addresses are marked as abusers on lb1" in text
    assert "Needs attention" in text[seen[0] :]


def test_changes_page_takes_several_hosts(site: Site):
    add_sample_runs(site.database)
    text = Page(site.browser("dora").get("/changes?host=lb1,+lb2").text).text
    assert "on lb1, lb2" in text
    assert "abusers clear lb1" in text
    assert "abusers clear lb2" in text


def test_changes_page_reads_the_time_in_its_time_zone(site: Site):
    with site.database.transaction() as tx:
        done = add_succeeded_run(tx, add_requested_run(tx, host="lb1"))
        at = times.format_timestamp(tx.now, "Pacific/Auckland")
    browser = site.browser("dora")
    shown = Page(browser.get(f"/changes?at={at}&within=5+min&zone=Pacific/Auckland").text)
    assert f"/runs/{done.id}" in shown.links
    assert re.search(r" (before|after)\b", shown.text[shown.text.index(f"run {done.id}") :])
    assert "Pacific/Auckland" in shown.text
    assert shown.values["zone"] == "Pacific/Auckland"
    # Half a day ahead, it is still to come elsewhere.
    assert "is in the future" in browser.get(f"/changes?at={at}&within=5+min").text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("at=soon", "is not a time: type"),
        ("at=2099-01-01", "is in the future"),
        ("within=ages", "is not a time span"),
        ("at=02:00+Mars/Olympus", "unknown time zone"),
        ("host=a%00b", "Hosts:"),
    ],
)
def test_changes_page_refuses_an_invalid_time_span_or_host(site: Site, query: str, words: str):
    answer = site.browser("dora").get(f"/changes?{query}")
    assert answer.status_code == 422
    assert words in Page(answer.text).text


def test_changes_page_says_when_no_changes_are_known(site: Site):
    text = Page(site.browser("dora").get("/changes?host=nas1").text).text
    assert "No known changes" in text


def test_changes_page_shows_the_approver_of_the_parent_run_for_each_host(site: Site):
    harness = site.harness
    requests = [SetSwitch(host=host, name="lamp", value="on") for host in ("lb1", "lb2")]
    whole = harness.service.request_on_hosts(
        requests, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    harness.run_queued_work()
    harness.approve(harness.get_run(whole.id))
    harness.run_queued_work()
    page = Page(site.browser("dora").get("/changes?host=lb1").text)
    with site.database.reading() as tx:
        [part] = [run for run in runs.list_children(tx, whole.id) if run.host == "lb1"]
    row = page.text[page.text.index(f"run {part.id}") :]
    assert "Olga Owner" in row[: row.index(" ago")]


def test_pending_run_is_not_listed_as_attempted(site: Site):
    numbers = add_sample_runs(site.database)
    page = Page(site.browser("dora").get("/changes").text)

    def kind(state: str) -> str:
        row = page.text[page.text.index(f"run {numbers[state]} ") :]
        return row[: row.index(" ago")]

    assert "Requested" in kind("pending")
    assert "Not run" not in kind("pending")
    assert "Not run" in kind("denied")


def test_changes_page_reports_events_that_it_leaves_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    add_sample_runs(site.database)
    browser = site.browser("dora")
    whole = Page(browser.get("/changes").text).text
    assert "not shown" not in whole
    assert "were searched" not in whole
    monkeypatch.setattr(changes, "_MAX_EVENTS", 2)
    monkeypatch.setattr(log_search, "_MAX_NEAREST_ENTRIES", 10)
    cut = Page(browser.get("/changes").text).text
    assert "Showing the first 2" in cut
    assert "There are too many events: only those within" in cut
