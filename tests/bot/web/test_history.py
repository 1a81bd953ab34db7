"""The history: every run once, newest first, and what the filters let through."""

import re

import pytest
from fastapi.testclient import TestClient

from bot.run import State
from bot.store import runs
from bot.store.database import Transaction
from tests.bot.web.conftest import Site
from tests.bot.web.dom import Page
from tests.bot.web.exhibits import approved, asked, ended, gallery, succeeded, waiting


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
        address = next((link for link in Page(html).links if "before=" in link), "")
    return pages


def _many(tx: Transaction, count: int = 120) -> None:
    for n in range(count):
        asked(tx, host=("lb1", "lb2", "web1")[n % 3], person=("dora", "adam")[n % 2])


def test_paging_shows_every_run_once(site: Site) -> None:
    with site.database.transaction() as tx:
        _many(tx)
    pages = paged(site.browser("olga"), "/runs")
    assert [len(page) for page in pages] == [40, 40, 40]
    assert [number for page in pages for number in page] == list(range(120, 0, -1))


def test_paging_keeps_its_place_while_new_runs_come_in(site: Site) -> None:
    with site.database.transaction() as tx:
        _many(tx, 50)
    browser = site.browser("olga")
    first = browser.get("/runs").text
    with site.database.transaction() as tx:
        _many(tx, 30)
    older = next(link for link in Page(first).links if "before=" in link)
    assert numbers(browser.get(older).text) == list(range(10, 0, -1))


def test_older_pages_keep_the_filters(site: Site) -> None:
    with site.database.transaction() as tx:
        _many(tx)
    pages = paged(site.browser("olga"), "/runs?person=dora&since=1+h")
    assert [number for page in pages for number in page] == list(range(119, 0, -2))
    assert len(pages) == 2


def test_the_first_page_is_one_click_away(site: Site) -> None:
    with site.database.transaction() as tx:
        _many(tx, 50)
    html = site.browser("olga").get("/runs?host=lb1&before=20").text
    assert "/runs?host=lb1" in Page(html).links


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("host=lb2", {"denied", "unchanged", "stale", "unknown"}),
        ("host=LB2", {"denied", "unchanged", "stale", "unknown"}),
        ("person=adam", {"denied"}),
        ("runbook=abusers+show", {"checked"}),
        ("state=failed", {"failed"}),
        ("state=under-way", {"unknown", "running", "ready", "waiting", "own", "asked"}),
        ("state=not-done", {"denied", "stale", "failed"}),
        ("host=lb2&state=ended", {"denied", "unchanged", "stale"}),
        ("host=lb2&person=adam&state=denied&since=today&until=today", {"denied"}),
        ("host=gone1", set[str]()),
        ("until=2020-01-01", set[str]()),
        ("host=&person=&state=&since=&until=&host=", None),
    ],
)
def test_filters_let_through_what_they_say(
    site: Site, query: str, expected: set[str] | None
) -> None:
    shown = gallery(site.database)
    html = site.browser("dora").get(f"/runs?{query}").text
    found = {name for name, number in shown.items() if number in numbers(html)}
    assert found == (set(shown) if expected is None else expected)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=soon", "“soon” is no time"),
        ("until=2026-13-45", "is no time"),
        ("since=99999999+weeks", "is no time"),
        ("state=purple", "is not known here"),
        ("host=lb1%00", "invisible character"),
        ("person=dora%E2%80%AE", "invisible character"),
    ],
)
def test_a_filter_that_does_not_fit_is_named_and_shows_nothing(
    site: Site, query: str, words: str
) -> None:
    gallery(site.database)
    answer = site.browser("dora").get(f"/runs?{query}")
    assert answer.status_code == 200
    assert words in Page(answer.text).text
    assert numbers(answer.text) == []


@pytest.mark.parametrize("before", ["x", "-1", "0", "9" * 30, "%00", "١"])
def test_a_mangled_place_does_no_harm(site: Site, before: str) -> None:
    gallery(site.database)
    assert site.browser("dora").get(f"/runs?before={before}").status_code == 200


def test_what_is_typed_stays_in_the_filters(site: Site) -> None:
    html = site.browser("dora").get("/runs?host=gone1&since=2+h").text
    assert '<option value="gone1" selected>' in html
    assert Page(html).values["since"] == "2 h"


def test_a_row_tells_who_asked_who_approved_and_how_it_ended(site: Site) -> None:
    with site.database.transaction() as tx:
        succeeded(tx, asked(tx))
    words = Page(site.browser("stan").get("/runs").text).text
    assert "run 1 Succeeded lb1 Dora Developer Olga Owner" in words
    assert "1.3 s" in words


def test_empty_pages_say_what_to_do(site: Site) -> None:
    browser = site.browser("dora")
    assert "Nothing was asked for yet" in browser.get("/runs").text
    assert "Nothing was asked for yet" in browser.get("/").text
    assert "All is quiet" in browser.get("/").text
    gallery(site.database)
    assert "Nothing fits these filters" in browser.get("/runs?host=gone1").text


def test_the_first_page_shows_each_person_what_waits_for_them(site: Site) -> None:
    shown = gallery(site.database)
    waiting_for = {
        person: site.browser(person).get("/").text.split("Running now")[0]
        for person in ("olga", "dora", "stan")
    }
    assert f'href="/runs/{shown["waiting"]}"' in waiting_for["olga"]
    assert f'href="/runs/{shown["unknown"]}"' in waiting_for["olga"]
    assert "Nobody waits for your key" in waiting_for["dora"]
    assert "Nobody waits for your key" in waiting_for["stan"]
    assert f'href="/runs/{shown["waiting"]}"' in waiting_for["dora"]  # as a request of her own
    own = waiting_for["olga"].index(f'href="/runs/{shown["own"]}"')
    assert own > waiting_for["olga"].index("Your requests that wait")


def test_what_one_has_approved_waits_for_one_no_more(site: Site) -> None:
    with site.database.transaction() as tx:
        run = waiting(tx, asked(tx), needed=2)
        runs.cast(tx, _vote(run, "olga", tx.now))
    assert "Nobody waits for your key" in site.browser("olga").get("/").text
    assert "Nobody waits for your key" not in site.browser("adam").get("/").text


def _vote(run: runs.Run, person: str, at: int) -> runs.Vote:
    return runs.Vote(run.id, person, True, run.digest, at)


def test_somebody_who_left_keeps_their_place_in_the_history(site: Site) -> None:
    with site.database.transaction() as tx:
        run = waiting(tx, asked(tx, person="adam"))
        ended(tx, approved(tx, run), State.EXPIRED, "Nobody started it in time")
    site.dismiss("adam")
    browser = site.browser("dora")
    assert numbers(browser.get("/runs?person=adam").text) == [run.id]
    assert "adam" in Page(browser.get(f"/runs/{run.id}").text).text
