"""A program for root's shell that brings a host its scripts and its sudoers lines. Pure."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from bot.workflow.requests import get_required_tag
from connectors.command import SUDO_PATH
from connectors.inventory import Host
from connectors.script import SCRIPTS_DIRECTORY, Script
from connectors.sudo import RuleTooLongError, SudoRule
from runbooks import AnyRunbook, load_catalogue


@dataclass(frozen=True)
class SudoGrant:
    """One rule, the dialect that it is of, and the runbooks that speak this dialect."""

    dialect: str
    rule: SudoRule
    runbooks: tuple[str, ...]


def list_sudo_grants(runbooks: Mapping[str, type[AnyRunbook]]) -> tuple[SudoGrant, ...]:
    """Return every rule that these runbooks, given by their words, may have need of."""
    speakers: dict[str, list[str]] = {}
    for words, runbook in runbooks.items():
        for dialect in list_dialects(runbook):
            speakers.setdefault(dialect.__name__, []).append(words)
    return tuple(
        SudoGrant(name.rpartition(".")[2], rule, tuple(speakers[name]))
        for name in sorted(speakers)
        for rule in list_sudo_rules(sys.modules[name])
    )


def list_dialects(runbook: type[AnyRunbook]) -> frozenset[ModuleType]:
    """Return the modules of the connectors that a runbook uses, and those that these use."""
    found: set[ModuleType] = set()
    waiting = [sys.modules[runbook.__module__]]
    while waiting:
        for used in _iterate_used_connectors(waiting.pop()):
            if used not in found:
                found.add(used)
                waiting.append(used)
    return frozenset(found)


def list_sudo_rules(dialect: ModuleType) -> tuple[SudoRule, ...]:
    declared: tuple[SudoRule, ...] = getattr(dialect, "SUDO", ())
    return declared


def list_host_sudo_grants(host: Host) -> tuple[SudoGrant, ...]:
    """Return every rule that the runbooks meant for a host may have need of there."""
    if host.platform != "linux":
        return ()
    tags = (None, *host.tags)
    rules = list_sudo_grants(
        {words: each for words, each in load_catalogue().items() if get_required_tag(each) in tags}
    )
    installed = (replace(each, rule=each.rule.for_installed_scripts) for each in rules)
    return tuple(installed) if host.scripts else rules


def group_grants_by_login(
    host: Host, grants: Iterable[SudoGrant]
) -> Mapping[str, tuple[SudoGrant, ...]]:
    """Return the rules of each login that is not root: queries are for the one that reads."""
    reader = host.for_reading.user
    rules = list(grants)
    whose = {
        user: tuple(
            each
            for each in rules
            if user == (reader if each.rule.read_only else host.user)
            and (each.rule.read_only or host.changes)
        )
        for user in (reader, host.user)
    }
    return {user: its for user, its in whose.items() if its and user != "root"}


def format_sudoers(host: Host, grants: Iterable[SudoGrant]) -> str:
    """Write a file for /etc/sudoers.d."""
    lines = [
        f"# What Keyturn may do as root on {host.name}, by `keyturn sudoers {host.name}`.",
        "# Install it with `visudo -f /etc/sudoers.d/keyturn`. It takes sudo 1.9.10 or later.",
    ]
    for user, its in group_grants_by_login(host, grants).items():
        lines += ["", f'Defaults:{user} env_reset, !setenv, secure_path="{SUDO_PATH}"']
        before = ""
        for grant in its:
            if grant.dialect != before:
                lines += ["", f"# {grant.dialect}: {', '.join(grant.runbooks)}"]
                before = grant.dialect
            lines += _render_rule(host, user, grant.rule)
    return "\n".join(lines) + "\n"


def build_sudoers_data(
    host: Host, grants_by_login: Mapping[str, tuple[SudoGrant, ...]]
) -> list[dict[str, Any]]:
    """Return what json prints."""
    return [
        {
            "user": user,
            "dialect": each.dialect,
            "runbooks": each.runbooks,
            "reads": each.rule.read_only,
            "programs": each.rule.list_paths(host.settings),
            "words": each.rule.make_pattern(host.settings),
            "beyond": each.rule.risk,
        }
        for user, its in grants_by_login.items()
        for each in its
    ]


def _render_rule(host: Host, user: str, rule: SudoRule) -> Iterator[str]:
    try:
        line = rule.format_line(user, host.settings)
    except RuleTooLongError:
        name = rule.script.name if rule.script else rule.program
        yield f"# {name} is too long for sudo: `keyturn sudoers {host.name} --scripts` brings it."
        return
    if rule.risk:
        yield f"# With the next line, whoever has the login's key can {rule.risk}."
    yield line


def _iterate_used_connectors(module: ModuleType) -> Iterator[ModuleType]:
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else _get_module_name(value)
        if name.startswith("connectors."):
            yield sys.modules[name]


def _get_module_name(value: object) -> str:
    home: object = getattr(value, "__module__", "")
    return home if isinstance(home, str) else ""


_HEREDOC_END = "end-of-keyturn-file"
# sudo passes over files of its directory with a period in their names, and visudo judges before
# anything counts. Scripts of another version go last: until then their rules may still be used.
_INSTALL_PROGRAM = """\
#!/bin/sh
# Brings {host} the scripts that Keyturn's sudoers lines name, and these lines.
# Read it, and give it to root's shell there. To do so again changes nothing.
set -eu
umask 022
[ "$(id -u)" = 0 ] || {{ echo "this is for root: nothing was changed" >&2; exit 1; }}
mkdir -p {folder}
chown 0:0 {folder}
chmod 755 {folder}
rules=$(mktemp /etc/sudoers.d/.keyturn.XXXXXX)
trap 'rm -f -- "$rules"' EXIT

put() {{
    cat >"$1.new"
    chown 0:0 "$1.new"
    chmod 755 "$1.new"
    mv -f -- "$1.new" "$1"
}}

{files}
cat >"$rules" <<'{end}'
{rules}{end}
visudo -cf "$rules" >&2
chmod 440 "$rules"
mv -f -- "$rules" /etc/sudoers.d/keyturn

for file in {folder}/*; do
    case $file in
    {kept}) ;;
    *) rm -f -- "$file" ;;
    esac
done
echo "{host} has its scripts and sudoers lines"
"""


def list_scripts(grants: Iterable[SudoGrant]) -> tuple[Script, ...]:
    """Return every script that rules name, by their names."""
    found = {script.name: script for grant in grants for script in grant.rule.scripts}
    return tuple(found[name] for name in sorted(found))


def format_install_program(host: Host) -> str:
    """Write the program for a host, as if its scripts lay there already."""
    there = host.model_copy(update={"scripts": True})
    granted = list_host_sudo_grants(there)
    needed = list_scripts(granted)
    return _INSTALL_PROGRAM.format(
        host=host.name,
        folder=SCRIPTS_DIRECTORY,
        files="\n".join(_render_script_files(needed)),
        rules=format_sudoers(there, granted),
        kept=" | ".join(script.path for script in needed) or "''",
        end=_HEREDOC_END,
    )


def _render_script_files(scripts: Iterable[Script]) -> Iterator[str]:
    for script in scripts:
        yield f"put {script.path} <<'{_HEREDOC_END}'\n{script.file_text}{_HEREDOC_END}\n"
