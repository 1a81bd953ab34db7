"""Refusals are logged, with a limit for each minute."""

from collections.abc import Callable

import pytest

from bot.audit import change_log, events, refusals
from bot.db.database import Database
from bot.model.errors import NotAllowed
from bot.model.run import Run
from bot.service import KeyturnService
from tests.bot.harness import Harness
from tests.toy import BreakSwitch, SetSwitch

LAMP = SetSwitch(host="lb1", name="lamp", value="on")


def _count_entries(database: Database, kind: str) -> int:
    with database.reading() as tx:
        return sum(entry.kind == kind for entry in change_log.list_entries_after(tx, 0))


def test_refusals_within_a_minute_are_logged_once_for_each_kind(database: Database):
    for _ in range(1000):
        refusals.log_refusal_in_own_transaction(
            database, events.TokenRefused(source="api", reason="not known")
        )
    refusals.log_refusal_in_own_transaction(
        database, events.UnknownUserRefused(source="slack", user="U1", team="T1")
    )
    assert _count_entries(database, events.TokenRefused.kind) == 1
    assert _count_entries(database, events.UnknownUserRefused.kind) == 1


def test_without_the_rate_limit_every_refusal_is_logged(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The twin, which is also what happens a minute later."""
    monkeypatch.setattr(refusals, "_INTERVAL", -1)
    for _ in range(5):
        refusals.log_refusal_in_own_transaction(
            database, events.TokenRefused(source="api", reason="not known")
        )
    assert _count_entries(database, events.TokenRefused.kind) == 5


def _approve_without_permission(harness: Harness, run: Run) -> None:
    with pytest.raises(NotAllowed):
        harness.service.approve_run(run.id, person="dora", digest=run.digest)


def _list_refused_runs(harness: Harness) -> list[int | None]:
    with harness.database.reading() as tx:
        return [
            one.run
            for one in change_log.list_entries_after(tx, 0)
            if one.kind == "approval refused"
        ]


def test_refused_approvals_are_logged_once_a_minute_for_each_run_and_person(db_harness: Harness):
    harness = db_harness
    first, second = (harness.request(LAMP, person="dora") for _ in range(2))
    for run in (first, second, first, second, first):
        _approve_without_permission(harness, run)
    with pytest.raises(NotAllowed):
        harness.service.approve_run(first.id, person="stan", digest=first.digest)
    assert _list_refused_runs(harness) == [first.id, second.id, first.id]


def test_without_the_rate_limit_every_refused_approval_is_logged(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    """The twin, which is also what happens a minute later."""
    monkeypatch.setattr(refusals, "_INTERVAL", -1)
    run = harness.request(LAMP, person="dora")
    for _ in range(5):
        _approve_without_permission(harness, run)
    assert _list_refused_runs(harness) == [run.id] * 5


def test_refused_approvals_of_more_than_20_runs_a_minute_are_not_logged(harness: Harness):
    asked = [harness.request(LAMP, person="dora") for _ in range(25)]
    for run in asked:
        _approve_without_permission(harness, run)
    assert _list_refused_runs(harness) == [run.id for run in asked[:20]]


def test_approval_is_logged_although_refusals_reached_their_limit(harness: Harness):
    own = harness.request(BreakSwitch(host="lb1", name="lamp"), person="adam")
    others = harness.request(LAMP, person="dora")
    for _ in range(30):
        with pytest.raises(NotAllowed):
            harness.service.approve_run(own.id, person="adam", digest=own.digest)
    harness.service.approve_run(others.id, person="adam", digest=others.digest)
    assert "approved" in harness.list_entry_kinds(others)


def _deny(flow: KeyturnService, run: Run) -> None:
    flow.deny_run(run.id, person="stan", reason="I would rather not")


def _break_glass(flow: KeyturnService, run: Run) -> None:
    flow.break_glass.request_break_glass(
        run.id, person="stan", reason="the whole site is down since noon"
    )


@pytest.mark.parametrize(
    ("act", "kind"), [(_deny, "denial refused"), (_break_glass, "break-glass refused")]
)
def test_refused_denials_and_break_glass_requests_are_logged_once_a_minute(
    harness: Harness, act: Callable[[KeyturnService, Run], None], kind: str
):
    run = harness.request(LAMP, person="dora")
    for _ in range(4):
        with pytest.raises(NotAllowed):
            act(harness.service, run)
    assert harness.list_entry_kinds(run).count(kind) == 1
