"""Whether stored output is what the change log says: entries hold its hash, or its erasure."""

from collections.abc import Generator
from itertools import islice

from sqlalchemy import exists, select

from bot.audit import change_log, events, inclusion
from bot.audit.event_type import parse_facts
from bot.db import outputs, tables
from bot.db.database import Transaction
from bot.model.progress import ReportProgress, ignore_progress, iterate_with_progress

# JSON writes a quote in a text as \", so only an entry that binds output contains this.
BINDING_MARK = '"output_sha256":"'


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


def check_outputs(
    tx: Transaction,
    bound_count: int,
    report_progress: ReportProgress = ignore_progress,
    *,
    run: int | None = None,
) -> Generator[tuple[int, str, bool]]:
    """Yield each output: its entry, what is wrong with it or "", and whether it was erased.

    bound_count: how many entries bind output. run: only that of this run.
    """
    of_entry, kept = tables.entry.c, tables.output.c
    ours = [] if run is None else [kept.run == run]
    of_run = [] if run is None else [of_entry.run == run]
    columns = (kept.entry, kept.salt, kept.text, kept.run, of_entry.body)
    both = select(*columns, of_entry.run.label("bound_by")).where(*ours)
    both = both.join_from(tables.output, tables.entry).order_by(kept.entry)
    is_erasure = of_entry.kind == events.OutputErased.kind
    erased = set(tx.sql.execute(select(of_entry.run).where(is_erasure, *of_run)).scalars())
    expired, count = get_expired_until(tx), 0
    with tx.sql.execute(both.execution_options(yield_per=1000)) as rows:
        for row in iterate_with_progress(rows, report_progress):
            why = ""
            if row.run != row.bound_by:
                yield row.entry, _describe(row.entry, "is kept for another run"), False
                continue
            count += 1
            if row.text is None:
                is_recorded = row.run in erased or row.entry <= expired
                if not is_recorded or BINDING_MARK not in row.body:
                    why = "was erased without a request"
            elif outputs.hash_with_salt(row.salt or "", row.text) != parse_facts(row.body).get(
                "output_sha256"
            ):
                why = "was altered"
            yield row.entry, why and _describe(row.entry, why), row.text is None
    if count == bound_count:
        return
    binds = of_entry.body.contains(BINDING_MARK, autoescape=True)
    stored = exists().where(kept.entry == of_entry.seq, *ours)
    missing = select(of_entry.seq).where(binds, ~stored, *of_run).order_by(of_entry.seq)
    for seq in tx.sql.execute(missing).scalars():
        yield seq, _describe(seq, "is missing"), False


def _describe(seq: int, what: str) -> str:
    return f"the output that entry {seq} binds {what}"
