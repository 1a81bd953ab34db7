"""Foresight: what would come of a request, and what the policy lets somebody have done."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot import forms
from bot.api import shapes
from bot.api.caller import Caller, Reading
from bot.api.given import Given, Text, Word
from bot.api.parts import ApiParts, Here
from bot.api.thread import InOneThread
from bot.foresight import evident, foresee
from bot.outlook import Answer, Outlook, Question, question
from bot.workflow import Unfit
from connectors.trouble import UnknownHost
from runbooks import AnyRunbook

router = APIRouter(prefix="/policy", tags=["policy"], route_class=InOneThread)


class AnswerShape(shapes.Shape):
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
    def of(cls, answer: Answer) -> "AnswerShape":
        seen = answer.prospect
        return cls(
            area=answer.area,
            hosts=answer.hosts,
            allowed=seen.allowed,
            approvals=seen.approvals,
            whose=seen.whose,
            approvers=seen.approvers,
            says=seen.says,
            frozen=answer.frozen,
            views=seen.views,
        )


class OutlookShape(shapes.Shape):
    """What somebody may have done. usual_wait_seconds: of such requests, for their approvals."""

    person: str
    runbook: str
    allowed: bool
    usual_wait_seconds: int | None
    sentences: Sequence[str]
    answers: Sequence[AnswerShape]

    @classmethod
    def of(cls, seen: Outlook, *, who: str) -> "OutlookShape":
        return cls(
            person=seen.person,
            runbook=seen.runbook,
            allowed=seen.allowed,
            usual_wait_seconds=None if seen.wait is None else round(seen.wait / 1_000_000),
            sentences=seen.sentences(who=who),
            answers=[AnswerShape.of(answer) for answer in seen.answers],
        )


class MayI(Given):
    """words: a runbook's and where, such as `abusers clear lb*`. person: you, if left out."""

    words: Text
    person: Word | None = None


@router.get("/outlook", operation_id="mayI", summary="Say whether somebody may have it done")
def may_i(parts: Here, caller: Reading, asked: Annotated[MayI, Query()]) -> OutlookShape:
    meant = question(caller.policy, forms.split(asked.words))
    person = asked.person or caller.id
    known = caller.policy.person(person)
    if known is None:
        raise Unfit(f"{person} is not among the people of the policy")
    mine = person == caller.id
    return _seen(parts, caller, meant, person=person, who="You" if mine else known.name)


def foreseen(
    parts: ApiParts, caller: Caller, runbook: type[AnyRunbook], hosts: Sequence[str]
) -> OutlookShape:
    """Return what would come of the caller's request. Raises Unfit for an unknown host."""
    try:
        for host in hosts:
            caller.policy.inventory[host]
    except UnknownHost as unknown:
        raise Unfit(str(unknown)) from None
    return _seen(parts, caller, Question(runbook, hosts), person=caller.id, who="You")


def _seen(
    parts: ApiParts, caller: Caller, meant: Question, *, person: str, who: str
) -> OutlookShape:
    seen = evident(caller.policy, meant, person=person, door="api", now=caller.came)
    if seen is None:
        with parts.database.reading(caller.sight) as tx:
            seen = foresee(tx, caller.policy, meant, person=person, door="api")
    return OutlookShape.of(seen, who=who)
