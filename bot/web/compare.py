"""Compare page: two runs side by side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Annotated

from fastapi import APIRouter, Query, Response

from bot.db import runs
from bot.db.database import Transaction
from bot.db.runs import NoSuchRun
from bot.model import times
from bot.model.run import (
    Decision,
    Run,
    StepRecord,
    StepState,
    describe_decider,
    describe_source,
)
from bot.model.run_states import get_run_display
from bot.queries.run_view import find_previous_run
from bot.web.errors import render_refusal
from bot.web.visit import Visit

router = APIRouter()

RunIdsQuery = Annotated[
    Sequence[Annotated[int, Query(ge=1, le=2_147_483_647)]], Query(max_length=100)
]
RunIdQuery = Annotated[int | None, Query(ge=1, le=2_147_483_647)]


@router.get("/runs/compare")
def compare_runs_page(
    visit: Visit,
    b: RunIdQuery = None,
    a: RunIdQuery = None,
    run: RunIdsQuery = (),
) -> Response:
    """Show run *b* on the right and run *a*, or the previous run of its command, on the left.

    run: the two runs, if they were selected in a list.
    """
    if run and len(run) != 2:
        return render_refusal(visit.request, 422, f"Select two runs to compare, not {len(run)}.")
    if run:
        a, b = sorted(run)
    if b is None:
        raise NoSuchRun("run number is missing: add ?a=1&b=2 to the address")
    with visit.read_viewable() as tx:
        left, right = find_runs_to_compare(tx, b, a, name_person=visit.user.get_person_name)
        now = tx.now
    return visit.render(
        "compare.html",
        left=left and left.run,
        right=right.run,
        sections=compare_runs(left, right) if left else [],
        now=now,
    )


# The most lines of one side that are compared.
_MAX_LINES = 600
# So many equal lines are shown around each difference; the others are folded.
_CONTEXT_LINES = 3


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs, with all that is compared. name_person: returns the name for an id."""

    run: Run
    decisions: Sequence[Decision]
    steps: Mapping[int, StepRecord]
    name_person: Callable[[str], str]


@dataclass(frozen=True)
class ComparedLine:
    """A line of both sides, or a number of equal lines that are folded."""

    kind: str
    """alike, changed, left, right or folded."""
    left: str | None = None
    """None where the left run has no such line."""
    right: str | None = None
    folded: int = 0
    """How many lines are folded."""

    @property
    def label(self) -> str:
        """The meaning of the line's colour as text."""
        return {
            "changed": "Differs",
            "left": "Only on the left",
            "right": "Only on the right",
        }.get(self.kind, "Same")


@dataclass(frozen=True)
class ComparedSection:
    """One section of the comparison, such as the plan."""

    title: str
    lines: Sequence[ComparedLine]
    has_times: bool
    """Whether its lines are times of Keyturn, shown in the reader's zone."""

    @property
    def differing_lines(self) -> int:
        return sum(line.kind not in {"alike", "folded"} for line in self.lines)


def find_runs_to_compare(
    tx: Transaction, right_id: int, left_id: int | None, *, name_person: Callable[[str], str]
) -> tuple[ComparedRun | None, ComparedRun]:
    """Return the left and the right run; without *left_id*, the previous run of the same command.

    Raises NoSuchRun.
    """
    right = runs.get_run(tx, right_id)
    left = find_previous_run(tx, right) if left_id is None else runs.get_run(tx, left_id)
    return left and _load_compared_run(tx, left, name_person), _load_compared_run(
        tx, right, name_person
    )


def _load_compared_run(
    tx: Transaction, run: Run, name_person: Callable[[str], str]
) -> ComparedRun:
    records = runs.list_steps_of_children(tx, run.id) if run.hosts else runs.list_steps(tx, run.id)
    votes = runs.list_decisions(tx, run.parent or run.id)
    return ComparedRun(run, votes, {record.step_number: record for record in records}, name_person)


def compare_runs(left_run: ComparedRun, right_run: ComparedRun) -> list[ComparedSection]:
    """Return the sections in which either run has text, with equal lines folded."""
    sections = (
        (title, [*render(left_run)], [*render(right_run)], render is _render_times)
        for title, render in _SECTION_RENDERERS.items()
    )
    return [
        ComparedSection(title, _align_lines(left, right), has_times)
        for title, left, right, has_times in sections
        if left or right
    ]


def _align_lines(left_lines: Sequence[str], right_lines: Sequence[str]) -> list[ComparedLine]:
    left_lines, right_lines = _split_and_truncate(left_lines), _split_and_truncate(right_lines)
    found: list[ComparedLine] = []
    matcher = SequenceMatcher(None, left_lines, right_lines, autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        pairs = [*zip_longest(left_lines[first:last], right_lines[begin:end])]
        found += [_build_line(kind, one, other) for one, other in pairs]
    return _fold_unchanged_lines(found)


def _split_and_truncate(lines: Sequence[str]) -> list[str]:
    flat = [part for line in lines for part in line.split("\n")]
    more = len(flat) - _MAX_LINES
    return [*flat[:_MAX_LINES], f"[… {more} more lines …]"] if more > 0 else flat


def _build_line(kind: str, left: str | None, right: str | None) -> ComparedLine:
    if kind == "equal":
        return ComparedLine("alike", left, right)
    if left is None:
        return ComparedLine("right", None, right)
    return ComparedLine("changed" if right is not None else "left", left, right)


def _fold_unchanged_lines(lines: Sequence[ComparedLine]) -> list[ComparedLine]:
    """Replace equal lines that are far from every difference."""
    differ = [n for n, line in enumerate(lines) if line.kind != "alike"]
    near = {n + step for n in differ for step in range(-_CONTEXT_LINES, _CONTEXT_LINES + 1)}
    found: list[ComparedLine] = []
    for n, line in enumerate(lines):
        # Folding a single line would save nothing.
        alone = n - 1 in near | {-1} and n + 1 in near | {len(lines)}
        if n in near or alone or len(lines) <= 2 * _CONTEXT_LINES:
            found.append(line)
        elif found and found[-1].kind == "folded":
            found[-1] = ComparedLine("folded", folded=found[-1].folded + 1)
        else:
            found.append(ComparedLine("folded", folded=1))
    return found


def _render_request(compared: ComparedRun) -> Iterator[str]:
    run = compared.run
    yield run.runbook
    for name, value in run.values.items():
        yield f"{name}: {value}"
    if run.hosts:
        yield f"hosts: {', '.join(run.hosts)}"
    yield f"requested by: {compared.name_person(run.requested_by)}"
    yield f"requested: {describe_source(run.origin.source) or run.origin.source}"
    if run.reason:
        yield f"reason: {run.reason}"


def _render_plan(compared: ComparedRun) -> Iterator[str]:
    if compared.run.plan is None:
        return
    yield f"state when planned: {compared.run.plan.current_state}"
    for note in compared.run.plan.notes:
        yield f"note: {note}"
    for n, step in enumerate(compared.run.plan.steps, start=1):
        yield f"{n}. {step.title}"
        yield f"   on: {step.host} {step.fingerprint}"
        yield f"   before: {step.before}"
        yield f"   after: {step.after}"
        yield f"   runs: {step.command}"
        yield f"   undo: {step.undo}" if step.undo else f"   no undo: {step.no_undo_reason}"


def _render_decisions(compared: ComparedRun) -> Iterator[str]:
    for vote in compared.decisions:
        who = describe_decider(vote, compared.name_person)
        factor = " with a second factor" if vote.factor else ""
        why = f": {vote.reason}" if vote.reason else ""
        yield f"{who} {_get_decision_verb(vote)}{factor}{why}"


def _get_decision_verb(decision: Decision) -> str:
    return "approved" if decision.approves else "denied"


def _render_result(compared: ComparedRun) -> Iterator[str]:
    yield get_run_display(compared.run).label
    if compared.run.summary:
        yield compared.run.summary
    report = compared.run.report
    if report is None:
        return
    yield from report.findings
    if report.table:
        yield "  ".join(report.table.columns)
        for row in report.table.rows:
            yield "  ".join(row)


_STEP_STATE_LABELS = {
    StepState.INTENT: "sent",
    StepState.SUCCEEDED: "succeeded",
    StepState.FAILED: "failed",
    StepState.UNKNOWN: "unknown outcome",
}


def _render_outputs(compared: ComparedRun) -> Iterator[str]:
    titles = [step.title for step in compared.run.plan.steps] if compared.run.plan else []
    for n, record in sorted(compared.steps.items()):
        title = titles[n - 1] if n <= len(titles) else "a step"
        status = "" if record.exit_status is None else f", exit status {record.exit_status}"
        yield f"{n}. {title}: {_STEP_STATE_LABELS[record.state]}{status}"
        if record.error:
            yield record.error
        yield from record.output.splitlines()


def _render_times(compared: ComparedRun) -> Iterator[str]:
    run = compared.run
    yield f"requested: {times.format_utc(run.requested_at)}"
    if run.started_at:
        yield f"waited: {times.format_span(run.started_at - run.requested_at)}"
    if run.started_at and run.ended_at:
        yield f"took: {times.format_span(run.ended_at - run.started_at)}"
    for n, record in sorted(compared.steps.items()):
        if record.ended_at:
            yield f"step {n} took: {times.format_span(record.ended_at - record.sent_at)}"


_SECTION_RENDERERS: Mapping[str, Callable[[ComparedRun], Iterator[str]]] = {
    "Result": _render_result,
    "Request": _render_request,
    "Plan": _render_plan,
    "Output": _render_outputs,
    "Approvals": _render_decisions,
    "Timing": _render_times,
}
