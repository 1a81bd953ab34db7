"""Child runs that pass the gate in one shared commit are checked one by one."""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from bot.audit import change_log, inclusion
from bot.db import locks, runs, tables
from bot.db.database import Transaction
from bot.execution import fanout, gate
from bot.model.run import RequestTerms, Run, State
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import INVENTORY
from tests.toy import SetSwitch

NAMES = [f"lb{n}" for n in range(1, 11)]


@pytest.fixture
def crowd(tmp_path: Path) -> Generator[Harness]:
    with open_harness(tmp_path) as harness:
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in NAMES[2:])
        (harness.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        harness.fleet.hosts = {name: {"lamp": "off"} for name in NAMES}
        yield harness


def _approve_fan_out(harness: Harness) -> Run:
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in NAMES]
    run = harness.service.request_on_hosts(requests, RequestTerms("dora", WEB), host_pattern="lb*")
    harness.run_queued_work()
    whole = harness.get_run(run.id)
    harness.service.approve_run(whole.id, person="olga", digest=whole.digest)
    return whole


def _list_ready_child_runs(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the parts of an approved request, all of which are to start at once."""
    monkeypatch.setattr(fanout, "_count_next_wave", len)
    harness.service.advancer.advance_run(_approve_fan_out(harness).id)
    numbers, harness.dispatcher.enqueued = harness.dispatcher.enqueued[1:], []
    assert len(numbers) == len(NAMES)
    return numbers


def _claim_together(harness: Harness, parts: list[int]) -> list[gate.ClaimedRun | None]:
    """Let all of them pass the gate while somebody else has the turn to write."""
    commits, end = harness.database.commits, time.monotonic() + 20
    with ThreadPoolExecutor(len(parts)) as pool, harness.database.transaction():
        claimed = [pool.submit(gate.claim_run, harness.context, number) for number in parts]
        while commits.waiting < len(parts):
            assert time.monotonic() < end
            time.sleep(0.001)
    return [one.result() for one in claimed]


def _skip_check(*_: object) -> None:
    """Stand where a guard stood."""


def _forge_plan(tx: Transaction, part: int) -> None:
    forged = runs.get_run(tx, part - 1).plan
    assert forged
    values = {"plan": forged.to_json(), "digest": forged.digest}
    tx.sql.execute(update(tables.run).where(tables.run.c.id == part).values(values))


def test_child_run_with_another_plan_is_stale_in_a_shared_commit(
    crowd: Harness, monkeypatch: pytest.MonkeyPatch
):
    parts = _list_ready_child_runs(crowd, monkeypatch)
    with crowd.database.transaction() as tx:
        _forge_plan(tx, parts[4])
    claimed = _claim_together(crowd, parts)
    assert [n for n, one in enumerate(claimed) if one is None] == [4]
    assert crowd.get_run(parts[4]).state is State.STALE


def test_without_the_child_plan_check_a_child_run_with_another_plan_starts(
    crowd: Harness, monkeypatch: pytest.MonkeyPatch
):
    parts = _list_ready_child_runs(crowd, monkeypatch)
    with crowd.database.transaction() as tx:
        _forge_plan(tx, parts[4])
    monkeypatch.setattr(gate, "_check_is_child_of", _skip_check)
    assert all(_claim_together(crowd, parts))


def test_each_child_run_holds_its_own_host_lock(crowd: Harness, monkeypatch: pytest.MonkeyPatch):
    parts = _list_ready_child_runs(crowd, monkeypatch)
    _claim_together(crowd, parts)
    with crowd.database.reading() as tx:
        held = {lock.target: lock.run for lock in locks.list_locks(tx)}
    assert held == dict(zip(NAMES, parts, strict=True))


def _list_hosts_sent_to_after_forgery(harness: Harness) -> list[str]:
    """Take the approval away when the first host is told; return who is told in the end."""
    whole = _approve_fan_out(harness)

    def forge(_host: str, _words: str) -> None:
        with harness.database.transaction() as tx:
            tx.sql.execute(delete(tables.decision).where(tables.decision.c.run == whole.id))

    harness.fleet.after_send = forge
    harness.run_queued_work()
    return [host for host, _ in harness.fleet.sent]


def test_next_wave_stops_when_the_approval_is_deleted(crowd: Harness):
    assert _list_hosts_sent_to_after_forgery(crowd) == ["lb1"]


def test_altered_log_entry_is_not_trusted_although_it_was_verified_before(crowd: Harness):
    whole = _approve_fan_out(crowd)
    with crowd.database.transaction() as tx:
        entries = change_log.list_entries_of_run(tx, whole.id, ["approved"])
        assert inclusion.list_vouched_entries(tx, entries) == entries
        assert inclusion.list_vouched_entries(tx, entries) == entries
        altered = [replace(one, person="mallory") for one in entries]
        assert inclusion.list_vouched_entries(tx, altered) == []
