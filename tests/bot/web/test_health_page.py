"""The health page, for those who may stop everything."""

from dataclasses import replace

from bot.health import ServiceHealth
from bot.model.check_result import CheckResult
from bot.web import build_app
from bot.web.deps import ComponentHealth as Door
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page


def test_health_page_shows_check_results_to_those_who_may_stop_everything(site: Site):
    findings = ServiceHealth(site.database, clock=lambda: 0.0).list_results
    doors = {"slack": lambda: Door("the token was refused", is_broken=True)}
    site.app = build_app(replace(site.parts, list_check_results=findings, health_checks=doors))
    page = Page(site.browser("olga").get("/health").text)
    assert page.strange == []
    assert "2 problems" in page.text
    for words in ("Clock Error", "Slack Error The token was refused", "Database OK SQLite"):
        assert words in page.text
    assert "/health" in Page(site.browser("olga").get("/policy").text).links


def test_health_page_is_refused_to_other_people(site: Site):
    refused = site.browser("dora").get("/health")
    assert refused.status_code == 403
    assert "ask one of them: Olga Owner, Adam Admin, Stan Storage." in Page(refused.text).text
    assert "/health" not in Page(site.browser("dora").get("/policy").text).links


def test_health_page_without_checks_is_not_healthy(site: Site):
    site.app = build_app(
        replace(site.parts, list_check_results=list[CheckResult], health_checks={})
    )
    page = Page(site.browser("olga").get("/health").text)
    assert "Nothing was checked" in page.text
    assert "Healthy" not in page.text
