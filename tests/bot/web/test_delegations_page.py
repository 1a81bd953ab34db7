"""Delegations and standing grants on the web, and counter-proposals on a run page."""

import pytest

from bot.model.run import State
from runbooks import load_catalogue
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.toy import RUNBOOKS, SetSwitch

LAMP_ON = SetSwitch(host="lb1", name="lamp", value="on")


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, object] = load_catalogue()  # pyright: ignore[reportAssignmentType] - it is one
    for words, runbook in RUNBOOKS.items():
        monkeypatch.setitem(known, words, runbook)


def delegate(site: Site, **other: str) -> int:
    typed = {"person": "stan", "area": "edge", "until": "4 hours"} | other
    return site.browser("olga").post("/access/delegations", data=typed).status_code


def grant(site: Site, **other: str) -> int:
    typed = {"person": "dora", "what": "toy set lb*", "per_hour": "5", "until": "4 hours"} | other
    return site.browser("olga").post("/access/grants", data=typed).status_code


def test_delegation_is_created_listed_and_ended_on_the_page(site: Site):
    assert delegate(site, reason="at sea") == 303
    for person in ("olga", "stan"):
        shown = Page(site.browser(person).get("/access").text)
        assert "Stan Storage on behalf of Olga Owner In the edge, until" in shown.text
        assert "/access/delegations/1/end" in shown.forms
        assert shown.strange == []
    assert "No delegations" in site.browser("adam").get("/access").text
    assert site.browser("olga").post("/access/delegations/1/end").status_code == 303
    assert "No delegations" in site.browser("olga").get("/access").text


def test_end_of_a_delegation_or_grant_is_read_in_the_given_time_zone(site: Site):
    assert delegate(site, until="tomorrow 18:00", zone="Asia/Tokyo") == 303
    assert grant(site, until="tomorrow 18:00") == 303
    assert delegate(site, until="tomorrow 18:00", zone="Mars/Olympus") == 422
    shown = site.browser("olga").get("/access").text
    assert "T09:00:00Z" in shown
    assert "T18:00:00Z" in shown


def test_run_page_shows_the_delegate_and_on_whose_behalf_they_approve(site: Site):
    delegate(site)
    run = site.harness.request(LAMP_ON)
    page = Page(site.browser("stan").get(f"/runs/{run.id}").text)
    assert "Stan Storage on behalf of Olga Owner" in page.text
    assert f"/runs/{run.id}/approve" in page.forms
    assert run.title in site.browser("stan").get("/").text
    site.browser("stan").post(f"/runs/{run.id}/approve", data={"digest": run.digest})
    assert (
        "Approved by Stan Storage on behalf of Olga Owner"
        in Page(site.browser("dora").get(f"/runs/{run.id}").text).text
    )


def test_standing_grant_is_created_used_listed_and_ended_on_the_page(site: Site):
    assert grant(site) == 303
    run = site.harness.request(LAMP_ON)
    assert run.state is State.SUCCEEDED
    page = Page(site.browser("dora").get(f"/runs/{run.id}").text)
    assert "Approved in advance by Olga Owner ( grant 1 ) 4 of 5 left this hour" in page.text
    assert "Approved by standing grant 1" in page.text
    mine = Page(site.browser("dora").get("/access").text)
    assert "toy set lb*" in mine.text
    assert "4 of 5 left this hour" in mine.text
    assert site.browser("dora").post("/access/grants/1/end").status_code == 303
    assert "No standing grants" in site.browser("dora").get("/access").text


def test_invalid_grant_or_delegation_form_keeps_the_typed_values(site: Site):
    answer = site.browser("olga").post(
        "/access/grants",
        data={"person": "dora", "what": "toy st lb*", "per_hour": "5", "until": "4 hours"},
    )
    assert answer.status_code == 422
    assert "Did you mean" in answer.text
    assert 'value="toy st lb*"' in answer.text
    wrong = {
        "person": "",
        "what": "toy st lb*",
        "per_hour": "x",
        "until": "never",
        "reason": "why",
    }
    shown = site.browser("olga").post("/access/grants", data=wrong).text
    assert shown.count('class="kt-error"') == 4
    assert 'value="why"' in shown
    assert delegate(site, until="whenever") == 422
    assert delegate(site, area="storage") == 403


def test_delegation_and_grant_forms_are_shown_to_owners_only(site: Site):
    assert Page(site.browser("dora").get("/access").text).forms == ["/sign-out"]


def test_counter_proposal_is_made_and_accepted_on_the_run_page(site: Site):
    run = site.harness.request(LAMP_ON)
    page = Page(site.browser("olga").get(f"/runs/{run.id}").text)
    assert page.values["field-value"] == "on"
    assert page.strange == []
    assert page.unlabelled == []
    answer = site.browser("olga").post(
        f"/runs/{run.id}/counter", data={"field-name": "lamp", "field-value": "dim"}
    )
    assert answer.headers["location"] == "/runs/2?done=countered"
    site.harness.run_queued_work()
    offered = site.harness.get_run(2)
    assert "/runs/2/accept" in Page(site.browser("dora").get("/runs/2").text).forms
    assert "/runs/2/accept" not in Page(site.browser("adam").get("/runs/2").text).forms
    site.browser("dora").post("/runs/2/accept", data={"digest": offered.digest})
    assert "Run 2 replaces it" in site.browser("dora").get(f"/runs/{run.id}").text
    assert "/runs/2/approve" not in Page(site.browser("olga").get("/runs/2").text).forms
    assert "/runs/2/deny" in Page(site.browser("olga").get("/runs/2").text).forms
    assert "/runs/2/approve" in Page(site.browser("adam").get("/runs/2").text).forms
    story = Page(site.browser("adam").get("/runs/2").text).text
    assert "Proposed by Olga Owner Instead of run 1" in story
    assert "Accepted by Dora Developer" in story
