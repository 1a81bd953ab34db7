"""Past requests with their decisions, to evaluate another policy on them."""

import json
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Row, func, select

from bot.db import tables, view_conditions
from bot.db.database import Transaction
from bot.model.agents import AgentOrigin
from bot.model.run import RefusedBy, State

_RUN = tables.run.c


@dataclass(frozen=True)
class PastRequest:
    """One request of the past; one for several hosts is one."""

    id: int
    runbook: str
    kind: str
    host: str
    hosts: tuple[str, ...]
    title: str
    requested_by: str
    source: str
    requested_at: int
    """Microseconds since 1970, UTC."""
    state: State
    reversible: bool
    is_first_success: bool
    """Whether this runbook had never succeeded for the requester before."""
    editors: tuple[str, ...]
    planned: bool
    """Whether a plan was shown, so `needed` is known."""
    refused: bool
    """Whether a rule of the policy refused it."""
    needed: int
    """How many approvals it required."""
    step_up: bool
    """Whether approvals required a second factor."""
    is_preapproved: bool
    """Whether it needed no approvals because of a standing grant or an approved schedule."""
    approvers: tuple[str, ...] = ()
    """Who approved; with a delegation, on whose behalf."""
    agent: AgentOrigin | None = None
    """Whose request it was, where an agent made it."""


def list_past_requests(
    tx: Transaction, since: int, *, words: str = "", area: str = ""
) -> Generator[PastRequest]:
    """Yield every request since then, the oldest first.

    since: microseconds. words, area: only of this runbook, and only in this area.
    """
    approvers = _list_approvers(tx, since)
    first_successes = _FirstSuccesses(tx) if words else _load_first_successes(tx)
    query = (
        select(
            _RUN.id,
            _RUN.runbook,
            _RUN.kind,
            _RUN.host,
            _RUN.hosts,
            _RUN.request,
            _RUN.requested_by,
            _RUN.origin,
            _RUN.requested_at,
            _RUN.state,
            _RUN.plan,
            _RUN.required_approvals,
            _RUN.requirements,
            _RUN.editors,
            _RUN.grant_id,
            _RUN.refused_by,
            _RUN.undo_of,
        )
        .where(
            _RUN.parent.is_(None),
            _RUN.requested_at >= since,
            view_conditions.runs_condition(tx).clause(),
        )
        .order_by(_RUN.id)
        .execution_options(yield_per=1000)
    )
    if words:
        query = query.where(_RUN.runbook == words)
    if area:
        query = query.where(_RUN.area == area)
    with tx.sql.execute(query) as rows:
        for row in rows:
            first = first_successes[row.requested_by, row.runbook]
            yield _build_past_request(
                cast("Row[Any]", row),
                is_first_success=first is None or first >= row.requested_at,
                approvers=tuple(approvers.get(row.id, ())),
            )


def count_past_requests(tx: Transaction, since: int) -> int:
    """Return how many requests there were since then; one for several hosts is one."""
    query = select(func.count()).where(_RUN.parent.is_(None), _RUN.requested_at >= since)
    return tx.sql.execute(query).scalar_one()


def _build_past_request(
    row: Row[Any], *, is_first_success: bool, approvers: tuple[str, ...]
) -> PastRequest:
    origin = json.loads(row.origin)
    return PastRequest(
        id=row.id,
        runbook=row.runbook,
        kind=row.kind,
        host=row.host,
        hosts=tuple(json.loads(row.hosts)),
        title=f"undo of run {row.undo_of}: {row.request}" if row.undo_of else row.request,
        requested_by=row.requested_by,
        source=origin["source"],
        agent=AgentOrigin(**origin["agent"]) if origin.get("agent") else None,
        requested_at=row.requested_at,
        state=State(row.state),
        reversible=_is_reversible(row.plan),
        is_first_success=is_first_success,
        editors=tuple(json.loads(row.editors)),
        planned=row.plan is not None,
        refused=row.refused_by == RefusedBy.POLICY.value,
        needed=row.required_approvals,
        step_up=bool(json.loads(row.requirements).get("requires_second_factor")),
        is_preapproved=row.grant_id is not None or bool(origin.get("schedule_id")),
        approvers=approvers,
    )


def _is_reversible(plan: str | None) -> bool:
    """Return whether every step of a plan has an undo; True without a plan."""
    if plan is None:
        return True
    return all(step["undo"] is not None for step in json.loads(plan)["steps"])


def _list_approvers(tx: Transaction, since: int) -> dict[int, list[str]]:
    decision = tables.decision.c
    query = (
        select(decision.run, decision.person, decision.on_behalf_of)
        .join(tables.run, _RUN.id == decision.run)
        .where(_RUN.requested_at >= since, decision.approves)
        .order_by(decision.decided_at)
    )
    approvers: dict[int, list[str]] = {}
    for row in tx.sql.execute(query):
        approvers.setdefault(row.run, []).append(row.on_behalf_of or row.person)
    return approvers


class _FirstSuccesses(dict[tuple[str, str], int | None]):
    """When a runbook first succeeded for a person, looked up on access.

    Few people use one runbook, so this is faster than reading all runs.
    """

    def __init__(self, tx: Transaction) -> None:
        super().__init__()
        self._tx = tx

    def __missing__(self, key: tuple[str, str]) -> int | None:
        person, words = key
        query = select(_RUN.ended_at).where(
            _RUN.requested_by == person,
            _RUN.runbook == words,
            _RUN.state == State.SUCCEEDED.value,
            _RUN.undo_of.is_(None),
        )
        self[key] = self._tx.sql.execute(query.order_by(_RUN.id).limit(1)).scalar()
        return self[key]


def _load_first_successes(tx: Transaction) -> Mapping[tuple[str, str], int | None]:
    """Return when each runbook first succeeded for each person."""
    query = (
        select(_RUN.requested_by, _RUN.runbook, func.min(_RUN.ended_at))
        .where(_RUN.state == State.SUCCEEDED.value, _RUN.undo_of.is_(None))
        .group_by(_RUN.requested_by, _RUN.runbook)
    )
    found = {(person, words): ended for person, words, ended in tx.sql.execute(query)}
    return defaultdict(lambda: None, found)
