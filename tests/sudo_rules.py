"""Every sudo rule that dialects declare, and the commands that they omit."""

import inspect
import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

import connectors
from bot.cli.runbook_kit.lint import find_programs_without_rule
from connectors.command import QueryCommand, Shell
from connectors.sudo import SudoRule

DIALECTS: tuple[ModuleType, ...] = tuple(
    import_module(f"connectors.{module.name}")
    for module in pkgutil.iter_modules(connectors.__path__)
)
RULES: Mapping[str, tuple[SudoRule, ...]] = {
    dialect.__name__.rpartition(".")[2]: dialect.SUDO
    for dialect in DIALECTS
    if hasattr(dialect, "SUDO")
}


def list_undeclared_programs() -> list[tuple[str, str]]:
    """Return what dialects run as root without having said that sudo is to let it through."""
    return [
        (dialect.__name__, program)
        for dialect in DIALECTS
        for program in find_programs_without_rule(dialect)
    ]


def is_allowed(command: Shell, settings: Mapping[str, str] | None = None) -> bool:
    """Tell whether sudo would let a command through that needs root."""
    words = command.resolve(settings or {}, sudo=False).words
    return any(
        rule.is_allowed(words, settings or {}) for rules in RULES.values() for rule in rules
    )


def is_without_rule(command: QueryCommand, settings: Mapping[str, str]) -> bool:
    """Tell whether a dialect that declares rules has none for this command of its own."""
    if not isinstance(command, Shell) or not command.root or is_allowed(command, settings):
        return False
    declared = [dialect for dialect in DIALECTS if hasattr(dialect, "SUDO")]
    return any(_mentions_command(dialect, command) for dialect in declared)


def _mentions_command(dialect: ModuleType, command: Shell) -> bool:
    program, *words = command.words
    if program == "sh":
        return words[1] in {str(each) for each in vars(dialect).values()}
    return f'("{program}"' in inspect.getsource(dialect)
