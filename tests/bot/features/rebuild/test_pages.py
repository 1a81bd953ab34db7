"""The rebuild page: values set on a host, and the plan to set them on another."""

from bot.model.run import State
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.ticket_system import require_unreachable_tickets
from tests.toy import BreakSwitch, KeepSwitch

HOSTILE = "<script>alert(1)</script>"


def set_values(site: Site) -> None:
    harness = site.harness
    keep = KeepSwitch(host="lb1", name="lamp", value="on")
    harness.approve(harness.request(keep, reason=HOSTILE))
    harness.approve(harness.request(BreakSwitch(host="lb1", name="fan")))


def test_rebuild_page_lists_values_and_what_it_cannot_repeat(site: Site):
    set_values(site)
    answer = site.browser("dora").get("/hosts/lb1/rebuild")
    page = Page(answer.text)
    assert page.strange == []
    for text in (
        "What Keyturn does not know What was set up without Keyturn",
        "toy keep lb1 lamp on 1 command set lamp on run 1",
        "Not repeated They set no lasting value toy break lb1 fan : 1 time, last in run 2",
        "irreversible",
        "One request with one plan: 1 value. Keyturn shows the plan first.",
    ):
        assert text in page.text
    assert HOSTILE not in answer.text


def test_rebuild_form_plans_the_values_for_another_host(site: Site):
    set_values(site)
    browser = site.browser("dora")
    form = {"new_host": " LB2 ", "reason": "lb1 is gone"}
    answer = browser.post("/hosts/lb1/rebuild", data=form, follow_redirects=False)
    assert answer.status_code == 303
    site.harness.run_queued_work()
    address = answer.headers["location"]
    run = site.harness.get_run(int(address.rpartition("/")[2]))
    assert (run.state, run.title, run.plan_only) == (State.PLANNED, "rebuild lb1 on lb2", True)
    assert "toy keep lb2 lamp on" in Page(browser.get(address).text).text
    require_unreachable_tickets(site.policy)
    page = Page(browser.get("/hosts/lb1/rebuild").text)
    assert (page.values["ticket"], page.unlabelled) == ("", [])
    wrong = Page(browser.post("/hosts/lb1/rebuild", data={**form, "ticket": "CHG 7"}).text)
    assert ("a ticket is letters" in wrong.text.lower(), wrong.values["ticket"]) == (True, "CHG 7")
    answer = browser.post("/hosts/lb1/rebuild", data={**form, "ticket": "CHG7"})
    number = int(answer.headers["location"].rpartition("/")[2])
    assert site.harness.get_run(number).ticket == "CHG7"


def test_rebuild_on_an_unknown_host_is_refused(site: Site):
    set_values(site)
    browser = site.browser("dora")
    answer = browser.post("/hosts/lb1/rebuild", data={"new_host": "lb9"})
    assert answer.status_code == 422
    assert "lb9" in Page(answer.text).text
    assert browser.get("/hosts/lb9/rebuild").status_code == 404
    assert "no lasting value" in browser.get("/hosts/lb2/rebuild").text
