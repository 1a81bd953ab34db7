"""The spool: what became of a step while the change log could not be written.

A file beside the database, added to and synced at once; merged into the log once that can be
written again, also by a later process.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bot.audit import change_log
from bot.db.database import Transaction
from bot.model.canonical import Canonical, encode_canonical, hash_canonical

LOGGING_FAILED_KIND = "logging failed"


class Spool:
    """file: may be missing: then there is nothing to merge."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file_being_merged = file.with_name(f"{file.name}.taken")

    def add_facts(self, run_id: int, facts: Mapping[str, Canonical]) -> None:
        """Write down what is known of a run. Raises OSError if even that is not possible."""
        line = encode_canonical({"run": run_id, "facts": facts})
        with self._file.open("a") as out:
            # A line that a crash cut short is ended first.
            out.write(f"\n{line}\n")
            out.flush()
            os.fsync(out.fileno())

    def merge_into_log(self, tx: Transaction) -> None:
        """Add what was noted to the log; forget it once that is durable."""
        if not self._file_being_merged.exists():
            with suppress(FileNotFoundError):
                # What is noted from now on begins another file.
                self._file.rename(self._file_being_merged)
        noted = self._read_facts()
        for run, facts in noted:
            mark = hash_canonical({"run": run, "facts": facts})
            # An earlier merge may have been durable just before its process ended.
            if not any(mark == entry.facts.get("mark") for entry in _list_merged_entries(tx, run)):
                change_log.append_entry(tx, LOGGING_FAILED_KIND, run=run, mark=mark, **facts)
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
                noted = json.loads(line)
                found.append((int(noted["run"]), dict(noted["facts"])))
            except (ValueError, KeyError, TypeError):
                continue
        return found


def _list_merged_entries(tx: Transaction, run: int) -> list[change_log.Entry]:
    return [
        entry
        for entry in change_log.list_entries_of_run(tx, run)
        if entry.kind == LOGGING_FAILED_KIND
    ]
