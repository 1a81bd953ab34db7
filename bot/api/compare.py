"""Comparing: two runs beside each other, line by line."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import Reading
from bot.api.deps import Here
from bot.api.schemas_in import Given
from bot.workflow.compare import (
    ComparedLine,
    ComparedRun,
    ComparedSection,
    compare_runs,
    find_runs_to_compare,
)

router = APIRouter(tags=["runs"])

Number = Annotated[int, Field(ge=1, le=2_147_483_647)]


class LineShape(schemas.Shape):
    """One line of both. left, right: null where a side has none.

    folded: how many lines that are alike stand here, where the kind is folded.
    """

    kind: Literal["alike", "changed", "left", "right", "folded"]
    left: str | None
    right: str | None
    folded: int

    @classmethod
    def of(cls, line: ComparedLine) -> "LineShape":
        return cls.model_validate(vars(line))


class SectionShape(schemas.Shape):
    """differing: how many of the lines do."""

    title: str = Field(examples=["Plan"])
    differing: int
    lines: Sequence[LineShape]

    @classmethod
    def of(cls, section: ComparedSection) -> "SectionShape":
        lines = [LineShape.of(line) for line in section.lines]
        return cls(title=section.title, differing=section.differing_lines, lines=lines)


class Compared(schemas.Shape):
    """left: null where no run is named and none before it is like it; then there are no sections.

    differing: how many lines do in all.
    """

    left: schemas.RunShape | None
    right: schemas.RunShape
    differing: int
    sections: Sequence[SectionShape]


class Both(Given):
    """b: the run on the right. a: the one on the left; else the last one before that is like b."""

    b: Number
    a: Number | None = None


@router.get("/runs/compare", operation_id="compareRuns", summary="Compare two runs")
def compare(parts: Here, caller: Reading, wanted: Annotated[Both, Query()]) -> Compared:
    """What hosts answered is compared, too. What is alike, far from any difference, is folded."""
    with parts.database.reading(caller.sight) as tx:
        left, right = find_runs_to_compare(tx, wanted.b, wanted.a, name_person=str)
    sections = [SectionShape.of(one) for one in compare_runs(left, right)] if left else []

    def told(side: ComparedRun) -> schemas.RunShape:
        return schemas.RunShape.of(side.run, side.decisions, parts.base_url)

    return Compared(
        left=told(left) if left else None,
        right=told(right),
        differing=sum(section.differing for section in sections),
        sections=sections,
    )
