"""kill -9 at each line of an append to the change log and of its commit, on PostgreSQL.

There, a commit releases the lock of the log before it waits for the disk. Whatever line a writer
dies at, its entry is there as a whole or not at all, what it acknowledged is there, and others
append at once. `make chaos` kills at every line, the suite at some of them.
"""

import os
import signal
import sys
from collections import Counter
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import bot
from bot.audit import change_log, events, verification
from bot.db import migrations
from bot.db.database import Database
from bot.model import signing
from tests.campaigns import CHAOS
from tests.chaos.report import NAME, Record
from tests.playground.postgres import Postgres
from tests.processes import get_fork_context

_KILLS = 16
_OURS = str(Path(bot.__file__).parent)
# The log crosses the end of a tile, which an append then stores, while the writers are killed.
_ENTRIES_BEFORE = 250

pytestmark = [pytest.mark.real, pytest.mark.timeout(0 if CHAOS else 120)]


class _LineCounter:
    """Counts the lines of Keyturn that this thread runs, and kills the process at one of them.

    last: the number of that line; 0 for none.
    """

    def __init__(self, last: int) -> None:
        self.count, self._last = 0, last

    def trace(self, frame: FrameType, what: str, _given: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        self.count += what == "line"
        if what == "line" and self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def _append(database: Database, title: str) -> None:
    with database.transaction() as tx:
        change_log.append_entry(tx, events.StepSending(step=1, title=title), run=1, person="dora")


def _append_until_killed(url: str, key: Path, last: int, title: str, answer: Connection) -> None:
    database = Database(url, signing.load_signing_key(key))
    # The first append of a process reads the whole log. The next one does what most do.
    _append(database, "first of its process")
    counter = _LineCounter(last)
    sys.settrace(counter.trace)
    _append(database, title)
    sys.settrace(None)
    answer.send(counter.count)


class _Log:
    """The log, with writers in processes of their own."""

    def __init__(self, url: str, key: Path) -> None:
        self._url, self._key = url, key
        self.database = Database(url, signing.create_signing_key(key))
        migrations.upgrade_schema(self.database)
        with self.database.transaction() as tx:
            verification.open_log(tx)
            drafts = [change_log.EntryDraft(events.StepSending(step=1, title="before"))]
            change_log.append_entries(tx, drafts * _ENTRIES_BEFORE)

    def append_until(self, last: int, title: str) -> int:
        """Append in a process that is killed at this line; return how many lines it ran, or 0."""
        processes = get_fork_context()
        mine, others = processes.Pipe(duplex=False)
        given = (self._url, self._key, last, title, others)
        process = processes.Process(target=_append_until_killed, args=given)
        process.start()
        others.close()
        process.join(60)
        assert process.exitcode in {0, -signal.SIGKILL}, process.exitcode
        return mine.recv() if process.exitcode == 0 else 0

    def count_titles(self) -> Counter[str]:
        with self.database.reading() as tx:
            found = verification.verify_log(tx)
            assert found.broken is None, found.why
            entries = change_log.list_newest_entries(tx, limit=100_000)
        return Counter(str(entry.event.get_fact("title")) for entry in entries)


@pytest.fixture
def log(tmp_path: Path) -> Generator[_Log]:
    with Postgres() as server:
        made = _Log(server.new_database(), tmp_path / "changelog.key")
        yield made
        made.database.close()


def _choose_lines(lines: int) -> list[int]:
    """Return some lines from the first to the last, more of them at the end: by the commit."""
    return sorted({lines - lines * n * n // (_KILLS * _KILLS) for n in range(_KILLS)})


def test_append_on_postgresql_is_whole_or_not_there_whatever_line_its_writer_dies_at(
    log: _Log, record_property: Record
):
    lines = log.append_until(0, "whole")
    acknowledged, killed = ["whole"], list[str]()
    for n in range(1, lines + 1) if CHAOS else _choose_lines(lines):
        title = f"killed at line {n}"
        if log.append_until(n, title):
            acknowledged.append(title)  # it ran fewer lines than the first one
        else:
            killed.append(title)
        # Nothing that it held keeps others from appending.
        _append(log.database, f"after line {n}")
        acknowledged.append(f"after line {n}")
    found = log.count_titles()
    stored = [title for title in killed if found[title]]
    record_property(
        NAME,
        f"kill -9 at {len(killed)} lines of an append on PostgreSQL: {len(stored)} entries there",
    )
    assert [title for title in acknowledged if found[title] != 1] == []
    assert [title for title in killed if found[title] > 1] == []
    # Both happen: a writer dies before its commit, and after it.
    assert 0 < len(stored) < len(killed)
