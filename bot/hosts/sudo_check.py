"""What of a host's sudo rules, scripts and programs is in place: each is tried, at once."""

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bot.hosts.sudo_rules import SudoGrant, list_scripts
from connectors.command import SUDO_PATH, Query, Shell, format_missing_program
from connectors.errors import ParseError
from connectors.script import Script

_OLDEST = (1, 9, 10)
_MOST_NAMED = 6

# Prints what is not as it should be, and a line at the end that says that nothing was left out.
# A rule for a program that is not there lets nothing through, so programs are looked for first.
_BEGIN = """\
PATH={path}
version=$(sudo -V 2>/dev/null | sed -n '1s/.* \\([0-9][0-9.]*\\).*/\\1/p')
echo "sudo $version"
rule() {{
    number=$1 program=$2
    shift 2
    command -v -- "$program" >/dev/null || {{ echo "program $number"; return; }}
    sudo -n -l -- "$@" >/dev/null 2>&1 </dev/null || echo "rule $number"
}}
script() {{
    [ -e "$1" ] || {{ echo "absent $1"; return; }}
    [ -x "$1" ] && echo "$2  $1" | sha256sum -c - >/dev/null 2>&1 || echo "altered $1"
}}
"""


@dataclass(frozen=True)
class SudoCheck:
    """What is missing on a host; nothing where all is in place.

    old_sudo: its version where it is too old for the rules. rules: those that sudo does not let
    through. programs: those that are not there, each with the runbooks that want it. absent,
    altered: scripts that are not there, and such as cannot be run or hold another text.
    """

    old_sudo: str = ""
    rules: tuple[SudoGrant, ...] = ()
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    absent: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()

    def together(self, other: "SudoCheck") -> "SudoCheck":
        """Return what is missing for either of two logins of one host."""
        return SudoCheck(
            self.old_sudo or other.old_sudo,
            self.rules + other.rules,
            {**self.programs, **other.programs},
            tuple(dict.fromkeys(self.absent + other.absent)),
            tuple(dict.fromkeys(self.altered + other.altered)),
        )

    def troubles(self, host: str, needed: Sequence[str]) -> Iterator[str]:
        """Yield what is missing and how to fix it. needed: runbooks that must work there."""
        bring = f"install what `keyturn sudoers {host} --scripts` prints"
        if self.old_sudo:
            yield (
                f"sudo {self.old_sudo} is too old for the rules, which are regular expressions: "
                f"install sudo {'.'.join(map(str, _OLDEST))} or later"
            )
        if self.absent:
            yield f"scripts are missing ({_named(self.absent)}): {bring}"
        if self.altered:
            yield (
                f"scripts were altered or cannot be run ({_named(self.altered)}): {bring}, and "
                "find out who changed them"
            )
        if self.rules and not self.old_sudo:
            told = [f"{_shown(grant)} for {grant.runbooks[0]}" for grant in self.rules]
            yield f"sudo rules are missing ({_named(told)}): {bring}"
        for program, runbooks in self.programs.items():
            if wanted := [words for words in runbooks if words in needed]:
                yield f"{format_missing_program(program)}; {wanted[0]} needs it"

    def advice(self, needed: Sequence[str]) -> str:
        """Say which programs are not there that only runbooks for any host would use."""
        spare = [name for name, wanted in self.programs.items() if not {*wanted} & {*needed}]
        return f"not installed, so their runbooks do not work: {', '.join(spare)}" if spare else ""


def build_sudo_question(
    granted: Sequence[SudoGrant], settings: Mapping[str, str]
) -> Query[SudoCheck]:
    """Ask whether sudo lets each rule through, and whether all that rules name is there."""
    lines = [_BEGIN.format(path=SUDO_PATH)]
    for number, grant in enumerate(granted):
        words = grant.rule.make_example(settings)
        lines.append(f"rule {number} {shlex.join([words[0], *words])}\n")
    for script in _lying(granted):
        digest = hashlib.sha256(script.file_text.encode()).hexdigest()
        lines.append(f"script {script.path} {digest}\n")
    shell = Shell(("sh", "-s"), stdin="".join([*lines, "echo end\n"]), deadline=60)
    return Query(shell, lambda answer: _parse(answer, granted, settings))


def _lying(granted: Sequence[SudoGrant]) -> tuple[Script, ...]:
    """Return the scripts that must lie on the host as files."""
    return list_scripts(
        [each for each in granted if any(each.rule.program == s.path for s in each.rule.scripts)]
    )


def _parse(answer: str, granted: Sequence[SudoGrant], settings: Mapping[str, str]) -> SudoCheck:
    lines = answer.splitlines()
    if not lines or lines[-1] != "end" or not lines[0].startswith("sudo "):
        raise ParseError(f"the host answered {answer[-200:]!r} about its sudo rules")
    rules: list[SudoGrant] = []
    programs: dict[str, list[str]] = {}
    files: dict[str, list[str]] = {"absent": [], "altered": []}
    for line in lines[1:-1]:
        kind, _, rest = line.partition(" ")
        if kind in files:
            files[kind].append(rest.rpartition("/")[2])
        elif kind == "rule":
            rules.append(granted[int(rest)])
        elif kind == "program":
            grant = granted[int(rest)]
            if not grant.rule.scripts:
                name = grant.rule.make_example(settings)[0]
                programs.setdefault(name, []).extend(grant.runbooks)
        else:
            raise ParseError(f"the host answered {line[:100]!r} about its sudo rules")
    return SudoCheck(
        old_sudo=_too_old(lines[0].removeprefix("sudo ")),
        rules=tuple(rules),
        programs={name: tuple(wanted) for name, wanted in programs.items()},
        absent=tuple(files["absent"]),
        altered=tuple(files["altered"]),
    )


def _too_old(version: str) -> str:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return version if numbers and numbers < _OLDEST else ""


def _shown(grant: SudoGrant) -> str:
    script = grant.rule.script or next(iter(grant.rule.scripts), None)
    return script.name if script else str(grant.rule.program).rpartition("/")[2]


def _named(names: Sequence[str]) -> str:
    some = list(dict.fromkeys(names))
    more = f" and {len(some) - _MOST_NAMED} more" if len(some) > _MOST_NAMED else ""
    return ", ".join(some[:_MOST_NAMED]) + more
