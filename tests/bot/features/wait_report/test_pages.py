"""The waiting report as a page: charts, each with a text."""

from typing import Any

import pytest
from sqlalchemy import update

from bot.db import tables
from bot.features.wait_report.report import build_wait_report
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_requested_run, add_succeeded_run


def _add_approved_runs(site: Site) -> None:
    with site.database.transaction() as tx:
        for _ in range(5):
            add_succeeded_run(tx, add_requested_run(tx))
        tx.sql.execute(
            update(tables.run).values(required_approvals=1, pending_since=tx.now - 300_000_000)
        )


def test_report_page_shows_approval_waits_as_chart_and_text(site: Site):
    _add_approved_runs(site)
    html = site.browser("dora").get("/report").text
    page = Page(html)
    assert page.strange == []
    for words in ("abusers clear", "the edge", "5 min", "100 %", "Show as a table"):
        assert words in page.text
    assert html.count('class="kt-bar-middle"') == 1 + 1 + 24


def test_report_page_suggests_self_service(site: Site):
    _add_approved_runs(site)
    text = Page(site.browser("dora").get("/report").text).text
    assert "abusers clear in the edge: 5 requests, median wait" in text


def test_report_page_without_approvals_says_so(site: Site):
    assert "No requests needed approval" in site.browser("dora").get("/report").text
    assert site.browser("dora").get("/report?days=9999").status_code == 422


def test_report_page_says_when_it_covers_only_the_newest_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    _add_approved_runs(site)
    sentence = "The report covers the newest"
    assert sentence not in Page(site.browser("dora").get("/report").text).text
    limits: Any = build_wait_report.__kwdefaults__
    monkeypatch.setitem(limits, "limit", 3)
    assert sentence in Page(site.browser("dora").get("/report").text).text
