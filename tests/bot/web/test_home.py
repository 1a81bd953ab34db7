"""The home page."""

from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
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
