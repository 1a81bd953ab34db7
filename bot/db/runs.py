"""Runs, their votes and steps: stored, changed by compare-and-set, found again."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Executable,
    ScalarSelect,
    Select,
    Update,
    bindparam,
    insert,
    null,
    or_,
    select,
    update,
)

from bot.db import search_words, tables, view_conditions
from bot.db.database import Transaction
from bot.db.tables import CHILD, PARENT, SINGLE
from bot.model.approvals import ApprovalRequirements
from bot.model.canonical import encode_canonical
from bot.model.plan import ResolvedPlan
from bot.model.run import (
    ACTIVE_STATES,
    Decision,
    RequestOrigin,
    Run,
    State,
    StepRecord,
    StepState,
    check_transition,
)
from bot.model.schedule import ScheduleTiming
from runbooks import Report

REPORT = TypeAdapter(Report)
_ORIGIN = TypeAdapter(RequestOrigin)
_TERMS = TypeAdapter(ApprovalRequirements).dump_json(ApprovalRequirements()).decode()
# The number is given by the database.
COLUMNS = tuple(column.name for column in tables.run.columns if column.name != "id")


@dataclass(frozen=True)
class NewRun:
    """A request that is not recorded yet."""

    runbook: str
    kind: str
    values: Mapping[str, str]
    host: str
    area: str
    requested_by: str
    origin: RequestOrigin
    reason: str = ""
    undo_of: int | None = None
    request: str = ""
    parent: int | None = None
    hosts: Sequence[str] = ()
    editors: Sequence[str] = ()
    proposal_for: int | None = None
    timing: ScheduleTiming | None = None
    guard_override: str = ""


@lru_cache(1024)
def _origin_text(origin: RequestOrigin) -> str:
    return _ORIGIN.dump_json(origin).decode()


def new_run_row(tx: Transaction, new: NewRun) -> dict[str, Any]:
    """Return the columns of a run that was just asked for."""
    return {
        **dict.fromkeys(COLUMNS),
        "version": 1,
        "state": State.PLANNING.value,
        "runbook": new.runbook,
        "kind": new.kind,
        "field_values": encode_canonical(new.values),
        "request": new.request,
        "host": new.host,
        "area": new.area,
        "requested_by": new.requested_by,
        "origin": _origin_text(new.origin),
        "reason": tx.redactor.redact_text(new.reason),
        "requested_at": tx.now,
        "digest": "",
        "required_approvals": 0,
        "approver_groups": "[]",
        "policy_notes": "[]",
        "requirements": _TERMS,
        "undo_of": new.undo_of,
        "parent": new.parent,
        "hosts": json.dumps([*new.hosts]) if new.hosts else "[]",
        "editors": json.dumps([*new.editors]) if new.editors else "[]",
        "proposal_for": new.proposal_for,
        "guard_override": new.guard_override,
        "timing": new.timing.to_json() if new.timing else None,
        "summary": "",
        "needs_attention": False,
        "fan_out_role": CHILD if new.parent is not None else PARENT if new.hosts else SINGLE,
    }


_ROWS_ORIGIN = TypeAdapter(RequestOrigin)
_ROWS_TERMS = TypeAdapter(ApprovalRequirements)


# Many runs have the same of these: it is read once.
@lru_cache(1024)
def _origin(text: str) -> RequestOrigin:
    return _ROWS_ORIGIN.validate_json(text)


@lru_cache(1024)
def _terms(text: str) -> ApprovalRequirements:
    return _ROWS_TERMS.validate_json(text)


@lru_cache(1024)
def write_requirements(terms: ApprovalRequirements) -> str:
    return _ROWS_TERMS.dump_json(terms).decode()


@lru_cache(1024)
def read_names(text: str) -> tuple[str, ...]:
    """Read a list of names as it is written into a column."""
    return tuple(json.loads(text))


def read_run(row: Any) -> Run:
    return Run(
        id=row.id,
        version=row.version,
        state=State(row.state),
        runbook=row.runbook,
        kind=row.kind,
        values=json.loads(row.field_values),
        request=row.request,
        host=row.host,
        area=row.area,
        requested_by=row.requested_by,
        origin=_origin(row.origin),
        reason=row.reason,
        requested_at=row.requested_at,
        expires_at=row.expires_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        plan=ResolvedPlan.from_json(row.plan) if row.plan else None,
        digest=row.digest,
        required_approvals=row.required_approvals,
        approver_groups=read_names(row.approver_groups),
        policy_notes=read_names(row.policy_notes),
        requirements=_terms(row.requirements),
        pending_since=row.pending_since,
        reminded_at=row.reminded_at,
        escalated_at=row.escalated_at,
        undo_of=row.undo_of,
        parent=row.parent,
        hosts=read_names(row.hosts),
        editors=read_names(row.editors),
        proposal_for=row.proposal_for,
        grant_id=row.grant_id,
        guard_override=row.guard_override,
        timing=ScheduleTiming.from_json(row.timing) if row.timing else None,
        summary=row.summary,
        needs_attention=row.needs_attention,
        report=REPORT.validate_json(row.report) if row.report else None,
    )


LISTED = [
    null().label("plan") if column.name == "plan" else column for column in tables.run.columns
]


_ADD = insert(tables.run).returning(
    tables.run, null().label("report"), sort_by_parameter_order=True
)
_ADD_ALL = insert(tables.run).returning(tables.run.c.id, sort_by_parameter_order=True)


def _as_it_is(value: object) -> object:
    return value


# The columns of a run that change, each with the function that encodes its value.
_WRITTEN: Mapping[str, Callable[[Any], object]] = {
    "expires_at": _as_it_is,
    "started_at": _as_it_is,
    "ended_at": _as_it_is,
    "digest": _as_it_is,
    "required_approvals": _as_it_is,
    "pending_since": _as_it_is,
    "reminded_at": _as_it_is,
    "escalated_at": _as_it_is,
    "summary": _as_it_is,
    "needs_attention": _as_it_is,
    "plan": lambda plan: plan.to_json() if plan else None,
    "approver_groups": lambda groups: json.dumps(list(groups)),
    "policy_notes": lambda notes: json.dumps(list(notes), ensure_ascii=False),
    "requirements": write_requirements,
    "grant_id": _as_it_is,
}


@cache
def _saving(names: frozenset[str]) -> Update:
    """Return the statement that writes these: an index whose column is not named is left alone."""
    columns = ["version", "state", *sorted(names)]
    return (
        update(tables.run)
        .where(
            tables.run.c.id == bindparam("of"),
            tables.run.c.version == bindparam("was_version"),
            tables.run.c.state == bindparam("was_state"),
        )
        .values({column: bindparam(column) for column in columns})
    )


def _output_column(run: ColumnElement[int], n: ColumnElement[int] | int) -> ScalarSelect[Any]:
    """Return a column for a query of runs or of steps: the newest output of each, or NULL."""
    found = tables.output.c
    query = select(found.text).where(found.run == run, found.step_number == n)
    return query.order_by(found.entry.desc()).limit(1).scalar_subquery()


def _select() -> Select[Any]:
    """Select runs, each with its report, which lies apart."""
    return select(tables.run, _output_column(tables.run.c.id, 0).label("report"))


_GET = _select().where(tables.run.c.id == bindparam("number"))
_HOLD = _select().where(tables.run.c.id == bindparam("number")).with_for_update(of=tables.run)
_CHILDREN = _select().where(tables.run.c.parent == bindparam("whole")).order_by(tables.run.c.id)
_LIST: Select[Any] = (
    select(*LISTED, null().label("report"))
    .order_by(tables.run.c.id.desc())
    .where(tables.run.c.id.in_(bindparam("wanted", expanding=True)))
)
_VOTES_ON = (
    select(tables.decision)
    .order_by(tables.decision.c.decided_at)
    .where(tables.decision.c.run.in_(bindparam("wanted", expanding=True)))
)
_VOTES = (
    select(tables.decision)
    .where(tables.decision.c.run == bindparam("of"))
    .order_by(tables.decision.c.decided_at)
)
_CONCLUDE = (
    update(tables.step)
    .where(tables.step.c.run == bindparam("of"), tables.step.c.step_number == bindparam("which"))
    .values({name: bindparam(name) for name in ("state", "ended_at", "exit_status", "error")})
)
_STEPS = (
    select(
        tables.step, _output_column(tables.step.c.run, tables.step.c.step_number).label("output")
    )
    .where(tables.step.c.run == bindparam("of"))
    .order_by(tables.step.c.step_number)
)


_SUCCEEDED = (
    select(tables.run.c.id)
    .where(
        tables.run.c.requested_by == bindparam("who"),
        tables.run.c.runbook == bindparam("what"),
        tables.run.c.state == State.SUCCEEDED.value,
        tables.run.c.undo_of.is_(None),
    )
    .limit(1)
)


# Of several hosts, an unknown whole follows from its hosts once they are settled.
_UNFINISHED = tables.run.c.state.in_([state.value for state in sorted(ACTIVE_STATES)]) | (
    (tables.run.c.state == State.UNKNOWN.value) & (tables.run.c.hosts != "[]")
)


class NoSuchRun(Exception):
    """There is no run with this number."""


class ConcurrentUpdateError(Exception):
    """Somebody else changed the run first; look at it again."""


def add_run(tx: Transaction, new: NewRun) -> Run:
    """Record a request."""
    return read_run(_added(tx, _ADD, [new])[0])


def add_runs(tx: Transaction, new: Sequence[NewRun]) -> list[int]:
    """Record requests; return their numbers in their order."""
    return [row.id for row in _added(tx, _ADD_ALL, new)]


def _added(tx: Transaction, adding: Executable, new: Sequence[NewRun]) -> Sequence[Any]:
    rows = [new_run_row(tx, one) for one in new]
    if not rows:
        return ()
    added: Sequence[Any] = tx.sql.execute(adding, rows).all()
    search_words.store_words(
        tx,
        {
            one.id: [
                *search_words.words_of_fields(each.values),
                *search_words.split_search_words(row["reason"]),
            ]
            for one, each, row in zip(added, new, rows, strict=True)
        },
    )
    return added


def get_run(tx: Transaction, number: int) -> Run:
    """Return a run. One that may not be viewed is as one that does not exist: NoSuchRun."""
    row = tx.sql.execute(_GET, {"number": number}).first()
    if row is None or not view_conditions.list_viewable(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    return read_run(row)


def lock_run(tx: Transaction, number: int) -> Run:
    """Return the run and keep others from changing it until this transaction ends."""
    row = tx.sql.execute(_HOLD, {"number": number}).first()
    if row is None or not view_conditions.list_viewable(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    return read_run(row)


def move_run(tx: Transaction, run: Run, to: State, **changes: Any) -> Run:
    """Bring the run into another state, or raise IllegalMove or Overtaken and change nothing."""
    return move_runs(tx, [(run, changed_copy(run, state=to, **changes))])[0]


def changed_copy(run: Run, **changes: Any) -> Run:
    """Return what a run is to become, to be moved or amended to."""
    return replace(run, version=run.version + 1, **changes)


def move_runs(tx: Transaction, moved: Sequence[tuple[Run, Run]]) -> list[Run]:
    """Do so with several, by one statement. moved: each as it was, and as it becomes."""
    for was, run in moved:
        check_transition(was, run.state)
    return _save(tx, moved)


def amend_run(tx: Transaction, run: Run, **changes: Any) -> Run:
    """Change what is known of a run without moving it."""
    return _save(tx, [(run, changed_copy(run, **changes))])[0]


def _save(tx: Transaction, changed: Sequence[tuple[Run, Run]]) -> list[Run]:
    if not changed:
        return []
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
    if tx.sql.execute(_saving(names), rows).rowcount != len(rows):
        numbers = ", ".join(str(was.id) for was, _ in changed)
        raise ConcurrentUpdateError(
            f"run {numbers} was changed by somebody else at the same moment"
        )
    for was, run in changed:
        if run.state is not was.state:
            tx.after_commit(partial(tx.run_events.publish, run.id, run.state))
    return [run for _, run in changed]


def _tell_summaries(
    tx: Transaction, changed: Sequence[tuple[Run, Run]], rows: Sequence[dict[str, Any]]
) -> None:
    """Put into each row how the run ended, without secrets, and let it be found by that."""
    said = tx.redactor.redact_texts([run.summary for _, run in changed])
    found: dict[int, list[str]] = {}
    for (was, run), row, summary in zip(changed, rows, said, strict=True):
        row["summary"] = _storable(summary)
        # What a report says as well is found by the words of that, which begin with it.
        if run.summary != was.summary and not (run.report and run.report.summary == run.summary):
            found[run.id] = search_words.split_search_words(summary)
    search_words.store_words(tx, found)


def _row(was: Run, run: Run, names: Collection[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "of": was.id,
        "was_version": was.version,
        "was_state": was.state.value,
        "version": run.version,
        "state": run.state.value,
    }
    for name in names:
        row[name] = _WRITTEN[name](getattr(run, name))
    return row


def list_runs(tx: Transaction, numbers: Sequence[int]) -> list[Run]:
    """Return these runs, the newest first, without plans and reports: a list shows none."""
    return seen(tx, tx.sql.execute(_LIST, {"wanted": numbers}))


def seen(tx: Transaction, rows: Iterable[Any]) -> list[Run]:
    """Return the runs that may be viewed, in their order."""
    return _seen_runs(tx, [read_run(row) for row in rows])


def _seen_runs(tx: Transaction, found: list[Run]) -> list[Run]:
    if tx.view_rights is None:
        return found
    seen = view_conditions.list_viewable(tx, [run.id for run in found])
    return [run for run in found if run.id in seen]


def get_runs(tx: Transaction, numbers: Sequence[int]) -> list[Run]:
    """Return these runs, the newest first, without their reports, which lie apart."""
    query = select(tables.run, null().label("report")).where(tables.run.c.id.in_(numbers))
    return seen(tx, tx.sql.execute(query.order_by(tables.run.c.id.desc())))


def is_first_time(tx: Transaction, *, person: str, words: str) -> bool:
    """Say whether this person has never had this runbook succeed."""
    return tx.sql.execute(_SUCCEEDED, {"who": person, "what": words}).first() is None


def list_children(tx: Transaction, parent: int) -> list[Run]:
    """Return the runs of a request for several hosts, in the order of its hosts."""
    return seen(tx, tx.sql.execute(_CHILDREN, {"whole": parent}).all())


def lock_children(tx: Transaction, parent: int) -> list[Run]:
    """Return the parts of a request and keep others from changing them meanwhile."""
    query = _select().where(tables.run.c.parent == parent).order_by(tables.run.c.id)
    return [read_run(row) for row in tx.sql.execute(query.with_for_update(of=tables.run))]


def list_unfinished(tx: Transaction) -> list[Run]:
    """Return every run that somebody has still to work on, parents before their children."""
    query = _select().where(_UNFINISHED)
    return [read_run(row) for row in tx.sql.execute(query.order_by(tables.run.c.id))]


def list_unfinished_briefly(tx: Transaction) -> list[Run]:
    """Return what `unfinished` does, without plans and reports: there may be thousands."""
    query = select(*LISTED, null().label("report")).where(_UNFINISHED)
    found = tx.sql.execute(query.order_by(tables.run.c.id))
    return _seen_runs(tx, [read_run(row) for row in found])


def list_unknown_outcomes(tx: Transaction) -> list[Run]:
    """Return every run on one host whose end nobody saw."""
    query = _select().where(tables.run.c.state == State.UNKNOWN.value, tables.run.c.hosts == "[]")
    return seen(tx, tx.sql.execute(query.order_by(tables.run.c.id)))


def list_pending(tx: Transaction) -> list[Run]:
    """Return every request that waits for approvals."""
    query = _select().where(
        tables.run.c.state == State.PENDING.value, tables.run.c.parent.is_(None)
    )
    return seen(tx, tx.sql.execute(query.order_by(tables.run.c.id)))


def list_due_to_expire(tx: Transaction) -> list[Run]:
    """Return what waited too long; of a part of a request, only for its turn on the host."""
    waiting = [State.COUNTER_PROPOSED.value, State.PENDING.value, State.QUEUED.value]
    query = _select().where(
        tables.run.c.state.in_(waiting),
        tables.run.c.expires_at <= tx.now,
        tables.run.c.parent.is_(None) | (tables.run.c.state == State.QUEUED.value),
    )
    return [read_run(row) for row in tx.sql.execute(query)]


def open_proposals(tx: Transaction, number: int) -> list[int]:
    """Return the counter-proposals for a run that its requester can accept now."""
    column = tables.run.c
    query = select(column.id).where(
        column.state == State.COUNTER_PROPOSED.value,
        column.proposal_for == number,
        column.expires_at > tx.now,
    )
    return list(tx.sql.execute(query.order_by(column.id)).scalars())


def overtaken_proposals(tx: Transaction) -> list[int]:
    """Return the open counter-proposals whose original request is no longer pending."""
    column, original = tables.run.c, tables.run.alias("original")
    query = (
        select(column.id)
        .join(original, column.proposal_for == original.c.id)
        .where(
            column.state == State.COUNTER_PROPOSED.value, original.c.state != State.PENDING.value
        )
    )
    return list(tx.sql.execute(query.order_by(column.id)).scalars())


def add_decision(tx: Transaction, vote: Decision) -> bool:
    """Record a person's only vote on a run; False if that person has voted before."""
    return tx.insert_once(
        tables.decision,
        run=vote.run,
        person=vote.person,
        approves=vote.approves,
        digest=vote.digest,
        decided_at=vote.decided_at,
        on_behalf_of=vote.on_behalf_of,
        reason=tx.redactor.redact_text(vote.reason),
        factor=vote.factor,
    )


def replace_decision(tx: Transaction, vote: Decision) -> None:
    """Put a person's yes with a second factor in the place of the one without."""
    column = tables.decision.c
    tx.sql.execute(
        update(tables.decision)
        .where(column.run == vote.run, column.person == vote.person, column.approves)
        .values(
            decided_at=vote.decided_at,
            digest=vote.digest,
            on_behalf_of=vote.on_behalf_of,
            reason=tx.redactor.redact_text(vote.reason),
            factor=vote.factor,
        )
    )


def list_decisions(tx: Transaction, run: int) -> list[Decision]:
    return [Decision(**row) for row in tx.sql.execute(_VOTES, {"of": run}).mappings()]


def list_decisions_on(tx: Transaction, numbers: Sequence[int]) -> dict[int, list[Decision]]:
    """Return the votes on several runs at once, by run; a run without votes is left out."""
    found: dict[int, list[Decision]] = {}
    for row in tx.sql.execute(_VOTES_ON, {"wanted": numbers}):
        found.setdefault(row.run, []).append(Decision(*row))
    return found


def record_intent(tx: Transaction, run: int, n: int) -> None:
    """Write down that step *n* is about to be sent. Committed before it is."""
    tx.sql.execute(
        insert(tables.step),
        {
            "run": run,
            "step_number": n,
            "state": StepState.INTENT.value,
            "sent_at": tx.now,
            "error": "",
        },
    )


def record_outcome(tx: Transaction, record: StepRecord) -> None:
    """Write down what became of a step."""
    tx.sql.execute(
        _CONCLUDE,
        {
            "of": record.run,
            "which": record.step_number,
            "state": record.state.value,
            "ended_at": record.ended_at,
            "exit_status": record.exit_status,
            "error": _storable(tx.redactor.redact_text(record.error)),
        },
    )


def _storable(text: str) -> str:
    # PostgreSQL's text holds no NUL, and hosts may say anything.
    return text.replace("\0", "\\x00")


def list_steps(tx: Transaction, run: int) -> Sequence[StepRecord]:
    """Return what became of the steps of a run that were sent."""
    if not view_conditions.list_viewable(tx, [run]):
        return []
    return [
        StepRecord(
            *(
                row.run,
                row.step_number,
                StepState(row.state),
                row.sent_at,
                row.ended_at,
                row.exit_status,
            ),
            *(row.output or "", row.error),
        )
        for row in tx.sql.execute(_STEPS, {"of": run}).all()
    ]


def list_steps_of_children(tx: Transaction, parent: int) -> Sequence[StepRecord]:
    """Return the steps of every host, numbered as in the plan of the whole request."""
    found: list[StepRecord] = []
    before = 0
    for child in list_children(tx, parent):
        found += [
            replace(step, step_number=before + step.step_number)
            for step in list_steps(tx, child.id)
        ]
        before += len(child.plan.steps) if child.plan else 0
    return found


_RUN = tables.run.c
# Reports lie apart, and nobody here looks at them.
_PLAIN = select(tables.run, null().label("report")).order_by(_RUN.id)
_LISTED = (
    select(*LISTED, null().label("report"))
    .where(_RUN.parent == bindparam("whole"))
    .order_by(_RUN.id)
)
_HELD = _PLAIN.with_for_update(of=tables.run).where(
    _RUN.id.in_(bindparam("wanted", expanding=True))
)
_VERSIONS = (
    select(_RUN.id, _RUN.version)
    .order_by(_RUN.id)
    .with_for_update(of=tables.run)
    .where(_RUN.id.in_(bindparam("wanted", expanding=True)))
)


@cache
def _parts_in(states: frozenset[State], *, held: bool) -> Select[Any]:
    """Return the statement that finds the parts of a request that are in one of these states."""
    query = _PLAIN.where(_of_whole(states))
    return query.with_for_update(of=tables.run) if held else query


@cache
def _one_in(states: frozenset[State]) -> Select[Any]:
    """Return the statement that finds one of them."""
    return select(_RUN.id).where(_of_whole(states)).limit(1)


def _of_whole(states: frozenset[State]) -> ColumnElement[bool]:
    fits = or_(*(_RUN.state == state.value for state in sorted(states)))
    return (_RUN.parent == bindparam("whole")) & fits


def list_children_briefly(tx: Transaction, whole: int) -> list[Run]:
    """Return all parts of a request, without their plans and reports: there may be hundreds."""
    return seen(tx, tx.sql.execute(_LISTED, {"whole": whole}).all())


def list_children_in(tx: Transaction, whole: int, states: Iterable[State]) -> list[Run]:
    """Return the parts of a request that are in one of these states, without their reports."""
    found = _parts_in(frozenset(states), held=False)
    return seen(tx, tx.sql.execute(found, {"whole": whole}))


def lock_children_in(tx: Transaction, whole: int, states: Iterable[State]) -> list[Run]:
    """Do so, and keep others from changing them until this transaction ends."""
    found = _parts_in(frozenset(states), held=True)
    return [read_run(row) for row in tx.sql.execute(found, {"whole": whole})]


def has_child_in(tx: Transaction, whole: int, states: Iterable[State]) -> bool:
    """Say whether a part of a request is in one of these states."""
    return tx.sql.execute(_one_in(frozenset(states)), {"whole": whole}).first() is not None


def lock_runs(tx: Transaction, known: Sequence[Run]) -> list[Run]:
    """Return these runs, without their reports, and keep others from changing them meanwhile.

    known: as they were read before; those that are so still are not read again.
    """
    wanted = [run.id for run in known]
    now = {row.id: row.version for row in tx.sql.execute(_VERSIONS, {"wanted": wanted}).all()}
    same = [run for run in known if now.get(run.id) == run.version]
    others = [*now.keys() - {run.id for run in same}]
    read = tx.sql.execute(_HELD, {"wanted": others}).all() if others else ()
    return [*same, *map(read_run, read)]


_POLICIES_RUN = tables.run.c


def list_planned_under_other_policies(tx: Transaction, version: str, *, before: int) -> list[int]:
    """Return what waits for approvals or for its turn, and was asked for by then.

    Schedules are left out: what was approved for one outlasts policies. Plans are searched where
    they are kept: there may be thousands that need not be looked at.
    """
    query = select(_POLICIES_RUN.id).where(
        _POLICIES_RUN.state.in_([State.PENDING.value, State.QUEUED.value]),
        _POLICIES_RUN.fan_out_role != tables.CHILD,
        _POLICIES_RUN.requested_at <= before,
        _POLICIES_RUN.timing.is_(None),
        ~_POLICIES_RUN.plan.contains(f'"policy_version":"{version}"'),
    )
    return list(tx.sql.execute(query.order_by(_POLICIES_RUN.id)).scalars())
