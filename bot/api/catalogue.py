"""Surroundings: runbooks with their fields, the change log, and the token itself."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas_in import Given, Moment, Standing, Word, micros
from bot.audit import change_log, query, verification
from bot.audit.change_log import Entry
from bot.db import search, search_words, view_conditions
from bot.model import request_form, runbook_info
from bot.model.request_form import FormField
from bot.model.run import RUN_STATUSES
from bot.model.runbook_info import RunbookInfo
from bot.workflow.unknown_filters import describe_unknown_log_names
from runbooks import load_catalogue

router = APIRouter()


class FieldShape(schemas.Shape):
    """What a runbook is told. tag: hosts must carry it. lists: what of its host it names.

    within: the fields whose values say where the host looks for them.
    """

    name: str
    label: str
    hint: str
    kind: str
    required: bool
    choices: Sequence[str]
    default: str
    tag: str
    lists: str
    within: Sequence[str]

    @classmethod
    def of(cls, blank: FormField) -> "FieldShape":
        return cls(**vars(blank))


class RunbookShape(schemas.Shape):
    """A kind of request. undo: what its undo does; "" for a check, and where there is none.

    own: whether it is this installation's, and did not come with Keyturn.
    """

    name: str
    kind: str
    effect: str = Field(description="check, change, or irreversible for a change without an undo.")
    summary: str
    usage: str
    example: str
    tag: str
    undo: str
    own: bool
    fields: Sequence[FieldShape]

    @classmethod
    def of(cls, told: RunbookInfo) -> "RunbookShape":
        blanks = request_form.list_form_fields(load_catalogue()[told.name])
        return cls(
            name=told.name,
            kind=told.kind,
            effect=told.effect,
            summary=told.summary,
            usage=told.usage,
            example=told.example,
            tag=told.tag,
            undo=told.undo,
            own=told.is_custom,
            fields=[FieldShape.of(blank) for blank in blanks],
        )


class RunbookList(schemas.Shape):
    runbooks: Sequence[RunbookShape]


class EntryPage(schemas.Shape):
    """entries: the newest first. head: the newest of all. next: null on the last page.

    unknown_filters: by filter, what is said of a name that neither the policy nor the log has.
    Where there are entries it is empty.
    """

    entries: Sequence[schemas.EntryShape]
    head_seq: int
    head_hash: str
    next: str | None
    unknown_filters: dict[str, str]


class VerificationShape(schemas.Shape):
    """broken: the number of the first entry that does not fit; null if all do."""

    entries: int
    head: str
    broken: int | None
    why: str


class Me(schemas.Shape):
    """Whose token this is. token: its beginning, by which it is known."""

    person: str
    name: str
    roles: Sequence[str]
    owns: Sequence[str]
    token: str
    token_name: str
    scopes: Sequence[str]
    expires_at: datetime


class RunbookFilter(Given):
    beginning: Word | None = Field(None, description="Only those whose words begin so.")


class LogFilter(Given):
    host: Word | None = Field(None, description="A name, or a pattern such as web*.")
    person: Word | None = Field(None, description="Who did it.")
    kind: Word | None = Field(None, description="Such as approved.")
    since: Moment | None = None
    until: Moment | None = None
    area: Word | None = Field(None, description="Of the runs that they tell of.")
    runbook: Word | None = Field(None, description="Of the runs that they tell of.")
    state: list[Standing] = Field(default_factory=list[str], max_length=len(RUN_STATUSES))
    text: Word | None = Field(None, description="Words that all occur in these runs.")
    before: int | None = Field(None, ge=1, le=9_007_199_254_740_991)
    limit: int = Field(50, ge=1, le=500)

    @property
    def wanted(self) -> query.EntryFilter:
        of_runs = None
        if self.area or self.runbook or self.state or self.text:
            of_runs = search.RunFilter(
                area=self.area,
                runbook=" ".join(self.runbook.lower().split()) if self.runbook else None,
                states=frozenset(self.state),
                text=tuple(search_words.parse_search(self.text or "")),
            )
        return query.EntryFilter(
            host=(self.host or "").lower(),
            person=self.person or "",
            kind=self.kind or "",
            since=micros(self.since),
            until=micros(self.until),
            run_filter=of_runs,
            before=self.before,
        )


@router.get("/me", operation_id="whoAmI", summary="Say whose token this is", tags=["token"])
def me(caller: Reading) -> Me:
    areas = caller.policy.organisation.areas.values()
    return Me(
        person=caller.id,
        name=caller.person.name,
        roles=caller.person.roles,
        owns=[area.name for area in areas if caller.id in area.owners],
        token=caller.token.prefix,
        token_name=caller.token.name,
        scopes=caller.token.scopes,
        expires_at=schemas.to_datetime(caller.token.expires_at),
    )


@router.get("/runbooks", operation_id="listRunbooks", summary="List runbooks", tags=["runbooks"])
def runbooks(_: Reading, wanted: Annotated[RunbookFilter, Query()]) -> RunbookList:
    found = runbook_info.list_runbook_info(wanted.beginning or "")
    return RunbookList(runbooks=[RunbookShape.of(one) for one in found])


@router.get("/log", operation_id="listEntries", summary="List the change log", tags=["log"])
def log(
    request: Request, parts: Here, caller: Reading, wanted: Annotated[LogFilter, Query()]
) -> EntryPage:
    with parts.database.reading(caller.sight) as tx:
        found = query.find_newest_entries(tx, wanted.wanted, limit=wanted.limit + 1)
        unknown_filters = (
            {} if found else describe_unknown_log_names(tx, wanted.wanted, caller.policy)
        )
        head = change_log.get_head(tx)
    shown = found[: wanted.limit]
    return EntryPage(
        entries=[schemas.EntryShape.of(entry) for entry in shown],
        head_seq=head[0],
        head_hash=head[1],
        next=_older(request, wanted, shown) if len(found) > len(shown) else None,
        unknown_filters=unknown_filters,
    )


@router.post(
    "/log/verify", operation_id="verifyLog", summary="Recompute the whole chain", tags=["log"]
)
def verify(parts: Here, caller: Reading) -> VerificationShape:
    """One is verified at a time, be it here or on the page. Takes the right to view every run."""
    with parts.database.reading(caller.sight) as tx:
        view_conditions.require_everything(tx, "Verifying the whole change log")
    seen = verification.verify_log_once(parts.database)
    return VerificationShape(
        entries=seen.entries, head=seen.head, broken=seen.broken, why=seen.why
    )


def _older(request: Request, wanted: LogFilter, shown: Sequence[Entry]) -> str:
    same = wanted.model_dump(mode="json", exclude_unset=True, exclude={"before", "limit"})
    given = {**same, "before": shown[-1].seq, "limit": wanted.limit}
    return f"{request.url.path}?{urlencode(given, doseq=True)}"
