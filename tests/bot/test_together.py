"""Hosts that pass the gate together: what is asked of the whole request is asked once, what is
asked of each host is asked of each, and nothing that was answered outlasts their commit."""

import time
from collections.abc import Callable, Generator, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from bot.audit import change_log, evidence, key_history
from bot.db import locks, runs, shared_answers, tables
from bot.db.database import Transaction
from bot.execution import fanout, gate
from bot.model.run import Run, State
from tests.bot.office import WEB, Office, an_office
from tests.policies import INVENTORY
from tests.toy import SetSwitch

NAMES = [f"lb{n}" for n in range(1, 11)]


@pytest.fixture
def crowd(tmp_path: Path) -> Generator[Office]:
    with an_office(tmp_path) as office:
        more = "".join(f"  {name}: {{area: edge, tags: [haproxy]}}\n" for name in NAMES[2:])
        (office.policies.path / "inventory.yaml").write_text(INVENTORY + more)
        office.fleet.hosts = {name: {"lamp": "off"} for name in NAMES}
        yield office


def _approved(office: Office) -> Run:
    requests = [SetSwitch(host=name, name="lamp", value="on") for name in NAMES]
    run = office.workflow.ask_all(requests, spelled="lb*", person="dora", origin=WEB)
    office.work()
    whole = office.run(run.id)
    office.workflow.approve(whole.id, person="olga", digest=whole.digest)
    return whole


def _ready(office: Office, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the parts of an approved request, all of which are to start at once."""
    monkeypatch.setattr(fanout, "_wave", len)
    office.workflow.advance(_approved(office).id)
    found, office.queue.waiting = office.queue.waiting[1:], []
    assert len(found) == len(NAMES)
    return found


def _claim_together(office: Office, parts: list[int]) -> list[gate.Claimed | None]:
    """Let all of them pass the gate while somebody else has the turn to write."""
    commits, end = office.database.commits, time.monotonic() + 20
    with ThreadPoolExecutor(len(parts)) as pool, office.database.transaction():
        claimed = [pool.submit(gate.claim_run, office.parts, number) for number in parts]
        while commits.coming < len(parts):
            assert time.monotonic() < end
            time.sleep(0.001)
    return [one.result() for one in claimed]


def _nothing(*_: object) -> None:
    """Stand where a guard stood."""


def _counting(monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> list[object]:
    """Note each time that it is called, and have it do what it does."""
    calls: list[object] = []
    plain = getattr(place, name)

    def noted(*given: Any) -> Any:
        calls.append(given)
        return plain(*given)

    monkeypatch.setattr(place, name, noted)
    return calls


def test_the_whole_request_is_borne_out_once_for_all_that_start_together(
    crowd: Office, monkeypatch: pytest.MonkeyPatch
):
    parts = _ready(crowd, monkeypatch)
    borne_out = _counting(monkeypatch, evidence, "find_doubt")
    shut_out = _counting(monkeypatch, evidence, "list_banned")
    own = _counting(monkeypatch, gate, "_is_part_of")
    assert all(_claim_together(crowd, parts))
    # Who comes a moment too late begins another commit.
    assert max(len(borne_out), len(shut_out)) <= 3
    assert len(own) == len(parts)


def _with_another_plan(tx: Transaction, part: int) -> None:
    forged = runs.get_run(tx, part - 1).proposal
    assert forged
    values = {"proposal": forged.to_json(), "digest": forged.digest}
    tx.sql.execute(update(tables.run).where(tables.run.c.id == part).values(values))


def test_a_host_with_another_plan_is_not_approved_with_the_others(
    crowd: Office, monkeypatch: pytest.MonkeyPatch
):
    parts = _ready(crowd, monkeypatch)
    with crowd.database.transaction() as tx:
        _with_another_plan(tx, parts[4])
    claimed = _claim_together(crowd, parts)
    assert [n for n, one in enumerate(claimed) if one is None] == [4]
    assert crowd.run(parts[4]).state is State.STALE


def test_a_host_with_another_plan_would_run_without_the_check_of_each(
    crowd: Office, monkeypatch: pytest.MonkeyPatch
):
    parts = _ready(crowd, monkeypatch)
    with crowd.database.transaction() as tx:
        _with_another_plan(tx, parts[4])
    monkeypatch.setattr(gate, "_is_part_of", _nothing)
    assert all(_claim_together(crowd, parts))


def test_each_of_them_holds_its_own_host(crowd: Office, monkeypatch: pytest.MonkeyPatch):
    parts = _ready(crowd, monkeypatch)
    _claim_together(crowd, parts)
    with crowd.database.reading() as tx:
        held = {lock.target: lock.run for lock in locks.list_locks(tx)}
    assert held == dict(zip(NAMES, parts, strict=True))


def _told_after_a_forgery(office: Office) -> list[str]:
    """Take the approval away when the first host is told; return who is told in the end."""
    whole = _approved(office)

    def forge(_host: str, _words: str) -> None:
        with office.database.transaction() as tx:
            tx.sql.execute(delete(tables.vote).where(tables.vote.c.run == whole.id))

    office.fleet.after_tell = forge
    office.work()
    return [host for host, _ in office.fleet.told]


def test_what_was_answered_for_one_wave_is_asked_anew_for_the_next(crowd: Office):
    assert _told_after_a_forgery(crowd) == ["lb1"]


def test_without_that_an_old_answer_would_let_all_of_them_through(
    crowd: Office, monkeypatch: pytest.MonkeyPatch
):
    kept: dict[Hashable, object] = {}

    def answer(_tx: Transaction, question: Hashable, find: Callable[[], object]) -> object:
        if question not in kept:
            kept[question] = find()
        return kept[question]

    monkeypatch.setattr(shared_answers, "share_answer", answer)
    assert sorted(_told_after_a_forgery(crowd)) == sorted(NAMES)


def test_what_is_raised_is_found_anew(crowd: Office):
    with crowd.database.transaction() as tx:
        with pytest.raises(ZeroDivisionError):
            shared_answers.share_answer(tx, "one", lambda: 1 // 0)
        assert shared_answers.share_answer(tx, "one", lambda: 1) == 1
        assert shared_answers.share_answer(tx, "one", lambda: 2) == 1


def test_nobody_keeps_an_answer_for_another_transaction(crowd: Office):
    for n in range(3):
        with crowd.database.together() as tx:
            assert shared_answers.share_answer(tx, "one", lambda n=n: n) == n


def test_an_entry_that_was_found_whole_is_not_believed_once_it_is_altered(crowd: Office):
    whole = _approved(crowd)
    with crowd.database.transaction() as tx:
        told = change_log.list_entries_of_run(tx, whole.id, ["approved"])
        assert key_history.list_vouched_entries(tx, told) == told
        assert key_history.list_vouched_entries(tx, told) == told
        altered = [replace(one, person="mallory") for one in told]
        assert key_history.list_vouched_entries(tx, altered) == []
