"""The stop button of a run, and the banner while everything is stopped."""

from bot.run import State
from tests.bot.web.conftest import Site
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def test_a_run_that_was_let_go_can_be_stopped_on_its_page(site: Site):
    run = site.office.ask(LAMP_ON)
    site.office.workflow.approve(run.id, person="olga", digest=run.digest)
    assert "/stop" not in site.browser("dora").get(f"/runs/{run.id}").text, "she can withdraw"
    browser = site.browser("stan")
    assert f'action="/runs/{run.id}/stop"' in browser.get(f"/runs/{run.id}").text
    answer = browser.post(f"/runs/{run.id}/stop", data={"reason": "the wrong lamp"})
    assert answer.status_code == 303
    assert site.office.run(run.id).state is State.STOPPED
    page = browser.get(answer.headers["location"]).text
    assert "It is stopped: nothing more is sent for it." in page
    assert "Stopped by Stan Storage (the wrong lamp). Nothing was sent." in page
    assert "Stan Storage stops it" in page


def test_whoever_may_not_stop_it_sees_no_button_and_is_refused(site: Site):
    people = site.policy / "people.yaml"
    people.write_text(people.read_text() + "  gus: {name: Gus Guest, roles: [developer]}\n")
    run = site.office.ask(LAMP_ON)
    site.office.workflow.approve(run.id, person="olga", digest=run.digest)
    browser = site.browser("gus")
    assert f"/runs/{run.id}/stop" not in browser.get(f"/runs/{run.id}").text
    assert browser.post(f"/runs/{run.id}/stop").status_code == 403
    assert site.office.run(run.id).state is State.READY


def test_every_page_says_that_everything_is_stopped(site: Site):
    browser = site.browser("dora")
    assert "Everything is stopped" not in browser.get("/").text
    site.office.workflow.stop_all(person="adam", why="fire in <b>the cellar</b>")
    for path in ("/", "/runs", "/log"):
        text = browser.get(path).text
        assert "Everything is stopped</strong> by" in text
        assert "fire in &lt;b&gt;the cellar&lt;/b&gt;" in text
    assert "Everything is stopped" not in site.browser().get("/").text
    site.office.workflow.resume(person="olga", why="it is out")
    assert "Everything is stopped" not in browser.get("/").text


def test_t_a20_a_ban_ends_sessions_and_the_next_page_is_signed_out(site: Site):
    browser = site.browser("dora")
    assert browser.get("/").status_code == 200
    site.office.workflow.ban("dora", by="adam", why="the laptop is stolen")
    assert browser.get("/").status_code == 401
