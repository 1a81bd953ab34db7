"""The runs page: paging, filters, search and export; and the home page."""

import csv
import io
import re
from collections.abc import Mapping

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from bot.db import runs, search, tables
from bot.db.database import Transaction
from bot.model import times
from bot.model.run import State
from runbooks import Report
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import (
    add_check,
    add_ended_run,
    add_pending_run,
    add_requested_run,
    add_sample_runs,
    add_succeeded_run,
    approve,
)
from tests.toy import SetSwitch


def numbers(html: str) -> list[int]:
    """Return the runs that the page shows, in its order."""
    shown = [re.fullmatch(r"/runs/(\d+)", link) for link in Page(html).links]
    return [int(match[1]) for match in shown if match]


def paged(browser: TestClient, address: str) -> list[list[int]]:
    """Follow "Older" to the end."""
    pages: list[list[int]] = []
    while address:
        html = browser.get(address).text
        pages.append(numbers(html))
        address = next((one for one in Page(html).links if re.match(r"/runs\?.*before=", one)), "")
    return pages


def _add_runs(tx: Transaction, count: int = 120) -> None:
    for n in range(count):
        add_requested_run(tx, host=("lb1", "lb2", "web1")[n % 3], person=("dora", "adam")[n % 2])


def test_runs_pages_show_every_run_once(site: Site) -> None:
    with site.database.transaction() as tx:
        _add_runs(tx)
    pages = paged(site.browser("olga"), "/runs")
    assert [len(page) for page in pages] == [40, 40, 40]
    assert [number for page in pages for number in page] == list(range(120, 0, -1))


def test_runs_paging_keeps_its_place_while_new_runs_are_added(site: Site) -> None:
    with site.database.transaction() as tx:
        _add_runs(tx, 50)
    browser = site.browser("olga")
    first = browser.get("/runs").text
    with site.database.transaction() as tx:
        _add_runs(tx, 30)
    older = next(one for one in Page(first).links if re.match(r"/runs\?.*before=", one))
    assert numbers(browser.get(older).text) == list(range(10, 0, -1))


def test_older_runs_pages_keep_the_filters(site: Site) -> None:
    with site.database.transaction() as tx:
        _add_runs(tx)
    pages = paged(site.browser("olga"), "/runs?person=dora&since=1+h")
    assert [number for page in pages for number in page] == list(range(119, 0, -2))
    assert len(pages) == 2


def test_runs_page_links_back_to_the_newest_runs(site: Site) -> None:
    with site.database.transaction() as tx:
        _add_runs(tx, 50)
    html = site.browser("olga").get("/runs?host=lb1&before=20").text
    assert "/runs?host=lb1" in Page(html).links


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("host=lb2", {"denied", "no_changes", "stale", "unknown"}),
        ("host=LB2", {"denied", "no_changes", "stale", "unknown"}),
        ("host=*2", {"denied", "no_changes", "stale", "unknown"}),
        ("host=lb*&person=adam", {"denied"}),
        ("area=nowhere", set[str]()),
        ("search=nothing+has+this", set[str]()),
        ("person=adam", {"denied"}),
        ("runbook=abusers+show", {"checked"}),
        ("state=failed", {"failed"}),
        ("state=succeeded", {"succeeded"}),
        ("state=needs+attention", {"checked"}),
        ("state=needs+attention&host=lb*", {"checked"}),
        ("state=under-way", {"unknown", "running", "queued", "pending", "own", "planning"}),
        ("state=not-done", {"checked", "denied", "stale", "failed"}),
        ("state=problems", {"failed", "unknown"}),
        ("host=lb2&state=ended", {"denied", "no_changes", "stale"}),
        ("host=lb2&person=adam&state=denied&since=today&until=today", {"denied"}),
        ("host=gone1", set[str]()),
        ("until=2020-01-01", set[str]()),
        ("host=&person=&state=&since=&until=&host=", None),
    ],
)
def test_runs_filters_select_the_matching_runs(
    seen: tuple[Site, Mapping[str, int]], query: str, expected: set[str] | None
) -> None:
    site, shown = seen
    listed = numbers(site.browser("dora").get(f"/runs?{query}").text)
    names = {name for name, number in shown.items() if number in listed}
    assert names == (set(shown) if expected is None else expected)


def _at(site: Site, run: int, zone: str) -> str:
    """Return when a run was asked for, as its asker would type it in a zone."""
    with site.database.reading() as tx:
        return times.format_timestamp(runs.get_run(tx, run).requested_at, zone)


def test_runs_filter_reads_times_in_the_time_zone_of_the_reader_or_utc(site: Site) -> None:
    run = add_sample_runs(site.database)["succeeded"]
    tokyo = _at(site, run, "Asia/Tokyo")
    browser, since = site.browser("dora"), f"/runs?since={tokyo}&until={tokyo}"
    assert numbers(browser.get(since).text) == []
    shown = browser.get(f"{since}&zone=Asia/Tokyo").text
    assert run in numbers(shown)
    assert Page(shown).values["zone"] == "Asia/Tokyo"
    # Also in what is handed out, and in the link under which it is kept.
    assert "zone=Asia%2FTokyo" in shown
    body = browser.get(f"/runs.json?since={tokyo}&until={tokyo}&zone=Asia/Tokyo").json()
    assert run in [one["run"] for one in body["runs"]]


def test_time_zone_without_a_time_filter_is_left_out_of_links(site: Site) -> None:
    add_sample_runs(site.database)
    html = site.browser("dora").get("/runs?host=lb1&zone=Asia/Tokyo").text
    assert "zone=" not in html
    assert "Save view" in html


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=02:00&zone=Mars/Olympus", "unknown time zone"),
        ("since=2026-03-29+02:30&zone=Europe/Berlin", "the clocks skip it"),
        ("until=2025-10-26+02:30&zone=Europe/Berlin", "occurs twice"),
        ("since=soon", "“soon” is not a time"),
        ("until=2026-13-45", "is not a time"),
        ("since=99999999+weeks", "is not a time"),
        ("state=purple", "unknown value"),
        ("host=lb1%00", "invisible character"),
        ("person=dora%E2%80%AE", "invisible character"),
    ],
)
def test_invalid_runs_filter_is_reported_and_shows_no_runs(
    seen: tuple[Site, Mapping[str, int]], query: str, words: str
) -> None:
    answer = seen[0].browser("dora").get(f"/runs?{query}")
    assert answer.status_code == 200
    assert words in Page(answer.text).text
    assert numbers(answer.text) == []


@pytest.mark.parametrize("before", ["x", "-1", "0", "9" * 30, "%00", "١"])
def test_invalid_runs_page_position_is_ignored(
    seen: tuple[Site, Mapping[str, int]], before: str
) -> None:
    site, _ = seen
    assert site.browser("dora").get(f"/runs?before={before}").status_code == 200


def test_runs_search_finds_summaries_and_values(site: Site) -> None:
    with site.database.transaction() as tx:
        plain, match = add_requested_run(tx, host="lb1"), add_requested_run(tx, host="lb2")
        runs.move_run(tx, match, State.REFUSED, summary="lb2 is overheated: cool it first")
    browser = site.browser("dora")
    for name in ("search", "text"):
        assert numbers(browser.get(f"/runs?{name}=OVERHEATED").text) == [match.id]
    assert numbers(browser.get("/runs?search=overheated&host=lb1").text) == []
    (name, value), *_ = plain.values.items()
    assert plain.id in numbers(browser.get(f"/runs?search={name}={value}").text)


def test_runs_are_exported_as_csv_and_json(site: Site) -> None:
    with site.database.transaction() as tx:
        _add_runs(tx, 50)
        add_requested_run(tx, host="lb2", person="dora", reason="=1+1, or so")
    browser = site.browser("olga")
    html = browser.get("/runs?host=lb*").text
    links = [link for link in Page(html).links if link.startswith("/runs.")]
    assert links == ["/runs.csv?host=lb%2A", "/runs.json?host=lb%2A"]
    response = browser.get(links[0])
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert [int(row["run"]) for row in rows] == numbers(html)
    assert rows[0]["reason"] == "'=1+1, or so"
    body = browser.get("/runs.json").json()
    assert [row["run"] for row in body["runs"]] == numbers(browser.get("/runs").text)
    assert body["runs"][0]["reason"] == "=1+1, or so"
    older = browser.get(body["older"]).json()
    assert [row["run"] for row in older["runs"]] == list(range(11, 0, -1))
    assert older["older"] == ""


def test_runs_export_with_an_invalid_filter_gets_422(site: Site) -> None:
    add_sample_runs(site.database)
    browser = site.browser("olga")
    response = browser.get("/runs.json?since=soon")
    assert (response.status_code, response.json()["runs"]) == (422, [])
    assert "is not a time" in response.json()["problems"]["since"]
    assert browser.get("/runs.csv?state=purple").status_code == 422


def test_runs_page_reports_an_unknown_person_in_a_filter(site: Site) -> None:
    add_sample_runs(site.database)
    browser = site.browser("olga")
    html = browser.get("/runs?person=dorra").text
    assert "“dorra” is not in the policy, and has never requested anything" in html
    assert "did you mean “dora”?" in html
    assert "A filter names something that does not exist" in html
    assert list(browser.get("/runs.json?person=dorra").json()["unknown_filters"]) == ["person"]
    for address in ("/runs?person=stan", "/runs?person=dora"):
        assert "has never requested" not in browser.get(address).text


def test_runs_search_continues_beyond_the_newest_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_WINDOWS", (50, 60))
    with site.database.transaction() as tx:
        wanted = add_requested_run(tx, host="lb1", person="adam")
        for _ in range(130):
            add_requested_run(tx, host="lb1", person="dora")
    browser = site.browser("olga")
    first = browser.get("/runs?host=lb1&person=adam").text
    assert "No matches in recent runs" in first
    pages = paged(browser, "/runs?host=lb1&person=adam")
    assert [number for page in pages for number in page] == [wanted.id]


def test_runs_page_keeps_the_typed_filters(site: Site) -> None:
    html = site.browser("dora").get("/runs?host=gone1&since=2+h").text
    assert Page(html).values["host"] == "gone1"
    assert Page(html).values["since"] == "2 h"


def test_runs_row_shows_requester_approver_and_result(site: Site) -> None:
    with site.database.transaction() as tx:
        add_succeeded_run(tx, add_requested_run(tx))
    words = Page(site.browser("stan").get("/runs").text).text
    assert "1 Succeeded abusers clear lb1 203.0.113.9 lb1 Dora Developer Olga Owner" in words
    assert re.search(r"1\.3 s a customer's office, ticket 4711", words)
    assert "1.3 s" in words


def test_histogram_counts_matching_runs_and_its_bars_filter_by_time(site: Site) -> None:
    with site.database.transaction() as tx:
        for host in ("lb1", "lb1", "lb2"):
            add_succeeded_run(tx, add_requested_run(tx, host=host))
        begin = tx.now - 7_200_000_000
        tx.sql.execute(update(tables.run).where(tables.run.c.id == 1).values(requested_at=begin))
    browser = site.browser("stan")
    browser.cookies.set("keyturn-zone", "Asia/Tokyo", domain="keyturn.test", path="/")
    page = Page(browser.get("/runs").text)
    assert page.strange == page.unlabelled == []
    part = Page(browser.get("/runs?host=lb1&chart=yes").text)
    assert "2 runs, 5 min per bar" in part.text
    bars = [link for link in part.links if "since=" in link]
    shown = {link: Page(browser.get(link).text) for link in (bars[0], bars[-1])}
    counts = [sum(one.startswith("compare-") for one in page.ids) for page in shown.values()]
    assert counts == [1, 1]
    assert all("zone=Asia%2FTokyo" in link and "host=lb1" in link for link in shown)


def test_two_selected_runs_are_compared_and_others_are_refused(site: Site) -> None:
    with site.database.transaction() as tx:
        first, second = (
            add_succeeded_run(tx, add_requested_run(tx)).id,
            add_succeeded_run(tx, add_requested_run(tx)).id,
        )
    browser = site.browser("stan")
    shown = browser.get(f"/runs/compare?run={second}&run={first}").text
    assert f"Compare runs {first} and {second}" in shown
    refused = browser.get(f"/runs/compare?run={second}")
    assert (refused.status_code, "Select two runs to compare, not 1." in refused.text) == (
        422,
        True,
    )


def test_check_with_problems_needs_attention_in_every_list_and_export(site: Site) -> None:
    """In the words, the colour and with the sign of its own page."""
    with site.database.transaction() as tx:
        ill = add_check(tx).id
        well = add_check(tx, Report("all is well")).id
    browser = site.browser("stan")
    for address in ("/runs", "/"):
        words = Page(browser.get(address).text).text
        assert f"{ill} Needs attention" in words
        assert f"{well} Succeeded" in words
    badge = re.compile(r'<span class="kt-badge kt-warning"[^>]*>.*?Needs attention</span>')
    listed, own = browser.get("/runs").text, browser.get(f"/runs/{ill}").text
    assert [*dict.fromkeys(badge.findall(own))] == badge.findall(listed)
    assert "Needs attention: abusers show" in own
    assert "Succeeded: abusers show" in browser.get(f"/runs/{well}").text
    reported = browser.get("/runs.json").json()["runs"]
    assert {one["run"]: one["needs_attention"] for one in reported} == {ill: True, well: False}
    rows = list(csv.DictReader(io.StringIO(browser.get("/runs.csv").text, newline="")))
    assert [row["needs_attention"] for row in rows] == ["False", "True"]


def test_empty_runs_pages_explain_why(site: Site) -> None:
    browser = site.browser("dora")
    assert "No runs yet" in browser.get("/runs").text
    assert "No runs yet" in browser.get("/").text
    assert "No runs in progress" in browser.get("/").text
    add_sample_runs(site.database)
    assert "No matching runs" in browser.get("/runs?host=gone1").text


def test_home_page_lists_the_pending_actions_of_each_person(site: Site) -> None:
    shown = add_sample_runs(site.database)
    waiting_for = {
        person: site.browser(person).get("/").text.split("Running now")[0]
        for person in ("olga", "dora", "stan")
    }
    assert f'href="/runs/{shown["pending"]}"' in waiting_for["olga"]
    assert f'href="/runs/{shown["unknown"]}"' in waiting_for["olga"]
    assert "Nothing needs your action" in waiting_for["dora"]
    assert "Nothing needs your action" in waiting_for["stan"]
    assert f'href="/runs/{shown["pending"]}"' in waiting_for["dora"]  # as a request of her own
    own = waiting_for["olga"].index(f'href="/runs/{shown["own"]}"')
    assert own > waiting_for["olga"].index("Your pending requests")


def test_home_page_shows_questions_and_assignments_to_the_person_concerned(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    service = site.harness.service
    service.ask_question(run.id, person="olga", text="which <b>ticket</b>?")
    service.reassign_run(run.id, person="olga", assignee="adam", reason="it is yours")
    shown = {
        person: Page(site.browser(person).get("/").text).text
        for person in ("dora", "adam", "olga")
    }
    assert "Olga Owner asked" in shown["dora"]
    assert "“which <b>ticket</b>?”" in shown["dora"]
    assert f"Answer the question about run {run.id}" in shown["dora"]
    assert "Assigned to you by Olga Owner" in shown["adam"]
    assert "“it is yours”" in shown["adam"]
    assert "Assigned to you" not in shown["olga"]
    assert "asked" not in shown["adam"]


def test_home_page_leaves_out_runs_that_the_reader_has_approved(site: Site) -> None:
    with site.database.transaction() as tx:
        run = add_pending_run(tx, add_requested_run(tx), needed=2)
        runs.add_decision(tx, _approval(run, "olga", tx.now))
    assert "Nothing needs your action" in site.browser("olga").get("/").text
    assert "Nothing needs your action" not in site.browser("adam").get("/").text


def _approval(run: runs.Run, person: str, at: int) -> runs.Decision:
    return runs.Decision(run.id, person, True, run.digest, at)


def test_runs_of_a_person_who_left_the_policy_stay_in_the_history(site: Site) -> None:
    with site.database.transaction() as tx:
        run = add_pending_run(tx, add_requested_run(tx, person="adam"))
        add_ended_run(tx, approve(tx, run), State.EXPIRED, "No one started it in time")
    site.dismiss("adam")
    browser = site.browser("dora")
    assert numbers(browser.get("/runs?person=adam").text) == [run.id]
    assert "adam" in Page(browser.get(f"/runs/{run.id}").text).text
