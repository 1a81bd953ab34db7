"""Recordings: what hosts returned to the queries of a runbook, as files that tests replay.

    tests/recorded/hugepages_set/before.json

A change has three: `before` it, `after` it, and `undone`. They prove that its plan is empty once
it is in effect, and that its undo restores what was.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from connectors.command import Query, QueryRunner, Setting
from connectors.errors import HostError
from runbooks import (
    AnyRunbook,
    Change,
    Check,
    Plan,
    Report,
    put_on_probation,
    read_plan,
    read_report,
)

T = TypeVar("T")
BEFORE, AFTER, UNDONE = "before", "after", "undone"
_FOLDER = Path("tests", "recorded")


class RecordingError(HostError):
    """A recording cannot be used. The message says why and what to do."""


@dataclass(frozen=True)
class RecordedAnswer:
    """The output of one query."""

    host: str
    command: str
    output: str


@dataclass(frozen=True)
class Recording:
    """The queries of one request with their output."""

    runbook: str
    """The words of the runbook."""
    values: Mapping[str, Any]
    """The values of the request."""
    answers: tuple[RecordedAnswer, ...]

    def create_query_function(self) -> QueryRunner:
        """Return the function that answers queries from the recording."""
        outputs = {(each.host, each.command): each.output for each in self.answers}

        def run_query(host: str, query: Query[T], /) -> T:
            command = _name_command(query)
            if (host, command) not in outputs:
                raise RecordingError(
                    f"the recording has no output of {command!r} on {host}: record it again"
                )
            return query.parse(outputs[host, command])

        return run_query


class Recorder:
    """Runs queries on hosts and keeps their output."""

    def __init__(self, run_query: QueryRunner) -> None:
        self._run_query = run_query
        self.answers: list[RecordedAnswer] = []

    def run_query(self, host: str, query: Query[T], /) -> T:
        def parse(output: str) -> T:
            self.answers.append(RecordedAnswer(host, _name_command(query), output))
            return query.parse(output)

        return self._run_query(host, Query(query.command, parse, query.statuses))


def _name_command(query: Query[Any]) -> str:
    """Return what identifies a query in a recording."""
    command = query.command
    return f"setting {command.name}" if isinstance(command, Setting) else str(command)


def evaluate_request(request: AnyRunbook, run_query: QueryRunner) -> Plan | Report:
    """Read the hosts of a request; return its plan or report. Raises Refused and HostError."""
    if isinstance(request, Change):
        _, plan = read_plan(request, run_query, request.plan)
        return put_on_probation(request, plan)
    check = cast("Check[Any]", request)
    return read_report(check, run_query, check.report)


def make_recording_path(directory: Path, runbook: type[AnyRunbook], name: str) -> Path:
    """Return the file of a recording, in a folder named after the words of the runbook."""
    return directory / _FOLDER / runbook.words.replace(" ", "_") / f"{name}.json"


def make_recording(
    request: AnyRunbook, recorder: Recorder, redact: Callable[[str], str]
) -> Recording:
    """Return the recording of a request, without secrets.

    Raises RecordingError, HostError or Refused if the plan needs what was redacted.
    """
    answers = tuple(
        RecordedAnswer(each.host, each.command, redact(each.output)) for each in recorder.answers
    )
    made = Recording(type(request).words, request.model_dump(mode="json"), answers)
    evaluate_request(request, made.create_query_function())
    return made


def write_recording(file: Path, recording: Recording) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(recording), indent=2, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")


def read_recordings(directory: Path, runbook: type[AnyRunbook]) -> dict[str, Recording]:
    """Return the recordings of a runbook by their names. Raises RecordingError."""
    folder = make_recording_path(directory, runbook, "x").parent
    return {file.stem: _read_recording(file) for file in sorted(folder.glob("*.json"))}


def _read_recording(file: Path) -> Recording:
    try:
        return parse_recording(file.read_bytes())
    except (RecordingError, OSError):
        raise RecordingError(f"{file} is not a recording: delete it and record it again") from None


def parse_recording(content: bytes) -> Recording:
    """Return the recording in the content of its file. Raises RecordingError."""
    try:
        return TypeAdapter(Recording).validate_json(content)
    except ValidationError:
        raise RecordingError("this is not the file of a recording: record it again") from None
