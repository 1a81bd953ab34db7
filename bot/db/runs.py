"""Store runs with their decisions and steps; change them by compare-and-set."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any, Protocol

from pydantic import TypeAdapter
from sqlalchemy import (
    ColumnElement,
    Executable,
    ScalarSelect,
    Select,
    Update,
    bindparam,
    delete,
    insert,
    null,
    or_,
    select,
    update,
)

from bot.db import search_words, tables, view_conditions
from bot.db.database import Transaction
from bot.db.tables import CHILD, PARENT, PLAN_ONLY, SINGLE
from bot.model.approvals import ApprovalRequirements
from bot.model.canonical import encode_canonical
from bot.model.plan import ResolvedPlan
from bot.model.references import hide_references
from bot.model.run import (
    ACTIVE_STATES,
    EXPIRING_STATES,
    Decision,
    RefusedBy,
    RequestOrigin,
    Run,
    State,
    StepRecord,
    StepState,
    check_transition,
)
from bot.model.schedule import ScheduleTiming
from bot.model.waiting import encode_waiting, parse_waiting
from connectors.errors import DomainError
from runbooks import Report

REPORT = TypeAdapter(Report)
_ORIGIN = TypeAdapter(RequestOrigin)
_REQUIREMENTS = TypeAdapter(ApprovalRequirements)
_RUN = tables.run.c


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
    ticket: str = ""
    plan_only: bool = False
    replan_of: int | None = None


@lru_cache(1024)
def _format_origin(origin: RequestOrigin) -> str:
    return _ORIGIN.dump_json(origin).decode()


def _build_row(tx: Transaction, new: NewRun) -> dict[str, Any]:
    """Return the columns of a new request."""
    return {
        "version": 1,
        "state": State.PLANNING.value,
        "runbook": new.runbook,
        "kind": new.kind,
        "field_values": encode_canonical(new.values),
        "request": new.request,
        "host": new.host,
        "area": new.area,
        "requested_by": new.requested_by,
        "origin": _format_origin(new.origin),
        "reason": tx.redactor.redact_text(new.reason),
        "requested_at": tx.now,
        "digest": "",
        "required_approvals": 0,
        "approver_groups": "[]",
        "policy_notes": "[]",
        "requirements": _format_requirements(ApprovalRequirements()),
        "undo_of": new.undo_of,
        "parent": new.parent,
        "hosts": json.dumps([*new.hosts]) if new.hosts else "[]",
        "editors": json.dumps([*new.editors]) if new.editors else "[]",
        "proposal_for": new.proposal_for,
        "guard_override": new.guard_override,
        "ticket": new.ticket,
        "replan_of": new.replan_of,
        "timing": new.timing.to_json() if new.timing else None,
        "summary": "",
        "needs_attention": False,
        "fan_out_role": (CHILD if new.parent is not None else PARENT if new.hosts else SINGLE)
        + (PLAN_ONLY if new.plan_only else 0),
    }


# Cached, because many runs have the same value.
@lru_cache(1024)
def parse_origin(text: str) -> RequestOrigin:
    return _ORIGIN.validate_json(text)


@lru_cache(1024)
def _parse_requirements(text: str) -> ApprovalRequirements:
    return _REQUIREMENTS.validate_json(text)


@lru_cache(1024)
def _format_requirements(requirements: ApprovalRequirements) -> str:
    return _REQUIREMENTS.dump_json(requirements).decode()


@lru_cache(1024)
def read_names(text: str) -> tuple[str, ...]:
    """Parse the list of names in a column."""
    return tuple(json.loads(text))


def _read_run(row: Any) -> Run:
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
        origin=parse_origin(row.origin),
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
        requirements=_parse_requirements(row.requirements),
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
        ticket=row.ticket,
        plan_only=row.fan_out_role >= PLAN_ONLY,
        replan_of=row.replan_of,
        timing=ScheduleTiming.from_json(row.timing) if row.timing else None,
        summary=row.summary,
        refused_by=RefusedBy(row.refused_by) if row.refused_by else None,
        waiting=parse_waiting(row.waiting),
        needs_attention=row.needs_attention,
        report=REPORT.validate_json(row.report) if row.report else None,
    )


# Another table holds the reports.
_NO_REPORT = null().label("report")
_NO_PLAN = null().label("plan")
_WITHOUT_REPORT = select(tables.run, _NO_REPORT).order_by(_RUN.id)
_WITHOUT_PLAN: Select[Any] = select(
    *(_NO_PLAN if column.name == "plan" else column for column in tables.run.columns), _NO_REPORT
)
_ADD = insert(tables.run).returning(tables.run, _NO_REPORT, sort_by_parameter_order=True)
_ADD_ALL = insert(tables.run).returning(_RUN.id, sort_by_parameter_order=True)


def _keep(value: object) -> object:
    return value


# The columns of a run that change, each with the function that encodes its value.
_WRITTEN: Mapping[str, Callable[[Any], object]] = {
    "expires_at": _keep,
    "started_at": _keep,
    "ended_at": _keep,
    "digest": _keep,
    "required_approvals": _keep,
    "pending_since": _keep,
    "reminded_at": _keep,
    "escalated_at": _keep,
    "summary": _keep,
    "refused_by": _keep,
    "waiting": encode_waiting,
    "needs_attention": _keep,
    "plan": lambda plan: plan.to_json() if plan else None,
    "approver_groups": lambda groups: json.dumps(list(groups)),
    "policy_notes": lambda notes: json.dumps(list(notes), ensure_ascii=False),
    "requirements": _format_requirements,
    "grant_id": _keep,
}


@cache
def _build_update(names: frozenset[str]) -> Update:
    """Build the statement that updates these columns, so that other indexes are not touched."""
    columns = ["version", "state", *sorted(names)]
    return (
        update(tables.run)
        .where(
            _RUN.id == bindparam("of"),
            _RUN.version == bindparam("was_version"),
            _RUN.state == bindparam("was_state"),
        )
        .values({column: bindparam(column) for column in columns})
    )


def _output_column(run: ColumnElement[int], n: ColumnElement[int] | int) -> ScalarSelect[Any]:
    """Return a column with the newest output of each run or step of a query, or NULL."""
    output = tables.output.c
    query = select(output.text).where(output.run == run, output.step_number == n)
    return query.order_by(output.entry.desc()).limit(1).scalar_subquery()


_WITH_REPORT: Select[Any] = select(tables.run, _output_column(_RUN.id, 0).label("report"))
_GET = _WITH_REPORT.where(_RUN.id == bindparam("number"))
_LOCK = _GET.with_for_update(of=tables.run)
_CHILDREN = _WITH_REPORT.where(_RUN.parent == bindparam("parent_id")).order_by(_RUN.id)
_CHILDREN_BRIEFLY = _WITHOUT_PLAN.where(_RUN.parent == bindparam("parent_id")).order_by(_RUN.id)
_IS_WANTED = _RUN.id.in_(bindparam("wanted", expanding=True))
_LIST = _WITHOUT_PLAN.where(_IS_WANTED).order_by(_RUN.id.desc())
_LOCK_ALL = _WITHOUT_REPORT.where(_IS_WANTED).with_for_update(of=tables.run)
_LOCK_VERSIONS = (
    select(_RUN.id, _RUN.version)
    .where(_IS_WANTED)
    .order_by(_RUN.id)
    .with_for_update(of=tables.run)
)
_DECISIONS_ON = (
    select(tables.decision)
    .order_by(tables.decision.c.decided_at)
    .where(tables.decision.c.run.in_(bindparam("wanted", expanding=True)))
)
_DECISIONS = (
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
    select(_RUN.id)
    .where(
        _RUN.requested_by == bindparam("who"),
        _RUN.runbook == bindparam("what"),
        _RUN.state == State.SUCCEEDED.value,
        _RUN.undo_of.is_(None),
    )
    .limit(1)
)


# The state of a parent run with an unknown outcome follows from its child runs.
_UNFINISHED = _RUN.state.in_([state.value for state in sorted(ACTIVE_STATES)]) | (
    (_RUN.state == State.UNKNOWN.value) & (_RUN.hosts != "[]")
)


class NoSuchRun(DomainError):
    """No run has this number, or it may not be viewed."""

    code, status = "run-not-found", 404


class ConcurrentUpdateError(DomainError):
    """Another transaction changed the run first; read it again."""

    code, status = "concurrent-update", 409


def add_run(tx: Transaction, new: NewRun) -> Run:
    """Store a request."""
    return _read_run(_insert(tx, _ADD, [new])[0])


def add_runs(tx: Transaction, new: Sequence[NewRun]) -> list[int]:
    """Store requests; return their numbers in their order."""
    return [row.id for row in _insert(tx, _ADD_ALL, new)]


def _insert(tx: Transaction, statement: Executable, new: Sequence[NewRun]) -> Sequence[Any]:
    rows = [_build_row(tx, one) for one in new]
    if not rows:
        return ()
    added: Sequence[Any] = tx.sql.execute(statement, rows).all()
    search_words.store_words(
        tx,
        {
            one.id: [
                *search_words.split_fields_into_words(each.values),
                *search_words.split_search_words(row["reason"]),
            ]
            for one, each, row in zip(added, new, rows, strict=True)
        },
    )
    return added


def get_run(tx: Transaction, number: int) -> Run:
    """Return a run. Raises NoSuchRun if it does not exist or may not be viewed."""
    return _read_one(tx, _GET, number)


def lock_run(tx: Transaction, number: int) -> Run:
    """Return the run and keep others from changing it until this transaction ends."""
    return _read_one(tx, _LOCK, number)


def _read_one(tx: Transaction, query: Select[Any], number: int) -> Run:
    row = tx.sql.execute(query, {"number": number}).first()
    if row is None or not view_conditions.list_viewable(tx, [number]):
        raise NoSuchRun(f"there is no run {number}")
    return _show(tx, _read_run(row))


def _show(tx: Transaction, run: Run) -> Run:
    """Return a run as the person may read it; the service reads its references as stored."""
    if tx.view_rights is None:
        return run
    shown = run.show_references(partial(view_conditions.show_references, tx))
    waiting = view_conditions.show_waiting(tx, run.waiting)
    return shown if waiting is run.waiting else replace(shown, waiting=waiting)


def move_run(tx: Transaction, run: Run, to: State, **changes: Any) -> Run:
    """Move the run to another state. What it waited for is over.

    Raises IllegalTransitionError or ConcurrentUpdateError and changes nothing.
    """
    return move_runs(tx, [(run, changed_copy(run, state=to, waiting=None, **changes))])[0]


def changed_copy(run: Run, **changes: Any) -> Run:
    """Return a changed copy of a run with the next version."""
    return replace(run, version=run.version + 1, **changes)


def move_runs(tx: Transaction, moved: Sequence[tuple[Run, Run]]) -> list[Run]:
    """Move several runs by one statement. moved: each run before and after."""
    for was, run in moved:
        check_transition(was, run.state)
    return _save(tx, moved)


def amend_run(tx: Transaction, run: Run, **changes: Any) -> Run:
    """Change columns of a run but not its state."""
    return _save(tx, [(run, changed_copy(run, **changes))])[0]


def _save(tx: Transaction, changed: Sequence[tuple[Run, Run]]) -> list[Run]:
    if not changed:
        return []
    both = [(vars(was), vars(run)) for was, run in changed]
    # `is not` first: most values are the same object, and comparing long plans is slow.
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
        _add_summaries(tx, changed, rows)
    if tx.sql.execute(_build_update(names), rows).rowcount != len(rows):
        numbers = ", ".join(str(was.id) for was, _ in changed)
        raise ConcurrentUpdateError(
            f"run {numbers} was changed by another transaction at the same time"
        )
    for was, run in changed:
        if run.state is not was.state:
            tx.after_commit(partial(tx.run_events.publish, run.id, run.state))
    return [run for _, run in changed]


def _add_summaries(
    tx: Transaction, changed: Sequence[tuple[Run, Run]], rows: Sequence[dict[str, Any]]
) -> None:
    """Put the redacted summaries into the rows and the search index."""
    summaries = tx.redactor.redact_texts([run.summary for _, run in changed])
    words: dict[int, list[str]] = {}
    for (was, run), row, summary in zip(changed, rows, summaries, strict=True):
        row["summary"] = _escape_nul(summary)
        # The words of a report include its summary.
        if run.summary != was.summary and not (run.report and run.report.summary == run.summary):
            words[run.id] = search_words.split_search_words(hide_references(summary))
    search_words.store_words(tx, words)


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
    """Return these runs, the newest first, without plans and reports."""
    return _read_viewable(tx, tx.sql.execute(_LIST, {"wanted": numbers}))


def _read_viewable(tx: Transaction, rows: Iterable[Any]) -> list[Run]:
    """Return the runs that may be viewed, in their order."""
    found = [_read_run(row) for row in rows]
    if tx.view_rights is None:
        return found
    viewable = view_conditions.list_viewable(tx, [run.id for run in found])
    return [_show(tx, run) for run in found if run.id in viewable]


class _NumberedRun(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def state(self) -> State: ...


def get_parent_states(tx: Transaction, listed: Iterable[_NumberedRun]) -> Mapping[int, State]:
    """Return the states of the parents of pending child runs, by the numbers of the child runs.

    Only what these child runs wait for depends on their parents.
    """
    pending = [run.id for run in listed if run.state is State.PENDING]
    if not pending:
        return {}
    query = select(_RUN.id, _RUN.parent).where(_RUN.id.in_(pending), _RUN.parent.is_not(None))
    parents = {row.id: row.parent for row in tx.sql.execute(query)}
    states = {run.id: run.state for run in list_runs(tx, sorted({*parents.values()}))}
    return {child: states[parent] for child, parent in parents.items() if parent in states}


def get_runs(tx: Transaction, numbers: Sequence[int]) -> list[Run]:
    """Return these runs, the newest first, without their reports."""
    query = select(tables.run, _NO_REPORT).where(_RUN.id.in_(numbers))
    return _read_viewable(tx, tx.sql.execute(query.order_by(_RUN.id.desc())))


def is_first_time(tx: Transaction, *, person: str, words: str) -> bool:
    """Return whether no run of this runbook by this person has succeeded."""
    return tx.sql.execute(_SUCCEEDED, {"who": person, "what": words}).first() is None


def list_children(tx: Transaction, parent: int) -> list[Run]:
    """Return the child runs of a run, in the order of its hosts."""
    return _read_viewable(tx, tx.sql.execute(_CHILDREN, {"parent_id": parent}).all())


def lock_children(tx: Transaction, parent: int) -> list[Run]:
    """Return the child runs of a run and lock them until this transaction ends."""
    query = _WITH_REPORT.where(_RUN.parent == parent).order_by(_RUN.id)
    return [_read_run(row) for row in tx.sql.execute(query.with_for_update(of=tables.run))]


def list_unfinished(tx: Transaction) -> list[Run]:
    """Return every unfinished run, parents before their children."""
    query = _WITH_REPORT.where(_UNFINISHED)
    return [_read_run(row) for row in tx.sql.execute(query.order_by(_RUN.id))]


def list_unfinished_briefly(tx: Transaction) -> list[Run]:
    """Return every unfinished run that may be viewed, without plans and reports."""
    query = _WITHOUT_PLAN.where(_UNFINISHED)
    return _read_viewable(tx, tx.sql.execute(query.order_by(_RUN.id)))


def list_unknown_outcomes(tx: Transaction) -> list[Run]:
    """Return every run on one host with an unknown outcome."""
    query = _WITH_REPORT.where(_RUN.state == State.UNKNOWN.value, _RUN.hosts == "[]")
    return _read_viewable(tx, tx.sql.execute(query.order_by(_RUN.id)))


def list_pending(tx: Transaction) -> list[Run]:
    """Return every request that needs approval."""
    query = _WITH_REPORT.where(_RUN.state == State.PENDING.value, _RUN.parent.is_(None))
    return _read_viewable(tx, tx.sql.execute(query.order_by(_RUN.id)))


def mark_as_plan(tx: Transaction, run: Run) -> Run:
    """Make a request a plan, together with the requests of its hosts."""
    role = _RUN.fan_out_role
    tx.sql.execute(
        _update_with_children(run).where(role < PLAN_ONLY).values(fan_out_role=role + PLAN_ONLY)
    )
    return replace(run, plan_only=True)


def mark_requested(tx: Transaction, run: Run, reason: str) -> Run:
    """Make a plan a request, together with the plans of its hosts. reason: of the request."""
    role = _RUN.fan_out_role
    text = tx.redactor.redact_text(reason)
    tx.sql.execute(
        _update_with_children(run)
        .where(role >= PLAN_ONLY)
        .values(fan_out_role=role - PLAN_ONLY, reason=text)
    )
    search_words.store_words(tx, {run.id: search_words.split_search_words(text)})
    return replace(run, plan_only=False, reason=text)


def _update_with_children(run: Run) -> Update:
    return update(tables.run).where((_RUN.id == run.id) | (_RUN.parent == run.id))


def list_due_to_expire(tx: Transaction) -> list[Run]:
    """Return the runs that waited too long. Of child runs, only queued ones expire."""
    query = _WITH_REPORT.where(
        _RUN.state.in_(sorted(state.value for state in EXPIRING_STATES)),
        _RUN.expires_at <= tx.now,
        _RUN.parent.is_(None) | (_RUN.state == State.QUEUED.value),
    )
    return [_read_run(row) for row in tx.sql.execute(query)]


def list_open_proposals(tx: Transaction, number: int) -> list[int]:
    """Return the counter-proposals for a run that its requester can accept now."""
    query = select(_RUN.id).where(
        _RUN.state == State.COUNTER_PROPOSED.value,
        _RUN.proposal_for == number,
        _RUN.expires_at > tx.now,
    )
    return list(tx.sql.execute(query.order_by(_RUN.id)).scalars())


def list_unrequested(tx: Transaction, person: str) -> list[Run]:
    """Return a person's plans and counter-proposals to their requests, while they are valid."""
    query = _WITH_REPORT.where(
        _RUN.state.in_([State.COUNTER_PROPOSED.value, State.PLANNED.value]),
        _RUN.requested_by == person,
        _RUN.parent.is_(None),
        _RUN.expires_at > tx.now,
    )
    return _read_viewable(tx, tx.sql.execute(query.order_by(_RUN.id)))


def list_counter_proposed(tx: Transaction) -> list[Run]:
    """Return the counter-proposals to anyone's requests, while they are valid."""
    query = _WITH_REPORT.where(
        _RUN.state == State.COUNTER_PROPOSED.value,
        _RUN.parent.is_(None),
        _RUN.expires_at > tx.now,
    )
    return _read_viewable(tx, tx.sql.execute(query.order_by(_RUN.id)))


def list_outdated_proposals(tx: Transaction) -> list[int]:
    """Return the open counter-proposals whose original request is no longer pending."""
    original = tables.run.alias("original")
    query = (
        select(_RUN.id)
        .join(original, _RUN.proposal_for == original.c.id)
        .where(_RUN.state == State.COUNTER_PROPOSED.value, original.c.state != State.PENDING.value)
    )
    return list(tx.sql.execute(query.order_by(_RUN.id)).scalars())


def add_decision(tx: Transaction, decision: Decision) -> bool:
    """Store a person's decision on a run; False if that person has already decided."""
    return tx.insert_once(
        tables.decision,
        run=decision.run,
        person=decision.person,
        approves=decision.approves,
        digest=decision.digest,
        decided_at=decision.decided_at,
        on_behalf_of=decision.on_behalf_of,
        reason=tx.redactor.redact_text(decision.reason),
        factor=decision.factor,
        signature=decision.signature,
        start_at=decision.start_at,
    )


def replace_decision(tx: Transaction, decision: Decision) -> None:
    """Replace a person's approval that lacked something by one that does not."""
    column = tables.decision.c
    tx.sql.execute(
        update(tables.decision)
        .where(column.run == decision.run, column.person == decision.person, column.approves)
        .values(
            decided_at=decision.decided_at,
            digest=decision.digest,
            on_behalf_of=decision.on_behalf_of,
            reason=tx.redactor.redact_text(decision.reason),
            factor=decision.factor,
            signature=decision.signature,
            start_at=decision.start_at,
        )
    )


def remove_decisions(tx: Transaction, run: int) -> None:
    """Remove the decisions on a run that was held; the log keeps them."""
    tx.sql.execute(delete(tables.decision).where(tables.decision.c.run == run))


def list_decisions(tx: Transaction, run: int) -> list[Decision]:
    return [Decision(**row) for row in tx.sql.execute(_DECISIONS, {"of": run}).mappings()]


def list_decisions_on(tx: Transaction, numbers: Sequence[int]) -> dict[int, list[Decision]]:
    """Return the decisions on several runs, by run; runs without decisions are left out."""
    found: dict[int, list[Decision]] = {}
    for row in tx.sql.execute(_DECISIONS_ON, {"wanted": numbers}):
        found.setdefault(row.run, []).append(Decision(*row))
    return found


def record_intent(tx: Transaction, run: int, n: int) -> None:
    """Record that step *n* is about to be sent. Committed before it is sent."""
    intent = {"run": run, "step_number": n, "state": StepState.INTENT.value, "sent_at": tx.now}
    tx.sql.execute(insert(tables.step), {**intent, "error": ""})


def record_outcome(tx: Transaction, record: StepRecord) -> None:
    """Record the outcome of a step."""
    tx.sql.execute(
        _CONCLUDE,
        {
            "of": record.run,
            "which": record.step_number,
            "state": record.state.value,
            "ended_at": record.ended_at,
            "exit_status": record.exit_status,
            "error": tx.redactor.redact_for_storage(record.error),
        },
    )


def _escape_nul(text: str) -> str:
    # PostgreSQL text cannot hold NUL, and hosts may return any byte.
    return text.replace("\0", "\\x00")


def list_steps(tx: Transaction, run: int) -> Sequence[StepRecord]:
    """Return the records of the steps of a run that were sent."""
    if not view_conditions.list_viewable(tx, [run]):
        return []
    return [
        StepRecord(
            row.run,
            row.step_number,
            StepState(row.state),
            row.sent_at,
            row.ended_at,
            row.exit_status,
            row.output or "",
            row.error,
        )
        for row in tx.sql.execute(_STEPS, {"of": run}).all()
    ]


def has_executed_steps(tx: Transaction, run: int) -> bool:
    """Return whether a step was sent that may have changed its host."""
    return any(step.state is not StepState.FAILED for step in list_steps(tx, run))


def list_steps_of_children(tx: Transaction, parent: int) -> Sequence[StepRecord]:
    """Return the steps of all child runs, numbered as in the plan of the parent run."""
    found: list[StepRecord] = []
    before = 0
    for child in list_children(tx, parent):
        found += [
            replace(step, step_number=before + step.step_number)
            for step in list_steps(tx, child.id)
        ]
        before += child.step_count
    return found


@cache
def _select_children_in(states: frozenset[State], *, lock: bool) -> Select[Any]:
    """Build the query for the child runs of a run that are in one of these states."""
    query = _WITHOUT_REPORT.where(_is_child_in(states))
    return query.with_for_update(of=tables.run) if lock else query


@cache
def _select_child_in(states: frozenset[State]) -> Select[Any]:
    """Build the query for the number of one such child run."""
    return select(_RUN.id).where(_is_child_in(states)).limit(1)


def _is_child_in(states: frozenset[State]) -> ColumnElement[bool]:
    has_state = or_(*(_RUN.state == state.value for state in sorted(states)))
    return (_RUN.parent == bindparam("parent_id")) & has_state


def list_changes_of_host(tx: Transaction, host: str) -> list[Run]:
    """Return the changes that were begun on a host, without plans and reports, oldest first.

    All of them, also those that may not be viewed: what a host is to be follows from all. Show
    none before view_conditions.list_viewable() names it.
    """
    is_change = (_RUN.host == host) & (_RUN.kind == "change") & (_RUN.hosts == "[]")
    query = _WITHOUT_PLAN.where(is_change)
    query = query.where(_RUN.started_at.is_not(None)).order_by(_RUN.started_at, _RUN.id)
    return [_read_run(row) for row in tx.sql.execute(query)]


def list_changes_begun(tx: Transaction, *, person: str, since: int, until: int) -> list[Run]:
    """Return the changes on one host each that were begun in a time, oldest first.

    person: who requested them; "" for anyone. since, until: microseconds since 1970.
    """
    is_change = (_RUN.kind == "change") & (_RUN.hosts == "[]")
    query = _WITHOUT_PLAN.where(is_change)
    query = query.where(_RUN.started_at.between(since, until)).order_by(_RUN.started_at, _RUN.id)
    if person:
        query = query.where(_RUN.requested_by == person)
    return _read_viewable(tx, tx.sql.execute(query))


def list_children_briefly(tx: Transaction, parent: int) -> list[Run]:
    """Return the child runs of a run, without plans and reports: there may be hundreds."""
    return _read_viewable(tx, tx.sql.execute(_CHILDREN_BRIEFLY, {"parent_id": parent}).all())


def list_children_in(tx: Transaction, parent: int, states: Iterable[State]) -> list[Run]:
    """Return the child runs that are in one of these states, without their reports."""
    query = _select_children_in(frozenset(states), lock=False)
    return _read_viewable(tx, tx.sql.execute(query, {"parent_id": parent}))


def lock_children_in(tx: Transaction, parent: int, states: Iterable[State]) -> list[Run]:
    """Return them and keep others from changing them until this transaction ends."""
    query = _select_children_in(frozenset(states), lock=True)
    return [_read_run(row) for row in tx.sql.execute(query, {"parent_id": parent})]


def has_child_in(tx: Transaction, parent: int, states: Iterable[State]) -> bool:
    """Return whether a child run is in one of these states."""
    return (
        tx.sql.execute(_select_child_in(frozenset(states)), {"parent_id": parent}).first()
        is not None
    )


def lock_runs(tx: Transaction, known: Sequence[Run]) -> list[Run]:
    """Return these runs without their reports, and lock them until this transaction ends.

    known: the runs as they were read before; unchanged ones are not read again.
    """
    wanted = [run.id for run in known]
    now = {row.id: row.version for row in tx.sql.execute(_LOCK_VERSIONS, {"wanted": wanted}).all()}
    same = [run for run in known if now.get(run.id) == run.version]
    others = [*now.keys() - {run.id for run in same}]
    read = tx.sql.execute(_LOCK_ALL, {"wanted": others}).all() if others else ()
    return [*same, *map(_read_run, read)]


def list_planned_under_other_policies(tx: Transaction, version: str, *, before: int) -> list[int]:
    """Return pending and queued runs planned under another policy and requested before then.

    Schedules are left out: their approval stays valid when the policy changes. The database
    searches the plans, so that thousands need not be read.
    """
    query = select(_RUN.id).where(
        _RUN.state.in_([State.PENDING.value, State.QUEUED.value]),
        _RUN.fan_out_role < CHILD,
        _RUN.requested_at <= before,
        _RUN.timing.is_(None),
        ~_RUN.plan.contains(f'"policy_version":"{version}"'),
    )
    return list(tx.sql.execute(query.order_by(_RUN.id)).scalars())
