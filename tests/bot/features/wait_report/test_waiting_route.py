"""The waiting report over the API."""

from sqlalchemy import update

from bot.db import tables
from tests.bot.api.conftest import ApiHarness
from tests.bot.web.sample_runs import add_requested_run, add_succeeded_run


def test_api_waiting_report_returns_waits_and_self_service(api_harness: ApiHarness):
    with api_harness.database.transaction() as tx:
        for _ in range(5):
            add_succeeded_run(tx, add_requested_run(tx))
        tx.sql.execute(
            update(tables.run).values(required_approvals=1, pending_since=tx.now - 300_000_000)
        )
    report = api_harness.program("dora").get("/report/waiting", params={"days": 7}).json()
    assert report["total"]["approval_rate"] == 1.0
    assert 300 <= report["by_runbook"][0]["median_wait"] < 360
    suggestion = report["self_service"][0]
    assert (suggestion["runbook"], suggestion["requested"]) == ("abusers clear", 5)
    assert len(report["by_hour"]) == 24
