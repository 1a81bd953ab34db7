"""Changes around a time, and saved views: filters of the history under a name."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from bot.api import schemas
from bot.api.auth import ReadCaller, RequestCaller
from bot.api.deps import Parts
from bot.api.idempotency import IdempotentRoute
from bot.api.schemas_in import InputModel, RunId, Text, Timestamp, Word, to_microseconds
from bot.db import saved_views
from bot.db.saved_views import SavedView
from bot.model import times
from bot.model.errors import InvalidRequestError
from bot.model.run import Decision
from bot.queries import timeline
from bot.queries.timeline import TimelineEvent

router = APIRouter(tags=["history"], route_class=IdempotentRoute)


class TimelineEventOut(schemas.OutputModel):
    """One run or log entry near the time."""

    at: schemas.StoredTime
    rank: int = Field(
        description="0: changed a host; 1: only attempted; 2: observed; 3: concerns every host."
    )
    overlap: int = Field(description="Number of the requested hosts that it concerns.")
    what: str
    hosts: Sequence[str]
    person: str
    approved_by: Sequence[str]
    run: int | None
    state: str
    label: str = Field(description="The state, for people.")
    entry: int | None = Field(description="Number in the change log, if it is not a run.")
    outcome: str
    has_started: bool = Field(
        description="False for a run that was requested, and neither started nor ended."
    )

    @classmethod
    def from_event(cls, event: TimelineEvent, approvals: Sequence[Decision]) -> "TimelineEventOut":
        approved_by = [approval.person for approval in approvals]
        return cls.model_validate(vars(event) | {"approved_by": approved_by, "label": event.label})


class ChangesOut(schemas.OutputModel):
    """Changes around a time, most relevant first."""

    since: datetime
    until: datetime
    searched_since: datetime = Field(
        description="Start of the part that was searched. It is shorter in a busy time: then "
        "request a time closer to what you search for."
    )
    searched_until: datetime
    omitted: int = Field(description="Number of less relevant events that are not listed.")
    events: Sequence[TimelineEventOut]


class SavedViewOut(schemas.OutputModel):
    """Filters of the history under a name."""

    id: int
    person: str
    name: str
    filters: dict[str, str]
    page: str = Field(description="Web page of the history with these filters.")

    @classmethod
    def from_view(cls, view: SavedView, base_url: str) -> "SavedViewOut":
        return cls(
            id=view.id,
            person=view.person,
            name=view.name,
            filters=dict(parse_qsl(view.query)),
            page=f"{base_url}/views/{view.id}",
        )


class SavedViewListOut(schemas.OutputModel):
    views: Sequence[SavedViewOut]


class ChangesQuery(InputModel):
    at: Timestamp | None = Field(None, description="Default: now.")
    within: Word = Field(
        times.DEFAULT_SPAN,
        description="Time before and after `at`, such as 30m, 2 hours or 1 day.",
    )
    host: Word = Field("*", description="Names or patterns, separated by spaces or commas.")
    limit: int = Field(50, ge=1, le=200, description="Number of changes.")


class SavedViewIn(InputModel):
    """Filters as in the address of the history page, such as host, area, person, state, since."""

    name: Annotated[
        Word, Field(max_length=saved_views.LONGEST_NAME, description="Name of the view.")
    ]
    filters: dict[Word, Text] = Field(
        default_factory=dict[str, str],
        max_length=9,
        description='The filters, by name, such as `{"host": "lb*"}`.',
    )


@router.get("/changes", operation_id="listChanges", summary="List changes around a time")
def list_changes(
    parts: Parts, caller: ReadCaller, query: Annotated[ChangesQuery, Query()]
) -> ChangesOut:
    span = times.parse_span(query.within)
    with parts.database.reading(caller.view_rights) as tx:
        at = tx.now if query.at is None else to_microseconds(query.at) or 0
        host = query.host.lower()
        found = timeline.build_timeline(tx, at, span=span, host_pattern=host, limit=query.limit)
        approvals = timeline.list_approvals(tx, found.events)
    return ChangesOut(
        since=schemas.to_datetime(max(at - span, 0)),
        until=schemas.to_datetime(at + span),
        searched_since=schemas.to_datetime(max(at - found.searched_span, 0)),
        searched_until=schemas.to_datetime(at + found.searched_span),
        omitted=found.omitted,
        events=[
            TimelineEventOut.from_event(event, approvals.get(event.run or 0, ()))
            for event in found.events
        ],
    )


@router.get("/views", operation_id="listViews", summary="List your saved views")
def list_views(parts: Parts, caller: ReadCaller) -> SavedViewListOut:
    with parts.database.reading(caller.view_rights) as tx:
        found = saved_views.list_views(tx, caller.id)
    return SavedViewListOut(views=[SavedViewOut.from_view(view, parts.base_url) for view in found])


@router.get("/views/{number}", operation_id="getView", summary="Get a saved view")
def get_view(parts: Parts, caller: ReadCaller, number: RunId) -> SavedViewOut:
    with parts.database.reading(caller.view_rights) as tx:
        return SavedViewOut.from_view(saved_views.get_view(tx, number), parts.base_url)


@router.post(
    "/views",
    operation_id="saveView",
    summary="Save filters of the history under a name",
    status_code=201,
)
def save_view(parts: Parts, caller: RequestCaller, body: SavedViewIn) -> SavedViewOut:
    unknown = sorted(set(body.filters) - set(saved_views.FILTERS))
    if unknown:
        raise InvalidRequestError(
            f"unknown filter {unknown[0]}: use {', '.join(saved_views.FILTERS)}"
        )
    filters = {name: body.filters[name] for name in saved_views.FILTERS if body.filters.get(name)}
    with parts.database.transaction() as tx:
        view = saved_views.store_view(
            tx, person=caller.id, name=body.name, query=urlencode(filters)
        )
    return SavedViewOut.from_view(view, parts.base_url)


@router.post(
    "/views/{number}/delete", operation_id="deleteView", summary="Delete one of your saved views"
)
def delete_view(parts: Parts, caller: RequestCaller, number: RunId) -> SavedViewListOut:
    with parts.database.transaction() as tx:
        is_deleted = saved_views.delete_view(tx, number, person=caller.id)
    if not is_deleted:
        raise HTTPException(404, f"you have no saved view {number}")
    return list_views(parts, caller)
