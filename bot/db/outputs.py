"""Output: what hosts returned, stored outside the change log, whose entries hold its hash.

So output can be erased for good while the log still verifies. The hash is salted, and the salt is
erased along with the text, so the text cannot be guessed from the hash.
"""

import json
import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, insert, select, update

from bot.db import live_output, search_words, tables
from bot.db.database import Transaction
from bot.db.runs import REPORT
from bot.model.canonical import hash_canonical
from runbooks import Report

MAX_CHARACTERS = 64 * 1024
MAX_REPORT_CHARACTERS = 256 * 1024


@dataclass(frozen=True)
class PreparedOutput:
    """Output ready to be stored: redacted and capped."""

    text: str
    salt: str

    @property
    def sha256(self) -> str:
        """The hash for the entry."""
        return hash_with_salt(self.salt, self.text)


def hash_with_salt(salt: str, text: str) -> str:
    """Return the SHA-256 of the canonical JSON of salt and text."""
    return hash_canonical({"salt": salt, "text": text})


def prepare_output(tx: Transaction, text: str) -> PreparedOutput:
    """Redact the secrets, then cap the length, so that no secret is cut in half."""
    kept = tx.redactor.redact_for_storage(text)
    left_out = len(kept) - MAX_CHARACTERS
    if left_out > 0:
        kept = f"{kept[:MAX_CHARACTERS]}\n[… {left_out} characters are left out here …]"
    return PreparedOutput(kept, secrets.token_hex(16))


def prepare_report(tx: Transaction, report: Report) -> PreparedOutput:
    """Redact a report, and cut off the end of its table if it is too long."""
    clean = _redact_report(tx, report)
    own_findings = clean.findings
    while len(text := REPORT.dump_json(clean).decode()) > MAX_REPORT_CHARACTERS and clean.table:
        rows = clean.table.rows[: len(clean.table.rows) // 2]
        note = f"Only the first {len(rows)} rows are kept"
        table = replace(clean.table, rows=rows) if rows else None
        clean = replace(clean, table=table, findings=[*own_findings, note])
    return PreparedOutput(text, secrets.token_hex(16))


def prepare_reports(tx: Transaction, reports: Sequence[Report]) -> list[PreparedOutput]:
    """Prepare several reports. One search for secrets in all of them together is faster."""
    texts = [REPORT.dump_json(one).decode() for one in reports]
    if tx.redactor.has_secret("\n".join(texts)) or any(
        len(text) > MAX_REPORT_CHARACTERS for text in texts
    ):
        return [prepare_report(tx, one) for one in reports]
    return [PreparedOutput(text, secrets.token_hex(16)) for text in texts]


def store_outputs(
    tx: Transaction, step_number: int, outputs: Sequence[tuple[int, int, PreparedOutput]]
) -> None:
    """Store outputs, each with the entry that binds it and its run. step_number: 0 for reports."""
    if not outputs:
        return
    tx.sql.execute(
        insert(tables.output),
        [
            {
                "entry": entry,
                "run": run,
                "step_number": step_number,
                "salt": prepared.salt,
                "text": prepared.text,
            }
            for entry, run, prepared in outputs
        ],
    )
    search_words.store_words(
        tx, {run: _split_into_words(step_number, one.text) for _, run, one in outputs}
    )


def parse_report(text: str) -> Report:
    """Parse a stored report."""
    return REPORT.validate_json(text)


@dataclass(frozen=True)
class StoredOutput:
    """Output that is not erased."""

    entry_seq: int
    """The number of the entry that binds it."""
    run_id: int
    step_number: int
    """0 for a report."""
    text: str


def list_stored_output(tx: Transaction, run: int) -> list[StoredOutput]:
    """Return the output of a run that is not erased, in the order of the log."""
    return _list_stored(tx, tables.output.c.run == run)


def erase_output(tx: Transaction, run: int) -> list[int]:
    """Erase the output of a run; return the numbers of the entries that bind it."""
    live_output.delete_lines(tx, run)
    return _erase(tx, list_stored_output(tx, run))


def erase_expired_output(tx: Transaction, *, after: int, until: int, limit: int) -> int:
    """Erase output that entries in this range bind, at most *limit*; return how many."""
    entry = tables.output.c.entry
    return len(_erase(tx, _list_stored(tx, entry > after, entry <= until, limit=limit)))


def _list_stored(
    tx: Transaction, *conditions: ColumnElement[bool], limit: int | None = None
) -> list[StoredOutput]:
    found = tables.output.c
    query = select(found.entry, found.run, found.step_number, found.text)
    query = query.where(*conditions, found.text.is_not(None)).order_by(found.entry).limit(limit)
    return [StoredOutput(*row) for row in tx.sql.execute(query)]


def _erase(tx: Transaction, stored: Sequence[StoredOutput]) -> list[int]:
    words: dict[int, list[str]] = {}
    for one in stored:
        words.setdefault(one.run_id, []).extend(_split_into_words(one.step_number, one.text))
    for run, its_words in words.items():
        search_words.delete_words(tx, run, its_words)
    entries = [one.entry_seq for one in stored]
    erased = update(tables.output).where(tables.output.c.entry.in_(entries))
    tx.sql.execute(erased.values(salt=None, text=None))
    return entries


def iterate_all_output(tx: Transaction) -> Generator[tuple[int, str | None, str | None]]:
    """Yield entry number, salt and text of all output in the order of the log; None if erased."""
    found = tables.output.c
    query = select(found.entry, found.salt, found.text).order_by(found.entry)
    with tx.sql.execute(query.execution_options(yield_per=1000)) as rows:
        for row in rows:
            yield row.entry, row.salt, row.text


def _split_into_words(step_number: int, text: str) -> list[str]:
    return (
        search_words.split_search_words(text)
        if step_number
        else search_words.split_json_into_words(text)
    )


def _redact_report(tx: Transaction, report: Report) -> Report:
    text = REPORT.dump_json(report).decode()
    if not tx.redactor.has_secret(text):
        return report
    return REPORT.validate_json(json.dumps(tx.redactor.redact_value(json.loads(text))))
