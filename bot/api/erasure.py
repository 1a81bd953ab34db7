"""Erasing what hosts answered: seen and asked for here, and confirmed on the page, by a person."""

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter

from bot.api import schemas
from bot.api.auth import Asking, Caller, Reading
from bot.api.deps import ApiParts, Here
from bot.api.idempotency import DESCRIBED, Once
from bot.api.schemas_in import Because, Number
from bot.audit.change_log import Entry
from bot.audit.output import StoredOutput
from bot.db import runs
from bot.workflow import erasure

router = APIRouter(prefix="/runs/{number}/erasure", tags=["runs"], route_class=Once)


class AnswerShape(schemas.Shape):
    """What a host answered, kept apart from the log. step: 0 for a report. entry: of the log."""

    run: int
    step: int
    entry: int
    characters: int

    @classmethod
    def of(cls, one: StoredOutput) -> "AnswerShape":
        return cls(
            run=one.run_id, step=one.step_number, entry=one.entry_seq, characters=len(one.text)
        )


class WishShape(schemas.Shape):
    """Somebody's word about it. why: their reason."""

    person: str
    at: datetime
    why: str

    @classmethod
    def of(cls, entry: Entry | None) -> "WishShape | None":
        if entry is None:
            return None
        return cls(
            person=entry.person,
            at=schemas.to_datetime(entry.at),
            why=str(entry.facts.get("reason", "")),
        )


class ErasureShape(schemas.Shape):
    """What would be erased. asked, declined: the last word of that kind, if it stands.

    page: where an owner of the area, another person, confirms or declines it.
    """

    answers: Sequence[AnswerShape]
    asked: WishShape | None
    declined: WishShape | None
    page: str


@router.get("", operation_id="getErasure", summary="Tell what could be erased of a run")
def show(parts: Here, caller: Reading, number: Number) -> ErasureShape:
    return _told(parts, caller, number)


@router.post(
    "",
    operation_id="askForErasure",
    summary="Ask to erase what hosts answered in a run",
    status_code=202,
    dependencies=[DESCRIBED],
)
def ask(parts: Here, caller: Asking, number: Number, given: Because) -> ErasureShape:
    """Nothing is erased before an owner of the area, another person, confirms it on the page."""
    login = caller.token.prefix
    parts.workflow.erasure.request_erasure(
        number, person=caller.id, reason=given.reason, source="api", login=login
    )
    return _told(parts, caller, number)


def _told(parts: ApiParts, caller: Caller, number: int) -> ErasureShape:
    with parts.database.reading(caller.sight) as tx:
        found = erasure.preview_erasure(tx, runs.get_run(tx, number))
    return ErasureShape(
        answers=[AnswerShape.of(one) for one in found.outputs],
        asked=WishShape.of(found.request),
        declined=WishShape.of(found.declined),
        page=f"{parts.base_url}/runs/{number}/erase",
    )
