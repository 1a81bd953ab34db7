"""The policy pages: permissions of everyone and of one person."""

import pytest

from bot.db import grants
from bot.model.grant_words import NewGrant
from tests.agents import add_agent, get_rules_for_agents
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page


def test_policy_page_shows_the_permissions_of_a_developer(site: Site) -> None:
    words = Page(site.browser("dora").get("/policy/dora").text).text
    assert "My permissions" in words
    assert "Every check everywhere May view Everyone may run read-only checks." in words
    assert "1 approval from the owners of storage: Stan Storage view" in words
    assert "developers request, owners approve" in words
    assert "Rules that depend on more the last leg needs two approvals" in words
    assert "Administration: none." in words
    assert "Olga Owner administrator" not in words


def test_policy_page_lists_people_and_areas_with_links(site: Site) -> None:
    page = Page(site.browser("dora").get("/policy").text)
    assert page.links.count("/policy/olga") == 1
    assert {"/policy/adam", "/policy/stan", "/policy/dora"} <= set(page.links)
    assert "Storage Stan Storage 1 host: nas1" in page.text
    assert "Every check everywhere May Of others: view May" in page.text
    assert "1 approval Too few approvers" in page.text
    assert (
        "no one under the current policy"
        in Page(site.browser("dora").get("/policy/stan").text).text
    )
    assert page.strange == []
    assert len(page.ids) == len(set(page.ids))


def test_home_page_links_to_the_policy(site: Site) -> None:
    assert "/policy" in Page(site.browser("dora").get("/").text).links


def test_policy_page_of_an_unknown_person_is_not_found(site: Site) -> None:
    answer = site.browser("dora").get("/policy/eve")
    assert answer.status_code == 404
    assert "There is no person with this id" in answer.text


def test_policy_page_shows_active_and_upcoming_freezes(site: Site) -> None:
    (site.policy / "freezes.yaml").write_text(
        'freezes:\n  - {name: "the <b>long</b> one", areas: [edge], from: "2020-01-01 00:00",'
        ' until: "2999-01-01 00:00", but: ["abusers *"]}\n'
        '  - {name: far off, from: "2998-01-01 00:00", until: "2999-01-01 00:00"}\n'
        '  - {name: gone, from: "2020-01-01 00:00", until: "2020-01-02 00:00"}\n'
    )
    page = Page(site.browser("dora").get("/policy").text)
    assert "the <b>long</b> one Active Holds changes of the edge" in page.text
    assert "Exempt: “abusers *”." in page.text
    assert "far off Upcoming Will hold all changes" in page.text
    assert "gone" not in page.text.partition("Freezes")[2]
    assert page.strange == []


@pytest.mark.parametrize("who", ["dora", "olga"])
def test_policy_page_shows_a_changed_policy_at_once(site: Site, who: str) -> None:
    browser = site.browser(who)
    browser.get(f"/policy/{who}")
    rules = site.policy / "policy.cedar"
    rules.write_text(
        rules.read_text() + '@id("no more") @description("It is all <over>.")\n'
        'forbid (principal, action == Action::"request", resource);\n'
    )
    page = Page(browser.get(f"/policy/{who}").text)
    assert "Every check everywhere May not view It is all <over>." in page.text
    assert " May view" not in page.text
    assert page.strange == []


def test_policy_page_shows_grants_and_delegations_of_the_reader(site: Site) -> None:
    with site.database.transaction() as tx:
        ends_at = tx.now + 3_600_000_000
        grant = NewGrant("dora", "abusers clear", "lb*", per_hour=5, ends_at=ends_at)
        grants.add_grant(tx, grant, giver="olga", reason="every day")
    site.harness.service.delegations.create_delegation(
        delegator="olga", delegate="adam", ends_at=ends_at, area="", reason="", source="web"
    )
    page = Page(site.browser("dora").get("/policy").text)
    assert page.strange == []
    assert "Grant 1 : Dora Developer may run abusers clear on lb*, 5 times an hour." in page.text
    assert "Adam Admin approves on behalf of Olga Owner in all their areas until" in page.text


def test_policy_page_explains_a_decision_and_keeps_what_was_typed(site: Site) -> None:
    browser = site.browser("stan")
    answer = browser.get("/policy", params={"who": "dora", "what": "abusers clear lb1"})
    page = Page(answer.text)
    assert page.strange == page.unlabelled == []
    assert "Needs 1 approval from" in page.text.partition("Explain a decision")[2]
    wrong = browser.get("/policy", params={"who": "dora", "what": "abusers cleer lb1"})
    assert wrong.status_code == 422
    assert "Did you mean" in wrong.text
    assert 'value="abusers cleer lb1"' in wrong.text
    assert browser.get("/policy", params={"who": "eve", "what": "x"}).status_code == 422


def test_policy_page_explains_what_an_agent_may_request_for_the_reader(site: Site) -> None:
    rules = site.policy / "policy.cedar"
    rules.write_text(get_rules_for_agents())
    add_agent(site.harness)
    browser = site.browser("dora")
    assert 'value="agent:triage-bot"' in browser.get("/policy").text

    def explain(who: str, what: str) -> str:
        page = Page(browser.get("/policy", params={"who": who, "what": what}).text)
        return page.text.partition("Explain a decision")[2]

    assert "Runs immediately" in explain("agent:triage-bot", "host changes lb1")
    assert "Needs 1 approval from" in explain("agent:triage-bot", "abusers clear lb1")
    assert "Not allowed" in explain("agent:other", "host changes lb1")
