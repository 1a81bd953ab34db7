"""The policy in words: what everyone may do, or one person."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel, Word
from bot.model.errors import InvalidRequestError
from bot.policy.summary.current import summarise_current_policy
from bot.policy.summary.model import AreaSummary, Clause, FreezeSummary, PeopleSummary

router = APIRouter(tags=["policy"])


class ClauseOut(schemas.OutputModel):
    """One statement about what people may do."""

    sentence: str
    required_approvals: int
    approvers: str = Field(description="Who must give the approvals, in words.")
    rules: Mapping[str, str] = Field(description="Descriptions of the rules, by name.")
    notes: Sequence[str]

    @classmethod
    def from_clause(cls, clause: Clause) -> "ClauseOut":
        return cls(
            sentence=clause.sentence,
            required_approvals=clause.required_approvals,
            approvers=clause.approver_names,
            rules=dict(clause.rules),
            notes=clause.notes,
        )


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

    @classmethod
    def from_summary(cls, summary: PeopleSummary) -> "PeopleOut":
        def build_clauses(clauses: Iterable[Clause]) -> list[ClauseOut]:
            return [ClauseOut.from_clause(clause) for clause in clauses]

        return cls(
            people=summary.people,
            without_approval=build_clauses(summary.without_approval),
            with_approval=build_clauses(summary.with_approval),
            refused=build_clauses(summary.refused),
            can_approve=build_clauses(summary.can_approve),
            break_glass=build_clauses(summary.break_glass),
            administration=build_clauses(summary.administration),
            can_view=build_clauses(summary.can_view),
        )


class AreaOut(schemas.OutputModel):
    name: str
    title: str
    owners: Sequence[str] = Field(description="Names of the owners.")
    hosts: Sequence[str]

    @classmethod
    def from_summary(cls, area: AreaSummary) -> "AreaOut":
        return cls(name=area.name, title=area.title, owners=area.owners, hosts=area.hosts)


class FreezeOut(schemas.OutputModel):
    name: str
    active: bool = Field(description="Whether it applies now; otherwise it is upcoming.")
    begins_at: datetime
    ends_at: datetime
    sentence: str = Field(description="What it holds, and when.")

    @classmethod
    def from_summary(cls, freeze: FreezeSummary) -> "FreezeOut":
        return cls(
            name=freeze.name,
            active=freeze.is_active,
            begins_at=freeze.begins_at,
            ends_at=freeze.ends_at,
            sentence=freeze.sentence,
        )


class PolicyOut(schemas.OutputModel):
    version: str = Field(description="Hash of the policy directory.")
    people: Sequence[PeopleOut]
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
    summary = summarise_current_policy(caller.policy, now, person=person)
    return PolicyOut(
        version=summary.version,
        people=[PeopleOut.from_summary(people) for people in summary.chapters],
        areas=[AreaOut.from_summary(area) for area in summary.areas],
        freezes=[FreezeOut.from_summary(freeze) for freeze in summary.freezes],
        irreversible_changes=summary.irreversible_changes,
    )
