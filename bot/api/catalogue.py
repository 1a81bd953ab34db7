"""Runbooks with their fields, the change log, and the caller's own token."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from bot.api import records, schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel, RunStatus, Timestamp, Word, to_microseconds
from bot.audit import change_log, entry_proof, verification
from bot.db import view_conditions
from bot.db.search import RunFilter
from bot.db.search_words import parse_search
from bot.model import runbook_info
from bot.model.run import RUN_STATUSES
from bot.queries import log_search
from bot.queries.unknown_filters import describe_unknown_log_names

router = APIRouter()


class FieldOut(schemas.OutputModel):
    """One field of a runbook's form."""

    name: str
    label: str
    hint: str
    kind: str = Field(description="`host`, `choice` or `text`.")
    required: bool
    choices: Sequence[str]
    default: str
    tag: str = Field(description="The tag that a host must have; empty for any host.")
    lists: str = Field(
        description="What the host lists as options of the field, such as `pools`; empty if "
        "nothing."
    )
    within: Sequence[str] = Field(description="The fields on which these options depend.")


class RunbookOut(schemas.OutputModel):
    """A runbook and its fields."""

    name: str
    kind: str
    effect: str = Field(
        description="`check`, `change`, or `irreversible` for a change without an undo."
    )
    summary: str
    usage: str
    example: str
    tag: str = Field(description="The tag that a host must have; empty for any host.")
    undo: str = Field(description="What the undo does; empty if there is none.")
    custom: bool = Field(
        validation_alias="is_custom",
        description="Whether the runbook is your own, and not part of Keyturn.",
    )
    fields: Sequence[FieldOut] = Field(validation_alias="form_fields")


class RunbookListOut(schemas.OutputModel):
    runbooks: Sequence[RunbookOut]


class EntryPageOut(schemas.OutputModel):
    """One page of the change log, newest entries first."""

    entries: Sequence[schemas.EntryOut]
    head_seq: int = Field(description="Number of the newest entry of the whole log.")
    head_root: str = Field(description="Root over all entries up to it, in base64.")
    next: str | None = Field(description="Address of the next page; null on the last.")
    unknown_filters: dict[str, str] = Field(
        description="If no entry matches: the filters that name a person, host, … that neither "
        "the policy nor the log has."
    )


class ProofOut(schemas.OutputModel):
    """Proof that one entry is in the log."""

    proof: str = Field(
        description="In the format tlog-proof of C2SP: the entry as extra data, its audit path, "
        "and a signed checkpoint."
    )


class LogVerificationOut(schemas.OutputModel):
    """Result of verifying the whole change log."""

    entries: int
    root: str
    broken: int | None = Field(description="Number of the first invalid entry; null if none.")
    error: str = Field(validation_alias="why", description="What is wrong with it.")


class MeOut(schemas.OutputModel):
    """The person, scopes and expiry of the token."""

    person: str
    name: str
    roles: Sequence[str]
    owns: Sequence[str] = Field(description="The areas that the person owns.")
    token: str = Field(description="The beginning of the token, which identifies it.")
    token_name: str
    scopes: Sequence[str]
    expires_at: datetime


class RunbookQuery(InputModel):
    prefix: Word | None = Field(None, description="Only runbooks whose name begins with this.")


class EntryQuery(InputModel):
    """Which entries of the change log to list."""

    host: Word | None = Field(None, description="A name, or a pattern such as `web*`.")
    person: Word | None = Field(None, description="Who acted.")
    kind: Word | None = Field(None, description="Kind of entry, such as `approved`.")
    since: Timestamp | None = Field(None, description="Only entries at or after this time.")
    until: Timestamp | None = Field(None, description="Only entries at or before this time.")
    area: Word | None = Field(None, description="Area of the run.")
    runbook: Word | None = Field(None, description="Runbook of the run.")
    state: list[RunStatus] = Field(
        default_factory=list[str],
        max_length=len(RUN_STATUSES),
        description="Current state of the run.",
    )
    search: Word | None = Field(None, description="Words that all occur in the run.")
    before: int | None = Field(
        None,
        ge=1,
        le=9_007_199_254_740_991,
        description="Only entries with a lower number; `next` of a page sets it.",
    )
    limit: int = Field(50, ge=1, le=500, description="Number of entries on a page.")

    @property
    def filter(self) -> log_search.EntryFilter:
        run_filter = None
        if self.area or self.runbook or self.state or self.search:
            run_filter = RunFilter(
                area=self.area,
                runbook=" ".join(self.runbook.lower().split()) if self.runbook else None,
                states=frozenset(self.state),
                text=tuple(parse_search(self.search or "")),
            )
        return log_search.EntryFilter(
            host=(self.host or "").lower(),
            person=self.person or "",
            kind=self.kind or "",
            since=to_microseconds(self.since),
            until=to_microseconds(self.until),
            run_filter=run_filter,
            before=self.before,
        )


@router.get("/me", operation_id="getMe", summary="Get your person and token", tags=["token"])
def get_me(caller: ReadCaller) -> MeOut:
    areas = caller.policy.organisation.areas.values()
    return MeOut(
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
def list_runbooks(_: ReadCaller, query: Annotated[RunbookQuery, Query()]) -> RunbookListOut:
    found = runbook_info.list_runbook_info(query.prefix or "")
    return RunbookListOut.model_validate({"runbooks": found})


@router.get("/log", operation_id="listEntries", summary="List change log entries", tags=["log"])
def list_entries(
    request: Request,
    parts: Parts,
    caller: ReadCaller,
    filters: Annotated[EntryQuery, Query()],
) -> EntryPageOut:
    with parts.database.reading(caller.view_rights) as tx:
        found = log_search.find_newest_entries(tx, filters.filter, limit=filters.limit + 1)
        unknown_filters = (
            {} if found else describe_unknown_log_names(tx, filters.filter, caller.policy)
        )
        head_seq, head_root = change_log.get_head(tx)
    page = found[: filters.limit]
    return EntryPageOut(
        entries=[schemas.EntryOut.from_entry(entry) for entry in page],
        head_seq=head_seq,
        head_root=head_root,
        next=records.build_next_link(request, page[-1].seq) if len(found) > len(page) else None,
        unknown_filters=unknown_filters,
    )


@router.get(
    "/log/{number}/proof",
    operation_id="proveEntry",
    summary="Get a proof of one change log entry",
    tags=["log"],
)
def prove_entry(
    parts: Parts, caller: ReadCaller, number: Annotated[int, Path(ge=1, le=2**53 - 1)]
) -> ProofOut:
    """Anyone verifies it without the log, for example with docs/verify_changelog.py."""
    with parts.database.reading(caller.view_rights) as tx:
        return ProofOut(proof=entry_proof.build_proof(tx, number))


@router.post(
    "/log/verify",
    operation_id="verifyLog",
    summary="Verify the whole change log",
    tags=["log"],
)
def verify_log(parts: Parts, caller: ReadCaller) -> LogVerificationOut:
    """Needs the right to view every run. Only one verification runs at a time."""
    with parts.database.reading(caller.view_rights) as tx:
        view_conditions.require_everything(tx, "Verifying the whole change log")
    return LogVerificationOut.model_validate(verification.verify_log_once(parts.database))
