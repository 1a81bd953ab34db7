"""Output of a step, as a download or filtered by a text."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response

from bot.model.text import escape_control
from bot.queries.run_view import build_run_view
from bot.web.visit import IdPath, Visit

router = APIRouter(prefix="/runs/{number}/output")


@router.get("/{step}.txt")
def show_output(
    visit: Visit,
    number: IdPath,
    step: IdPath,
    filter_text: Annotated[str, Query(alias="filter", max_length=200)] = "",
) -> Response:
    """Return the whole output as a file, or the lines that contain *filter_text*, with numbers."""
    with visit.read_viewable() as tx:
        record = build_run_view(tx, number, None, with_log=False).step_records.get(step)
    if record is None or not record.output.strip():
        raise HTTPException(404, f"No output of step {step} of run {number} is stored.")
    text = escape_control(record.output)
    search_text = filter_text.strip().casefold()
    if search_text:
        return Response(_filter_lines(text, search_text), media_type="text/plain; charset=utf-8")
    disposition = f'attachment; filename="run-{number}-step-{step}.txt"'
    headers = {"Content-Disposition": disposition}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")


def _filter_lines(text: str, search_text: str) -> str:
    lines = text.splitlines()
    matches = [f"{n}: {line}" for n, line in enumerate(lines, 1) if search_text in line.casefold()]
    return "\n".join([f"{len(matches)} of {len(lines)} lines", "", *matches, ""])
