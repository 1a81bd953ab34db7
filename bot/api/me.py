"""What waits for the caller, and the delegations and grants that concern them."""

from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.db import delegations, grants, runs
from bot.db.grants import Grant
from bot.queries import break_glass_rules, pending
from bot.queries.pending import CounterProposal, OpenQuestion

router = APIRouter(tags=["mine"])


class OfferedRunOut(schemas.CounterProposalOut):
    """Other values that an approver proposes for your request: accept or withdraw them."""

    run: schemas.RunOut = Field(description="The run that has these values.")

    @classmethod
    def from_run(cls, proposal: CounterProposal, base_url: str) -> "OfferedRunOut":
        known = schemas.CounterProposalOut.from_proposal(proposal)
        return cls(run=schemas.RunOut.from_run(proposal.run, (), base_url), **dict(known))


class OpenQuestionOut(schemas.OutputModel):
    """A question about your request that is not answered yet."""

    run: schemas.RunOut
    person: str
    at: schemas.StoredTime
    text: str

    @classmethod
    def from_question(cls, one: OpenQuestion, base_url: str) -> "OpenQuestionOut":
        return cls(
            run=schemas.RunOut.from_run(one.run, (), base_url),
            person=one.question.person,
            at=schemas.to_datetime(one.question.at),
            text=one.question.text,
        )


class AssignmentOut(schemas.OutputModel):
    """Who assigned a run to you, to decide it."""

    run: int
    assigned_by: str
    at: schemas.StoredTime
    reason: str


class PendingOut(schemas.OutputModel):
    """What waits for the caller."""

    runs: Sequence[schemas.RunOut] = Field(
        description="Runs to resolve, then runs to sign or decide, first those assigned to you."
    )
    to_sign: Sequence[int] = Field(
        description="Which of the runs you requested and sign, before approvers decide them."
    )
    assigned: Sequence[AssignmentOut] = Field(
        description="Which of the runs are assigned to you, and by whom."
    )
    questions: Sequence[OpenQuestionOut] = Field(
        description="About your pending requests, to answer."
    )
    to_review: Sequence[schemas.ReviewOut]
    counter_proposals: Sequence[OfferedRunOut] = Field(
        description="For your own requests, to accept or withdraw."
    )
    planned: Sequence[schemas.RunOut] = Field(description="Your plans that are not requested yet.")


class DelegationOut(schemas.OutputModel):
    """A person who decides on behalf of an owner."""

    id: int
    delegator: str
    delegate: str
    area: str = Field(description="Empty for every area of the owner.")
    since: schemas.StoredTime = Field(validation_alias="created_at")
    until: schemas.StoredTime = Field(validation_alias="ends_at")
    reason: str


class GrantOut(schemas.OutputModel):
    """A standing grant: requests of a person that are approved in advance."""

    id: int
    granted_by: str
    person: str
    runbook: str
    hosts: str
    values: Mapping[str, str]
    per_hour: int
    uses_left: int = Field(description="Number of uses left in the current hour.")
    since: schemas.StoredTime
    until: schemas.StoredTime
    reason: str

    @classmethod
    def from_grant(cls, grant: Grant, uses_left: int) -> "GrantOut":
        return cls(
            id=grant.id,
            granted_by=grant.granted_by,
            person=grant.person,
            runbook=grant.runbook,
            hosts=grant.hosts,
            values=grant.values,
            per_hour=grant.per_hour,
            uses_left=uses_left,
            since=schemas.to_datetime(grant.created_at),
            until=schemas.to_datetime(grant.ends_at),
            reason=grant.reason,
        )


class AccessOut(schemas.OutputModel):
    """Active delegations and grants by or for the caller. People manage them on the web page."""

    delegations: Sequence[DelegationOut]
    grants: Sequence[GrantOut]


@router.get("/pending", operation_id="listPending", summary="List what needs your action")
def list_pending(parts: Parts, caller: ReadCaller) -> PendingOut:
    with parts.database.reading(caller.view_rights) as tx:
        inbox = pending.read_inbox(tx, caller.policy, caller.id)
        found = inbox.runs
        decisions = runs.list_decisions_on(tx, [run.id for run in found])
        to_review = break_glass_rules.list_reviewable(tx, caller.policy, caller.id)
        planned = pending.list_own_plans(tx, caller.id)
    return PendingOut(
        runs=[
            schemas.RunOut.from_run(run, decisions.get(run.id, ()), parts.base_url)
            for run in found
        ],
        to_sign=sorted(inbox.to_sign),
        assigned=[
            AssignmentOut(
                run=run,
                assigned_by=one.assigned_by,
                at=schemas.to_datetime(one.at),
                reason=one.reason,
            )
            for run, one in inbox.assignments.items()
        ],
        questions=[OpenQuestionOut.from_question(one, parts.base_url) for one in inbox.questions],
        to_review=[schemas.ReviewOut.model_validate(one) for one in to_review],
        counter_proposals=[OfferedRunOut.from_run(one, parts.base_url) for one in inbox.proposals],
        planned=[schemas.RunOut.from_run(run, (), parts.base_url) for run in planned],
    )


@router.get("/access", operation_id="getAccess", summary="List your delegations and grants")
def get_access(parts: Parts, caller: ReadCaller) -> AccessOut:
    with parts.database.reading(caller.view_rights) as tx:
        active_delegations = delegations.list_active_delegations_of(tx, caller.id)
        active_grants = [
            GrantOut.from_grant(grant, grants.count_uses_left(tx, grant))
            for grant in grants.list_newest_active_grants(tx, caller.id)
        ]
    return AccessOut(
        delegations=[DelegationOut.model_validate(one) for one in active_delegations],
        grants=active_grants,
    )
