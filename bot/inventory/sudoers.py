"""The sudoers lines of one host: what the runbooks meant for it do as root, and no more."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from bot.workflow.asking import wanted_tag
from connectors.command import SUDO_PATH
from connectors.inventory import Host
from connectors.sudo import SudoRule, TooLong
from runbooks import AnyRunbook, catalogue


@dataclass(frozen=True)
class Grant:
    """One rule, the dialect that it is of, and the runbooks that speak this dialect."""

    dialect: str
    rule: SudoRule
    runbooks: tuple[str, ...]


def grants(runbooks: Mapping[str, type[AnyRunbook]]) -> tuple[Grant, ...]:
    """Return every rule that these runbooks, given by their words, may have need of."""
    speakers: dict[str, list[str]] = {}
    for words, runbook in runbooks.items():
        for dialect in dialects_of(runbook):
            speakers.setdefault(dialect.__name__, []).append(words)
    return tuple(
        Grant(name.rpartition(".")[2], rule, tuple(speakers[name]))
        for name in sorted(speakers)
        for rule in rules_of(sys.modules[name])
    )


def dialects_of(runbook: type[AnyRunbook]) -> frozenset[ModuleType]:
    """Return the modules of the connectors that a runbook uses, and those that these use."""
    found: set[ModuleType] = set()
    waiting = [sys.modules[runbook.__module__]]
    while waiting:
        for used in _connectors_in(waiting.pop()):
            if used not in found:
                found.add(used)
                waiting.append(used)
    return frozenset(found)


def rules_of(dialect: ModuleType) -> tuple[SudoRule, ...]:
    declared: tuple[SudoRule, ...] = getattr(dialect, "SUDO", ())
    return declared


def granted_on(host: Host) -> tuple[Grant, ...]:
    """Return every rule that the runbooks meant for a host may have need of there."""
    if host.platform != "linux":
        return ()
    tags = (None, *host.tags)
    rules = grants(
        {words: each for words, each in catalogue().items() if wanted_tag(each) in tags}
    )
    installed = (replace(each, rule=each.rule.installed) for each in rules)
    return tuple(installed) if host.scripts else rules


def logins(host: Host, granted: Iterable[Grant]) -> Mapping[str, tuple[Grant, ...]]:
    """Return the rules of each login that is not root: queries are for the one that reads."""
    reader = host.for_reading.user
    rules = list(granted)
    whose = {
        user: tuple(
            each
            for each in rules
            if user == (reader if each.rule.reads else host.user)
            and (each.rule.reads or host.changes)
        )
        for user in (reader, host.user)
    }
    return {user: its for user, its in whose.items() if its and user != "root"}


def text(host: Host, granted: Iterable[Grant]) -> str:
    """Write a file for /etc/sudoers.d."""
    lines = [
        f"# What Keyturn may do as root on {host.name}, by `keyturn sudoers {host.name}`.",
        "# Install it with `visudo -f /etc/sudoers.d/keyturn`. It takes sudo 1.9.10 or later.",
    ]
    for user, its in logins(host, granted).items():
        lines += ["", f'Defaults:{user} env_reset, !setenv, secure_path="{SUDO_PATH}"']
        before = ""
        for grant in its:
            if grant.dialect != before:
                lines += ["", f"# {grant.dialect}: {', '.join(grant.runbooks)}"]
                before = grant.dialect
            lines += _written(host, user, grant.rule)
    return "\n".join(lines) + "\n"


def as_data(host: Host, whose: Mapping[str, tuple[Grant, ...]]) -> list[dict[str, Any]]:
    """Return what json prints."""
    return [
        {
            "user": user,
            "dialect": each.dialect,
            "runbooks": each.runbooks,
            "reads": each.rule.reads,
            "programs": each.rule.paths(host.settings),
            "words": each.rule.pattern(host.settings),
            "beyond": each.rule.beyond,
        }
        for user, its in whose.items()
        for each in its
    ]


def _written(host: Host, user: str, rule: SudoRule) -> Iterator[str]:
    try:
        line = rule.line(user, host.settings)
    except TooLong:
        name = rule.script.name if rule.script else rule.program
        yield f"# {name} is too long for sudo: `keyturn sudoers {host.name} --scripts` brings it."
        return
    if rule.beyond:
        yield f"# With the next line, whoever has the login's key can {rule.beyond}."
    yield line


def _connectors_in(module: ModuleType) -> Iterator[ModuleType]:
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else _home(value)
        if name.startswith("connectors."):
            yield sys.modules[name]


def _home(value: object) -> str:
    home: object = getattr(value, "__module__", "")
    return home if isinstance(home, str) else ""
