"""Looking: what changed around a moment, and the history's filters kept under a name."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import schemas
from bot.api.auth import Asking, Reading
from bot.api.deps import Here
from bot.api.idempotency import DESCRIBED, Once
from bot.api.schemas_in import Given, Moment, Number, Text, Word, micros
from bot.audit import timeline
from bot.audit.timeline import TimelineEvent
from bot.db import saved_views
from bot.db.saved_views import NoSuchView, SavedView
from bot.model import times
from bot.model.errors import InvalidRequestError
from bot.model.run import Decision
from bot.model.times import InvalidTimeError

router = APIRouter(tags=["history"], route_class=Once)


class TimelineEventShape(schemas.Shape):
    """One thing that happened. overlap: how many of the hosts that were asked about it touches.

    entry: its number in the change log, where it is no run's.
    """

    at: datetime
    rank: int = Field(description="0 changed, 1 only asked for, 2 seen, 3 concerns every host.")
    overlap: int
    what: str
    hosts: Sequence[str]
    person: str
    approved_by: Sequence[str]
    run: int | None
    state: str
    entry: int | None
    outcome: str

    @classmethod
    def of(cls, one: TimelineEvent, approvals: Sequence[Decision]) -> "TimelineEventShape":
        return cls(
            at=schemas.to_datetime(one.at),
            rank=one.rank,
            overlap=one.overlap,
            what=one.what,
            hosts=one.hosts,
            person=one.person,
            approved_by=[vote.person for vote in approvals],
            run=one.run,
            state=one.state,
            entry=one.entry,
            outcome=one.outcome,
        )


class TimelinePage(schemas.Shape):
    """The likeliest first, between two moments. omitted: how many less likely ones are not here.

    looked_since, looked_until: between which the log was looked at. In a busy time that is less:
    ask again with a moment nearer to what you look for.
    """

    since: datetime
    until: datetime
    looked_since: datetime
    looked_until: datetime
    omitted: int
    events: Sequence[TimelineEventShape]


class ViewShape(schemas.Shape):
    """Filters under a name. page: where people see the history so."""

    id: int
    person: str
    name: str
    filters: dict[str, str]
    page: str

    @classmethod
    def of(cls, view: SavedView, base_url: str) -> "ViewShape":
        return cls(
            id=view.id,
            person=view.person,
            name=view.name,
            filters=dict(parse_qsl(view.query)),
            page=f"{base_url}/views/{view.id}",
        )


class ViewList(schemas.Shape):
    views: Sequence[ViewShape]


class AroundFilter(Given):
    at: Moment | None = Field(None, description="Now, if it is left out.")
    within: Word = Field("30 min", description="Such as 30m, 2 hours or 1 day.")
    host: Word = Field("*", description="Names or patterns, apart by spaces or commas.")
    limit: int = Field(50, ge=1, le=200)


class ViewOrder(Given):
    """filters: as in the address of the history page, such as host, area, person, state, since."""

    name: Annotated[Word, Field(max_length=saved_views.LONGEST_NAME)]
    filters: dict[Word, Text] = Field(default_factory=dict[str, str], max_length=9)


@router.get("/around", operation_id="lookAround", summary="Say what changed around a moment")
def look_around(
    parts: Here, caller: Reading, wanted: Annotated[AroundFilter, Query()]
) -> TimelinePage:
    try:
        reach = times.parse_span(wanted.within)
    except InvalidTimeError as trouble:
        raise InvalidRequestError(str(trouble)) from None
    with parts.database.reading(caller.sight) as tx:
        at = tx.now if wanted.at is None else micros(wanted.at) or 0
        host = wanted.host.lower()
        found = timeline.build_timeline(tx, at, span=reach, host_pattern=host, limit=wanted.limit)
        allowed = timeline.list_approvals(tx, found.events)
    return TimelinePage(
        since=schemas.to_datetime(max(at - reach, 0)),
        until=schemas.to_datetime(at + reach),
        looked_since=schemas.to_datetime(max(at - found.searched_span, 0)),
        looked_until=schemas.to_datetime(at + found.searched_span),
        omitted=found.omitted,
        events=[TimelineEventShape.of(one, allowed.get(one.run or 0, ())) for one in found.events],
    )


@router.get("/views", operation_id="listViews", summary="List your views, by name")
def listing(parts: Here, caller: Reading) -> ViewList:
    with parts.database.reading(caller.sight) as tx:
        found = saved_views.list_views(tx, caller.id)
    return ViewList(views=[ViewShape.of(view, parts.base_url) for view in found])


@router.get("/views/{number}", operation_id="getView", summary="Tell about anybody's view")
def show(parts: Here, caller: Reading, number: Number) -> ViewShape:
    try:
        with parts.database.reading(caller.sight) as tx:
            return ViewShape.of(saved_views.get_view(tx, number), parts.base_url)
    except NoSuchView as none:
        raise HTTPException(404, str(none)) from None


@router.post(
    "/views",
    operation_id="keepView",
    summary="Keep filters of the history under a name",
    status_code=201,
    dependencies=[DESCRIBED],
)
def keep(parts: Here, caller: Asking, order: ViewOrder) -> ViewShape:
    strange = sorted(set(order.filters) - set(saved_views.FILTERS))
    if strange:
        raise InvalidRequestError(
            f"{strange[0]} is no filter: there are {', '.join(saved_views.FILTERS)}"
        )
    typed = {name: order.filters[name] for name in saved_views.FILTERS if order.filters.get(name)}
    with parts.database.transaction() as tx:
        mine = saved_views.list_views(tx, caller.id)
        if len(mine) >= saved_views.MOST and order.name not in {view.name for view in mine}:
            raise InvalidRequestError(
                f"you keep {saved_views.MOST} views already: forget one first"
            )
        view = saved_views.store_view(
            tx, person=caller.id, name=order.name, query=urlencode(typed)
        )
    return ViewShape.of(view, parts.base_url)


@router.post(
    "/views/{number}/forget",
    operation_id="forgetView",
    summary="Forget a view of yours",
    dependencies=[DESCRIBED],
)
def forget(parts: Here, caller: Asking, number: Number) -> ViewList:
    with parts.database.transaction() as tx:
        gone = saved_views.delete_view(tx, number, person=caller.id)
    if not gone:
        raise HTTPException(404, f"you keep no view {number}")
    return listing(parts, caller)
