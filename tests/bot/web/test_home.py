"""The home page."""

from bot.db import run_progress
from bot.queries import pending
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_planned_run
from tests.toy import SetSwitch


def test_home_page_shows_a_counter_proposal_with_old_and_new_values(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    proposal = site.harness.service.propose_values(
        run.id, person="olga", changed_values={"value": "dim"}, reason="too bright"
    )
    site.harness.run_queued_work()
    page = Page(site.browser("dora").get("/").text)
    assert "value: on → dim" in page.text
    assert f"/runs/{proposal.id}/accept" in page.forms
    assert f"/runs/{proposal.id}/accept" not in Page(site.browser("adam").get("/").text).forms
    # The tab of the browser counts the same.
    policy = site.harness.policies.get_policy()
    with site.database.reading() as tx:
        waiting = pending.count_waiting(tx, policy, ["dora", "adam"])
        before = run_progress.get_waiting_stamp(tx)
    assert waiting == {"dora": 1, "adam": 1}
    assert "1 needs your action" in page.text
    site.harness.service.withdraw_run(proposal.id, person="dora")
    with site.database.reading() as tx:
        assert pending.count_waiting(tx, policy, ["dora"]) == {"dora": 0}
        assert run_progress.get_waiting_stamp(tx) != before


def test_plan_that_is_not_requested_is_on_the_home_page_of_its_author(site: Site) -> None:
    with site.database.transaction() as tx:
        plan = add_planned_run(tx)
    own = Page(site.browser("dora").get("/").text)
    assert "Your pending requests and plans" in own.text
    assert f"/runs/{plan.id}" in own.links
    assert f"/runs/{plan.id}" not in Page(site.browser("adam").get("/").text).links
