"""Test the sudo rules, scripts and programs of a host in one command."""

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bot.hosts.sudo_rules import CLASSIC_SUDO_ADVICE, SudoGrant, list_scripts
from connectors.command import SUDO_PATH, Query, Shell, format_missing_program
from connectors.errors import ParseError
from connectors.script import Script, load_code

_MIN_SUDO_VERSION = (1, 9, 10)
_MAX_NAMES = 6

_FUNCTIONS = load_code("sudo-check", PATH=SUDO_PATH)


@dataclass(frozen=True)
class SudoCheck:
    """What is missing on a host."""

    unsupported_sudo: str = ""
    """Why the host's sudo cannot read the rules, and what to do; "" if it can."""
    missing_rules: tuple[SudoGrant, ...] = ()
    """The rules that sudo does not allow."""
    missing_programs: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
    """The missing programs, each with the runbooks that need it."""
    missing_scripts: tuple[str, ...] = ()
    altered_scripts: tuple[str, ...] = ()
    """Scripts that are not executable or have another content."""

    def merge_with(self, other: "SudoCheck") -> "SudoCheck":
        """Return what is missing for either of two logins of one host."""
        return SudoCheck(
            self.unsupported_sudo or other.unsupported_sudo,
            self.missing_rules + other.missing_rules,
            {**self.missing_programs, **other.missing_programs},
            tuple(dict.fromkeys(self.missing_scripts + other.missing_scripts)),
            tuple(dict.fromkeys(self.altered_scripts + other.altered_scripts)),
        )

    def list_problems(self, host: str, needed_runbooks: Sequence[str]) -> Iterator[str]:
        """Yield what is missing and how to fix it, for runbooks that must work there."""
        fix = f"install what `keyturn sudoers {host} --scripts` prints"
        if self.unsupported_sudo:
            yield self.unsupported_sudo
        if self.missing_scripts:
            yield f"scripts are missing ({_join_names(self.missing_scripts)}): {fix}"
        if self.altered_scripts:
            yield (
                "scripts are changed or not executable "
                f"({_join_names(self.altered_scripts)}): {fix}, and find out who changed them"
            )
        if self.missing_rules and not self.unsupported_sudo:
            names = [
                f"{_get_grant_name(grant)} for {grant.runbooks[0]}" for grant in self.missing_rules
            ]
            yield f"sudo rules are missing ({_join_names(names)}): {fix}"
        for program, runbooks in self.missing_programs.items():
            if wanted := [words for words in runbooks if words in needed_runbooks]:
                yield f"{format_missing_program(program)}; {wanted[0]} needs it"

    def describe_unneeded_programs(self, needed_runbooks: Sequence[str]) -> str:
        """Return the missing programs of runbooks that are not meant for this host, in words."""
        unneeded = [
            name
            for name, wanted in self.missing_programs.items()
            if not {*wanted} & {*needed_runbooks}
        ]
        return (
            f"not installed, so what needs them does not work here: {', '.join(unneeded)}"
            if unneeded
            else ""
        )


def build_sudo_query(grants: Sequence[SudoGrant], settings: Mapping[str, str]) -> Query[SudoCheck]:
    """Return the query that tests each rule and everything that the rules name.

    It prints a line for each problem, and a last one that proves that the output is complete.
    """
    lines = [f"{_FUNCTIONS}\n"]
    for number, grant in enumerate(grants):
        words = grant.rule.make_example(settings)
        lines.append(f"rule {number} {shlex.join([words[0], *words])}\n")
    for script in _list_installed_scripts(grants):
        digest = hashlib.sha256(script.file_text.encode()).hexdigest()
        lines.append(f"script {script.path} {digest}\n")
    shell = Shell(("sh", "-s"), stdin="".join([*lines, "echo end\n"]), deadline=60)
    return Query(shell, lambda answer: _parse_answer(answer, grants, settings))


def _list_installed_scripts(grants: Sequence[SudoGrant]) -> tuple[Script, ...]:
    """Return the scripts that must be installed as files."""
    return list_scripts(
        [each for each in grants if any(each.rule.program == s.path for s in each.rule.scripts)]
    )


def _parse_answer(
    answer: str, grants: Sequence[SudoGrant], settings: Mapping[str, str]
) -> SudoCheck:
    lines = answer.splitlines()
    if not lines or lines[-1] != "end" or not lines[0].startswith("sudo "):
        raise ParseError(f"the check of sudo rules returned {answer[-200:]!r}")
    rules: list[SudoGrant] = []
    programs: dict[str, list[str]] = {}
    files: dict[str, list[str]] = {"absent": [], "altered": []}
    for line in lines[1:-1]:
        kind, _, rest = line.partition(" ")
        if kind in files:
            files[kind].append(rest.rpartition("/")[2])
        elif kind == "rule":
            rules.append(grants[int(rest)])
        elif kind == "program":
            grant = grants[int(rest)]
            if not grant.rule.scripts and not grant.rule.optional:
                name = grant.rule.make_example(settings)[0]
                programs.setdefault(name, []).extend(grant.runbooks)
        else:
            raise ParseError(f"the check of sudo rules returned {line[:100]!r}")
    return SudoCheck(
        unsupported_sudo=_explain_unsupported_sudo(lines[0].removeprefix("sudo ")),
        missing_rules=tuple(rules),
        missing_programs={name: tuple(wanted) for name, wanted in programs.items()},
        missing_scripts=tuple(files["absent"]),
        altered_scripts=tuple(files["altered"]),
    )


def _explain_unsupported_sudo(line: str) -> str:
    """Return why a sudo cannot read the rules. line: the first that `sudo -V` prints."""
    if line.startswith("sudo-rs"):
        return f"its sudo is {line}, which cannot read the rules: {CLASSIC_SUDO_ADVICE}"
    version = re.search(r"\d+(\.\d+)*", line)
    numbers = tuple(int(part) for part in version[0].split(".")[:3]) if version else ()
    if version is None or numbers >= _MIN_SUDO_VERSION:
        return ""
    return (
        f"sudo {version[0]} is too old for rules with regular expressions: "
        f"install sudo {'.'.join(map(str, _MIN_SUDO_VERSION))} or later"
    )


def _get_grant_name(grant: SudoGrant) -> str:
    script = grant.rule.script or next(iter(grant.rule.scripts), None)
    return script.name if script else str(grant.rule.program).rpartition("/")[2]


def _join_names(names: Sequence[str]) -> str:
    some = list(dict.fromkeys(names))
    more = f" and {len(some) - _MAX_NAMES} more" if len(some) > _MAX_NAMES else ""
    return ", ".join(some[:_MAX_NAMES]) + more
