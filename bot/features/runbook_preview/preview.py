"""What the text of a page becomes: its problems, or its form, its words and an example plan."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from bot.cli.runbook_kit.explain import explain_page
from bot.cli.runbook_kit.lint import lint_runbook
from bot.cli.runbook_kit.recordings import RecordingError, evaluate_request, parse_recording
from bot.model.request_form import (
    FormField,
    format_usage,
    get_required_tag,
    list_form_fields,
)
from connectors.errors import HostError
from runbooks import AnyRunbook, NoUndo, Plan, Refused, Report, Step
from runbooks._catalogue import get_kind
from runbooks._declared import check_page, get_source, load_page
from runbooks._declared_yaml import PageError

# No module can have this name, so a preview takes the place of none.
_PATH = Path("this page.yaml")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a page, or still open."""

    message: str
    line: int = 0
    """0 for the page as a whole."""
    column: int = 0
    text: str = ""
    """The line itself."""


@dataclass(frozen=True)
class ShownStep:
    """A step of the example plan."""

    title: str
    before: str
    after: str
    command: str
    undo: str | None
    """None if it cannot be undone."""
    no_undo_reason: str


@dataclass(frozen=True)
class Example:
    """What the recorded answers of a host lead to."""

    problem: str = ""
    summary: str = ""
    """The current state, or the summary of a report."""
    notes: Sequence[str] = ()
    steps: Sequence[ShownStep] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    is_change: bool = False


@dataclass(frozen=True)
class Preview:
    """A page, as far as it can be understood."""

    problems: Sequence[Problem] = ()
    words: str = ""
    """"" for a page that has no form yet."""
    sentence: str = ""
    kind: str = ""
    usage: str = ""
    example: str = ""
    tag: str = ""
    fields: Sequence[FormField] = ()
    lines: Sequence[str] = field(default_factory=list[str])
    """What it reads, decides and runs."""
    outcome: Example | None = None


def build_preview(text: str, recording: str = "") -> Preview:
    """Return what a page becomes. recording: JSON of `keyturn runbook try --record`, or ""."""
    if not text.strip():
        return Preview()
    try:
        runbook = load_page(_PATH, text.encode())
    except PageError as error:
        return Preview([_make_problem(error, text)])
    problems = _find_problems(runbook, text)
    return Preview(
        problems,
        words=runbook.words,
        sentence=runbook.__doc__ or "",
        kind=get_kind(runbook),
        usage=format_usage(runbook),
        example=f"{runbook.words} {runbook.example}",
        tag=get_required_tag(runbook) or "",
        fields=list_form_fields(runbook),
        lines=[] if problems else [*explain_page(runbook)],
        outcome=_evaluate(runbook, recording) if recording.strip() and not problems else None,
    )


def _find_problems(runbook: type[AnyRunbook], text: str) -> list[Problem]:
    if questions := get_source(runbook).page.list_questions():
        return [_make_problem(one, text) for one in questions]
    try:
        check_page(runbook)
    except PageError as error:
        return [_make_problem(error, text)]
    return [Problem(message) for message in lint_runbook(runbook)]


def _make_problem(error: PageError, text: str) -> Problem:
    lines = text.splitlines()
    shown = lines[error.line - 1][:200] if 0 < error.line <= len(lines) else ""
    return Problem(error.message, error.line, error.column, shown)


def _evaluate(runbook: type[AnyRunbook], text: str) -> Example:
    try:
        recording = parse_recording(text.encode())
        if recording.runbook != runbook.words:
            raise RecordingError(f"the recording is of {recording.runbook}")
        request = runbook.model_validate(dict(recording.values))
        outcome = evaluate_request(request, recording.create_query_function())
    except ValidationError as error:
        return Example(f"the values of the recording: {error.errors()[0]['msg']}")
    except Refused as error:
        return Example(f"refused: {error}")
    except (HostError, RecordingError) as error:
        return Example(str(error))
    return _describe(outcome)


def _describe(outcome: Plan | Report) -> Example:
    if isinstance(outcome, Plan):
        return Example(
            summary=outcome.current_state,
            notes=outcome.notes,
            steps=[_describe_step(one) for one in outcome.steps],
            is_change=True,
        )
    table = outcome.table
    return Example(
        summary=outcome.summary,
        notes=outcome.findings,
        columns=table.columns if table else (),
        rows=table.rows if table else (),
    )


def _describe_step(step: Step) -> ShownStep:
    no_undo = step.undo if isinstance(step.undo, NoUndo) else None
    return ShownStep(
        step.title,
        step.before,
        step.after,
        command=str(step.do),
        undo=None if no_undo else str(step.undo),
        no_undo_reason=no_undo.reason if no_undo else "",
    )
