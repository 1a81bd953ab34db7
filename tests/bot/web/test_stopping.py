"""Stop, emergency stop and bans on the pages."""

import re

import pytest

from bot.model.errors import StepUpRequired
from bot.model.run import State
from tests.bot.authenticator_app import enrol_and_step_up
from tests.bot.web.conftest import Site
from tests.toy import SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


def test_queued_run_is_stopped_on_its_page(site: Site):
    run = site.harness.request(LAMP_ON)
    site.harness.service.approve_run(run.id, person="olga", digest=run.digest)
    own = site.browser("dora").get(f"/runs/{run.id}").text
    assert f"/runs/{run.id}/stop" not in own, "she can withdraw"
    browser = site.browser("stan")
    assert f'action="/runs/{run.id}/stop"' in browser.get(f"/runs/{run.id}").text
    answer = browser.post(f"/runs/{run.id}/stop", data={"reason": "the wrong lamp"})
    assert answer.status_code == 303
    assert site.harness.get_run(run.id).state is State.STOPPED
    page = browser.get(answer.headers["location"]).text
    assert "The run is stopped. No further commands are sent." in page
    assert "Stan Storage stopped it (the wrong lamp). Nothing was sent." in page
    assert "Stop requested by Stan Storage" in page


def test_stop_button_is_hidden_and_refused_without_the_right(site: Site):
    people = site.policy / "people.yaml"
    people.write_text(people.read_text() + "  gus: {name: Gus Guest, roles: [developer]}\n")
    run = site.harness.request(LAMP_ON)
    site.harness.service.approve_run(run.id, person="olga", digest=run.digest)
    browser = site.browser("gus")
    assert f"/runs/{run.id}/stop" not in browser.get(f"/runs/{run.id}").text
    assert browser.post(f"/runs/{run.id}/stop").status_code == 403
    assert site.harness.get_run(run.id).state is State.QUEUED


def test_every_page_shows_the_banner_while_everything_is_stopped(site: Site):
    browser = site.browser("dora")
    assert "Everything is stopped" not in browser.get("/").text
    site.harness.service.stop_everything(person="adam", reason="fire in <b>the cellar</b>")
    for path in ("/", "/runs", "/changelog"):
        text = browser.get(path).text
        assert "Everything is stopped</strong> by" in text
        assert "fire in &lt;b&gt;the cellar&lt;/b&gt;" in text
    assert "Everything is stopped" not in site.browser().get("/").text
    site.harness.service.resume_everything(person="olga", reason="it is out")
    assert "Everything is stopped" not in browser.get("/").text


def test_everything_is_stopped_on_a_page_and_another_person_resumes_it(site: Site):
    run = site.harness.request(LAMP_ON)
    site.harness.service.approve_run(run.id, person="olga", digest=run.digest)
    adam, olga = site.browser("adam"), site.browser("olga")
    assert 'href="/stop"' in adam.get("/").text
    answer = adam.post("/stop", data={"reason": "smoke in the cellar"})
    assert answer.status_code == 303
    assert "Stopped, on every server and worker" in adam.get(answer.headers["location"]).text
    assert site.harness.get_run(run.id).state is State.STOPPED
    assert "You stopped everything, so someone else has to resume" in adam.get("/stop").text
    assert adam.post("/stop/resume", data={"reason": "it is out"}).status_code == 403
    assert olga.post("/stop", data={"reason": "smoke again"}).status_code == 409
    assert olga.post("/stop/resume", data={"reason": "it is out"}).status_code == 303
    assert "Resumed. New requests can run again." in olga.get("/stop?done=resumed").text
    assert site.harness.list_entry_kinds()[-1] == "everything resumed"


def test_emergency_stop_is_refused_with_those_who_can(site: Site):
    dora = site.browser("dora")
    assert "Allowed: Olga Owner, Adam Admin, Stan Storage." in dora.get("/stop").text
    assert "Ban that person" not in dora.get("/stop").text
    assert "Ban that person" in site.browser("adam").get("/stop").text
    assert dora.post("/stop", data={"reason": "I like to"}).status_code == 403
    assert site.harness.request(LAMP_ON).state is State.PENDING


def test_emergency_stop_with_a_stepup_rule_needs_the_second_factor_first(site: Site):
    rules = site.policy / "policy.cedar"
    annotation = '@id("administrators stop everything")'
    rules.write_text(rules.read_text().replace(annotation, f"{annotation} @stepup"))
    adam = site.browser("adam")
    assert 'href="/step-up?next=/stop"' in adam.get("/stop").text
    answer = adam.post("/stop", data={"reason": "smoke in the cellar"})
    assert answer.headers["location"] == "/step-up?next=/stop"
    with pytest.raises(StepUpRequired, match="which you cannot enter in chat"):
        site.harness.service.stop_everything(person="adam", reason="smoke in the cellar")
    app = enrol_and_step_up(site.harness, "adam")
    site.harness.service.stop_everything(person="adam", reason="smoke", session=app.session)
    assert "Everything is stopped" in adam.get("/").text


def test_a_ban_ends_sessions_and_the_next_page_is_signed_out(site: Site):
    browser = site.browser("dora")
    assert browser.get("/").status_code == 200
    site.harness.service.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
    assert browser.get("/").status_code == 401


def test_a_person_is_banned_on_a_page_and_another_person_unbans_them(site: Site):
    adam, olga = site.browser("adam"), site.browser("olga")
    dora = site.browser("dora")
    assert 'href="/bans"' in adam.get("/stop").text
    assert "No one is banned." in adam.get("/bans").text
    answer = adam.post("/bans", data={"person": "dora", "reason": "her <b>laptop</b> is gone"})
    assert answer.status_code == 303
    html = adam.get(answer.headers["location"]).text
    assert "Banned. Their sessions have ended" in html
    assert "Dora Developer</span> was banned by" in html
    assert "Unban Dora Developer" in olga.get("/bans").text
    assert "her &lt;b&gt;laptop&lt;/b&gt; is gone" in html
    assert "You set this ban, so someone else has to lift it." in html
    assert dora.get("/").status_code == 401
    lift = {"person": "dora", "reason": "it was found"}
    assert adam.post("/bans/lift", data=lift).status_code == 403
    assert olga.post("/bans/lift", data=lift).status_code == 303
    assert "No one is banned." in olga.get("/bans?done=lifted").text
    assert site.harness.list_entry_kinds()[-1] == "ban lifted"
    again = olga.post("/bans/lift", data=lift)
    assert again.status_code == 409
    assert "Dora Developer is not banned" in again.text


def test_ban_is_refused_with_those_who_can(site: Site):
    dora = site.browser("dora")
    page = dora.get("/bans").text
    assert "Allowed: " in page
    assert 'action="/bans"' not in page
    refused = dora.post("/bans", data={"person": "stan", "reason": "I like to"})
    assert refused.status_code == 403
    assert site.browser("stan").get("/").status_code == 200
    unknown = site.browser("adam").post("/bans", data={"person": "nobody", "reason": "gone"})
    assert unknown.status_code == 422
    assert "nobody is not in the policy" in unknown.text


def test_unban_with_a_stepup_rule_needs_the_second_factor_first(site: Site):
    rules = site.policy / "policy.cedar"
    annotation = re.search(r'@id\("[^"]+"\)(?=[^;]*Action::"resume")', rules.read_text())
    assert annotation
    rules.write_text(rules.read_text().replace(annotation[0], f"{annotation[0]} @stepup"))
    site.harness.service.ban_person("dora", banned_by="adam", reason="the laptop is stolen")
    olga = site.browser("olga")
    assert 'href="/step-up?next=/bans"' in olga.get("/bans").text
    lift = {"person": "dora", "reason": "it was found"}
    assert olga.post("/bans/lift", data=lift).headers["location"] == "/step-up?next=/bans"
    with pytest.raises(StepUpRequired, match="“Emergency stop”, which also links to banning"):
        site.harness.service.unban_person("dora", unbanned_by="olga", reason="it was found")
    app = enrol_and_step_up(site.harness, "olga")
    site.harness.service.unban_person(
        "dora", unbanned_by="olga", reason="it was found", session=app.session
    )
    assert "No one is banned." in olga.get("/bans").text
