"""Erasure of output: one person requests it, an owner confirms what the page shows."""

import re

from bot.db import outputs
from bot.features.erasure.actions import ErasureActions
from bot.model.run import Run
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.toy import SetSwitch, ShowSwitches

WHY = "it names <b>a customer</b>"


def _finish_run(site: Site) -> Run:
    harness = site.harness
    return harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))


def _list_stored_output(site: Site, run: Run) -> list[str]:
    with site.database.reading() as tx:
        return [kept.text for kept in outputs.list_stored_output(tx, run.id)]


def _digest(text: str) -> str:
    match = re.search(r'name="digest" value="([0-9a-f]{64})"', text)
    return match[1] if match else ""


def test_one_person_requests_erasure_and_an_owner_confirms_what_the_page_shows(site: Site):
    run = _finish_run(site)
    address = f"/runs/{run.id}/erase"
    dora, olga = site.browser("dora"), site.browser("olga")
    assert address in Page(dora.get(f"/runs/{run.id}").text).links
    asked = dora.post(address, data={"reason": WHY})
    assert asked.status_code == 303
    assert "Nothing is erased until an owner" in dora.get(asked.headers["location"]).text
    seen = olga.get(address)
    words = Page(seen.text)
    assert "Requested by Dora Developer" in words.text
    assert "it names &lt;b&gt;a customer&lt;/b&gt;" in seen.text
    assert "lamp is on now" in words.text
    assert not words.strange
    assert _list_stored_output(site, run)
    answer = olga.post(f"{address}/confirm", data={"digest": _digest(seen.text)})
    assert answer.status_code == 303
    assert "Erased permanently." in olga.get(answer.headers["location"]).text
    assert _list_stored_output(site, run) == []
    assert site.harness.list_entry_kinds(run)[-2:] == ["erasure requested", "output erased"]
    assert "Output erased by Olga Owner" in Page(olga.get(f"/runs/{run.id}").text).text


def test_erasure_is_refused_when_its_requester_or_a_stranger_confirms(site: Site):
    run = _finish_run(site)
    address = f"/runs/{run.id}/erase"
    site.browser("adam").post(address, data={"reason": WHY})
    digest = _digest(site.browser("olga").get(address).text)
    assert digest
    for person, why in (("adam", "You requested it"), ("stan", "Only an owner of the edge")):
        browser = site.browser(person)
        assert f"{address}/confirm" not in Page(browser.get(address).text).forms
        refused = browser.post(f"{address}/confirm", data={"digest": digest})
        assert refused.status_code == 403
        assert why in refused.text
    assert _list_stored_output(site, run)
    # The twin: the same request, by an owner who did not ask.
    accepted = site.browser("olga").post(f"{address}/confirm", data={"digest": digest})
    assert accepted.status_code == 303


def test_declined_erasure_shows_its_reason_to_the_requester(site: Site):
    run = _finish_run(site)
    address = f"/runs/{run.id}/erase"
    dora, olga = site.browser("dora"), site.browser("olga")
    dora.post(address, data={"reason": WHY})
    assert f"{address}/decline" in Page(olga.get(address).text).forms
    assert f"{address}/decline" not in Page(dora.get(address).text).forms
    why = "we need <i>it</i> for the audit"
    answer = olga.post(f"{address}/decline", data={"reason": why})
    assert answer.status_code == 303
    assert "the requester is notified" in olga.get(answer.headers["location"]).text
    seen = Page(dora.get(address).text)
    assert "Olga Owner declined" in seen.text
    assert why in seen.text
    assert not seen.strange
    assert _list_stored_output(site, run)


def test_an_erasure_requested_on_the_command_line_names_the_login(site: Site):
    run = _finish_run(site)
    site.harness.service.bind(ErasureActions).request_erasure(
        run.id, person="dora", reason=WHY, source="cli", login="root"
    )
    text = Page(site.browser("olga").get(f"/runs/{run.id}/erase").text).text
    assert "on the command line by the login root" in " ".join(text.split())


def test_erasure_confirmed_with_an_old_digest_is_refused(site: Site):
    run = _finish_run(site)
    address = f"/runs/{run.id}/erase"
    site.browser("dora").post(address, data={"reason": WHY})
    answer = site.browser("olga").post(f"{address}/confirm", data={"digest": "0" * 64})
    assert answer.status_code == 409
    assert "reload the page and review it" in answer.text
    assert _list_stored_output(site, run)


def test_erasure_page_shows_the_report_of_a_check(site: Site):
    run = site.harness.request(ShowSwitches(host="lb1"))
    text = Page(site.browser("olga").get(f"/runs/{run.id}/erase").text).text
    assert run.report
    assert run.report.summary in text


def test_erasure_of_a_run_that_has_not_ended_is_refused(site: Site):
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    answer = site.browser("dora").post(f"/runs/{run.id}/erase", data={"reason": WHY})
    assert answer.status_code == 422
    assert "is pending" in answer.text
