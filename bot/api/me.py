"""Mine: what waits for the caller, and what others let them decide or do."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from fastapi import APIRouter

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.db import break_glass, delegations, grants, runs
from bot.db.break_glass import BreakGlass
from bot.db.delegations import Delegation
from bot.db.grants import Grant
from bot.workflow import grant_rules, pending

router = APIRouter(tags=["mine"])


class Unreviewed(schemas.Shape):
    """A glass that was broken and that somebody else is to look at. who: broke it."""

    run: int
    who: str
    reason: str
    activated_at: datetime | None

    @classmethod
    def of(cls, one: BreakGlass) -> "Unreviewed":
        at = schemas.to_optional_datetime(one.activated_at)
        return cls(run=one.run, who=one.person, reason=one.reason, activated_at=at)


class Awaited(schemas.Shape):
    """runs: to settle, then to decide. to_review: of anybody, for somebody else to look at."""

    runs: Sequence[schemas.RunShape]
    to_review: Sequence[Unreviewed]


class DelegationShape(schemas.Shape):
    """Who decides in whose stead. area: empty for every area that the other owns."""

    id: int
    of: str
    by: str
    area: str
    since: datetime
    until: datetime
    reason: str

    @classmethod
    def drawn(cls, one: Delegation) -> "DelegationShape":
        return cls(
            id=one.id,
            of=one.delegator,
            by=one.delegate,
            area=one.area,
            since=schemas.to_datetime(one.created_at),
            until=schemas.to_datetime(one.ends_at),
            reason=one.reason,
        )


class GrantShape(schemas.Shape):
    """Whose approval stands for whose requests. left: how many of an hour's there still are."""

    id: int
    by: str
    to: str
    runbook: str
    hosts: str
    values: Mapping[str, str]
    per_hour: int
    left: int
    since: datetime
    until: datetime
    reason: str

    @classmethod
    def drawn(cls, one: Grant, left: int) -> "GrantShape":
        return cls(
            id=one.id,
            by=one.granted_by,
            to=one.person,
            runbook=one.runbook,
            hosts=one.hosts,
            values=one.values,
            per_hour=one.per_hour,
            left=left,
            since=schemas.to_datetime(one.created_at),
            until=schemas.to_datetime(one.ends_at),
            reason=one.reason,
        )


class Mandates(schemas.Shape):
    """What holds by the caller or for them. It is given and ended on the page, by people."""

    in_stead: Sequence[DelegationShape]
    in_advance: Sequence[GrantShape]


@router.get("/waiting", operation_id="waitingForMe", summary="List what waits for you")
def waiting(parts: Here, caller: Reading) -> Awaited:
    with parts.database.reading(caller.sight) as tx:
        found = pending.list_runs_awaiting_person(tx, caller.policy, caller.id)
        votes = runs.list_decisions_on(tx, [run.id for run in found])
        panes = break_glass.list_unreviewed(tx)
    return Awaited(
        runs=[schemas.RunShape.of(run, votes.get(run.id, ()), parts.base_url) for run in found],
        to_review=[Unreviewed.of(one) for one in panes],
    )


@router.get("/mandates", operation_id="listMandates", summary="List what you handed on or were")
def mandates(parts: Here, caller: Reading) -> Mandates:
    with parts.database.reading(caller.sight) as tx:
        in_stead = [
            one
            for one in delegations.list_delegations_of(tx, caller.id)
            if one.holds(area=one.area, now=tx.now)
        ]
        found = [one for one in grants.list_grants_of(tx, caller.id) if one.holds(tx.now)]
        left = {one.id: grant_rules.count_uses_left(tx, one) for one in found}
    return Mandates(
        in_stead=[DelegationShape.drawn(one) for one in in_stead],
        in_advance=[GrantShape.drawn(one, left[one.id]) for one in found],
    )
