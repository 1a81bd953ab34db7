"""The pages of lists of hosts: read one, and confirm exactly what was read."""

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.changes import HostListFile
from bot.features.host_lists.state import HostList
from tests.bot.authenticator_app import enrol_app
from tests.bot.features.host_lists.test_actions import make_host
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page


def propose(site: Site, person: str = "dora") -> HostList:
    listed = HostListFile.model_validate(
        {"hosts": {"new1": make_host(), "web1": {"address": "192.0.2.80"}}}
    )
    return site.harness.service.bind(HostListActions).propose(listed, person=person)


def test_owner_reads_a_list_and_confirms_it(site: Site):
    proposed = propose(site)
    browser = site.browser("olga")
    listed = Page(browser.get("/host-lists").text)
    assert f"List {proposed.number}" in listed.text
    assert "1 added, 1 changed" in listed.text
    page = Page(browser.get(f"/host-lists/{proposed.number}").text)
    assert page.strange == []
    assert proposed.changes[0].fingerprint in page.text
    assert "address: 127.0.0.1 → 192.0.2.80" in page.text
    done = site.send(browser, f"/host-lists/{proposed.number}/confirm", digest=proposed.digest)
    assert "Confirmed" in done.text
    assert "Confirm list" not in done.text


def test_owner_with_a_second_factor_is_asked_for_it_before_the_button(site: Site):
    proposed = propose(site)
    address = f"/host-lists/{proposed.number}"
    app, browser = enrol_app(site.harness, "olga"), site.browser("olga")
    site.carry(browser, app.session)
    page = browser.get(address).text
    assert f'href="/step-up?next={address}"' in page
    assert f"Confirm list {proposed.number}" not in page
    answer = browser.post(f"{address}/confirm", data={"digest": proposed.digest})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/step-up?next={address}")
    back = browser.post("/step-up/code", data={"code": app.code(), "next": address})
    assert back.headers["location"] == address
    assert "which you have just confirmed" in browser.get(address).text
    done = site.send(browser, f"{address}/confirm", digest=proposed.digest)
    assert "Confirmed." in done.text


def test_form_of_a_list_that_was_not_read_is_refused(site: Site):
    proposed = propose(site)
    answer = site.browser("olga").post(
        f"/host-lists/{proposed.number}/confirm", data={"digest": "0" * 64}
    )
    assert answer.status_code == 409
    assert "is not the one that you read" in Page(answer.text).text


def test_person_who_proposed_it_sees_no_button_and_can_withdraw(site: Site):
    proposed = propose(site)
    browser = site.browser("dora")
    page = Page(browser.get(f"/host-lists/{proposed.number}").text)
    assert "Confirm list" not in page.text
    ended = site.send(
        browser, f"/host-lists/{proposed.number}/withdraw", reason="<b>a mistake</b>"
    )
    assert ended.strange == []
    assert "Withdrawn. Nothing was changed." in ended.text
    assert "<b>a mistake</b>" in ended.text


def test_entry_that_cannot_be_read_is_a_finding_and_a_withdrawal_counts(site: Site):
    read, withdrawn = propose(site), propose(site, "stan")
    damaged = [
        UnknownEvent(kind=events.HostListProposed.kind, facts={"changes": 5}),
        events.HostListProposed(digest="0" * 64, areas=("web",), before={}, after={"x": {}}),
        UnknownEvent(kind=events.HostListConfirmed.kind, facts={"list": ["x"]}),
        UnknownEvent(kind=events.HostListWithdrawn.kind, facts={"list": withdrawn.number}),
    ]
    with site.database.transaction() as tx:
        numbers = [change_log.append_entry(tx, one, person="dora").seq for one in damaged]
    page = Page(site.browser("olga").get("/host-lists").text)
    for number in numbers:
        assert (
            f"Entry {number} of the change log is about a list of hosts, and cannot" in page.text
        )
    actions = site.harness.service.bind(HostListActions)
    states = {one.number: one.state for one in actions.list_viewable("olga")}
    assert states == {read.number: "open", withdrawn.number: "withdrawn"}
    assert actions.list_unreadable() == numbers
