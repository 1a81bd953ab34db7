"""Requests on the web: the runbook catalogue, forms, previews and plans."""

from dataclasses import replace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from bot.db.grants import NewGrant
from bot.model.run import RefusedBy, Run, State
from bot.queries.form_options import FormOptions
from bot.web import build_app
from runbooks import load_catalogue
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.ticket_system import require_unreachable_tickets
from tests.toy import ABUSERS, LISTS, RUNBOOKS, SetSwitch

LAMP = {
    "runbook": "toy set",
    "field-host": "lb1",
    "field-name": "lamp",
    "field-value": "on",
    "reason": "it is dark",
}


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    known = cast("dict[str, Any]", load_catalogue())
    for words, runbook in RUNBOOKS.items():
        monkeypatch.setitem(known, words, runbook)


def test_every_runbook_has_a_form(site: Site):
    browser = site.browser("dora")
    links = [
        link for link in Page(browser.get("/runbooks").text).links if "/runbooks/form" in link
    ]
    assert len(links) == len(load_catalogue())
    for link in links:
        page = Page(browser.get(link).text)
        assert page.strange == []
        assert page.unlabelled == []


def test_runbook_form_shows_commands_as_code(site: Site):
    page = site.browser("dora").get("/runbooks/form?runbook=zfs+scrub+pause").text
    assert "<code>zfs scrub start</code> resumes it" in page


def test_runbooks_of_a_host_are_those_that_match_its_tags(site: Site):
    links = " ".join(Page(site.browser("dora").get("/runbooks?host=nas1").text).links)
    assert "zfs%20scrub%20start&host=nas1" in links
    assert "abusers" not in links


def test_runbook_search_narrows_the_runbooks_of_a_host(site: Site):
    def offered(query: str) -> list[str]:
        links = Page(site.browser("dora").get(f"/runbooks?{query}").text).links
        return [link.partition("runbook=")[2] for link in links if "/runbooks/form" in link]

    assert offered("search=ZFS+damaged+files") == ["zfs%20scrub%20status"]
    assert offered("search=abuser&host=nas1") == []
    assert "abusers%20clear&host=lb1" in offered("search=abuser&host=lb1")
    shown = Page(site.browser("dora").get("/runbooks?search=%3Cscript%3E&host=lb1").text)
    assert "No matching runbooks" in shown.text
    assert (shown.strange, shown.unlabelled) == ([], [])
    assert shown.values["search"] == "<script>"
    assert shown.values["host"] == "lb1"


def test_submitted_runbook_form_creates_a_run_with_its_reason(site: Site):
    answer = site.browser("dora").post("/runbooks", data=LAMP)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/1")
    run = site.harness.get_run(1)
    assert (run.title, run.requested_by, run.reason) == (
        "toy set lb1 lamp on",
        "dora",
        "it is dark",
    )
    assert run.origin.source == "web"


def test_runbook_form_has_a_ticket_field_where_a_rule_requires_a_ticket(site: Site):
    browser, address = site.browser("dora"), "/runbooks/form?runbook=toy+set&ticket=CHG7"
    assert "ticket" not in Page(browser.get(address).text).values
    require_unreachable_tickets(site.policy)
    page = Page(browser.get(address).text)
    assert (page.values["ticket"], page.unlabelled) == ("CHG7", [])
    assert "ticket" not in Page(browser.get("/runbooks/form?runbook=toy+show").text).values
    refused = Page(browser.post("/runbooks", data={**LAMP, "ticket": "CHG 7"}).text)
    assert "A ticket is letters, digits" in refused.text
    assert refused.values["ticket"] == "CHG 7"
    address = browser.post("/runbooks", data={**LAMP, "ticket": "CHG7"}).headers["location"]
    site.harness.run_queued_work()
    run = site.harness.get_run(int(address.rpartition("/")[2]))
    assert (run.ticket, run.refused_by) == ("CHG7", RefusedBy.TICKET)
    assert run.summary in Page(browser.get(address).text).text


def _plan_on_page(site: Site, person: str) -> tuple[TestClient, Run]:
    """Fill in the form of a change; return the browser and the plan that it leads to."""
    browser = site.browser(person)
    address = browser.post("/runbooks", data=LAMP).headers["location"]
    site.harness.run_queued_work()
    return browser, site.harness.get_run(int(address.rpartition("/")[2]))


def test_change_is_planned_first_and_runs_when_its_plan_is_requested(site: Site):
    browser, plan = _plan_on_page(site, "olga")
    assert (plan.state, site.harness.fleet.sent) == (State.PLANNED, [])
    page = Page(browser.get(f"/runs/{plan.id}").text)
    assert "Nothing has run yet" in page.text
    assert "It needs no approval: it runs as soon as you request it." in page.text
    assert "Run now" in page.text
    assert f"/runs/{plan.id}/request" in page.forms
    others = Page(site.browser("dora").get(f"/runs/{plan.id}").text)
    assert f"/runs/{plan.id}/request" not in others.forms
    answer = browser.post(f"/runs/{plan.id}/request", data={"digest": plan.digest})
    assert answer.headers["location"] == f"/runs/{plan.id}?done=requested"
    site.harness.run_queued_work()
    assert site.harness.get_run(plan.id).state is State.SUCCEEDED


def test_plan_that_needs_approval_names_its_approvers_before_it_is_requested(site: Site):
    browser, plan = _plan_on_page(site, "dora")
    page = Page(browser.get(f"/runs/{plan.id}").text)
    assert "It needs 1 approval from the owners of the edge: Adam Admin, Olga Owner." in page.text
    assert "Request approval" in page.text
    browser.post(f"/runs/{plan.id}/request", data={"digest": plan.digest, "reason": "ticket 9"})
    run = site.harness.get_run(plan.id)
    assert (run.state, run.reason) == (State.PENDING, "ticket 9")


def test_outdated_plan_is_replanned_when_it_is_requested(site: Site):
    browser, plan = _plan_on_page(site, "olga")
    rules = site.policy / "policy.cedar"
    text = rules.read_text()
    assert "reversible changes in their own" in text
    rules.write_text(text.replace("reversible changes in their own", "changes in their"))
    assert "The plan is not current any more" not in browser.get("/runs/1").text
    answer = browser.post(f"/runs/{plan.id}/request", data={"digest": plan.digest})
    assert answer.headers["location"] == f"/runs/{plan.id + 1}?done=replanned"
    site.harness.run_queued_work()
    assert site.harness.fleet.sent == []
    assert site.harness.get_run(plan.id).state is State.SUPERSEDED
    assert site.harness.get_run(plan.id + 1).state is State.PLANNED


def test_stale_request_has_one_button_for_a_new_plan(site: Site):
    browser, plan = _plan_on_page(site, "dora")
    browser.post(f"/runs/{plan.id}/request", data={"digest": plan.digest})
    site.harness.fleet.hosts["lb1"]["lamp"] = "dim"
    assert site.harness.approve(site.harness.get_run(plan.id)).state is State.STALE
    address = f"/runs/{plan.id}"
    assert f"{address}/replan" in Page(browser.get(address).text).forms
    assert f"{address}/replan" not in Page(site.browser("olga").get(address).text).forms
    browser.post(f"/runs/{plan.id}/replan")
    site.harness.run_queued_work()
    assert site.harness.get_run(plan.id + 1).state is State.PENDING
    shown = Page(site.browser("olga").get(f"/runs/{plan.id + 1}").text).text
    assert f"Replaces run {plan.id}, which is stale: 1 of 1 step differ." in shown


def test_host_pattern_in_the_form_requests_one_run_on_several_hosts(site: Site):
    site.browser("dora").post("/runbooks", data=LAMP | {"field-host": "lb*"})
    assert site.harness.get_run(1).hosts == ("lb1", "lb2")


def test_runbook_form_shows_errors_below_their_fields_and_keeps_values(site: Site):
    typed = LAMP | {"field-host": "lb9", "field-name": "<b>x</b>", "field-value": ""}
    answer = site.browser("dora").post("/runbooks", data=typed)
    assert answer.status_code == 422
    page = Page(answer.text)
    assert page.strange == []
    assert page.values["field-name"] == "<b>x</b>"
    assert page.values["reason"] == "it is dark"
    field = answer.text.partition('id="f-value"')[2].partition("</div></div>")[0]
    assert 'aria-invalid="true"' in field
    assert "kt-error" in field
    # The host is marked as well, not reported later.
    assert answer.text.count('class="kt-error"') == 2
    assert site.harness.list_entry_kinds() == []


def test_request_that_the_policy_forbids_becomes_a_refused_run(site: Site):
    rules = site.policy / "policy.cedar"
    forbid = (
        'forbid (principal, action == Action::"request", resource)'
        ' when { context.source == "web" };'
    )
    rules.write_text(f"{rules.read_text()}\n{forbid}\n")
    answer = site.browser("dora").post("/runbooks", data=LAMP)
    assert answer.status_code == 303
    assert site.harness.get_run(1).state == "refused"


def test_runbook_form_previews_the_needed_approval(site: Site):
    text = Page(site.browser("dora").get("/runbooks/form?runbook=toy+set&host=lb1").text).text
    assert "1 approval from" in text
    assert "Olga Owner" in text


def test_preview_considers_grants_delegations_and_freezes_for_the_typed_values(site: Site):
    harness, browser = site.harness, site.browser("dora")
    service = harness.service
    with site.database.reading() as tx:
        ends_at = tx.now + 3_600_000_000
    new = NewGrant("dora", "toy set", "lb1", 2, ends_at, {"name": "lamp"})
    grant = service.grants.create_grant(new, granted_by="olga", source="web", reason="")
    service.delegations.create_delegation(
        delegator="olga", delegate="stan", ends_at=ends_at, area="", reason="", source="web"
    )

    def preview(**values: str) -> str:
        typed = {f"field-{name}": value for name, value in values.items()}
        answer = browser.get("/runbooks/preview", params={"runbook": "toy set", **typed})
        assert "<html" not in answer.text
        return Page(answer.text).text

    granted = preview(host="lb1", name="lamp")
    assert f"standing grant {grant.id} by Olga Owner, 2 of 2 uses left this hour" in granted
    for other in ({"name": "fan", "host": "lb1"}, {"name": "lamp", "host": "lb2"}):
        text = preview(**other)
        assert "1 approval from" in text
        assert "Stan Storage on behalf of Olga Owner" in text
    freezes = site.policy / "freezes.yaml"
    freezes.write_text(
        'freezes:\n  - {name: sale, from: "2000-01-01 00:00", until: "2200-01-01 00:00"}\n'
    )
    assert "Currently on hold: the edge is frozen until" in preview(host="lb1", name="lamp")
    assert preview(host="lb9") == preview(host="") == ""


def test_runbook_form_is_filled_from_its_address_without_a_request(site: Site):
    page = Page(site.browser("dora").get("/runbooks/form?runbook=toy+set&host=lb1&name=fan").text)
    assert (page.values["field-host"], page.values["field-name"]) == ("lb1", "fan")
    assert site.harness.list_entry_kinds() == []
    assert site.harness.fleet.asked == 0


def test_runbook_form_offers_options_read_from_the_host(site: Site):
    harness = site.harness
    offering = FormOptions(harness.fleet.run_query, harness.database, harness.policies)
    site.app = build_app(replace(site.parts, form_options=offering))
    browser = site.browser("dora")
    site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    shown = browser.get("/runbooks/options?runbook=toy+set&field-host=lb1").text
    assert '<datalist id="list-name"><option value="lamp">' in shown


def test_runbook_form_offers_blocked_addresses_of_the_chosen_table(site: Site):
    harness = site.harness
    offering = FormOptions(
        harness.fleet.run_query, harness.database, harness.policies, listers=LISTS
    )
    site.app = build_app(replace(site.parts, form_options=offering))
    browser = site.browser("dora")
    form = browser.get("/runbooks/form?runbook=abusers+clear").text
    assert form.count('hx-params="field-host,field-table,field-mark"') == 3
    for table, addresses in ABUSERS.items():
        query = f"runbook=abusers+clear&field-host=lb1&field-table={table}"
        shown = browser.get(f"/runbooks/options?{query}").text
        listed = "".join(f'<option value="{one}"></option>' for one in addresses)
        assert f'<datalist id="list-address">{listed}</datalist>' in shown
    query = "runbook=abusers+clear&field-host=lb1&field-table=a;b"
    assert "list-address" not in browser.get(f"/runbooks/options?{query}").text


def test_runbook_form_labels_have_no_abbreviations(site: Site):
    text = Page(site.browser("dora").get("/runbooks/form?runbook=nfs+scheduler+set").text).text
    assert "Queued requests" in text
    assert "Nr" not in text.split()


@pytest.mark.parametrize(
    "path", ["/runbooks/form?runbook=rm", "/runbooks/form", "/runbooks/options?runbook=rm"]
)
def test_unknown_runbook_form_is_not_found(site: Site, path: str):
    assert site.browser("dora").get(path).status_code == 404


def test_home_page_shows_the_active_freeze(site: Site):
    browser = site.browser("dora")
    assert "Change freeze" not in Page(browser.get("/").text).text
    times = 'from: "2000-01-01 00:00", until: "2200-01-01 00:00"'
    freeze = f"{{name: Black Friday, areas: [edge], {times}}}"
    (site.policy / "freezes.yaml").write_text(f"freezes:\n  - {freeze}\n")
    page = Page(browser.get("/").text)
    assert "Change freeze “Black Friday” : changes of the edge are on hold until" in page.text
    assert {"/runbooks", "/policy/dora"} <= set(page.links)
