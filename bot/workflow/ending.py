"""How a run ends: its state, its lock, the log and whoever waits for the host, in one go."""

from bot import trail
from bot.digest import Canonical
from bot.run import BEFORE_INTENT, Run, State
from bot.store import changelog, locks, news, output, runs
from bot.store.database import Transaction
from bot.workflow.parts import Parts, site_of


def end(
    parts: Parts,
    tx: Transaction,
    run: Run,
    state: State,
    summary: str,
    *,
    person: str = "",
) -> Run:
    """Bring *run* to its end. An unknown one keeps its lock: nobody knows what still runs."""
    # Its parts are held before the log is: who ends a part holds that first, and then the log.
    children = runs.hold_children(tx, run.id) if run.hosts else []
    ended = runs.move(tx, run, state, ended=tx.now, summary=summary)
    facts: dict[str, Canonical] = {"summary": summary}
    told = output.prepared_report(tx, ended.report) if ended.report and run.ended is None else None
    if told is not None:
        facts["output_sha256"] = told.sha256
    entry = changelog.append(tx, state.value, run=run.id, person=person, host=run.host, **facts)
    if told is not None:
        output.keep(tx, entry, 0, told)
    # Who only looks has never held a host.
    if state is not State.UNKNOWN and run.kind != "check":
        free(parts, tx, run)
    announce(tx, run)
    if run.parent is not None and tx.first(("advance", run.parent)):
        parts.dispatch.enqueue(tx, run.parent, site_of(parts, run.host))
    for child in children:
        if child.state in BEFORE_INTENT:
            end(parts, tx, child, State.WITHDRAWN, f"The whole request is {state}")
    return ended


def announce(tx: Transaction, run: Run) -> None:
    """Say that there is news: of several hosts, the whole request is what people look at."""
    whole = run.id if run.parent is None else run.parent
    trail.note(run=whole)
    if tx.first(("news", whole)):
        news.announce(tx, whole)


def free(parts: Parts, tx: Transaction, run: Run) -> None:
    """Give up the run's lock and wake the next run that waits for the host."""
    locks.release(tx, run.id)
    waiting = locks.next_in_line(tx, run.host)
    if waiting is not None and waiting.id != run.id:
        parts.dispatch.enqueue(tx, waiting.id, site_of(parts, waiting.host))
