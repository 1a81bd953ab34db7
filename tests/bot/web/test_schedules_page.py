"""The pages of schedules."""

from collections.abc import Mapping

import pytest

from bot.run import State
from bot.store import schedules
from bot.timetable import Timing, timetable
from tests.bot.office import WEB, Office
from tests.bot.time import due_now, fire_all
from tests.bot.web.conftest import Site
from tests.toy import ShowSwitches

NIGHTLY = Timing("<b>nightly</b>", timetable("0 3 * * *", "Europe/Amsterdam"))
SCRUB: Mapping[str, str] = {
    "name": "monthly look",
    "request": "zfs scrub status nas1 tank",
    "cron": "0 3 1 * *",
    "zone": "Europe/Amsterdam",
}


def _begun(office: Office) -> int:
    run = office.workflow.schedules.ask(
        [ShowSwitches(host="lb1")], spelled="", person="dora", origin=WEB, timing=NIGHTLY
    )
    office.work()
    return run.id


def test_an_empty_page_leads_on(site: Site):
    assert "Nothing fires by the clock yet" in site.browser("dora").get("/schedules").text


def test_schedules_are_listed_and_shown_as_text(site: Site):
    _begun(site.office)
    browser = site.browser("olga")
    for address in ("/schedules", "/schedules/1"):
        shown = browser.get(address).text
        assert "&lt;b&gt;nightly" in shown
        assert "At 03:00 every day (Europe/Amsterdam)" in shown


def test_what_became_of_its_moments_stands_on_its_page(site: Site):
    _begun(site.office)
    with site.database.reading() as tx:
        [schedule] = schedules.every(tx)
    due_now(site.office, schedule)
    fire_all(site.office)
    assert 'href="/runs/2"' in site.browser("dora").get("/schedules/1").text


def test_the_form_shows_the_moments_before_anything_is_asked(site: Site):
    browser = site.browser("dora")
    shown = browser.get("/schedules/new", params=SCRUB).text
    assert "At 03:00 on the first day of every month (Europe/Amsterdam)" in shown
    assert shown.count(" 03:00 CE") == 5
    assert site.office.entries() == []
    asked = browser.post("/schedules", data=SCRUB)
    assert (asked.status_code, asked.headers["location"]) == (303, "/runs/1")
    assert site.office.run(1).state is State.ASKED


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"cron": "0 3 1 *"}, "4 fields instead of five"),
        ({"zone": "Mars"}, "no time zone"),
        ({"request": "zfs scrub statos nas1"}, "Did you mean"),
        ({"request": "zfs scrub status nas9 tank"}, "no host"),
        ({"name": ""}, "give the schedule a name"),
        ({"overlap": "perhaps"}, "skip, queue or cancel"),
    ],
)
def test_what_does_not_fit_is_said_and_kept_in_the_form(
    site: Site, wrong: Mapping[str, str], says: str
):
    browser = site.browser("dora")
    typed = {**SCRUB, **wrong}
    answer = browser.post("/schedules", data=typed)
    assert (answer.status_code, says in answer.text) == (422, True)
    assert 'value="Europe/Amsterdam"' in answer.text or "zone" in wrong
    assert site.office.entries() == []


def test_its_keepers_suspend_resume_and_end_it_and_others_do_not(site: Site):
    _begun(site.office)
    assert site.browser("stan").post("/schedules/1/suspend").status_code == 403
    browser = site.browser("olga")
    assert browser.post("/schedules/1/suspend", data={"reason": "moving"}).status_code == 303
    assert "by Olga Owner: moving" in browser.get("/schedules/1").text
    assert browser.post("/schedules/1/suspend").status_code == 409
    assert browser.post("/schedules/1/resume").status_code == 303
    assert browser.post("/schedules/1/end").status_code == 303
    assert browser.post("/schedules/1/resume").status_code == 409


def test_taking_one_over_leads_to_the_request(site: Site):
    _begun(site.office)
    taken = site.browser("olga").post("/schedules/1/take")
    assert (taken.status_code, taken.headers["location"]) == (303, "/runs/2")
