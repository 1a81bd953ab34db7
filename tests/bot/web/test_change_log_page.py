"""The change log page: entries, filters, export and verification."""

import csv
import io
import re

import pytest
from sqlalchemy import text

from bot.audit import change_log, verification
from bot.audit.event_type import UnknownEvent
from bot.db.database import Transaction
from bot.queries import log_search as audit_query
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_requested_run, add_sample_runs


def _open_change_log(site: Site) -> None:
    """Open the log with its key and put some life into it."""
    with site.database.transaction() as tx:
        verification.open_log(tx)
    add_sample_runs(site.database)


def test_change_log_pages_show_every_entry_once(site: Site) -> None:
    with site.database.transaction() as tx:
        for n in range(120):
            change_log.append_entry(
                tx, UnknownEvent(kind="noted", facts={"number": n}), person="dora"
            )
    browser = site.browser("stan")
    seen: list[int] = []
    address = "/changelog"
    while address:
        page = Page(browser.get(address).text)
        seen += [int(i.removeprefix("entry-")) for i in page.ids if i.startswith("entry-")]
        address = next((link for link in page.links if link.startswith("/changelog?before=")), "")
    assert seen == list(range(120, 0, -1))


def test_change_log_chart_counts_the_entries_that_match_the_filter(site: Site) -> None:
    _open_change_log(site)
    browser = site.browser("stan")
    with site.database.reading() as tx:
        total, _ = change_log.get_head(tx)
        log = change_log.list_entries_after(tx, 0)
        of_edge = sum(entry.run is not None for entry in log)
    for query, count in {
        "": total,
        "host=lb*": sum(entry.host.startswith("lb") for entry in log),
        "host=lb2": sum(entry.host == "lb2" for entry in log),
        "person=olga": sum(entry.person == "olga" for entry in log),
        "kind=planned": sum(entry.kind == "planned" for entry in log),
        "area=edge&since=2+h": of_edge,
    }.items():
        page = Page(browser.get(f"/changelog?{query}&chart=yes").text)
        assert f" {count} events, 1 min per bar " in page.text, query
    page = Page(browser.get("/changelog?area=edge&since=2+h&chart=yes").text)
    # More than one if a minute ended meanwhile.
    bars = {link for link in page.links if "until=" in link}
    counts = [re.findall(r" (\d+) events?, ", Page(browser.get(bar).text).text) for bar in bars]
    assert sum(int(count) for [count] in counts) == of_edge


def test_change_log_entry_details_have_labels_and_times(site: Site) -> None:
    with site.database.transaction() as tx:
        change_log.append_entry(
            tx,
            UnknownEvent(
                kind="noted",
                facts={"lapses_at": 1_803_009_881_141_996, "size": 7_000_000, "hosts": []},
            ),
        )
    html = site.browser("stan").get("/changelog").text
    assert "<dt>Approval of the schedule ends</dt><dd><time " in html
    assert ">2027-02-19 04:04:41 UTC</time></dd>" in html
    assert "<dt>Size</dt><dd>7000000</dd>" in html
    assert "<dt>Hosts</dt>" not in html


def test_intact_change_log_is_verified_with_its_head_hash(site: Site) -> None:
    _open_change_log(site)
    with site.database.reading() as tx:
        seq, head = change_log.get_head(tx)
    words = Page(site.browser("stan").post("/changelog/verify").text).text
    assert f"Verified. The hashes of all {seq} entries" in words
    assert head in words


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE entry SET person = 'adam' WHERE seq = 5", "entry 5 was altered"),
        ("UPDATE entry SET body = 'no JSON' WHERE seq = 5", "entry 5 was altered"),
        ("DELETE FROM entry WHERE seq = 5", "entry 5 is missing"),
    ],
)
def test_altered_or_missing_change_log_entry_fails_verification(
    site: Site, statement: str, words: str
) -> None:
    _open_change_log(site)
    with site.database.transaction() as tx:
        for trigger in tx.sql.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        ).scalars():
            tx.sql.execute(text(f'DROP TRIGGER "{trigger}"'))
        tx.sql.execute(text(statement))
    browser = site.browser("stan")
    answer = browser.post("/changelog/verify")
    assert answer.status_code == 200
    assert f"Verification failed at entry 5: {words}" in Page(answer.text).text
    assert "Verified." not in answer.text
    assert browser.get("/changelog").status_code == 200
    # The altered text is shown as it is.
    assert ("no JSON" in browser.get("/changelog").text) is ("no JSON" in statement)


@pytest.mark.parametrize("before", ["0", "-1", "x", "9" * 30, "%00"])
def test_invalid_change_log_position_is_refused_with_422(site: Site, before: str) -> None:
    assert site.browser("stan").get(f"/changelog?before={before}").status_code == 422


def test_empty_change_log_page_says_that_there_are_no_entries(site: Site) -> None:
    browser = site.browser("stan")
    assert "No entries yet" in browser.get("/changelog").text
    assert "all 0 entries" in browser.post("/changelog/verify").text


def test_change_log_is_filtered_by_kind_host_and_run_state(site: Site) -> None:
    numbers = add_sample_runs(site.database)
    browser = site.browser("dora")
    page = Page(browser.get("/changelog?kind=approved&host=lb1").text)
    assert page.strange == []
    runs = {link for link in page.links if link.startswith("/runs/")}
    assert f"/runs/{numbers['succeeded']}" in runs
    assert f"/runs/{numbers['unknown']}" not in runs
    of_denied = Page(browser.get("/changelog?state=denied").text)
    assert {link for link in of_denied.links if link.startswith("/runs/")} == {
        f"/runs/{numbers['denied']}"
    }


def test_link_to_older_change_log_entries_keeps_the_filters(site: Site) -> None:
    with site.database.transaction() as tx:
        for _ in range(60):
            add_requested_run(tx)
    browser = site.browser("dora")
    page = Page(browser.get("/changelog?kind=requested").text)
    older = next(link for link in page.links if "before=" in link and ".csv" not in link)
    assert older == "/changelog?kind=requested&before=11"
    assert "10 of " in Page(browser.get(older).text).text


def test_change_log_of_an_area_pages_through_more_runs_than_one_query_reads(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_query, "MAX_RUNS", 60)
    numbers: list[int] = []
    for _ in range(130):
        with site.database.transaction() as tx:
            numbers.append(add_requested_run(tx).id)
    browser = site.browser("dora")
    seen: list[str] = []
    address = "/changelog?area=edge"
    while address:
        page = Page(browser.get(address).text)
        seen += [link for link in page.links if link.startswith("/runs/") and link[6:].isdecimal()]
        address = next(
            (link for link in page.links if link.startswith("/changelog?area=edge&before=")), ""
        )
    assert {int(link.removeprefix("/runs/")) for link in seen} == {*numbers}


@pytest.mark.parametrize("query", ["since=soon", "state=perhaps", "kind=a%00b"])
def test_invalid_change_log_filter_is_refused(site: Site, query: str) -> None:
    add_sample_runs(site.database)
    browser = site.browser("dora")
    assert "Invalid filter" in browser.get(f"/changelog?{query}").text
    assert browser.get(f"/changelog.csv?{query}").status_code == 422


def test_change_log_is_exported_as_csv_and_json(site: Site) -> None:
    with site.database.transaction() as tx:
        add_requested_run(tx, reason='=HYPERLINK("//evil")')
    browser = site.browser("dora")
    body = browser.get("/changelog.json?kind=requested").json()
    assert [entry["kind"] for entry in body["entries"]] == ["requested"]
    answer = browser.get("/changelog.csv?kind=requested")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0][:3] == ["seq", "at", "kind"]
    assert not [cell for row in rows for cell in row if cell.startswith("=")]


def test_second_change_log_verification_at_a_time_gets_409(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, second = verification.verify_log, list[int]()

    def meanwhile(tx: Transaction) -> verification.Verification:
        second.append(olga.post("/changelog/verify").status_code)
        return genuine(tx)

    dora, olga = site.browser("dora"), site.browser("olga")
    with monkeypatch.context() as both:
        both.setattr(verification, "verify_log", meanwhile)
        assert dora.post("/changelog/verify").status_code == 200
    assert second == [409]
    assert dora.post("/changelog/verify").status_code == 200


def test_change_log_reports_an_unknown_person_or_host_in_a_filter(site: Site) -> None:
    add_sample_runs(site.database)
    browser = site.browser("olga")
    html = browser.get("/changelog?person=dorra").text
    assert "“dorra” is not in the policy, and not in the log" in html
    assert "did you mean “dora”?" in html
    assert "A filter names something that does not exist" in html
    body = browser.get("/changelog.json?host=lb11&person=dorra").json()
    assert list(body["unknown_filters"]) == ["person", "host"]
    for address in ("/changelog?person=stan&kind=fired", "/changelog?person=dora", "/changelog"):
        assert "not in the log" not in browser.get(address).text
    assert browser.get("/changelog.json?person=stan&kind=fired").json()["unknown_filters"] == {}
