"""Output: what hosts returned, stored outside the change log, whose entries hold its hash.

So output can be erased for good while the log still verifies. The hash is salted, and the salt is
erased along with the text, so the text cannot be guessed from the hash.
"""

import json
import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy import exists, insert, select, update

from bot.audit import change_log, events, inclusion
from bot.audit.change_log import Entry
from bot.db import live_output, search_words, tables
from bot.db.database import Transaction
from bot.db.runs import REPORT
from bot.model.canonical import hash_canonical
from bot.model.progress import ReportProgress, ignore_progress, iterate_with_progress
from runbooks import Report

MAX_CHARACTERS = 64 * 1024
MAX_REPORT_CHARACTERS = 256 * 1024

# JSON writes a quote in a text as \", so only an entry that binds output contains this.
BINDING_MARK = '"output_sha256":"'


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


def store_output(
    tx: Transaction, entry: Entry, step_number: int, prepared: PreparedOutput
) -> None:
    """Store the output that an entry binds. step_number: 0 for a report."""
    store_outputs(tx, step_number, [(entry, prepared)])


def store_outputs(
    tx: Transaction, step_number: int, outputs: Sequence[tuple[Entry, PreparedOutput]]
) -> None:
    """Store the outputs that entries bind. step_number: 0 for reports."""
    if not outputs:
        return
    tx.sql.execute(
        insert(tables.output),
        [
            {
                "entry": entry.seq,
                "run": entry.run,
                "step_number": step_number,
                "salt": prepared.salt,
                "text": prepared.text,
            }
            for entry, prepared in outputs
        ],
    )
    texts = [(entry.run, prepared.text) for entry, prepared in outputs if entry.run is not None]
    search_words.store_words(
        tx, {run: _split_into_words(step_number, text) for run, text in texts}
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
    found = tables.output.c
    query = select(found.entry, found.run, found.step_number, found.text)
    query = query.where(found.run == run, found.text.is_not(None)).order_by(found.entry)
    return [
        StoredOutput(row.entry, row.run, row.step_number, row.text)
        for row in tx.sql.execute(query)
    ]


def erase_output(tx: Transaction, run: int) -> list[int]:
    """Erase the output of a run; return the numbers of the entries that bind it."""
    stored = list_stored_output(tx, run)
    live_output.delete_lines(tx, run)
    search_words.delete_words(
        tx, run, [word for one in stored for word in _split_into_words(one.step_number, one.text)]
    )
    tx.sql.execute(
        update(tables.output).where(tables.output.c.run == run).values(salt=None, text=None)
    )
    return [one.entry_seq for one in stored]


def erase_expired_output(tx: Transaction, *, after: int, until: int, limit: int) -> int:
    """Erase output that entries in this range bind, at most *limit*; return how many."""
    found = tables.output.c
    query = select(found.entry, found.run, found.step_number, found.text)
    query = query.where(found.entry > after, found.entry <= until, found.text.is_not(None))
    rows = tx.sql.execute(query.order_by(found.entry).limit(limit)).all()
    for row in rows:
        search_words.delete_words(tx, row.run, _split_into_words(row.step_number, row.text))
    erased = update(tables.output).where(found.entry.in_([row.entry for row in rows]))
    tx.sql.execute(erased.values(salt=None, text=None))
    return len(rows)


def list_expirations(tx: Transaction) -> list[tuple[int, int]]:
    """Return up to which entry output has expired, and since when: the last two, newest first."""
    found = islice(change_log.list_entries_since(tx, events.OutputExpired.kind, 0), 2)
    return [
        (event.until, entry.at)
        for entry in inclusion.list_vouched_entries(tx, found)
        if isinstance(event := entry.event, events.OutputExpired)
    ]


def get_expired_until(tx: Transaction) -> int:
    """Return up to which entry the log permits that output is missing because of its age."""
    return max((until for until, _ in list_expirations(tx)), default=0)


def iterate_all_output(tx: Transaction) -> Generator[tuple[int, str | None, str | None]]:
    """Yield entry number, salt and text of all output in the order of the log; None if erased."""
    found = tables.output.c
    query = select(found.entry, found.salt, found.text).order_by(found.entry)
    with tx.sql.execute(query.execution_options(yield_per=1000)) as rows:
        for row in rows:
            yield row.entry, row.salt, row.text


def iterate_output_faults(
    tx: Transaction, bound_count: int, report_progress: ReportProgress = ignore_progress
) -> Generator[tuple[int, str]]:
    """Yield the entries whose output does not have its hash, each with what is wrong.

    bound_count: how many entries bind output.
    """
    of_entry, kept = tables.entry.c, tables.output.c
    is_erasure = of_entry.kind == events.OutputErased.kind
    erased = set(tx.sql.execute(select(of_entry.run).where(is_erasure)).scalars())
    both = select(kept.entry, kept.salt, kept.text, of_entry.run, of_entry.body).join_from(
        tables.output, tables.entry
    )
    expired, count = get_expired_until(tx), 0
    with tx.sql.execute(both.order_by(kept.entry).execution_options(yield_per=1000)) as rows:
        for row in iterate_with_progress(rows, report_progress):
            count += 1
            if row.text is None:
                is_recorded = row.run in erased or row.entry <= expired
                if not is_recorded or BINDING_MARK not in row.body:
                    yield (
                        row.entry,
                        f"the output that entry {row.entry} binds was erased without a request",
                    )
            elif hash_with_salt(row.salt or "", row.text) != json.loads(row.body).get(
                "output_sha256"
            ):
                yield row.entry, f"the output that entry {row.entry} binds was altered"
    if count == bound_count:
        return
    binds = of_entry.body.contains(BINDING_MARK, autoescape=True)
    stored = exists().where(kept.entry == of_entry.seq)
    missing = select(of_entry.seq).where(binds, ~stored).order_by(of_entry.seq).limit(1)
    for seq in tx.sql.execute(missing).scalars():
        yield seq, f"the output that entry {seq} binds is missing"


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
