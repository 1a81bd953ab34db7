"""The chart of results by day."""

from datetime import date, timedelta

from sqlalchemy import update

from bot.db import tables
from bot.db.stats import count_results
from bot.model.run import ENDED_STATES, NEEDS_ATTENTION, State
from bot.web.result_chart import ResultCounter, build_result_chart
from tests.bot.web.conftest import Site
from tests.bot.web.parsed_page import Page
from tests.bot.web.sample_runs import add_sample_runs
from tests.toy import SetSwitch

TODAY = date(2023, 11, 14)


def test_result_chart_bars_show_the_results_of_each_day() -> None:
    results = {State.SUCCEEDED: 2, NEEDS_ATTENTION: 1, State.FAILED: 1}
    chart = build_result_chart([(TODAY - timedelta(days=1), {}), (TODAY, results)])
    assert chart.days[-1] == (TODAY, [2, 1, 1, 0])
    assert [(bar.result, bar.y, bar.height) for bar in chart.bars] == [
        ("succeeded", 50.0, 50.0),
        ("needs-attention", 25.0, 25.0),
        ("failed-or-unknown", 0.0, 25.0),
    ]
    assert chart.description.endswith(
        "2 succeeded, 1 needs attention, 1 failed or unknown, 0 other"
    )


def test_result_chart_counts_every_run_once(site: Site) -> None:
    count = len(add_sample_runs(site.database))
    with site.database.reading() as tx:
        results = count_results(tx, 0, tx.now + 1)
    assert results.total() == count
    words = Page(site.browser("olga").get("/").text).text
    assert "1 succeeded" in words or "2 succeeded" in words
    assert "2 failed or unknown in 24 h" in words


def test_result_chart_recounts_a_past_day_only_while_a_run_is_open(site: Site) -> None:
    shown = add_sample_runs(site.database)
    rights = site.harness.policies.get_policy().get_view_rights("olga")
    counter = ResultCounter()

    def fail(number: int) -> int:
        """Record a failure behind the back of the counter; return how many it counts."""
        with site.database.transaction() as tx:
            run = tables.run.c
            tx.sql.execute(update(tables.run).where(run.id == number).values(state="failed"))
        with site.database.reading(rights) as tx:
            return dict(counter.build_chart(tx, rights, "Asia/Tokyo").totals)["failed or unknown"]

    with site.database.transaction() as tx:
        yesterday = tables.run.c.requested_at - 24 * 3_600_000_000
        tx.sql.execute(update(tables.run).values(requested_at=yesterday))
    # Failed, and with an unknown outcome.
    assert fail(shown["failed"]) == 2
    assert fail(shown["denied"]) == 3
    with site.database.transaction() as tx:
        ended = tables.run.c.state.in_(ENDED_STATES)
        tx.sql.execute(update(tables.run).where(~ended).values(state="failed"))
    final = fail(shown["failed"])
    assert final > 3
    assert fail(shown["succeeded"]) == final


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
