"""The policy in words: what everyone may do, or one person."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel, Word
from bot.model.errors import InvalidRequestError
from bot.policy.summary.current import summarise_current_policy

router = APIRouter(tags=["policy"])


class ClauseOut(schemas.OutputModel):
    """One statement about what people may do."""

    sentence: str
    required_approvals: int
    approvers: str = Field(
        validation_alias="approver_names", description="Who must give the approvals, in words."
    )
    rules: Annotated[Mapping[str, str], BeforeValidator(dict)] = Field(
        description="Descriptions of the rules, by name."
    )
    notes: Sequence[str]


class PeopleOut(schemas.OutputModel):
    """People with the same rights, and these rights."""

    people: Mapping[str, str] = Field(description="Names by id.")
    without_approval: Sequence[ClauseOut]
    with_approval: Sequence[ClauseOut]
    refused: Sequence[ClauseOut]
    can_approve: Sequence[ClauseOut]
    break_glass: Sequence[ClauseOut]
    administration: Sequence[ClauseOut]
    can_view: Sequence[ClauseOut] = Field(description="Runs of other people that they may view.")


class AreaOut(schemas.OutputModel):
    name: str
    title: str
    owners: Sequence[str] = Field(description="Names of the owners.")
    hosts: Sequence[str]


class FreezeOut(schemas.OutputModel):
    name: str
    active: bool = Field(
        validation_alias="is_active",
        description="Whether it applies now; otherwise it is upcoming.",
    )
    begins_at: datetime
    ends_at: datetime
    sentence: str = Field(description="What it holds, and when.")


class PolicyOut(schemas.OutputModel):
    version: str = Field(description="Hash of the policy directory.")
    people: Sequence[PeopleOut] = Field(validation_alias="chapters")
    areas: Sequence[AreaOut]
    freezes: Sequence[FreezeOut]
    irreversible_changes: Sequence[str]


class PolicyQuery(InputModel):
    person: Word | None = Field(None, description="Only what this person may do.")


@router.get("/policy", operation_id="getPolicy", summary="Get the policy in words")
def get_policy(
    parts: Parts, caller: ReadCaller, query: Annotated[PolicyQuery, Query()]
) -> PolicyOut:
    person = query.person or ""
    if person and caller.policy.find_person(person) is None:
        raise InvalidRequestError(f"unknown person {person}: use an id of people.yaml")
    with parts.database.reading(caller.view_rights) as tx:
        now = tx.now
    return PolicyOut.model_validate(summarise_current_policy(caller.policy, now, person=person))
