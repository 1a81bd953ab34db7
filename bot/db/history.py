"""The past: what was asked, how it was decided, and by whom, as rules would look at it."""

import json
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Row, func, select

from bot.db import tables, view_conditions
from bot.db.database import Transaction
from bot.model.run import State

# How the workflow begins the summary of what a rule refused, other than what a runbook did.
POLICY_REFUSED = "The policy refuses:"
_RUN = tables.run.c


@dataclass(frozen=True)
class PastRequest:
    """One request as it was. asked: microseconds. novel: its asker never had it succeed before.

    planned: people were shown a plan, so `needed` says how many approvals it took; step_up: they
    took a second factor. refused: by a rule. keys: who approved, or in whose stead somebody did.
    alone: it went without approvals of its own, by a standing grant or its schedule's.
    """

    id: int
    runbook: str
    kind: str
    host: str
    hosts: tuple[str, ...]
    title: str
    requested_by: str
    source: str
    requested_at: int
    state: State
    reversible: bool
    novel: bool
    editors: tuple[str, ...]
    planned: bool
    refused: bool
    needed: int
    step_up: bool
    alone: bool
    keys: tuple[str, ...] = ()


def list_past_requests(
    tx: Transaction, moment: int, *, words: str = "", area: str = ""
) -> Generator[PastRequest]:
    """Yield every request since then, in their order; one for several hosts is one.

    words, area: only of this runbook, and only in this area.
    """
    keys = _keys(tx, moment)
    firsts = _Firsts(tx) if words else _first_successes(tx)
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
            _RUN.summary,
            _RUN.undo_of,
        )
        .where(
            _RUN.parent.is_(None),
            _RUN.requested_at >= moment,
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
            first = firsts[row.requested_by, row.runbook]
            novel = first is None or first >= row.requested_at
            yield _past(cast("Row[Any]", row), novel=novel, keys=tuple(keys.get(row.id, ())))


def count_past_requests(tx: Transaction, moment: int) -> int:
    """Return how many requests there were since then; one for several hosts is one."""
    asked = select(func.count()).where(_RUN.parent.is_(None), _RUN.requested_at >= moment)
    return tx.sql.execute(asked).scalar_one()


def _past(row: Row[Any], *, novel: bool, keys: tuple[str, ...]) -> PastRequest:
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
        requested_at=row.requested_at,
        state=State(row.state),
        reversible=_reversible(row.plan),
        novel=novel,
        editors=tuple(json.loads(row.editors)),
        planned=row.plan is not None,
        refused=row.state == State.REFUSED.value and row.summary.startswith(POLICY_REFUSED),
        needed=row.required_approvals,
        step_up=bool(json.loads(row.requirements).get("requires_second_factor")),
        alone=row.grant_id is not None or bool(origin.get("schedule_id")),
        keys=keys,
    )


def _reversible(proposal: str | None) -> bool:
    """Say whether every step had its undo; what was never planned is supposed to have had it."""
    if proposal is None:
        return True
    return all(step["undo"] is not None for step in json.loads(proposal)["steps"])


def _keys(tx: Transaction, moment: int) -> dict[int, list[str]]:
    vote = tables.decision.c
    query = (
        select(vote.run, vote.person, vote.on_behalf_of)
        .join(tables.run, _RUN.id == vote.run)
        .where(_RUN.requested_at >= moment, vote.approves)
        .order_by(vote.decided_at)
    )
    found: dict[int, list[str]] = {}
    for row in tx.sql.execute(query):
        found.setdefault(row.run, []).append(row.on_behalf_of or row.person)
    return found


class _Firsts(dict[tuple[str, str], int | None]):
    """When somebody first had a runbook succeed, looked up where it is asked for: of one runbook
    few people are, and all runs that ever were need not be walked for them.
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


def _first_successes(tx: Transaction) -> Mapping[tuple[str, str], int | None]:
    """Return when each person first had each runbook succeed."""
    query = (
        select(_RUN.requested_by, _RUN.runbook, func.min(_RUN.ended_at))
        .where(_RUN.state == State.SUCCEEDED.value, _RUN.undo_of.is_(None))
        .group_by(_RUN.requested_by, _RUN.runbook)
    )
    found = {(person, words): ended for person, words, ended in tx.sql.execute(query)}
    return defaultdict(lambda: None, found)
