"""What a host answered in a step, as a file to keep, or the lines of it with given words."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Response

from bot.model.text import escape_control
from bot.web.auth import CurrentVisitor
from bot.web.deps import WebDeps
from bot.workflow.run_view import build_run_view

router = APIRouter(prefix="/runs/{number}/output")

RunIdPath = Annotated[int, Path(ge=1, le=2_147_483_647)]


@router.get("/{step}.txt")
def show_output(
    parts: WebDeps,
    visitor: CurrentVisitor,
    number: RunIdPath,
    step: RunIdPath,
    find: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Hand out all of it, or show the lines that hold the words, each with its number."""
    with parts.database.reading(visitor.view_rights) as tx:
        record = build_run_view(tx, number, None, with_log=False).step_records.get(step)
    if record is None or not record.output.strip():
        raise HTTPException(404, f"No output of step {step} of run {number} is kept.")
    said = escape_control(record.output)
    wanted = find.strip().casefold()
    if wanted:
        return Response(_find_lines(said, wanted), media_type="text/plain; charset=utf-8")
    name = f'attachment; filename="run-{number}-step-{step}.txt"'
    headers = {"Content-Disposition": name}
    return Response(said, headers=headers, media_type="text/plain; charset=utf-8")


def _find_lines(text: str, search_text: str) -> str:
    lines = text.splitlines()
    found = [f"{n}: {line}" for n, line in enumerate(lines, 1) if search_text in line.casefold()]
    return "\n".join([f"{len(found)} of {len(lines)} lines", "", *found, ""])
