"""The chart of results by day."""

from datetime import UTC, datetime, timedelta

from bot.db.stats import DayResult, count_results_by_day
from bot.model.run import NEEDS_ATTENTION, State
from bot.web.result_chart import DAYS, build_result_chart
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import gallery
from tests.toy import SetSwitch

NOW = 1_700_000_000_000_000
TODAY = datetime.fromtimestamp(NOW / 1_000_000, UTC).date()


def test_bars_show_the_results_of_each_day() -> None:
    results = [
        DayResult(TODAY, State.SUCCEEDED, 2),
        DayResult(TODAY, NEEDS_ATTENTION, 1),
        DayResult(TODAY, State.FAILED, 1),
        DayResult(TODAY - timedelta(days=DAYS), State.FAILED, 9),
    ]
    chart = build_result_chart(results, now=NOW)
    assert chart.days[-1] == (TODAY, [2, 1, 1, 0])
    assert [(bar.result, bar.y, bar.height) for bar in chart.bars] == [
        ("succeeded", 50.0, 50.0),
        ("needs-attention", 25.0, 25.0),
        ("failed", 0.0, 25.0),
    ]
    assert chart.description.endswith("2 succeeded, 1 needs attention, 1 failed, 0 other")


def test_home_counts_every_run_once(site: Site) -> None:
    count = len(gallery(site.database))
    with site.database.reading() as tx:
        results = count_results_by_day(tx, 0)
    assert sum(result.count for result in results) == count
    words = Page(site.browser("olga").get("/").text).text
    assert "1 succeeded" in words or "2 succeeded" in words
    assert "2 failed in 24 h" in words


def test_a_counter_proposal_awaits_the_requester_with_old_and_new_values(site: Site) -> None:
    run = site.harness.request(SetSwitch(host="lb1", name="lamp", value="on"))
    proposal = site.harness.service.propose_values(
        run.id, person="olga", changed_values={"value": "dim"}, reason="too bright"
    )
    site.harness.run_queued_work()
    page = Page(site.browser("dora").get("/").text)
    assert "value: on → dim" in page.text
    assert f"/runs/{proposal.id}/accept" in page.forms
    assert f"/runs/{proposal.id}/accept" not in Page(site.browser("adam").get("/").text).forms
