"""The wait report: how long people wait, and what could become self-service."""

from sqlalchemy import select, update

from bot.db import history, tables
from bot.db.database import Transaction
from bot.features.wait_report.report import WaitReport, build_wait_report
from bot.model.run import Run, State
from tests.bot.harness import Harness
from tests.bot.web.sample_runs import (
    add_ended_run,
    add_pending_run,
    add_requested_run,
    add_succeeded_run,
    approve,
    start_run,
)

_MINUTE = 60_000_000


def _set_waiting_time(tx: Transaction, run: Run, minutes: int) -> None:
    """Have a request been shown so long before it was decided."""
    decided = update(tables.run).where(tables.run.c.id == run.id)
    tx.sql.execute(decided.values(pending_since=tx.now - minutes * _MINUTE, ended_at=tx.now))
    tx.sql.execute(
        update(tables.decision).where(tables.decision.c.run == run.id).values(decided_at=tx.now)
    )


def _build_report(harness: Harness, days: int = 91) -> WaitReport:
    with harness.database.reading() as tx:
        return build_wait_report(tx, harness.policies.get_policy(), days=days)


def _add_five_succeeded_runs(harness: Harness, host: str = "lb1", person: str = "dora") -> None:
    with harness.database.transaction() as tx:
        for minutes in (1, 2, 3, 4, 50):
            run = add_succeeded_run(tx, add_requested_run(tx, host=host, person=person))
            tx.sql.execute(
                update(tables.run).where(tables.run.c.id == run.id).values(required_approvals=1)
            )
            _set_waiting_time(tx, run, minutes)


def test_wait_report_lists_waits_by_runbook_area_and_hour(harness: Harness):
    _add_five_succeeded_runs(harness)
    report = _build_report(harness)
    [line] = report.runbooks
    assert (line.name, line.requested, line.approved, line.approval_rate) == (
        "abusers clear",
        5,
        5,
        1.0,
    )
    assert (line.median, line.ninth_decile, line.longest) == (
        3 * _MINUTE,
        50 * _MINUTE,
        50 * _MINUTE,
    )
    assert [area.name for area in report.areas] == ["the edge"]
    assert len(report.hours) == 24
    assert sum(hour.requested for hour in report.hours) == 5


def test_wait_report_counts_denied_and_expired_requests(harness: Harness):
    _add_five_succeeded_runs(harness)
    with harness.database.transaction() as tx:
        _set_waiting_time(
            tx,
            add_ended_run(tx, add_pending_run(tx, add_requested_run(tx)), State.DENIED, "no"),
            1,
        )
        _set_waiting_time(
            tx,
            add_ended_run(tx, add_pending_run(tx, add_requested_run(tx)), State.EXPIRED, "nobody"),
            480,
        )
        add_pending_run(tx, add_requested_run(tx))
        for run in (6, 7, 8):
            shown = update(tables.run).where(tables.run.c.id == run)
            tx.sql.execute(shown.values(required_approvals=1, pending_since=tx.now - _MINUTE))
    total = _build_report(harness).total
    assert (total.requested, total.approved, total.denied, total.expired) == (8, 5, 1, 1)
    assert total.pending == 1
    assert total.approval_rate == 5 / 7
    assert _build_report(harness).suggestions == []


def test_wait_report_suggests_self_service_for_always_approved_requests(harness: Harness):
    _add_five_succeeded_runs(harness)
    [lift] = _build_report(harness).suggestions
    assert (lift.runbook, lift.area, lift.requested) == ("abusers clear", "edge", 5)


def test_wait_report_does_not_suggest_self_service_after_a_failure(harness: Harness):
    _add_five_succeeded_runs(harness)
    with harness.database.transaction() as tx:
        run = start_run(tx, approve(tx, add_pending_run(tx, add_requested_run(tx))))
        _set_waiting_time(tx, add_ended_run(tx, run, State.FAILED, "step 1 failed"), 1)
        tx.sql.execute(update(tables.run).values(required_approvals=1))
    assert _build_report(harness).suggestions == []


def test_wait_report_does_not_suggest_self_service_for_rare_requests(harness: Harness):
    _add_five_succeeded_runs(harness)
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.run).where(tables.run.c.id == 1).values(required_approvals=0))
    assert _build_report(harness).suggestions == []


def test_wait_report_omits_requests_before_its_period(harness: Harness):
    _add_five_succeeded_runs(harness)
    with harness.database.transaction() as tx:
        tx.sql.execute(update(tables.run).values(requested_at=tx.now - 8 * 1440 * _MINUTE))
    assert _build_report(harness, days=7).total.requested == 0
    assert _build_report(harness, days=9).total.requested == 5


def test_wait_report_is_limited_to_the_newest_runs(harness: Harness):
    _add_five_succeeded_runs(harness)
    with harness.database.transaction() as tx:
        for run in range(1, 6):
            one = update(tables.run).where(tables.run.c.id == run)
            tx.sql.execute(one.values(requested_at=tx.now - (10 - run) * _MINUTE))
    with harness.database.reading() as tx:
        few = build_wait_report(tx, harness.policies.get_policy(), limit=3)
        every = build_wait_report(tx, harness.policies.get_policy(), limit=5)
        third = tx.sql.execute(
            select(tables.run.c.requested_at).where(tables.run.c.id == 2)
        ).scalar_one()
    assert (few.total.requested, few.is_truncated, few.since) == (3, True, third + 1)
    assert (every.total.requested, every.is_truncated) == (5, False)
    assert (few.suggestions, len(every.suggestions)) == ([], 1)


def test_first_success_is_the_same_when_history_is_limited_to_a_runbook(harness: Harness):
    _add_five_succeeded_runs(harness)
    with harness.database.reading() as tx:
        every = [(one.id, one.is_first_success) for one in history.list_past_requests(tx, 0)]
        one_runbook = [
            (one.id, one.is_first_success)
            for one in history.list_past_requests(tx, 0, words="abusers clear")
        ]
    assert one_runbook == every
    assert one_runbook[0] == (1, True)
