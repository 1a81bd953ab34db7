"""What a declared runbook does, in words, and what its parsers made of a host's output."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from bot.cli.runbook_kit.recordings import RecordedAnswer, Recording, RecordingError
from bot.hosts.sudo_rules import SudoGrant, format_rule, list_sudo_grants
from connectors.errors import HostError
from runbooks import AnyRunbook
from runbooks._declared import check_page, get_source, is_declared, iterate_readings
from runbooks._declared_format import (
    CommandPart,
    NotePart,
    ProbationPart,
    ReadPart,
    RunbookPage,
    StepPart,
)

# Lines of an output, and characters of a value, that are shown.
_MOST = 20
_MAX_TEXT = 1000


def explain_page(runbook: type[AnyRunbook]) -> Iterator[str]:
    """Yield what a declared runbook reads, decides and runs."""
    check_page(runbook)
    part = get_source(runbook).part
    yield f"{part.words}: {part.sentence}"
    yield from _explain_request(part)
    for number, step in enumerate(part.steps, start=1):
        yield from _explain_step(number, step)
    if part.report:
        yield f"  reports: {part.report.summary}"
        yield from (f"  needs attention{_explain_note(note)}" for note in part.report.findings)
    yield from (f"  notes{_explain_note(note)}" for note in part.notes)
    if part.steps:
        yield f"  takes down meanwhile: {', '.join(part.takes_down or ()) or 'nothing'}"
    if part.probation:
        yield from _explain_probation(part.probation)
    yield from dict.fromkeys(map(_explain_grant, list_sudo_grants({runbook.words: runbook})))


def _explain_grant(grant: SudoGrant) -> str:
    who = "the login that reads" if grant.rule.read_only else "the login that changes"
    return f"  sudo of {who}: {format_rule('LOGIN', grant.rule.for_installed_scripts)}"


def _explain_request(part: RunbookPage) -> Iterator[str]:
    for name, field in part.fields.items():
        yield f"  takes {name}, a {field.type}: {field.description or field.title or name}"
    for reason in part.never:
        yield f"  never if {reason.when}: {reason.because}"
    for name, reading in part.read.items():
        yield f"  reads {name}: {_explain_reading(reading)}"
        for reason in reading.refuse:
            yield f"     refuses if {reason.when}: {reason.because}"
    for name, state in part.state.items():
        yield f"  then {name} is {state if isinstance(state, str) else state.value}"
    for reason in part.refuse:
        yield f"  refuses if {reason.when}: {reason.because}"


def _explain_reading(part: ReadPart) -> str:
    when = "" if part.when == "true" else f", if {part.when}"
    if part.query:
        return f"{part.query} of Keyturn{_explain_arguments(part.given)}{when}"
    source = f"the file {part.file}" if part.file else f"`{shlex.join(map(str, part.run))}`"
    who = ", as root" if part.root else ""
    return f"{source}{who}, as {part.parse or 'text'}{when}"


def _explain_step(number: int, part: StepPart) -> Iterator[str]:
    yield f"  step {number}, if {part.when}: {part.title}"
    yield from _explain_command("runs", part.do)
    if part.undo:
        yield from _explain_command("undo:", part.undo)
    else:
        yield f"     cannot be undone: {part.no_undo}"


def _explain_command(verb: str, part: CommandPart) -> Iterator[str]:
    if part.command:
        yield f"     {verb} {part.command} of Keyturn{_explain_arguments(part.given)}"
        return
    line = " ".join(map(str, part.arguments if part.script else part.run))
    what = f"a script, with {line or 'nothing'}" if part.script else f"`{line}`"
    who = ", as root" if part.root else ""
    yield f"     {verb} {what}{who}{':' if part.script else ''}"
    yield from _indent(part.script)
    if part.stdin:
        yield "     with this as its input:"
        yield from _indent(part.stdin)


def _indent(text: str) -> Iterator[str]:
    return (f"       | {line}" for line in text.splitlines())


def _explain_probation(part: ProbationPart) -> Iterator[str]:
    if part.of:
        yield f"  on probation: {part.of} of Keyturn{_explain_arguments(part.given)}"
        return
    yield (
        f"  on probation: the host restores after {part.seconds} s, unless Keyturn has logged in "
        f"again. It saves and restores as root, by the script {part.name}:"
    )
    yield from _indent(part.restore)


def _explain_arguments(given: Mapping[str, object]) -> str:
    return f" with {', '.join(f'{name} = {value}' for name, value in given.items())}" * bool(given)


def _explain_note(part: NotePart) -> str:
    each = f" for each of {part.each}" if part.each else ""
    when = "" if part.when == "true" else f" if {part.when}"
    return f"{each}{when}: {part.text}"


def describe_readings(request: AnyRunbook, answers: Sequence[RecordedAnswer]) -> list[str]:
    """Return what a host returned to each query of a declared runbook, and what it was read as."""
    if not is_declared(type(request)):
        return []
    lines: list[str] = []
    for each in answers:
        lines += [
            f"$ {each.command}",
            *(f"    {line}" for line in each.output.splitlines()[:_MOST]),
        ]
    recording = Recording(type(request).words, {}, tuple(answers))
    try:
        for name, value in iterate_readings(request, recording.create_query_function()):
            text = json.dumps(value, default=str, ensure_ascii=False)
            lines.append(f"{name} = {text[:_MAX_TEXT]}")
    except RecordingError:
        # The host refused the next one: the caller shows why.
        pass
    except HostError as error:
        lines.append(f"not understood: {error}")
    return [*lines, ""]
