"""The sudoers lines and scripts of a host, and the program that installs them. Pure."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from bot.model.request_form import get_required_tag
from connectors import run_signed, signed_files
from connectors.command import SUDO_PATH
from connectors.errors import SettingError
from connectors.inventory import Host
from connectors.script import SCRIPTS_DIRECTORY, Script, load_code
from connectors.sudo import RuleTooLongError, SudoRule
from runbooks import AnyRunbook, load_catalogue
from runbooks._declared import get_module

CLASSIC_SUDO_ADVICE = (
    "it supports no regular expressions. Install the package sudo, and choose it as sudo: on "
    "Ubuntu with `update-alternatives --set sudo /usr/bin/sudo.ws`"
)


@dataclass(frozen=True)
class SudoGrant:
    """A sudo rule with its dialect and the runbooks that use the dialect."""

    dialect: str
    rule: SudoRule
    runbooks: tuple[str, ...]


def list_sudo_grants(runbooks: Mapping[str, type[AnyRunbook]]) -> tuple[SudoGrant, ...]:
    """Return every rule that these runbooks, by name, can need."""
    users: dict[ModuleType, list[str]] = {}
    for words, runbook in runbooks.items():
        for dialect in list_dialects(runbook):
            users.setdefault(dialect, []).append(words)
    return tuple(
        SudoGrant(dialect.__name__.rpartition(".")[2], rule, tuple(users[dialect]))
        for dialect in sorted(users, key=lambda one: one.__name__)
        for rule in list_sudo_rules(dialect)
    )


def list_dialects(runbook: type[AnyRunbook]) -> frozenset[ModuleType]:
    """Return the connector modules that a runbook uses, directly or indirectly."""
    found: set[ModuleType] = set()
    waiting = [get_module(runbook)]
    while waiting:
        for used in _iterate_used_connectors(waiting.pop()):
            if used not in found:
                found.add(used)
                waiting.append(used)
    return frozenset(found)


def list_sudo_rules(dialect: ModuleType) -> tuple[SudoRule, ...]:
    declared: tuple[SudoRule, ...] = getattr(dialect, "SUDO", ())
    return declared


def select_host_runbooks(
    host: Host, runbooks: Mapping[str, type[AnyRunbook]]
) -> Mapping[str, type[AnyRunbook]]:
    """Return the runbooks for the tags of a host, and those for any host."""
    tags = (None, *host.tags)
    return {name: each for name, each in runbooks.items() if get_required_tag(each) in tags}


def list_host_sudo_grants(
    host: Host, runbooks: Mapping[str, type[AnyRunbook]] | None = None
) -> tuple[SudoGrant, ...]:
    """Return every rule that runbooks can need on a host; those for its tags by default."""
    if host.platform != "linux":
        return ()
    if runbooks is None:
        runbooks = select_host_runbooks(host, load_catalogue())
    rules = list_sudo_grants(runbooks)
    rules = tuple(each for each in rules if host.signed or not each.rule.enrolled)
    # An enrolled host runs it as a step of a signed plan, and no other host has its files.
    rules = tuple(each for each in rules if each.rule not in signed_files.SUDO)
    if host.scripts or host.signed:
        rules = tuple(replace(each, rule=each.rule.for_installed_scripts) for each in rules)
    if host.signed:
        reads = (each for each in rules if each.rule.read_only)
        rules = (SudoGrant("run_signed", run_signed.SUDO_RULE, ("every change",)), *reads)
    return rules


def group_grants_by_login(
    host: Host, grants: Iterable[SudoGrant]
) -> Mapping[str, tuple[SudoGrant, ...]]:
    """Return the rules of each login other than root; queries use the reader login.

    People who change an enrolled host without Keyturn may do there what Keyturn may, with logins
    of their own: the program of the host trusts signatures, not logins.
    """
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
    if host.signed:
        whose |= {login: tuple(rules) for login in host.offline_logins}
    return {user: its for user, its in whose.items() if its and user != "root"}


def format_sudoers(host: Host, grants: Iterable[SudoGrant]) -> str:
    """Return the content of a file for /etc/sudoers.d."""
    lines = [
        f"# Root commands of Keyturn on {host.name}, from `keyturn sudoers {host.name}`.",
        "# Install it with `visudo -f /etc/sudoers.d/keyturn`. It needs sudo 1.9.10 or later, not",
        "# sudo-rs, which supports no regular expressions.",
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
    """Return the rules for JSON."""
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


def format_rule(user: str, rule: SudoRule) -> str:
    """Return a rule as a line of sudoers for any host: by the script's file if it is too long."""
    try:
        return rule.format_line(user, {})
    except (RuleTooLongError, SettingError):
        return rule.for_installed_scripts.format_line(user, {})


def _render_rule(host: Host, user: str, rule: SudoRule) -> Iterator[str]:
    try:
        line = rule.format_line(user, host.settings)
    except RuleTooLongError:
        name = rule.script.name if rule.script else rule.program
        yield (
            f"# {name} is too long for sudo: `keyturn sudoers {host.name} --scripts` installs it."
        )
        return
    if rule.risk:
        yield f"# The next line allows anyone with the key of the login to {rule.risk}."
    yield line


def _iterate_used_connectors(module: ModuleType) -> Iterator[ModuleType]:
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else _get_module_name(value)
        if name.startswith("connectors."):
            yield value if isinstance(value, ModuleType) else sys.modules[name]


def _get_module_name(value: object) -> str:
    home: object = getattr(value, "__module__", "")
    return home if isinstance(home, str) else ""


_HEREDOC_END = "end-of-keyturn-file"
_INSTALL_PROGRAM = """\
#!/bin/sh
# Installs the scripts and the sudoers lines of Keyturn on {host}.
# Review it, then run it there as root. It is safe to run again.
{begin}

{files}
cat >"$rules" <<'{end_mark}'
{rules}{end_mark}
{end}
"""


def list_scripts(grants: Iterable[SudoGrant]) -> tuple[Script, ...]:
    """Return every script that rules name, sorted by name."""
    found = {script.name: script for grant in grants for script in grant.rule.scripts}
    return tuple(found[name] for name in sorted(found))


def format_install_program(host: Host, more: str = "") -> str:
    """Return the shell program that installs the scripts and sudoers lines of a host.

    more: shell code that comes before them.
    """
    installed = host.model_copy(update={"scripts": True})
    granted = list_host_sudo_grants(installed)
    # A signed plan names the scripts of its steps, which no sudo rule does.
    changing = list_host_sudo_grants(installed.model_copy(update={"signed": False}))
    needed = list_scripts([*granted, *changing])
    own = (run_signed.PROGRAM_PATH, signed_files.SCRIPT.path)
    kept = " ".join([*(script.path for script in needed), *own])
    return _INSTALL_PROGRAM.format(
        host=host.name,
        begin=load_code(
            "install-begin",
            HOST=host.name,
            FOLDER=SCRIPTS_DIRECTORY,
            ADVICE=CLASSIC_SUDO_ADVICE,
            KEPT=f" {kept} ",
        ),
        files="\n".join([more, *_render_script_files(needed)]),
        rules=format_sudoers(installed, granted),
        end=load_code("install-end"),
        end_mark=_HEREDOC_END,
    )


def _render_script_files(scripts: Iterable[Script]) -> Iterator[str]:
    for script in scripts:
        yield f"put {script.path} <<'{_HEREDOC_END}'\n{script.file_text}{_HEREDOC_END}\n"
