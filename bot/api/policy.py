"""The policy as a matrix: what everyone may do, or one person."""

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
from bot.policy.matrix import build_current_matrix

router = APIRouter(tags=["policy"])


class RightsOut(schemas.OutputModel):
    """What people may do with some requests on some hosts."""

    what: str = Field(description="The requests, in words.")
    where: str = Field(description="The areas and hosts, in words.")
    answer: str = Field(description="allowed, approval or refused.")
    sentence: str = Field(description="The answer in words.")
    required_approvals: int
    approvals_from: str = Field(description="Whose approvals count, in words.")
    approvers: Sequence[str] = Field(description="Names of the people who can approve it.")
    has_enough_approvers: bool
    notes: Sequence[str] = Field(description="Further terms of a request, in words.")
    can_approve: bool = Field(description="Whether they can approve it if others request it.")
    can_view: bool = Field(description="Whether they can view it if others request it.")
    can_break_glass: bool
    rules: Annotated[Mapping[str, str], BeforeValidator(dict)] = Field(
        description="Descriptions of the rules, by name."
    )


class PeopleOut(schemas.OutputModel):
    """People with the same rights, and these rights."""

    people: Mapping[str, str] = Field(description="Names by id.")
    roles: Sequence[str] = Field(description="The roles that they share.")
    rights: Sequence[RightsOut]
    administration: Sequence[str] = Field(
        validation_alias="orders", description="What they may do about Keyturn itself, in words."
    )


class ConditionalRuleOut(schemas.OutputModel):
    """A rule that depends on more than the person, the runbook and the host."""

    name: str
    note: str = Field(description="Its description.")
    text: str = Field(description="The rule in Cedar.")
    depends_on: Sequence[str] = Field(description="The circumstances, in words.")


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
    people: Sequence[PeopleOut] = Field(validation_alias="groups")
    conditional_rules: Sequence[ConditionalRuleOut]
    areas: Sequence[AreaOut]
    freezes: Sequence[FreezeOut]
    irreversible_changes: Sequence[str]


class PolicyQuery(InputModel):
    person: Word | None = Field(None, description="Only what this person may do.")


@router.get("/policy", operation_id="getPolicy", summary="Get the policy as a matrix")
def get_policy(
    parts: Parts, caller: ReadCaller, query: Annotated[PolicyQuery, Query()]
) -> PolicyOut:
    person = query.person or ""
    if person and caller.policy.find_person(person) is None:
        raise InvalidRequestError(f"unknown person {person}: use an id of people.yaml")
    with parts.database.reading(caller.view_rights) as tx:
        now = tx.now
    return PolicyOut.model_validate(build_current_matrix(caller.policy, now, person=person))
