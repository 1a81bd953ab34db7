"""`/healthz` and `/readyz`, and pages while the database, log or policy fails."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from bot import app
from bot.db import tables
from bot.db.database import StoreUnavailable
from bot.health import ServiceHealth
from bot.model.run import State
from bot.web.app import build_app
from bot.web.deps import ComponentHealth
from tests.bot.bogus_entry import add_bogus_entry
from tests.bot.databases import create_postgresql_database
from tests.bot.harness import open_harness
from tests.bot.web.conftest import Site, create_site
from tests.bot.web.parsed_page import Page
from tests.playground.postgres import Postgres
from tests.row_macs import change_rows
from tests.toy import SetSwitch


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def _break_database(site: Site) -> None:
    with site.database.engine.connect() as connection:
        for table in ("entry", "session"):
            connection.execute(text(f"ALTER TABLE {table} RENAME TO {table}_gone"))


def test_healthz_and_readyz_report_a_healthy_service(site: Site) -> None:
    assert site.browser().get("/healthz").text == "alive\n"
    answer = site.browser().get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "ready": True,
        "database": "responds",
        "change log": "is writable",
        "policy": "is valid",
    }


def test_readyz_fails_and_healthz_succeeds_without_a_database(site: Site) -> None:
    _break_database(site)
    assert site.browser().get("/healthz").status_code == 200
    answer = site.browser().get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "database": "does not respond: see the log of the service",
        "change log": "is writable",
        "policy": "is valid",
    }


def test_readyz_fails_when_the_change_log_is_not_writable(site: Site) -> None:
    site.database.error = StoreUnavailable("the disk is full")
    answer = site.browser().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["change log"].startswith("is not writable, so nothing runs")
    assert "disk" not in answer.text


def test_readyz_fails_without_a_valid_policy_and_gives_no_details(site: Site) -> None:
    (site.policy / "policy.cedar").write_text("permit (everything);")
    answer = site.browser().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["policy"].startswith("is not valid, so all requests are refused")
    assert "cedar" not in answer.text


def test_pages_say_that_nothing_was_done_without_a_database(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    browser = site.browser("olga")
    _break_database(site)
    for answer in (
        browser.get("/"),
        browser.post(f"/runs/{run.id}/approve", data={"digest": run.digest}),
    ):
        assert answer.status_code == 503
        assert "The database does not respond, so nothing was done." in answer.text
        assert "no such table" not in answer.text
    assert site.harness.get_run(run.id).state is State.PENDING


def test_pages_say_which_entry_of_the_change_log_is_not_ours(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    browser = site.browser("olga")
    says = add_bogus_entry(site.database)
    for _ in range(2):  # Also once a write has failed.
        ready = site.browser().get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (503, "responds")
        assert ready.json()["change log"] == says
        results = ServiceHealth(site.database).list_results()
        assert [one.message for one in results if one.subject == "Change log"] == [says]
        answer = browser.post(f"/runs/{run.id}/approve", data={"digest": run.digest})
        assert answer.status_code == 503
        assert says.replace("`", "") in Page(answer.text).text.replace("`", "")


def test_pages_open_while_the_session_cannot_be_updated(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    browser = site.browser("olga")
    with site.database.transaction() as tx:
        change_rows(
            tx, tables.session, lambda row: {"last_seen_at": row.last_seen_at - 600_000_000}
        )
        tx.sql.execute(
            text(
                "CREATE TRIGGER full_disk BEFORE UPDATE ON session "
                "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
            )
        )
    assert browser.get(f"/runs/{run.id}").status_code == 200


def _with_slack(site: Site, condition: ComponentHealth) -> TestClient:
    parts = replace(site.parts, health_checks={"slack": lambda: condition})
    return Site(site.harness, parts, build_app(parts)).browser()


def test_readyz_reports_a_lost_slack_connection_and_stays_ready(site: Site) -> None:
    away = ComponentHealth("0 of 2 connections are open: Slack did not answer in time")
    answer = _with_slack(site, away).get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["slack"] == away.message


def test_readyz_fails_when_slack_refuses_the_app_token(site: Site) -> None:
    answer = _with_slack(site, ComponentHealth("Slack refused the app token", is_broken=True)).get(
        "/readyz"
    )
    assert answer.status_code == 503
    assert answer.json()["ready"] is False


def test_readyz_reports_closed_ssh_connections_and_stays_ready(site: Site) -> None:
    assert app.describe_host_connections(0).message == "no host sends too much"
    parts = replace(site.parts, health_checks={"ssh": lambda: app.describe_host_connections(2)})
    answer = Site(site.harness, parts, build_app(parts)).browser().get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["ssh"].startswith("2 connections were closed recently")


@pytest.mark.real
def test_database_role_with_too_many_rights_is_a_warning_in_readyz(
    postgres: Postgres, tmp_path: Path
) -> None:
    store = create_postgresql_database(postgres)
    with open_harness(tmp_path, database=store) as harness:
        site = create_site(harness)
        answer = site.browser().get("/readyz")
        assert answer.status_code == 200
        assert answer.json()["ready"] is True
        assert answer.json()["database role"].startswith("has too many rights")
        assert "superuser" not in answer.text
        site.browsers[0].close()
