"""Foresight: what would come of a request, and what the policy lets somebody have done."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Caller, Reading
from bot.api.deps import ApiParts, Here
from bot.api.schemas_in import Given, Text, Word
from bot.model import request_form
from bot.model.errors import InvalidRequestError
from bot.policy.explain import AreaEvaluation, Preview, PreviewQuestion, parse_preview_question
from bot.workflow.preview import preview_request, preview_without_database
from connectors.errors import UnknownHostError
from runbooks import AnyRunbook

router = APIRouter(prefix="/policy", tags=["policy"])


class AnswerShape(schemas.Shape):
    """What holds in one area. frozen: why changes wait there now; "" if they do not."""

    area: str
    hosts: Sequence[str]
    allowed: bool
    approvals: int
    whose: str
    approvers: Sequence[str]
    says: Sequence[str]
    frozen: str
    views: bool = Field(description="Whether runs of others like this are shown to the person.")

    @classmethod
    def of(cls, answer: AreaEvaluation) -> "AnswerShape":
        seen = answer.evaluation
        return cls(
            area=answer.area,
            hosts=answer.hosts,
            allowed=seen.allowed,
            approvals=seen.required_approvals,
            whose=seen.approvals_from,
            approvers=seen.approvers,
            says=seen.policy_notes,
            frozen=answer.freeze,
            views=seen.can_view,
        )


class OutlookShape(schemas.Shape):
    """What somebody may have done. usual_wait_seconds: of such requests, for their approvals."""

    person: str
    runbook: str
    allowed: bool
    usual_wait_seconds: int | None
    sentences: Sequence[str]
    answers: Sequence[AnswerShape]

    @classmethod
    def of(cls, seen: Preview, *, who: str) -> "OutlookShape":
        return cls(
            person=seen.person,
            runbook=seen.runbook,
            allowed=seen.allowed,
            usual_wait_seconds=None
            if seen.usual_wait is None
            else round(seen.usual_wait / 1_000_000),
            sentences=seen.describe(subject=who),
            answers=[AnswerShape.of(answer) for answer in seen.areas],
        )


class MayI(Given):
    """words: a runbook's and where, such as `abusers clear lb*`. person: you, if left out."""

    words: Text
    person: Word | None = None


@router.get("/outlook", operation_id="mayI", summary="Say whether somebody may have it done")
def may_i(parts: Here, caller: Reading, asked: Annotated[MayI, Query()]) -> OutlookShape:
    meant = parse_preview_question(caller.policy, request_form.split_words(asked.words))
    person = asked.person or caller.id
    known = caller.policy.find_person(person)
    if known is None:
        raise InvalidRequestError(f"{person} is not among the people of the policy")
    mine = person == caller.id
    return _seen(parts, caller, meant, person=person, who="You" if mine else known.name)


def foreseen(
    parts: ApiParts, caller: Caller, runbook: type[AnyRunbook], hosts: Sequence[str]
) -> OutlookShape:
    """Return what would come of the caller's request. Raises Unfit for an unknown host."""
    try:
        for host in hosts:
            caller.policy.inventory[host]
    except UnknownHostError as unknown:
        raise InvalidRequestError(str(unknown)) from None
    return _seen(parts, caller, PreviewQuestion(runbook, hosts), person=caller.id, who="You")


def _seen(
    parts: ApiParts, caller: Caller, meant: PreviewQuestion, *, person: str, who: str
) -> OutlookShape:
    seen = preview_without_database(
        caller.policy, meant, person=person, source="api", now=caller.came
    )
    if seen is None:
        with parts.database.reading(caller.sight) as tx:
            seen = preview_request(tx, caller.policy, meant, person=person, source="api")
    return OutlookShape.of(seen, who=who)
