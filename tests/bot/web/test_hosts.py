"""A run on several hosts: its page, the pages of its child runs, and the history."""

import pytest

from bot.db import runs
from bot.model.run import RequestTerms, Run
from tests.bot.harness import WEB
from tests.bot.web.conftest import Site
from tests.toy import SetSwitch


@pytest.fixture
def parent_run(site: Site) -> Run:
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in ("lb1", "lb2")]
    run = site.harness.service.request_on_hosts(
        requests, RequestTerms("dora", WEB), host_pattern="lb*"
    )
    site.harness.run_queued_work()
    return site.harness.get_run(run.id)


def _list_child_runs(site: Site, parent_run: Run) -> list[Run]:
    with site.database.reading() as tx:
        return runs.list_children(tx, parent_run.id)


def test_parent_run_page_shows_every_child_run_and_its_result(site: Site, parent_run: Run):
    site.harness.approve(parent_run)
    page = site.browser("olga").get(f"/runs/{parent_run.id}").text
    assert "toy set lb* lamp on" in page
    assert "2 of 2 hosts done: 2 succeeded" in page
    for part in _list_child_runs(site, parent_run):
        assert f'href="/runs/{part.id}"' in page
        assert f"/runs?host={part.host}" in page


def test_parent_run_page_shows_equal_steps_once_with_their_hosts(site: Site, parent_run: Run):
    page = site.browser("olga").get(f"/runs/{parent_run.id}").text
    assert page.count('id="command-') == 1
    assert "on 2 hosts" in page


def test_parent_run_is_approved_as_a_whole_and_child_runs_have_no_buttons(
    site: Site, parent_run: Run
):
    browser = site.browser("olga")
    assert f'action="/runs/{parent_run.id}/approve"' in browser.get(f"/runs/{parent_run.id}").text
    part = _list_child_runs(site, parent_run)[0]
    page = browser.get(f"/runs/{part.id}").text
    assert f"/runs/{part.id}/approve" not in page
    assert f"/runs/{part.id}/deny" not in page
    assert f'href="/runs/{parent_run.id}"' in page


def test_history_shows_the_parent_run_and_a_host_filter_its_child_run(site: Site, parent_run: Run):
    browser = site.browser("olga")
    page = browser.get("/runs").text
    assert "2 hosts" in page
    assert f'href="/runs/{_list_child_runs(site, parent_run)[0].id}"' not in page
    assert (
        f'href="/runs/{_list_child_runs(site, parent_run)[1].id}"'
        in browser.get("/runs?host=lb2").text
    )


def test_live_page_of_a_parent_run_changes_when_a_child_run_does(site: Site, parent_run: Run):
    browser = site.browser("olga")
    site.harness.service.approve_run(parent_run.id, person="olga", digest=parent_run.digest)
    site.harness.service.advancer.advance_run(parent_run.id)
    before = browser.get(f"/runs/{parent_run.id}").text
    stamp = before.partition("/live?stamp=")[2][:33]
    assert browser.get(f"/runs/{parent_run.id}/live?stamp={stamp}").status_code == 204
    site.harness.service.advancer.advance_run(_list_child_runs(site, parent_run)[0].id)
    assert browser.get(f"/runs/{parent_run.id}/live?stamp={stamp}").status_code == 200


def test_live_page_does_not_redraw_hosts_that_the_stream_updates(site: Site, parent_run: Run):
    browser, page = site.browser("olga"), f"/runs/{parent_run.id}"
    site.harness.service.approve_run(parent_run.id, person="olga", digest=parent_run.digest)
    before = browser.get(f"{page}/live?streamed=before").text
    assert '<section id="hosts-card" hx-preserve="true"></section>' in before
    site.harness.service.advancer.advance_run(parent_run.id)
    # Hosts whose turn has come are drawn in another way, once.
    drawn = browser.get(f"{page}/live?streamed=before").text
    assert 'data-phase="started"' in drawn
    seen = browser.get(f"{page}/live?streamed=started").text.partition("/live?stamp=")[2][:16]
    site.harness.service.advancer.advance_run(_list_child_runs(site, parent_run)[0].id)
    assert browser.get(f"{page}/live?stamp={seen}&streamed=started").status_code == 204
    # Whoever lost the stream is shown them as they are.
    assert 'data-phase="started"' in browser.get(f"{page}/live?stamp={seen}").text
