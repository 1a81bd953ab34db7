"""The sudoers lines of one host: what the runbooks meant for it do as root, and no more. Pure."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from connectors.inventory import Host
from connectors.sudo import SudoRule
from runbooks import AnyRunbook

# Programs that a script calls are looked for here, and not where the login says.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


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


def text(host: Host, granted: Iterable[Grant], *, wide: Collection[SudoRule] = ()) -> str:
    """Write a file for /etc/sudoers.d.

    wide: those rules that somebody decided to grant although they allow more than runbooks do;
    the others of that kind are written as comments.
    """
    lines = [
        f"# What {host.user} may do as root on {host.name}, by `keyturn sudoers {host.name}`.",
        "# Install it with `visudo -f /etc/sudoers.d/keyturn`. It takes sudo 1.9.10 or later.",
        f'Defaults:{host.user} env_reset, !setenv, secure_path="{_PATH}"',
    ]
    before = ""
    for grant in granted:
        if grant.dialect != before:
            lines += ["", f"# {grant.dialect}: {', '.join(grant.runbooks)}"]
            before = grant.dialect
        lines += _written(host, grant.rule, granted=not grant.rule.beyond or grant.rule in wide)
    return "\n".join(lines) + "\n"


def _written(host: Host, rule: SudoRule, *, granted: bool) -> Iterator[str]:
    if rule.beyond:
        yield f"# With the next line, whoever has the login's key can {rule.beyond}."
    if rule.beyond and not granted:
        yield "# So it is left out, and what needs it will be refused, unless you say --wide."
    yield ("" if granted else "# ") + rule.line(host.user, host.settings)


def _connectors_in(module: ModuleType) -> Iterator[ModuleType]:
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else _home(value)
        if name.startswith("connectors."):
            yield sys.modules[name]


def _home(value: object) -> str:
    home: object = getattr(value, "__module__", "")
    return home if isinstance(home, str) else ""
