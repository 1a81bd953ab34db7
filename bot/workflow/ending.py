"""How a run ends: its state, its lock, the log and whoever waits for the host, in one go."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot import trail
from bot.digest import Canonical
from bot.run import AT_WORK, BEFORE_INTENT, Run, State
from bot.store import changelog, kin, locks, news, output, runs
from bot.store.changelog import Draft
from bot.store.database import Transaction
from bot.workflow.parts import Parts, site_of
from runbooks import Report


@dataclass(frozen=True)
class Ending:
    """A run, and what it comes to. person: whose doing that is. report: of a check."""

    run: Run
    state: State
    summary: str
    person: str = ""
    report: Report | None = None


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
    return end_all(parts, tx, [Ending(run, state, summary, person)])[0]


def end_all(parts: Parts, tx: Transaction, endings: Sequence[Ending]) -> list[Run]:
    """Bring several to their ends, by as few statements as one takes."""
    # Its parts are held before the log is: who ends a part holds that first, and then the log.
    wholes = [ending.run.id for ending in endings if ending.run.hosts]
    left = {number: kin.hold_parts_in(tx, number, BEFORE_INTENT) for number in wholes}
    ended = runs.move_all(tx, [(one.run, _ended(tx, one)) for one in endings])
    _log(tx, endings)
    for ending, run in zip(endings, ended, strict=True):
        # Who only looks has never held a host.
        if ending.state is not State.UNKNOWN and run.kind != "check":
            free(parts, tx, run)
        announce(tx, run)
        for child in left.get(run.id, ()):
            end(parts, tx, child, State.WITHDRAWN, f"The whole request is {ending.state}")
    last = {run.parent: run for run in ended}
    for whole, run in last.items():
        if whole is not None:
            _wake(parts, tx, whole, run)
    return ended


def _wake(parts: Parts, tx: Transaction, whole: int, part: Run) -> None:
    """Have the whole request looked at where this was its last part that was at work.

    Of two that end at the same moment, the one that writes into the log later sees the other's
    end: the log is held from an entry to the commit.
    """
    if not kin.any_in(tx, whole, AT_WORK) and tx.first(("advance", whole)):
        parts.dispatch.enqueue(tx, whole, site_of(parts, part.host))


def _ended(tx: Transaction, ending: Ending) -> Run:
    run, report = ending.run, ending.report
    started = run.asked if report else run.started
    return runs.becoming(
        run,
        state=ending.state,
        started=started,
        ended=tx.now,
        summary=ending.summary,
        unwell=not report.healthy if report else run.unwell,
        report=report or run.report,
    )


def _log(tx: Transaction, endings: Sequence[Ending]) -> None:
    """Write down how they ended, and keep what their hosts said if that is told now."""
    telling = {one.run.id: one.report for one in endings if one.report}
    said = dict(zip(telling, output.prepared_reports(tx, [*telling.values()]), strict=True))
    drafts: list[Draft] = []
    for one in endings:
        facts: dict[str, Canonical] = {"summary": one.summary}
        if one.report:
            facts["healthy"] = one.report.healthy
            facts["output_sha256"] = said[one.run.id].sha256
        drafts.append(Draft(one.state.value, one.run.id, one.person, one.run.host, facts))
    entries = changelog.append_many(tx, drafts)
    bound = [(one, said[one.run]) for one in entries if one.run in said]
    output.keep_all(tx, 0, bound)


def announce(tx: Transaction, run: Run) -> None:
    """Say that there is news: of several hosts, the whole request is what people look at."""
    whole = run.id if run.parent is None else run.parent
    trail.note(run=whole)
    # The card of a request names the proposals for it.
    for number in (whole, run.counters):
        if number is not None and tx.first(("news", number)):
            news.announce(tx, number)


def free(parts: Parts, tx: Transaction, run: Run) -> None:
    """Give up the run's lock and wake the next run that waits for the host."""
    locks.release(tx, run.id)
    waiting = locks.next_in_line(tx, run.host)
    if waiting is not None and waiting.id != run.id:
        parts.dispatch.enqueue(tx, waiting.id, site_of(parts, waiting.host))
