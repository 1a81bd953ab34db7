"""The policy in plain words: what everybody may do, or one person."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas_in import Given, Word
from bot.model.errors import InvalidRequestError
from bot.policy.summary.current import summarise_current_policy
from bot.policy.summary.model import AreaSummary, Clause, FreezeSummary, PeopleSummary

router = APIRouter(tags=["policy"])


class ClauseShape(schemas.Shape):
    """sentence: all of it. approvals: how many keys of others it takes. rules: words by name."""

    sentence: str
    approvals: int
    who: str
    rules: Mapping[str, str]
    notes: Sequence[str]

    @classmethod
    def of(cls, one: Clause) -> "ClauseShape":
        return cls(
            sentence=one.sentence,
            approvals=one.required_approvals,
            who=one.approver_names,
            rules=dict(one.rules),
            notes=one.notes,
        )


class ChapterShape(schemas.Shape):
    """What people may do who may all do the same. people: names by their ids.

    views: runs of others that are shown to them.
    """

    people: Mapping[str, str]
    at_once: Sequence[ClauseShape]
    after_approval: Sequence[ClauseShape]
    refused: Sequence[ClauseShape]
    approves: Sequence[ClauseShape]
    emergency: Sequence[ClauseShape]
    orders: Sequence[ClauseShape]
    views: Sequence[ClauseShape]

    @classmethod
    def of(cls, one: PeopleSummary) -> "ChapterShape":
        def drawn(clauses: Sequence[Clause]) -> list[ClauseShape]:
            return [ClauseShape.of(clause) for clause in clauses]

        return cls(
            people=one.people,
            at_once=drawn(one.without_approval),
            after_approval=drawn(one.with_approval),
            refused=drawn(one.refused),
            approves=drawn(one.can_approve),
            emergency=drawn(one.break_glass),
            orders=drawn(one.administration),
            views=drawn(one.can_view),
        )


class AreaShape(schemas.Shape):
    """owners: by name, those who have the final say there."""

    name: str
    title: str
    owners: Sequence[str]
    hosts: Sequence[str]

    @classmethod
    def of(cls, one: AreaSummary) -> "AreaShape":
        return cls(name=one.name, title=one.title, owners=one.owners, hosts=one.hosts)


class FreezeShape(schemas.Shape):
    """holds: now; otherwise it is to come. sentence: what it holds up, and when."""

    name: str
    holds: bool
    begins_at: datetime
    ends_at: datetime
    sentence: str

    @classmethod
    def of(cls, one: FreezeSummary) -> "FreezeShape":
        return cls(
            name=one.name,
            holds=one.is_active,
            begins_at=one.begins_at,
            ends_at=one.ends_at,
            sentence=one.sentence,
        )


class CharterShape(schemas.Shape):
    """version: of the policy directory. no_undo: the changes that cannot be taken back."""

    version: str
    chapters: Sequence[ChapterShape]
    areas: Sequence[AreaShape]
    freezes: Sequence[FreezeShape]
    no_undo: Sequence[str]


class Whose(Given):
    person: Word | None = None


@router.get("/policy", operation_id="getPolicy", summary="Tell the policy in plain words")
def policy(parts: Here, caller: Reading, wanted: Annotated[Whose, Query()]) -> CharterShape:
    person = wanted.person or ""
    if person and caller.policy.find_person(person) is None:
        raise InvalidRequestError(f"{person} is not among the people of the policy")
    with parts.database.reading(caller.sight) as tx:
        now = tx.now
    found = summarise_current_policy(caller.policy, now, person=person)
    return CharterShape(
        version=found.version,
        chapters=[ChapterShape.of(one) for one in found.chapters],
        areas=[AreaShape.of(one) for one in found.areas],
        freezes=[FreezeShape.of(one) for one in found.freezes],
        no_undo=found.irreversible_changes,
    )
