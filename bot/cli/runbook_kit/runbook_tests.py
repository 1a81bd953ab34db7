"""The tests that every runbook passes: hostile values, empty after apply, undo returns."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.cli.runbook_kit import hostile_values, shell_lint
from bot.cli.runbook_kit.recordings import (
    AFTER,
    BEFORE,
    UNDONE,
    Recording,
    RecordingError,
    evaluate_request,
    read_recordings,
)
from bot.hosts.sudo_rules import list_dialects, list_sudo_rules
from bot.model.request_form import RequestSyntaxError
from bot.model.text import format_count
from connectors.command import Command, Shell
from connectors.errors import HostError
from connectors.sudo import SudoRule
from runbooks import AnyRunbook, Change, Plan, Refused, Report, Step


@dataclass(frozen=True)
class TestResult:
    """The result of one test of a runbook."""

    __test__ = False

    name: str
    passed: bool | None
    """None for a test that cannot run without recordings."""
    message: str


def test_runbook(runbook: type[AnyRunbook], directory: Path) -> list[TestResult]:
    """Run every test of a runbook. directory: contains tests/recorded."""
    results = [_test_hostile_values(runbook), *_test_scripts(runbook)]
    try:
        recordings = read_recordings(directory, runbook)
        outcomes = {name: _replay(runbook, one) for name, one in recordings.items()}
    except (HostError, Refused, ValueError) as error:
        return [*results, TestResult("recordings", passed=False, message=str(error))]
    if not issubclass(runbook, Change):
        return [*results, _test_report(runbook, outcomes)]
    plans = {name: one for name, one in outcomes.items() if isinstance(one, Plan)}
    results += [_test_after_apply(runbook, plans), _test_undo(runbook, plans)]
    return [*results, _test_sudo_rules(runbook, [*plans.values()])]


test_runbook.__test__ = False  # pyright: ignore[reportFunctionMemberAccess] - pytest reads it


def _test_hostile_values(runbook: type[AnyRunbook]) -> TestResult:
    name, tried = "hostile values", 0
    try:
        values = hostile_values.get_example_values(runbook)
    except RequestSyntaxError as error:
        return TestResult(name, passed=False, message=f"the example cannot be parsed: {error}")
    for field in runbook.model_fields:
        accepted = hostile_values.find_accepted_values(runbook, field, values)
        if accepted:
            listed = ", ".join(map(repr, accepted[:3]))
            return TestResult(name, passed=False, message=f"{field} accepts {listed}")
        tried += len(hostile_values.list_hostile_values(runbook, field))
    fields = format_count(len(runbook.model_fields), "field")
    message = f"{tried} values are refused, in {fields}"
    return TestResult(name, passed=True, message=message)


def _test_scripts(runbook: type[AnyRunbook]) -> Iterator[TestResult]:
    if not shell_lint.has_scripts(runbook):
        return
    problems = [*shell_lint.lint_scripts(runbook)]
    if not shell_lint.is_installed():
        yield TestResult("scripts", passed=None, message=shell_lint.MISSING)
    elif problems:
        yield TestResult("scripts", passed=False, message="; ".join(problems))
    else:
        yield TestResult("scripts", passed=True, message="shellcheck finds nothing in them")


def _replay(runbook: type[AnyRunbook], recording: Recording) -> Plan | Report:
    if recording.runbook != runbook.words:
        raise RecordingError(f"a recording is of {recording.runbook}, not {runbook.words}")
    request = runbook.model_validate(recording.values)
    return evaluate_request(request, recording.create_query_function())


def _test_report(runbook: type[AnyRunbook], outcomes: Mapping[str, Plan | Report]) -> TestResult:
    if not outcomes:
        return _make_untested("report", runbook, BEFORE)
    message = "; ".join(
        f"{name}: {one.summary if isinstance(one, Report) else ''}"
        for name, one in outcomes.items()
    )
    return TestResult("report", passed=True, message=message)


def _test_after_apply(runbook: type[AnyRunbook], plans: Mapping[str, Plan]) -> TestResult:
    name = "empty after apply"
    for needed in (BEFORE, AFTER):
        if needed not in plans:
            return _make_untested(name, runbook, needed)
    if not plans[BEFORE].steps:
        return TestResult(name, passed=False, message="the plan before has no steps")
    if plans[AFTER].steps:
        title = plans[AFTER].steps[0].title
        return TestResult(name, passed=False, message=f"the plan after still has: {title}")
    message = f"{format_count(len(plans[BEFORE].steps), 'step')} before, none after"
    return TestResult(name, passed=True, message=message)


def _test_undo(runbook: type[AnyRunbook], plans: Mapping[str, Plan]) -> TestResult:
    name = "undo returns"
    before = plans.get(BEFORE)
    if before is None:
        return _make_untested(name, runbook, BEFORE)
    if not before.is_reversible:
        return TestResult(name, passed=True, message="irreversible, with a reason")
    if UNDONE not in plans:
        return _make_untested(name, runbook, UNDONE)
    if _get_work(plans[UNDONE]) != _get_work(before):
        return TestResult(name, passed=False, message="the plan after the undo is not that before")
    return TestResult(name, passed=True, message="the plan after the undo is that before")


def _get_work(plan: Plan) -> Sequence[tuple[str, Command, str, str]]:
    return [(step.host, step.do, step.before, step.after) for step in plan.steps]


def _test_sudo_rules(runbook: type[AnyRunbook], plans: Collection[Plan]) -> TestResult:
    name = "sudo rules"
    if not plans:
        return _make_untested(name, runbook, BEFORE)
    rules = [rule for dialect in list_dialects(runbook) for rule in list_sudo_rules(dialect)]
    commands = [
        command for plan in plans for step in plan.steps for command in _list_commands(step)
    ]
    refused = [command for command in commands if not is_allowed_by_sudo(command, rules)]
    if refused:
        return TestResult(name, passed=False, message=f"no rule allows {refused[0]}")
    return TestResult(
        name, passed=True, message=f"sudo allows {format_count(len(commands), 'command')}"
    )


def _list_commands(step: Step) -> Iterator[Shell]:
    yield from (each for each in (step.do, step.undo) if isinstance(each, Shell))


def is_allowed_by_sudo(command: Shell, rules: Sequence[SudoRule]) -> bool:
    """Return whether a command needs no root, or one of the rules allows it."""
    words = command.resolve({}, sudo=False).words
    return not command.root or any(rule.is_allowed(words, {}) for rule in rules)


def _make_untested(name: str, runbook: type[AnyRunbook], needed: str) -> TestResult:
    request = f"{runbook.words} {runbook.example}"
    message = f"no recording: `keyturn runbook try {request} --record {needed}`"
    return TestResult(name, passed=None, message=message)
