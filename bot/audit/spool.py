"""The spool: outcomes of steps while the change log cannot be written.

A file beside the database. Every line is synced to disk immediately, and merged into the log when
it can be written again, also by a later process.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bot.audit import change_log, events
from bot.audit.event_type import parse_event
from bot.db.database import Transaction
from bot.model.canonical import Canonical, encode_canonical, hash_canonical


class Spool:
    """Outcomes in a file. If the file is missing, there is nothing to merge."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file_being_merged = file.with_name(f"{file.name}.taken")

    def add_facts(self, run_id: int, facts: Mapping[str, Canonical]) -> None:
        """Write facts about a run to the file. Raises OSError if this fails as well."""
        line = encode_canonical({"run": run_id, "facts": facts})
        with self._file.open("a") as out:
            # The first line feed ends a line that a crash cut short.
            out.write(f"\n{line}\n")
            out.flush()
            os.fsync(out.fileno())

    def merge_into_log(self, tx: Transaction) -> None:
        """Add the spooled facts to the log, and delete the file once they are durable."""
        if not self._file_being_merged.exists():
            with suppress(FileNotFoundError):
                # Facts from now on go to a new file.
                self._file.rename(self._file_being_merged)
        for run, facts in self._read_facts():
            mark = hash_canonical({"run": run, "facts": facts})
            # An earlier process may have ended after its merge was durable.
            if mark not in _list_merged_marks(tx, run):
                body = encode_canonical({**facts, "mark": mark})
                event = parse_event(events.LoggingFailed.kind, body)
                change_log.append_entry(tx, event, run=run)
        tx.after_commit(lambda: self._file_being_merged.unlink(missing_ok=True))

    @property
    def is_empty(self) -> bool:
        return not (self._file.exists() or self._file_being_merged.exists())

    def _read_facts(self) -> list[tuple[int, dict[str, Any]]]:
        if not self._file_being_merged.exists():
            return []
        found: list[tuple[int, dict[str, Any]]] = []
        for line in self._file_being_merged.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
                found.append((int(record["run"]), dict(record["facts"])))
            except (ValueError, KeyError, TypeError):
                continue
        return found


def _list_merged_marks(tx: Transaction, run: int) -> list[object]:
    kind = events.LoggingFailed.kind
    entries = change_log.list_entries_of_run(tx, run, [kind])
    return [entry.event.get_fact("mark") for entry in entries]
