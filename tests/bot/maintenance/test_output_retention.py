"""Output is erased after KEYTURN_KEEP_OUTPUT days; its hash stays in the log, which verifies."""

from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import select, update

from bot.audit import change_log, events, verification
from bot.audit.event_type import UnknownEvent
from bot.audit.run_proof import verify_run
from bot.audit.spool import Spool
from bot.db import outputs, search, tables
from bot.db.outputs import list_stored_output
from bot.db.search import RunFilter
from bot.maintenance.housekeeping import Housekeeping
from bot.model.run import Run
from bot.model.times import DAY
from tests.bot.clock import Clock
from tests.bot.databases import create_database
from tests.bot.harness import Harness, open_harness
from tests.bot.test_log_attacks import verify_alone
from tests.toy import SetSwitch

_DAYS = 90


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def clock(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Clock]:
    made = create_database(request, tmp_path)
    with made.transaction() as tx:
        key = tx.signing_key
    made.close()
    clock = Clock(made.url, key)
    yield clock
    clock.close()


@pytest.fixture
def harness(clock: Clock, tmp_path: Path) -> Generator[Harness]:
    with open_harness(tmp_path, database=clock) as harness:
        with clock.transaction() as tx:
            verification.open_log(tx)
        yield harness


@pytest.fixture
def house(harness: Harness, tmp_path: Path) -> Housekeeping:
    return Housekeeping(
        harness.database, spool=Spool(tmp_path / "changelog.spool"), keep_output=_DAYS
    )


def _run(harness: Harness, value: str) -> Run:
    return harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value=value)))


def _count_outputs(harness: Harness, run: Run) -> int:
    with harness.database.reading() as tx:
        return len(list_stored_output(tx, run.id))


def _count_expirations(harness: Harness) -> int:
    return harness.list_entry_kinds().count(events.OutputExpired.kind)


def _find_runs(harness: Harness, word: str) -> list[int]:
    with harness.database.reading() as tx:
        found = search.find_newest_runs(tx, RunFilter(text=[word]))
    return [run.id for run in found]


def test_output_is_erased_after_its_days_and_newer_output_is_kept(
    harness: Harness, house: Housekeeping, clock: Clock, tmp_path: Path
):
    old = _run(harness, "on")
    assert _count_outputs(harness, old) > 0
    clock.ahead = (_DAYS - 1) * DAY
    new = _run(harness, "off")
    for _ in range(2):
        house.run_periodic_tasks()
    assert _count_expirations(harness) == 0
    clock.ahead = (_DAYS + 1) * DAY
    for _ in range(4):
        house.run_periodic_tasks()
    assert (_count_outputs(harness, old), _count_expirations(harness)) == (0, 1)
    assert _count_outputs(harness, new) > 0
    with harness.database.reading() as tx:
        assert verification.verify_log(tx).broken is None
        proof = verify_run(tx, old.id)
    assert (proof.faults, proof.valid_outputs) == ([], 0)
    assert proof.erased_outputs > 0
    ended = verify_alone(harness.database, tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_words_of_expired_output_find_nothing(harness: Harness, house: Housekeeping, clock: Clock):
    run = _run(harness, "on")
    with harness.database.transaction() as tx:
        stored = outputs.prepare_output(tx, "the pool is overheated")
        facts = {"output_sha256": stored.sha256}
        entry = change_log.append_entry(tx, UnknownEvent(kind="noted", facts=facts), run=run.id)
        outputs.store_outputs(tx, 1, [(entry.seq, run.id, stored)])
    assert _find_runs(harness, "overheated") == [run.id]
    clock.ahead = (_DAYS + 1) * DAY
    for _ in range(4):
        house.run_periodic_tasks()
    assert _find_runs(harness, "overheated") == []
    assert _find_runs(harness, "lamp") == [run.id]


def test_expiration_continues_where_the_process_before_stopped(
    harness: Harness, house: Housekeeping, clock: Clock, tmp_path: Path
):
    """And no second one is recorded on the same day."""
    run = _run(harness, "on")
    clock.ahead = (_DAYS + 1) * DAY
    house.run_periodic_tasks()
    assert _count_expirations(harness) == 1
    assert _count_outputs(harness, run) > 0
    started = Housekeeping(
        harness.database, spool=Spool(tmp_path / "changelog.spool"), keep_output=_DAYS
    )
    for _ in range(3):
        started.run_periodic_tasks()
    assert (_count_outputs(harness, run), _count_expirations(harness)) == (0, 1)
    newer = _run(harness, "off")
    clock.ahead += (_DAYS + 1) * DAY
    for _ in range(3):
        started.run_periodic_tasks()
    assert (_count_outputs(harness, newer), _count_expirations(harness)) == (0, 2)


def test_output_that_has_not_expired_may_not_be_missing(
    harness: Harness, house: Housekeeping, clock: Clock, tmp_path: Path
):
    _run(harness, "on")
    clock.ahead = (_DAYS + 1) * DAY
    for _ in range(3):
        house.run_periodic_tasks()
    newer = _run(harness, "off")
    with harness.database.transaction() as tx:
        tx.sql.execute(
            update(tables.output).where(tables.output.c.run == newer.id).values(text=None)
        )
        query = select(tables.output.c.entry).where(tables.output.c.run == newer.id)
        first = min(tx.sql.execute(query).scalars())
    with harness.database.reading() as tx:
        assert verification.verify_log(tx).broken == first
        assert verify_run(tx, newer.id).faults
    assert "erased without a request" in verify_alone(harness.database, tmp_path).stderr


def test_output_is_kept_without_the_setting(harness: Harness, clock: Clock, tmp_path: Path):
    run = _run(harness, "on")
    house = Housekeeping(harness.database, spool=Spool(tmp_path / "changelog.spool"))
    clock.ahead = 1000 * DAY
    for _ in range(3):
        house.run_periodic_tasks()
    assert _count_outputs(harness, run) > 0
