"""What is asked again and again reads few rows, whatever the tables hold.

SQLite has no statistics of a Keyturn database, so its plans do not depend on how full it is.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import event

from bot.audit import change_log, events
from bot.audit.change_log import EntryDraft
from bot.audit.spool import Spool
from bot.db import stats
from bot.db.database import Database
from bot.maintenance.housekeeping import Housekeeping
from bot.queries import log_search
from bot.queries.log_search import EntryFilter
from tests.bot.harness import Harness
from tests.toy import SetSwitch

# Tables that grow with each run.
_GROWING = ("run", "entry", "output", "search_word", "decision", "step", "tile")


@contextmanager
def _record_statements(database: Database) -> Generator[dict[str, Any]]:
    found: dict[str, Any] = {}

    def record(
        _connection: object, _cursor: object, statement: str, given: Any, *_: object
    ) -> None:
        found[statement] = given

    event.listen(database.engine, "before_cursor_execute", record)
    yield found
    event.remove(database.engine, "before_cursor_execute", record)


def _list_scans(database: Database, statements: dict[str, Any]) -> list[str]:
    """Return the statements that read all rows of a growing table, or all that have no parent."""
    found: list[str] = []
    with database.engine.connect() as connection:
        for statement, given in statements.items():
            # With a limit, it reads the newest rows by their number.
            is_query = statement.split()[0] in ("SELECT", "UPDATE", "DELETE")
            if not is_query or statement.endswith("OFFSET ?"):
                continue
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
            steps = [str(row[3]) for row in rows]
            scans = [f"SCAN {table}" for table in _GROWING]
            if "parent IS NULL" in statement:
                scans.append("SEARCH run USING INDEX ix_run_parent_id (parent=?)")
            found += [f"{one}: {statement}" for one in steps if one in scans]
    return found


def test_request_and_periodic_duties_scan_no_table_that_grows(harness: Harness, tmp_path: Path):
    advancer = harness.service.advancer
    house = Housekeeping(harness.database, spool=Spool(tmp_path / "changelog.spool"))
    with _record_statements(harness.database) as statements:
        run = harness.approve(harness.request(SetSwitch(host="lb1", name="lamp", value="on")))
        advancer.recover_unfinished_runs()
        for duty in (
            advancer.end_outdated_plans,
            advancer.expire_runs,
            advancer.remind_approvers,
            advancer.recover_expired_leases,
            advancer.wake_stalled_runs,
            house.run_periodic_tasks,
            *advancer.list_host_duties(),
        ):
            duty()
        with harness.database.reading() as tx:
            stats.count_open_work(tx)
    assert run.is_ended
    assert len(statements) > 50
    assert _list_scans(harness.database, statements) == []


@pytest.mark.parametrize("narrower", ["host", "person"])
def test_entries_of_a_frequent_kind_are_searched_among_those_of_a_host_or_a_person(
    harness: Harness, narrower: Literal["host", "person"]
):
    """By the kind, millions of entries would be read for a host or a person with few."""
    sending = events.StepSending(step=1, title="Use bfq")
    with harness.database.transaction() as tx:
        for _ in range(2):
            change_log.append_entries(tx, [EntryDraft(sending, host="lb1", person="dora")] * 500)
        # Of two that would do, SQLite takes the index that was made last.
        tx.sql.exec_driver_sql("DROP INDEX ix_entry_kind_seq")
        tx.sql.exec_driver_sql("CREATE INDEX ix_entry_kind_seq ON entry (kind, seq)")
    wanted = replace(EntryFilter(kind=sending.kind), **{narrower: "nobody"})
    with _record_statements(harness.database) as statements, harness.database.reading() as tx:
        log_search.find_newest_entries(tx, wanted, limit=50)
    [(statement, given)] = [
        one for one in statements.items() if one[0].startswith("SELECT seq, at, kind")
    ]
    with harness.database.engine.connect() as connection:
        [row] = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
    assert f"USING INDEX ix_entry_{narrower}_seq" in str(row[3])
