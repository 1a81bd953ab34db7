"""Where people look for who is on duty, and for what is wrong with a calendar."""

import json
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from bot.__main__ import main
from bot.features import load_checks
from bot.features.oncall import rows
from bot.features.oncall.shift import Shift
from bot.health import ServiceHealth
from bot.model.signing import create_signing_key
from tests.bot.databases import create_sqlite_database
from tests.bot.duties import add_calendar
from tests.bot.features.oncall.calendars import set_duty
from tests.bot.features.oncall.test_duties import ALONE
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.policies import get_starter_rules, write_policy


def test_policy_page_shows_who_is_on_duty_and_until_when(site: Site) -> None:
    harness = site.harness
    add_calendar(site.policy)
    browser = site.browser("dora")
    assert "On duty edge Not known: no one has the role" in Page(browser.get("/policy").text).text
    set_duty(harness.database, harness.policies, "adam", "olga", minutes=30)
    page = Page(browser.get("/policy").text)
    assert "On duty edge Adam Admin, Olga Owner Until" in page.text
    assert "Role oncall:edge" in page.text
    assert "valid for 60 min" in page.text
    assert page.strange == []
    calendar = harness.policies.get_policy().calendars["edge"]
    with harness.database.transaction() as tx:
        rows.store_error(tx, calendar, "it returned status 500 <b>")
    assert "It returned status 500 <b>" in Page(browser.get("/policy").text).text
    with harness.database.transaction() as tx:
        unclear = Shift(
            tx.now, tx.now + 10**12, (), "Night <b> (UID 2)", "STATUS:OFF is not known"
        )
        rows.store_shifts(tx, calendar, [unclear])
    text = Page(browser.get("/policy").text).text
    assert "No one" in text
    assert "puts no one on duty: “Night <b> (UID 2)”: STATUS:OFF is not known" in text
    set_duty(harness.database, harness.policies, "adam", "olga", minutes=30)
    health = ServiceHealth(
        harness.database, policies=harness.policies, policy_checks=load_checks()
    )
    [current] = [one for one in health.list_results() if one.subject == "On call"]
    assert (current.level, current.message) == ("ok", "calendar edge has a current reading")
    (site.policy / "oncall.yaml").write_text("oncall: {edge: {file: new.ics, areas: [edge]}}\n")
    [stale] = [one for one in health.list_results() if one.subject == "On call"]
    says = "calendar edge has no current reading, so in edge no one is on duty by it"
    assert (stale.level, says in stale.message) == ("warning", True)
    assert stale.message.endswith("context.oncall is 0: it was not read yet")


def test_doctor_names_a_calendar_without_a_current_reading(place: Path) -> None:
    (place / "policy" / "oncall.yaml").write_text("oncall: {night: {file: night.ics}}\n")
    create_sqlite_database(place / "keyturn.db").close()
    report = json.loads(CliRunner().invoke(main, ["doctor", "--json"]).stdout)
    [stale] = [each for each in report["findings"] if each["subject"] == "on call"]
    assert (stale["level"], stale["message"]) == (
        "warning",
        "calendar night has no current reading, so in every area no one is on duty by it and "
        "context.oncall is 0: it was not read yet",
    )


def test_explain_on_the_server_knows_who_is_on_duty(place: Path) -> None:
    policies = write_policy(place / "policy", rules=get_starter_rules() + ALONE)
    add_calendar(place / "policy")
    words = ["policy", "explain", "dora", "abusers", "clear", "lb1"]
    key = create_signing_key(place / "changelog.key")
    with closing(create_sqlite_database(place / "keyturn.db", key)) as database:
        assert "Needs 1 approval" in CliRunner().invoke(main, words).output
        set_duty(database, policies, "dora")
        assert "Runs immediately" in CliRunner().invoke(main, words).output
