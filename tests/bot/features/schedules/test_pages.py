"""The pages of schedules."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select

from bot.db import tables
from bot.features.schedules import rows as schedules
from bot.features.schedules.actions import ScheduleActions
from bot.features.schedules.readings import build_calendar
from bot.model.run import RequestTerms, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.times import HOUR
from tests.bot.features.schedules.due import fire_due_schedules, make_due_now
from tests.bot.harness import WEB, Harness
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.toy import SetSwitch, ShowSwitches

NIGHTLY = ScheduleTiming("<b>nightly</b>", parse_cron("0 3 * * *", "Europe/Amsterdam"))
SCRUB: Mapping[str, str] = {
    "name": "monthly look",
    "request": "zfs scrub status nas1 tank",
    "cron": "0 3 1 * *",
    "zone": "Europe/Amsterdam",
}


def _start_schedule(harness: Harness) -> int:
    run = harness.service.request_on_hosts(
        [ShowSwitches(host="lb1")], RequestTerms("dora", WEB, timing=NIGHTLY), host_pattern=""
    )
    harness.run_queued_work()
    return run.id


def test_schedules_page_without_schedules_says_so(site: Site):
    assert "No schedules yet" in site.browser("dora").get("/schedules").text


def test_schedules_page_shows_hostile_names_as_text(site: Site):
    _start_schedule(site.harness)
    browser = site.browser("olga")
    assert "next scheduled: &lt;b&gt;nightly" in browser.get("/").text
    for address in ("/schedules", "/schedules/1"):
        shown = browser.get(address).text
        assert "&lt;b&gt;nightly" in shown
        assert "At 03:00 every day (Europe/Amsterdam)" in shown


def test_schedules_page_shows_some_schedules_and_links_to_the_others(site: Site):
    _start_schedule(site.harness)
    with site.database.transaction() as tx:
        run = tx.sql.execute(select(tables.run)).mappings().one()
        for number in range(2, 53):
            tx.sql.execute(insert(tables.run), {**run, "id": number})
            timing = ScheduleTiming(f"later {number}", parse_cron("0 4 1 1 *", "UTC"))
            schedules.add_schedule(
                tx, run=number, owner="dora", timing=timing, lapses=tx.now + HOUR
            )
    browser = site.browser("dora")
    first = browser.get("/schedules").text
    assert 'href="/schedules/1"' in first
    assert 'href="/schedules/52"' not in first
    assert 'href="/schedules?page=2"' in first
    assert "of the schedules on this page" in first
    last = browser.get("/schedules?page=2").text
    assert 'href="/schedules/1"' not in last
    assert [f"later {number}" in last for number in (50, 51, 52)] == [False, True, True]
    assert 'href="/schedules?page=1"' in last
    assert 'href="/schedules?page=3"' not in last


def test_schedule_page_links_to_its_past_runs(site: Site):
    _start_schedule(site.harness)
    with site.database.reading() as tx:
        [schedule] = schedules.list_schedules(tx)
    make_due_now(site.harness, schedule)
    fire_due_schedules(site.harness)
    assert 'href="/runs/2"' in site.browser("dora").get("/schedules/1").text


def test_schedule_form_previews_the_due_times_before_the_request(site: Site):
    browser = site.browser("dora")
    shown = browser.get("/schedules/new", params=SCRUB).text
    assert "At 03:00 on the first day of every month (Europe/Amsterdam)" in shown
    assert shown.count(" 03:00 CE") == 5
    assert shown.count("data-local-time") == 5
    assert site.harness.list_entry_kinds() == []
    asked = browser.post("/schedules", data=SCRUB)
    assert (asked.status_code, asked.headers["location"]) == (303, "/runs/1")
    assert site.harness.get_run(1).state is State.PLANNING


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cron": "0 3 1 *"}, "4 fields instead of five"),
        ({"zone": "Mars"}, "Unknown time zone"),
        ({"request": "zfs scrub statos nas1"}, "Did you mean"),
        ({"request": "zfs scrub status nas9 tank"}, "no host"),
        ({"name": ""}, "Give the schedule a name"),
        ({"overlap": "perhaps"}, "skip, queue or cancel"),
    ],
)
def test_invalid_schedule_form_is_refused_and_keeps_its_values(
    site: Site, wrong: Mapping[str, str], says: str
):
    browser = site.browser("dora")
    typed = {**SCRUB, **wrong}
    answer = browser.post("/schedules", data=typed)
    assert (answer.status_code, says in answer.text) == (422, True)
    assert 'value="Europe/Amsterdam"' in answer.text or "zone" in wrong
    assert site.harness.list_entry_kinds() == []


def test_schedule_form_shows_all_errors_beside_their_fields(site: Site):
    wrong = {**SCRUB, "cron": "often", "zone": "Mars", "request": "zfs", "spread": "x", "name": ""}
    shown = site.browser("dora").post("/schedules", data={**wrong, "reason": "disks"}).text
    assert shown.count('aria-invalid="true"') == shown.count('class="kt-error"') == 5
    for kept in ("often", "Mars", "zfs", "x", "disks"):
        assert f'value="{kept}"' in shown


@pytest.mark.parametrize(
    ("selected", "cron"),
    [
        ({"every": "weekdays", "at": "02:30"}, "30 2 * * 1-5"),
        ({"every": "sunday", "at": ""}, "0 3 * * 7"),
        ({"every": "5-min", "at": "02:30"}, "*/5 * * * *"),
        ({"every": "", "at": "02:30", "cron": "@daily"}, "@daily"),
    ],
)
def test_selected_recurrence_becomes_cron_text_with_its_due_times(
    site: Site, selected: Mapping[str, str], cron: str
):
    browser = site.browser("dora")
    part = browser.get("/schedules/timing", params={"build": "yes", "zone": "UTC", **selected})
    assert f'value="{cron}"' in part.text
    assert part.text.count("data-local-time") == 5
    assert "<html" not in part.text


def test_schedule_is_suspended_resumed_and_ended_by_people_with_the_right(site: Site):
    _start_schedule(site.harness)
    assert site.browser("stan").post("/schedules/1/suspend").status_code == 403
    browser = site.browser("olga")
    assert browser.post("/schedules/1/suspend", data={"reason": "moving"}).status_code == 303
    assert "by Olga Owner: moving" in browser.get("/schedules/1").text
    assert browser.post("/schedules/1/suspend").status_code == 409
    assert browser.post("/schedules/1/resume").status_code == 303
    assert browser.post("/schedules/1/end").status_code == 303
    assert browser.post("/schedules/1/resume").status_code == 409


def test_taking_over_a_schedule_requests_a_new_run(site: Site):
    _start_schedule(site.harness)
    taken = site.browser("olga").post("/schedules/1/take-over")
    assert (taken.status_code, taken.headers["location"]) == (303, "/runs/2")


def _freeze(site: Site, text: str) -> None:
    (site.policy / "freezes.yaml").write_text(f"freezes:\n  - {text}\n")


def _approve_change_schedule(harness: Harness) -> None:
    request = SetSwitch(host="lb1", name="lamp", value="on")
    run = harness.service.request_on_hosts(
        [request], RequestTerms("dora", WEB, timing=NIGHTLY), host_pattern=""
    )
    harness.run_queued_work()
    harness.approve(harness.get_run(run.id))


def test_schedule_calendar_shows_the_next_30_days(site: Site):
    _start_schedule(site.harness)
    with site.database.reading() as tx:
        calendar = build_calendar(tx, site.harness.policies.get_policy())
    assert len(calendar) == 30
    assert sum(len(day.upcoming) for day in calendar) in {29, 30}
    page = Page(site.browser("dora").get("/schedules").text)
    assert "Calendar: next 30 days" in page.text
    assert page.strange == []
    assert page.links.count("/schedules/1") == 1 + sum(len(day.upcoming) for day in calendar)


def test_schedule_calendar_shows_freezes_and_skipped_changes(site: Site):
    _approve_change_schedule(site.harness)
    with site.database.reading() as tx:
        today = datetime.fromtimestamp(tx.now / 1_000_000, UTC).date()
    first, last = today + timedelta(days=5), today + timedelta(days=8)
    _freeze(
        site,
        f'{{name: Black Friday, areas: [edge], from: "{first} 00:00", until: "{last} 12:00"}}',
    )
    with site.database.reading() as tx:
        days = build_calendar(tx, site.harness.policies.get_policy())
    frozen = [day.date for day in days if day.freezes]
    assert frozen == [first + timedelta(days=n) for n in range(4)]
    left_out = [day.date for day in days for one in day.upcoming if one.skipped]
    assert left_out == frozen
    text = Page(site.browser("dora").get("/schedules").text).text
    assert "Black Friday 00:00–12:00 (the edge)" in re.sub(r"(?<=[(–]) | (?=[)–])", "", text)
    assert "skipped: Black Friday" in text


def test_schedule_calendar_does_not_skip_checks_in_a_freeze(site: Site):
    _start_schedule(site.harness)
    _freeze(site, '{name: always, from: "2000-01-01 00:00", until: "2200-01-01 00:00"}')
    with site.database.reading() as tx:
        days = build_calendar(tx, site.harness.policies.get_policy())
    assert all(day.freezes and day.freezes[0].whole_day for day in days)
    assert not any(one.skipped for day in days for one in day.upcoming)


def test_schedule_calendar_counts_frequent_schedules(site: Site):
    harness = site.harness
    for name, cron in (("often", "* * * * *"), ("five", "*/5 * * * *"), ("odd", "1,2,50 4 * * *")):
        harness.service.request_on_hosts(
            [ShowSwitches(host="lb1")],
            RequestTerms("dora", WEB, timing=ScheduleTiming(name, parse_cron(cron, "UTC"))),
            host_pattern="",
        )
    harness.run_queued_work()
    with site.database.reading() as tx:
        calendar = build_calendar(tx, harness.policies.get_policy())
    counts = {one.name: (one.count, len(one.times)) for one in calendar[-1].upcoming}
    assert counts == {"often": (1440, 24), "five": (288, 24), "odd": (3, 3)}
    text = Page(site.browser("dora").get("/schedules").text).text
    assert text.count("five every 5 min, 288 times") == 29
    assert "often every 1 min, 1440 times" in text


def test_schedule_calendar_uses_the_time_zone_of_the_reader(site: Site):
    _start_schedule(site.harness)
    browser = site.browser("dora")
    browser.cookies.set("keyturn-zone", "Asia/Tokyo", domain="keyturn.test", path="/")
    shown = browser.get("/schedules").text
    assert "Days and times in Asia/Tokyo" in shown
    assert re.search(r'<span title="[-0-9]+ 0[12]:00:00 UTC">1[01]:00</span>', shown)
    browser.cookies.set("keyturn-zone", "<b>Mars", domain="keyturn.test", path="/")
    assert "Days and times in UTC" in browser.get("/schedules").text


def test_schedule_is_suspended_from_the_list_by_its_owner_only(site: Site):
    _start_schedule(site.harness)
    assert "/schedules/1/suspend" in Page(site.browser("dora").get("/schedules").text).forms
    assert "/schedules/1/suspend" not in Page(site.browser("stan").get("/schedules").text).forms
    site.browser("dora").post("/schedules/1/suspend")
    page = Page(site.browser("dora").get("/schedules").text)
    assert "/schedules/1/resume" in page.forms
    assert page.links.count("/schedules/1") == 1


def test_old_ended_schedules_are_listed_on_demand(site: Site, monkeypatch: pytest.MonkeyPatch):
    _start_schedule(site.harness)
    keeping = site.harness.service.bind(ScheduleActions)
    keeping.end_schedule(1, person="dora", reason="not needed any more")
    browser = site.browser("dora")
    assert "nightly" in browser.get("/schedules").text
    monkeypatch.setattr(schedules, "ENDED_DAYS", -1)
    later = Page(browser.get("/schedules").text)
    assert "nightly" not in later.text
    assert "/schedules?ended=all" in later.links
    assert "nightly" in browser.get("/schedules?ended=all").text
    # One that fires is listed however old it is.
    _start_schedule(site.harness)
    assert "nightly" in browser.get("/schedules").text
