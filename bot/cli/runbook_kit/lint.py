"""Lint: what every runbook must have, read from its class and its source."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from bot.cli.runbook_kit import hostile_values
from bot.hosts.sudo_rules import list_dialects, list_sudo_rules
from bot.model import request_form
from bot.model.request_form import RequestSyntaxError
from connectors.sudo import SudoRule
from runbooks import AnyRunbook, Change
from runbooks._catalogue import is_own
from runbooks._declared import check_page, get_source, is_declared
from runbooks._declared_yaml import PageError

_NO_UNDO = re.compile(r"NoUndo\(\s*f?\"")


def lint_runbook(runbook: type[AnyRunbook]) -> list[str]:
    """Return the problems of a runbook, each with what to do."""
    try:
        if is_declared(runbook) and (open_ones := get_source(runbook).page.list_questions()):
            return [*map(str, open_ones)]
        check_page(runbook)
    except PageError as error:
        return [str(error)]
    problems = [*_find_missing_texts(runbook), *_find_missing_rules(runbook)]
    try:
        values = hostile_values.get_example_values(runbook)
    except RequestSyntaxError as error:
        return [*problems, f"the example cannot be parsed: {error}"]
    problems += _find_free_text(runbook, values)
    if issubclass(runbook, Change):
        problems += _lint_change(runbook)
    return problems


def _find_missing_texts(runbook: type[AnyRunbook]) -> Iterator[str]:
    for name, text in _list_sources(runbook):
        if "TODO" in text:
            yield f"{name} contains TODO: fill it in"
    if not (runbook.__doc__ or "").strip():
        yield "it has no docstring: say in one sentence what it is for"
    if not runbook.example:
        yield 'it has no example: add example="HOST …" to the class'
    for field in request_form.list_form_fields(runbook):
        if not field.hint:
            yield f"the field {field.name} has no description: add Field(description=…)"


def _list_sources(runbook: type[AnyRunbook]) -> Iterator[tuple[str, str]]:
    if is_declared(runbook):
        source = get_source(runbook)
        yield source.path.name, source.content.decode()
        return
    for module in (*_list_modules(runbook), *list_dialects(runbook)):
        yield module.__name__, inspect.getsource(module)


def _find_free_text(runbook: type[AnyRunbook], values: dict[str, object]) -> Iterator[str]:
    for name in runbook.model_fields:
        accepted = hostile_values.find_accepted_values(runbook, name, values)
        if accepted:
            yield (
                f"the field {name} accepts {accepted[0]!r}: give it a pattern, a Literal or one "
                "of the types of `runbooks`"
            )


def _lint_change(runbook: type[Change[Any]]) -> Iterator[str]:
    if is_declared(runbook):
        # Its format requires all of it.
        return
    sources = [inspect.getsource(module) for module in _list_modules(runbook)]
    if not runbook.undo and not any(map(_NO_UNDO.search, sources)):
        yield 'it has neither an undo nor a reason: add undo="…", or NoUndo("reason") to its steps'
    # Those that come with Keyturn were reviewed with the guard itself.
    if is_own(runbook) and runbook.takes_down is Change.takes_down:
        yield (
            "it does not say what may be down while it runs: define takes_down, and return () "
            "if nothing is"
        )


def _list_modules(runbook: type[AnyRunbook]) -> list[ModuleType]:
    modules = [inspect.getmodule(base) for base in runbook.__mro__]
    return [one for one in dict.fromkeys(modules) if one and one.__name__.startswith("runbooks.")]


def _find_missing_rules(runbook: type[AnyRunbook]) -> Iterator[str]:
    if is_declared(runbook):
        # Its rules are made of its commands.
        return
    for dialect in sorted(list_dialects(runbook), key=lambda one: one.__name__):
        for program in find_programs_without_rule(dialect):
            yield (
                f"{dialect.__name__} runs {program} as root without a rule: add a SudoRule to "
                "its SUDO"
            )


@cache
def find_programs_without_rule(dialect: ModuleType) -> list[str]:
    """Return the programs that a connector runs as root, and for which it has no sudo rule."""
    rules = list_sudo_rules(dialect)
    programs = [
        _get_program(call)
        for call in ast.walk(ast.parse(inspect.getsource(dialect)))
        if isinstance(call, ast.Call) and _is_root_command(call)
    ]
    return [
        program or "a command"
        for program in programs
        if not any(_is_rule_for(rule, program) for rule in rules)
    ]


def _is_root_command(call: ast.Call) -> bool:
    is_shell = isinstance(call.func, ast.Name) and call.func.id == "Shell"
    return is_shell and any(
        each.arg == "root" and isinstance(each.value, ast.Constant) and each.value.value is True
        for each in call.keywords
    )


def _get_program(call: ast.Call) -> str:
    """Return the program of a command that is written in place; "" if it is a name."""
    argv = call.args[0] if call.args else None
    if isinstance(argv, ast.Tuple) and isinstance(argv.elts[0], ast.Constant):
        return str(argv.elts[0].value)
    return ""


def _is_rule_for(rule: SudoRule, program: str) -> bool:
    return not program or program in (
        str(rule.program),
        str(rule.program).rpartition("/")[2],
    )
