"""The runs: saved, changed by compare-and-set, found again."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from sqlalchemy import Select, bindparam, insert, null, select, update

from bot.run import AT_WORK, Run, State, StepRecord, StepState, Vote, check_move
from bot.store import output, sights, tables, words
from bot.store.among import among, as_one
from bot.store.database import Transaction
from bot.store.requests import COLUMNS, NewRun, row_of
from bot.store.rote import Asked, Rote, rows_of_each
from bot.store.rows import run_of, terms_text

LISTED = [
    null().label("proposal") if column.name == "proposal" else column
    for column in tables.run.columns
]


# What every step of every run takes is put together once: that takes longer than to carry it out.
_NEW = insert(tables.run).values({name: bindparam(name) for name in COLUMNS})
_ADD = Rote(_NEW.returning(tables.run, null().label("report")))
_ADD_ALL = Rote(_NEW.returning(tables.run.c.id))


def _as_it_is(value: object) -> object:
    return value


# What changes of a run, by its name there: its column, and how it is written.
_WRITTEN: Mapping[str, tuple[str, Callable[[Any], object]]] = {
    **{name: (name, _as_it_is) for name in ("expires", "started", "ended", "digest", "needed")},
    **{name: (name, _as_it_is) for name in ("shown", "reminded", "escalated", "summary")},
    "unwell": ("unwell", _as_it_is),
    "proposal": ("proposal", lambda proposal: proposal.to_json() if proposal else None),
    "groups": ("groups", lambda groups: json.dumps(list(groups))),
    "says": ("says", lambda says: json.dumps(list(says), ensure_ascii=False)),
    "terms": ("terms", terms_text),
    "grant": ("grant_id", _as_it_is),
}


@cache
def _saving(names: frozenset[str]) -> Rote:
    """Return the statement that writes these: an index whose column is not named is left alone."""
    columns = ["version", "state", *(_WRITTEN[name][0] for name in sorted(names))]
    return Rote(
        update(tables.run)
        .where(
            tables.run.c.id == bindparam("of"),
            tables.run.c.version == bindparam("was_version"),
            tables.run.c.state == bindparam("was_state"),
        )
        .values({column: bindparam(column) for column in columns})
    )


_SENT = ("run", "n", "state", "sent", "trouble")


def _select() -> Select[Any]:
    """Select runs, each with its report, which lies apart."""
    return select(tables.run, output.text_of(tables.run.c.id, 0).label("report"))


_GET = Rote(_select().where(tables.run.c.id == bindparam("number")))
_HOLD = Rote(
    _select().where(tables.run.c.id == bindparam("number")).with_for_update(of=tables.run)
)
_CHILDREN = Rote(
    _select().where(tables.run.c.parent == bindparam("whole")).order_by(tables.run.c.id)
)
_LIST = among(
    select(*LISTED, null().label("report")).order_by(tables.run.c.id.desc()), tables.run.c.id
)
_VOTES_ON = among(select(tables.vote).order_by(tables.vote.c.at), tables.vote.c.run)
_VOTES = Rote(
    select(tables.vote).where(tables.vote.c.run == bindparam("of")).order_by(tables.vote.c.at)
)
_INTEND = Rote(insert(tables.step).values({name: bindparam(name) for name in _SENT}))
_CONCLUDE = Rote(
    update(tables.step)
    .where(tables.step.c.run == bindparam("of"), tables.step.c.n == bindparam("which"))
    .values({name: bindparam(name) for name in ("state", "ended", "status", "trouble")})
)
_STEPS = Rote(
    select(tables.step, output.text_of(tables.step.c.run, tables.step.c.n).label("output"))
    .where(tables.step.c.run == bindparam("of"))
    .order_by(tables.step.c.n)
)


_SUCCEEDED = Rote(
    select(tables.run.c.id)
    .where(
        tables.run.c.asked_by == bindparam("who"),
        tables.run.c.words == bindparam("what"),
        tables.run.c.state == State.SUCCEEDED.value,
        tables.run.c.undo_of.is_(None),
    )
    .limit(1)
)


# Of several hosts, an unknown whole follows from its hosts once they are settled.
_UNFINISHED = tables.run.c.state.in_([state.value for state in sorted(AT_WORK)]) | (
    (tables.run.c.state == State.UNKNOWN.value) & (tables.run.c.hosts != "[]")
)


class NoSuchRun(Exception):
    """There is no run with this number."""


class Overtaken(Exception):
    """Somebody else changed the run first; look at it again."""


def add(tx: Transaction, new: NewRun) -> Run:
    """Record a request."""
    return run_of(_added(tx, _ADD, [new])[0])


def add_all(tx: Transaction, new: Sequence[NewRun]) -> list[int]:
    """Record requests, by one journey; return their numbers in their order."""
    return [row.id for row in _added(tx, _ADD_ALL, new)]


def _added(tx: Transaction, adding: Rote, new: Sequence[NewRun]) -> Sequence[Any]:
    rows = [row_of(tx, one) for one in new]
    # SQLite has no journeys, and a statement that is half read cannot be used again.
    told = (
        [adding.rows(tx, **row) for row in rows]
        if tx.embedded
        else rows_of_each(tx, *(adding.asked(**row) for row in rows))
    )
    added = [row for [row] in told]
    words.keep_all(
        tx,
        {
            one.id: [*words.of_fields(each.fields), *words.words_of(row["reason"])]
            for one, each, row in zip(added, new, rows, strict=True)
        },
    )
    return added


def get(tx: Transaction, number: int) -> Run:
    """Return a run. One that may not be viewed is as one that does not exist: NoSuchRun."""
    row = _GET.row(tx, number=number)
    if row is None or not sights.visible(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    return run_of(row)


def hold(tx: Transaction, number: int) -> Run:
    """Return the run and keep others from changing it until this transaction ends."""
    row = _HOLD.row(tx, number=number)
    if row is None or not sights.visible(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    return run_of(row)


def move(tx: Transaction, run: Run, to: State, **changes: Any) -> Run:
    """Bring the run into another state, or raise IllegalMove or Overtaken and change nothing."""
    return move_all(tx, [(run, becoming(run, state=to, **changes))])[0]


def becoming(run: Run, **changes: Any) -> Run:
    """Return what a run is to become, to be moved or amended to."""
    return Run.of({**vars(run), "version": run.version + 1, **changes})


def move_all(tx: Transaction, moved: Sequence[tuple[Run, Run]]) -> list[Run]:
    """Do so with several, by one statement. moved: each as it was, and as it becomes."""
    for was, run in moved:
        check_move(was, run.state)
    return _save(tx, moved)


def amend(tx: Transaction, run: Run, **changes: Any) -> Run:
    """Change what is known of a run without moving it."""
    return _save(tx, [(run, becoming(run, **changes))])[0]


def _save(tx: Transaction, changed: Sequence[tuple[Run, Run]]) -> list[Run]:
    both = [(vars(was), vars(run)) for was, run in changed]
    # Nearly all of it is the very same, and a plan may be long.
    names = frozenset(
        [
            name
            for was, run in both
            for name in _WRITTEN
            if was[name] is not run[name] and was[name] != run[name]
        ]
    )
    rows = [_row(was, run, names) for was, run in changed]
    if "summary" in names:
        _tell_summaries(tx, changed, rows)
    if _saving(names).do_all(tx, rows) != len(rows):
        numbers = ", ".join(str(was.id) for was, _ in changed)
        raise Overtaken(f"run {numbers} was changed by somebody else at the same moment")
    for was, run in changed:
        if run.state is not was.state:
            tx.after_commit(partial(tx.moves.tell, run.id, run.state))
    return [run for _, run in changed]


def _tell_summaries(
    tx: Transaction, changed: Sequence[tuple[Run, Run]], rows: Sequence[dict[str, Any]]
) -> None:
    """Put into each row how the run ended, without secrets, and let it be found by that."""
    said = tx.redactor.texts([run.summary for _, run in changed])
    found: dict[int, list[str]] = {}
    for (was, run), row, summary in zip(changed, rows, said, strict=True):
        row["summary"] = _storable(summary)
        # What a report says as well is found by the words of that, which begin with it.
        if run.summary != was.summary and not (run.report and run.report.summary == run.summary):
            found[run.id] = words.words_of(summary)
    words.keep_all(tx, found)


def _row(was: Run, run: Run, names: Collection[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "of": was.id,
        "was_version": was.version,
        "was_state": was.state.value,
        "version": run.version,
        "state": run.state.value,
    }
    for name in names:
        column, written = _WRITTEN[name]
        row[column] = written(getattr(run, name))
    return row


def listed(tx: Transaction, numbers: Sequence[int]) -> list[Run]:
    """Return these runs, the newest first, without plans and reports: a list shows none."""
    return seen(tx, _LIST.rows(tx, wanted=as_one(tx, numbers)))


def seen(tx: Transaction, rows: Iterable[Any]) -> list[Run]:
    """Return the runs that may be viewed, in their order."""
    return _seen_runs(tx, [run_of(row) for row in rows])


def _seen_runs(tx: Transaction, found: list[Run]) -> list[Run]:
    if tx.sight is None:
        return found
    seen = sights.visible(tx, [run.id for run in found])
    return [run for run in found if run.id in seen]


def several(tx: Transaction, numbers: Sequence[int]) -> list[Run]:
    """Return these runs, the newest first, without their reports, which lie apart."""
    query = select(tables.run, null().label("report")).where(tables.run.c.id.in_(numbers))
    return seen(tx, tx.sql.execute(query.order_by(tables.run.c.id.desc())))


def novel(tx: Transaction, *, person: str, words: str) -> bool:
    """Say whether this person has never had this runbook succeed."""
    return _SUCCEEDED.row(tx, who=person, what=words) is None


def children(tx: Transaction, parent: int) -> list[Run]:
    """Return the runs of a request for several hosts, in the order of its hosts."""
    return seen(tx, _CHILDREN.rows(tx, whole=parent))


def hold_children(tx: Transaction, parent: int) -> list[Run]:
    """Return the parts of a request and keep others from changing them meanwhile."""
    query = _select().where(tables.run.c.parent == parent).order_by(tables.run.c.id)
    return [run_of(row) for row in tx.sql.execute(query.with_for_update(of=tables.run))]


def unfinished(tx: Transaction) -> list[Run]:
    """Return every run that somebody has still to work on, parents before their children."""
    query = _select().where(_UNFINISHED)
    return [run_of(row) for row in tx.sql.execute(query.order_by(tables.run.c.id))]


def to_move(tx: Transaction) -> list[Run]:
    """Return what `unfinished` does, without plans and reports: there may be thousands."""
    query = select(*LISTED, null().label("report")).where(_UNFINISHED)
    found = tx.sql.execute(query.order_by(tables.run.c.id))
    return _seen_runs(tx, [run_of(row) for row in found])


def unknown(tx: Transaction) -> list[Run]:
    """Return every run on one host whose end nobody saw."""
    query = _select().where(tables.run.c.state == State.UNKNOWN.value, tables.run.c.hosts == "[]")
    return seen(tx, tx.sql.execute(query.order_by(tables.run.c.id)))


def waiting(tx: Transaction) -> list[Run]:
    """Return every request that waits for approvals."""
    query = _select().where(
        tables.run.c.state == State.WAITING.value, tables.run.c.parent.is_(None)
    )
    return seen(tx, tx.sql.execute(query.order_by(tables.run.c.id)))


def due_to_expire(tx: Transaction) -> list[Run]:
    """Return what waited too long; of a part of a request, only for its turn on the host."""
    waiting = [State.OFFERED.value, State.WAITING.value, State.READY.value]
    query = _select().where(
        tables.run.c.state.in_(waiting),
        tables.run.c.expires <= tx.now,
        tables.run.c.parent.is_(None) | (tables.run.c.state == State.READY.value),
    )
    return [run_of(row) for row in tx.sql.execute(query)]


def open_proposals(tx: Transaction, number: int) -> list[int]:
    """Return the counter-proposals for a run that its requester can accept now."""
    column = tables.run.c
    query = select(column.id).where(
        column.state == State.OFFERED.value, column.counters == number, column.expires > tx.now
    )
    return list(tx.sql.execute(query.order_by(column.id)).scalars())


def overtaken_proposals(tx: Transaction) -> list[int]:
    """Return the open counter-proposals whose original request is no longer pending."""
    column, original = tables.run.c, tables.run.alias("original")
    query = (
        select(column.id)
        .join(original, column.counters == original.c.id)
        .where(column.state == State.OFFERED.value, original.c.state != State.WAITING.value)
    )
    return list(tx.sql.execute(query.order_by(column.id)).scalars())


def cast(tx: Transaction, vote: Vote) -> bool:
    """Record a person's only vote on a run; False if that person has voted before."""
    return tx.insert_once(
        tables.vote,
        run=vote.run,
        person=vote.person,
        yes=vote.yes,
        digest=vote.digest,
        at=vote.at,
        instead_of=vote.instead_of,
        reason=tx.redactor.text(vote.reason),
        factor=vote.factor,
    )


def cast_again(tx: Transaction, vote: Vote) -> None:
    """Put a person's yes with a second factor in the place of the one without."""
    column = tables.vote.c
    tx.sql.execute(
        update(tables.vote)
        .where(column.run == vote.run, column.person == vote.person, column.yes)
        .values(
            at=vote.at,
            digest=vote.digest,
            instead_of=vote.instead_of,
            reason=tx.redactor.text(vote.reason),
            factor=vote.factor,
        )
    )


def votes(tx: Transaction, run: int) -> list[Vote]:
    return [Vote(**row._asdict()) for row in _VOTES.rows(tx, of=run)]


def votes_on(tx: Transaction, numbers: Sequence[int]) -> dict[int, list[Vote]]:
    """Return the votes on several runs at once, by run; a run without votes is left out."""
    return votes_found(_VOTES_ON.rows(tx, wanted=as_one(tx, numbers)))


def votes_asked(tx: Transaction, numbers: Sequence[int]) -> Asked:
    """Return what to ask for the votes on several runs, beside other things."""
    return _VOTES_ON.asked(wanted=as_one(tx, numbers))


def votes_found(rows: Sequence[Any]) -> dict[int, list[Vote]]:
    """Return the votes that were asked for, by run."""
    found: dict[int, list[Vote]] = {}
    for row in rows:
        found.setdefault(row.run, []).append(Vote(*row))
    return found


def intend(tx: Transaction, run: int, n: int) -> None:
    """Write down that step *n* is about to be sent. Committed before it is."""
    _INTEND.tell(tx, run=run, n=n, state=StepState.INTENT.value, sent=tx.now, trouble="")


def conclude(tx: Transaction, record: StepRecord) -> None:
    """Write down what became of a step."""
    _CONCLUDE.tell(
        tx,
        of=record.run,
        which=record.n,
        state=record.state.value,
        ended=record.ended,
        status=record.status,
        trouble=_storable(tx.redactor.text(record.trouble)),
    )


def _storable(text: str) -> str:
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    return text.replace("\0", "\\x00")


def steps(tx: Transaction, run: int) -> Sequence[StepRecord]:
    """Return what became of the steps of a run that were sent."""
    if not sights.visible(tx, [run]):
        return []
    return [
        StepRecord(
            *(row.run, row.n, StepState(row.state), row.sent, row.ended, row.status),
            *(row.output or "", row.trouble),
        )
        for row in _STEPS.rows(tx, of=run)
    ]


def steps_of_all(tx: Transaction, parent: int) -> Sequence[StepRecord]:
    """Return the steps of every host, numbered as in the plan of the whole request."""
    found: list[StepRecord] = []
    before = 0
    for child in children(tx, parent):
        found += [replace(step, n=before + step.n) for step in steps(tx, child.id)]
        before += len(child.proposal.steps) if child.proposal else 0
    return found
