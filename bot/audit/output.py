"""Output: what hosts answered, kept apart from the change log, which binds it by its hash.

So it can be erased for good, and the chain still verifies. The hash is salted, and the salt is
erased along with the text: what was said cannot be guessed from what is left.
"""

import json
import secrets
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import exists, insert, select, update

from bot.audit.change_log import Entry
from bot.db import live_output, search_words, tables
from bot.db.database import Transaction
from bot.db.runs import REPORT
from bot.model.canonical import hash_canonical
from bot.model.progress import ReportProgress, ignore_progress, iterate_with_progress
from runbooks import Report

MAX_CHARACTERS = 64 * 1024
MAX_REPORT_CHARACTERS = 256 * 1024
ERASED_KIND = "output erased"

# A quote within a text is written as \" in JSON: only an entry that binds has these letters.
BINDING_MARK = '"output_sha256":"'


@dataclass(frozen=True)
class PreparedOutput:
    """Text that is fit to be kept: redacted and capped. sha256: what an entry binds it by."""

    text: str
    salt: str

    @property
    def sha256(self) -> str:
        return hash_with_salt(self.salt, self.text)


def hash_with_salt(salt: str, text: str) -> str:
    """Return the SHA-256 of the canonical JSON of both."""
    return hash_canonical({"salt": salt, "text": text})


def prepare_output(tx: Transaction, text: str) -> PreparedOutput:
    """Take out what is secret, then cap it: a cut must not halve a secret."""
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    said = tx.redactor.redact_text(text).replace("\0", "\\x00")
    left_out = len(said) - MAX_CHARACTERS
    if left_out > 0:
        said = f"{said[:MAX_CHARACTERS]}\n[… {left_out} characters are left out here …]"
    return PreparedOutput(said, secrets.token_hex(16))


def prepare_report(tx: Transaction, report: Report) -> PreparedOutput:
    """Do so with a report: of one that is too long, the end of its table is left out."""
    clean = _redact_report(tx, report)
    while len(text := REPORT.dump_json(clean).decode()) > MAX_REPORT_CHARACTERS and clean.table:
        rows = clean.table.rows[: len(clean.table.rows) // 2]
        note = f"Only the first {len(rows)} rows are kept"
        findings = [*[f for f in clean.findings if not f.startswith("Only the first ")], note]
        table = replace(clean.table, rows=rows) if rows else None
        clean = replace(clean, table=table, findings=findings)
    return PreparedOutput(text, secrets.token_hex(16))


def prepare_reports(tx: Transaction, reports: Sequence[Report]) -> list[PreparedOutput]:
    """Do so with several: what holds nothing secret as a whole does so in none of its parts."""
    texts = [REPORT.dump_json(one).decode() for one in reports]
    if tx.redactor.has_secret("\n".join(texts)) or any(
        len(text) > MAX_REPORT_CHARACTERS for text in texts
    ):
        return [prepare_report(tx, one) for one in reports]
    return [PreparedOutput(text, secrets.token_hex(16)) for text in texts]


def store_output(
    tx: Transaction, entry: Entry, step_number: int, prepared: PreparedOutput
) -> None:
    """Keep what *entry* binds. n: the step; 0 for a report."""
    store_outputs(tx, step_number, [(entry, prepared)])


def store_outputs(
    tx: Transaction, step_number: int, outputs: Sequence[tuple[Entry, PreparedOutput]]
) -> None:
    """Keep what each of the entries binds."""
    if not outputs:
        return
    tx.sql.execute(
        insert(tables.output),
        [
            {
                "entry": entry.seq,
                "run": entry.run,
                "step_number": step_number,
                "salt": said.salt,
                "text": said.text,
            }
            for entry, said in outputs
        ],
    )
    about = [(entry.run, said.text) for entry, said in outputs if entry.run is not None]
    search_words.store_words(
        tx, {run: _split_into_words(step_number, text) for run, text in about}
    )


def parse_report(text: str) -> Report:
    """Read a report as it is kept."""
    return REPORT.validate_json(text)


@dataclass(frozen=True)
class StoredOutput:
    """Output that is still there. entry: the one that binds it. n: the step; 0 for a report."""

    entry_seq: int
    run_id: int
    step_number: int
    text: str


def list_stored_output(tx: Transaction, run: int) -> list[StoredOutput]:
    """Return the output of a run that is still there, in the order of the log."""
    found = tables.output.c
    query = select(found.entry, found.run, found.step_number, found.text)
    query = query.where(found.run == run, found.text.is_not(None)).order_by(found.entry)
    return [
        StoredOutput(row.entry, row.run, row.step_number, row.text)
        for row in tx.sql.execute(query)
    ]


def erase_output(tx: Transaction, run: int) -> list[int]:
    """Erase what the hosts answered in a run; return the entries that bound it."""
    there = list_stored_output(tx, run)
    live_output.delete_lines(tx, run)
    search_words.delete_words(
        tx, run, [word for one in there for word in _split_into_words(one.step_number, one.text)]
    )
    tx.sql.execute(
        update(tables.output).where(tables.output.c.run == run).values(salt=None, text=None)
    )
    return [one.entry_seq for one in there]


def iterate_all_output(tx: Transaction) -> Generator[tuple[int, str | None, str | None]]:
    """Yield entry, salt and text of all that is bound by an entry, in their order."""
    found = tables.output.c
    query = select(found.entry, found.salt, found.text).order_by(found.entry)
    with tx.sql.execute(query.execution_options(yield_per=1000)) as rows:
        for row in rows:
            yield row.entry, row.salt, row.text


def iterate_output_faults(
    tx: Transaction, bound_count: int, report_progress: ReportProgress = ignore_progress
) -> Generator[tuple[int, str]]:
    """Yield the entries whose output is not what they bind, each with what is wrong.

    bound: how many entries bind output.
    """
    of_entry, kept = tables.entry.c, tables.output.c
    erased = set(
        tx.sql.execute(select(of_entry.run).where(of_entry.kind == ERASED_KIND)).scalars()
    )
    both = select(kept.entry, kept.salt, kept.text, of_entry.run, of_entry.body).join_from(
        tables.output, tables.entry
    )
    count = 0
    with tx.sql.execute(both.order_by(kept.entry).execution_options(yield_per=1000)) as rows:
        for row in iterate_with_progress(rows, report_progress):
            count += 1
            if row.text is None:
                if row.run not in erased or BINDING_MARK not in row.body:
                    yield row.entry, f"the output that entry {row.entry} binds was erased unasked"
            elif hash_with_salt(row.salt or "", row.text) != json.loads(row.body).get(
                "output_sha256"
            ):
                yield row.entry, f"the output that entry {row.entry} binds was altered"
    if count == bound_count:
        return
    binds = of_entry.body.contains(BINDING_MARK, autoescape=True)
    there = exists().where(kept.entry == of_entry.seq)
    missing = select(of_entry.seq).where(binds, ~there).order_by(of_entry.seq).limit(1)
    for seq in tx.sql.execute(missing).scalars():
        yield seq, f"the output that entry {seq} binds is missing"


def _split_into_words(step_number: int, text: str) -> list[str]:
    return (
        search_words.split_search_words(text) if step_number else search_words.words_of_json(text)
    )


def _redact_report(tx: Transaction, report: Report) -> Report:
    text = REPORT.dump_json(report).decode()
    if not tx.redactor.has_secret(text):
        return report
    return REPORT.validate_json(json.dumps(tx.redactor.redact_value(json.loads(text))))
