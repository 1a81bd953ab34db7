"""Previews: what a request would need, and what the policy allows a person."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Caller, ReadCaller
from bot.api.deps import ApiParts, Parts
from bot.api.schemas_in import InputModel, Text, Word
from bot.model import request_form
from bot.model.errors import InvalidRequestError
from bot.policy.explain import AreaEvaluation, Preview, PreviewQuestion, parse_preview_question
from bot.queries.preview import preview_request
from connectors.errors import UnknownHostError
from runbooks import AnyRunbook

router = APIRouter(prefix="/policy", tags=["policy"])


class AreaPreviewOut(schemas.OutputModel):
    """What applies to the hosts of one area."""

    area: str
    hosts: Sequence[str]
    allowed: bool
    required_approvals: int
    at_least: bool = Field(
        description="Whether a rule depends on the plan: it may require more approvals, or refuse."
    )
    approvals_from: str = Field(description="Who must give the approvals, in words.")
    approvers: Sequence[str]
    policy_notes: Sequence[str] = Field(description="The descriptions of the rules that apply.")
    frozen: str = Field(description="The freeze that holds changes there now; empty if none.")
    grant: str = Field(
        description="The standing grant that replaces the approvals, in a sentence; empty if none."
    )
    can_view: bool = Field(description="Whether the person may view such runs of other people.")

    @classmethod
    def from_evaluation(cls, area: AreaEvaluation) -> "AreaPreviewOut":
        evaluation = area.evaluation
        return cls(
            area=area.area,
            hosts=area.hosts,
            allowed=evaluation.allowed,
            required_approvals=evaluation.required_approvals,
            at_least=evaluation.is_lower_bound,
            approvals_from=evaluation.approvals_from,
            approvers=evaluation.approvers,
            policy_notes=evaluation.policy_notes,
            frozen=area.freeze,
            grant=area.grant,
            can_view=evaluation.can_view,
        )


class PreviewOut(schemas.OutputModel):
    """What a request would need."""

    person: str
    runbook: str
    allowed: bool
    stop: str = Field(
        description="Who stopped everything, and why: a request now ends without a command. Empty "
        "if nothing is stopped."
    )
    usual_wait_seconds: int | None = Field(
        description="How long approvals of such requests usually take; null if unknown."
    )
    sentences: Sequence[str] = Field(description="The whole preview in words.")
    areas: Sequence[AreaPreviewOut]

    @classmethod
    def from_preview(cls, preview: Preview, *, subject: str) -> "PreviewOut":
        return cls(
            person=preview.person,
            runbook=preview.runbook,
            allowed=preview.allowed,
            stop=preview.stop,
            usual_wait_seconds=None
            if preview.usual_wait is None
            else round(preview.usual_wait / 1_000_000),
            sentences=preview.describe(subject=subject),
            areas=[AreaPreviewOut.from_evaluation(area) for area in preview.areas],
        )


class PreviewQuery(InputModel):
    request: Text = Field(description="A runbook and its hosts.", examples=["abusers clear lb*"])
    person: Word | None = Field(None, description="Default: you.")


@router.get(
    "/preview",
    operation_id="previewRequest",
    summary="Get what a request would need, or whether it is allowed",
)
def get_preview(
    parts: Parts, caller: ReadCaller, query: Annotated[PreviewQuery, Query()]
) -> PreviewOut:
    question = parse_preview_question(caller.policy, request_form.split_words(query.request))
    person_id = query.person or caller.id
    person = caller.policy.find_person(person_id)
    if person is None:
        raise InvalidRequestError(f"unknown person {person_id}: use an id of people.yaml")
    subject = "You" if person_id == caller.id else person.name
    return _build_preview(parts, caller, question, person=person_id, subject=subject)


def preview_own_request(
    parts: ApiParts, caller: Caller, runbook: type[AnyRunbook], hosts: Sequence[str]
) -> PreviewOut:
    """Return what a request of the caller needs. Raises InvalidRequestError for unknown hosts."""
    try:
        for host in hosts:
            caller.policy.inventory[host]
    except UnknownHostError as error:
        raise InvalidRequestError(str(error)) from None
    question = PreviewQuestion(runbook, hosts)
    return _build_preview(parts, caller, question, person=caller.id, subject="You")


def _build_preview(
    parts: ApiParts, caller: Caller, question: PreviewQuestion, *, person: str, subject: str
) -> PreviewOut:
    with parts.database.reading(caller.view_rights) as tx:
        preview = preview_request(tx, caller.policy, question, person=person, source="api")
    return PreviewOut.from_preview(preview, subject=subject)
