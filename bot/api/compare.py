"""Comparison of two runs, line by line."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from bot.api import schemas
from bot.api.auth import ReadCaller
from bot.api.deps import Parts
from bot.api.schemas_in import InputModel
from bot.queries.compare import ComparedRun, compare_runs, find_runs_to_compare

router = APIRouter(tags=["runs"])

RunNumber = Annotated[int, Field(ge=1, le=2_147_483_647)]


class ComparedLineOut(schemas.OutputModel):
    """One line of both runs."""

    kind: Literal["alike", "changed", "left", "right", "folded"]
    left: str | None = Field(description="Null if only the right run has the line.")
    right: str | None = Field(description="Null if only the left run has the line.")
    folded: int = Field(description="Number of equal lines that a `folded` line stands for.")


class ComparedSectionOut(schemas.OutputModel):
    title: str = Field(examples=["Plan"])
    differing: int = Field(
        validation_alias="differing_lines", description="Number of lines that differ."
    )
    lines: Sequence[ComparedLineOut]


class ComparisonOut(schemas.OutputModel):
    left: schemas.RunOut | None = Field(
        description="Null if there is no earlier run of the same command, and then no sections."
    )
    right: schemas.RunOut
    differing: int = Field(description="Number of lines that differ in all sections.")
    sections: Sequence[ComparedSectionOut]


class CompareQuery(InputModel):
    b: RunNumber = Field(description="The run on the right.")
    a: RunNumber | None = Field(
        None, description="The run on the left; default: the previous run that is similar to b."
    )


@router.get("/runs/compare", operation_id="compareRuns", summary="Compare two runs")
def compare(
    parts: Parts, caller: ReadCaller, query: Annotated[CompareQuery, Query()]
) -> ComparisonOut:
    """Compares the output of hosts too. Equal lines far from a difference are folded."""
    with parts.database.reading(caller.view_rights) as tx:
        left, right = find_runs_to_compare(tx, query.b, query.a, name_person=str)
    sections = compare_runs(left, right) if left else []

    def build_run(side: ComparedRun) -> schemas.RunOut:
        return schemas.RunOut.from_run(side.run, side.decisions, parts.base_url)

    return ComparisonOut(
        left=build_run(left) if left else None,
        right=build_run(right),
        differing=sum(section.differing_lines for section in sections),
        sections=[ComparedSectionOut.model_validate(section) for section in sections],
    )
