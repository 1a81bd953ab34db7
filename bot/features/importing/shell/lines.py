"""Lines for a shell: those with a plain meaning become typed steps, the others are blind."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.features.importing.drafts import Draft, Origin, Unclear, mark, show_marks
from bot.features.importing.kinds import changes, packages, rereads
from bot.features.importing.shell.files import (
    FILE_PROGRAMS,
    Carry,
    Understand,
    understand_write,
)
from bot.features.importing.shell.reads import SILENT, is_reading, only_reads
from bot.features.importing.shell.system import SYSTEM_PROGRAMS
from runbooks._declared_commands import make_script

_SHELL_SIGNS = re.compile(r"[|&;<>()`$*?~\[\]{}!#\n\\]")
_MARK = re.compile("\x01([a-z][a-z0-9_]*)\x02")
# Lines of a script that say how a shell goes on, where each step of a page stops it.
_SETTING = re.compile(r"set (-[a-z]+|-o [a-z]+|-[a-z]*o [a-z]+)( -o [a-z]+)*")
# What always succeeds, or whose failure means nothing for what comes after it.
_SUCCEED = frozenset({"echo", "printf", "true", ":", "sleep", "pwd", "whoami", "set", "cd"})
_TESTED: Mapping[str, str] = {
    "nginx": r"\b(reload|restart)\b.*\bnginx|nginx (reload|restart)$",
    "apachectl": r"\b(reload|restart)\b.*\b(apache2|httpd)|(apache2|httpd) (reload|restart)$",
    "apache2ctl": r"\b(reload|restart)\b.*\bapache2|apache2 (reload|restart)$",
}
_VERBS = frozenset(
    {"start", "stop", "enable", "disable", "mask", "unmask", "restart", "reload", "status"}
)
_NO_SIGNS = "It has no undo, so a plan with it needs the approvals of what cannot be undone."
_QUESTION = "TODO: what that was read shows that this is still needed? {0}"
_UNDO = "TODO: why it cannot be undone, as a clause; or write `undo` instead"
_MOST_SCRIPT = 8000
_QUIET = ("-y", "-q", "-qq", "--yes", "-yq", "-qy", "-qqy", "-yqq", "--assume-yes", "--quiet")


@dataclass(frozen=True)
class Meaning:
    """What a command means: a change, or a reason why it is none."""

    carry: Carry | None = None
    left_out: str = ""
    reads: tuple[str, ...] = ()
    is_package: bool | None = False
    """None for what belongs on a page of packages or of others."""
    service: tuple[str, str] = ("", "")
    """A verb and a service that Keyturn's own runbooks serve."""


def understand_line(line: str) -> list[Meaning] | None:
    """Return the meaning of each command of a line; None for one that needs a shell.

    Raises Unclear.
    """
    parts = [line] if "&&" not in line else re.split(r"\s*&&\s*", line)
    meanings: list[Meaning] = []
    for at, part in enumerate(parts):
        if _is_condition(part, parts[at + 1 :]):
            return None
        if written := understand_write(part):
            meanings += map(Meaning, written)
            continue
        if _SHELL_SIGNS.search(part):
            return None
        try:
            words = shlex.split(part)
        except ValueError:
            return None
        found = _understand(words)
        if found is None:
            return None
        meanings += found
    return meanings


def _is_condition(part: str, others: Sequence[str]) -> bool:
    """Return whether a command decides if those after it run at all."""
    words = part.split() or [""]
    if words[0] == "exit":
        return True
    if not others or not only_reads(part) or words[0] in _SUCCEED:
        return False
    # Keyturn tests their configuration itself, and does nothing to them if it has errors.
    name = words[0].rpartition("/")[2]
    is_tested = name in _TESTED and all(re.search(_TESTED[name], one) for one in others)
    return not is_tested


def understand_script(code: str) -> list[Meaning] | None:
    """Return the meaning of each command of lines that a shell needs nothing else for, or None.

    Raises Unclear.
    """
    meanings: list[Meaning] = []
    lines = _list_lines(code)
    for at, line in enumerate(lines):
        found = understand_line(line)
        if found is None or (_ends(code) and _is_condition(line, lines[at + 1 :])):
            return None
        meanings += found
    return meanings or None


def goes_on(code: str) -> bool:
    """Return whether a shell runs the next line of a script after one that fails."""
    return len(_list_lines(code)) > 1 and not _ends(code)


def _ends(code: str) -> bool:
    """Return whether a line that fails ends a script."""
    return re.search(r"^\s*set (-[a-z]*e|-o errexit)", code, re.MULTILINE) is not None


def _list_lines(code: str) -> list[str]:
    """Return the lines of a script that are no comment and no setting of the shell."""
    lines = [line.strip() for line in re.sub(r"\\\n\s*", " ", code).splitlines()]
    found = [one for one in lines if one and one[0] != "#" and not _SETTING.fullmatch(one)]
    return found[:-1] if found[-1:] in (["exit"], ["exit 0"]) else found


def has_meaning(line: str, *, alone: bool = False) -> bool:
    """Return whether a line is carried over as what its commands mean.

    alone: and whether none of them needs a network or asks something, as those of packages do.
    """
    try:
        meanings = understand_script(line)
    except Unclear:
        return False
    return meanings is not None and not (alone and any(one.is_package for one in meanings))


def list_shell_problems(shell: str) -> list[str]:
    """Return what a person has to change in lines that were written for a shell."""
    if shell in ("", "sh", "dash"):
        return []
    return [f"it was written for {shell}, and a host runs it with /bin/sh"]


def find_title(code: str) -> str:
    """Return the first line of a script that does something."""
    return next(iter(_list_lines(code)), "")


def has_signs(line: str) -> bool:
    """Return whether a line has something that a shell takes otherwise."""
    return _SHELL_SIGNS.search(line) is not None


def _understand(words: Sequence[str]) -> list[Meaning] | None:
    if words[:1] == ["sudo"]:
        words = words[2:] if words[1:2] == ["-n"] else words[1:]
    if not words or words[0].startswith("-"):
        return None
    program, rest = words[0].rpartition("/")[2], list(words[1:])
    if plain := _understand_plain([program, *rest]):
        return [plain]
    services = _list_services(words[0], program, rest)
    if services:
        return [_make_service(*each) for each in services]
    understand = _PROGRAMS.get(program)
    found = understand(rest) if understand else None
    if found is not None:
        return found
    return _understand_reading([words[0], *rest])


def _understand_plain(words: Sequence[str]) -> Meaning | None:
    """Return the meaning of a command that means one thing alone."""
    if words[0] in SILENT:
        return Meaning(left_out="it changes nothing on the host")
    if words == ["systemctl", "daemon-reload"]:
        return Meaning(changes.carry_daemon_reload)
    if rereads.find_files(words):
        return Meaning(lambda draft, origin: rereads.carry_reread(draft, origin, words))
    return None


def _understand_reading(words: Sequence[str]) -> list[Meaning] | None:
    return [Meaning(reads=tuple(words))] if is_reading(words) else None


def _list_services(path: str, program: str, rest: Sequence[str]) -> list[tuple[str, str]]:
    if path.startswith("/etc/init.d/") and len(rest) == 1 and rest[0] in _VERBS:
        return [(rest[0], program)]
    if program == "service" and len(rest) == 2 and rest[1] in _VERBS:
        return [(rest[1], rest[0])]
    words = [word for word in rest if word not in ("--no-pager", "-l", "--quiet", "-q")]
    if program == "systemctl" and len(words) > 1 and words[0] in _VERBS:
        names = [word for word in words[1:] if not word.startswith("-")]
        now = ["start" if words[0] == "enable" else "stop"] if "--now" in words else []
        if len(names) + len(now) != len(words) - 1:
            return []
        return [(verb, name) for name in names for verb in (words[0], *now)]
    return []


def _make_service(verb: str, name: str) -> Meaning:
    service = (verb, name)
    match verb:
        case "status":
            return Meaning(
                left_out="Keyturn reads the service before and after each change", service=service
            )
        case "restart" | "reload":
            return Meaning(
                lambda draft, origin: changes.carry_restart_after(draft, origin, verb, name),
                service=service,
            )
        case "mask" | "unmask":
            masked = verb == "mask"
            return Meaning(
                lambda draft, origin: changes.carry_mask(draft, origin, name, masked=masked)
            )
        case "start" | "stop":
            running = verb == "start"
            return Meaning(
                lambda draft, origin: changes.carry_service(draft, origin, name, running=running),
                service=service,
            )
        case _:
            enabled = verb == "enable"
            return Meaning(
                lambda draft, origin: changes.carry_service(draft, origin, name, enabled=enabled)
            )


def _understand_packages(program: str) -> Callable[[Sequence[str]], list[Meaning] | None]:
    manager = "apt-get" if program == "apt" else program

    def understand(rest: Sequence[str]) -> list[Meaning] | None:
        words = [word for word in rest if word not in _QUIET]
        if manager == "apt-get" and len(words) == 1:
            return _understand_apt(program, words[0])
        if len(words) < 2 or words[0] not in ("install", "remove"):
            return None
        if any(word.startswith("-") for word in words):
            return None
        present = words[0] == "install"
        return [
            Meaning(
                lambda draft, origin, each=each: packages.carry_package(
                    draft, origin, each, manager, present=present
                ),
                is_package=True,
            )
            for each in words[1:]
        ]

    return understand


def _understand_apt(program: str, word: str) -> list[Meaning] | None:
    """Return what apt-get or apt does with one word."""
    if word == "update":
        return [Meaning(packages.carry_old_lists, is_package=None)]
    # Of these, only apt-get upgrade installs no new package.
    new = ["--with-new-pkgs"] if program == "apt" else []
    wholes = {
        "upgrade": [*new, "upgrade"],
        "dist-upgrade": ["dist-upgrade"],
        "full-upgrade": ["dist-upgrade"],
        "autoremove": ["autoremove"],
    }
    if word not in wholes:
        return None
    words = wholes[word]
    return [
        Meaning(
            lambda draft, origin: packages.carry_simulated(draft, origin, words), is_package=True
        )
    ]


def _make_changes(
    understand: Understand,
) -> Callable[[Sequence[str]], list[Meaning] | None]:
    def make(rest: Sequence[str]) -> list[Meaning] | None:
        found = understand(rest)
        return None if found is None else [Meaning(one) for one in found]

    return make


_PROGRAMS: dict[str, Callable[[Sequence[str]], list[Meaning] | None]] = {
    **{name: _make_changes(one) for name, one in {**FILE_PROGRAMS, **SYSTEM_PROGRAMS}.items()},
    **{name: _understand_packages(name) for name in ("apt", "apt-get", "yum", "dnf")},
}


def carry_blind(
    draft: Draft,
    origin: Origin,
    code: str,
    *,
    root: bool,
    hint: str = "",
    problems: Sequence[str] = (),
) -> None:
    """Add a step that runs lines of a shell. What shows that it worked is left to a person.

    problems: what a person has to change in the lines before a host can run them. Raises Unclear.
    """
    script, arguments = _pass_arguments(code.strip())
    problems = [*problems, *_find_problems(script, len(arguments))]
    script = "\n".join([*(f"# TODO: {one}" for one in problems), script])
    if len(script) > _MOST_SCRIPT:
        raise Unclear(f"the script has more than {_MOST_SCRIPT:,} characters")
    if not all(line.isprintable() for line in script.replace("\t", " ").split("\n")):
        raise Unclear("its lines have characters that people cannot see")
    draft.used.update(arguments)
    draft.add_step(
        origin,
        {
            "title": draft.text(origin.title)[:200] or "A step",
            "when": _QUESTION.format(hint).strip(),
            "do": {
                "script": script,
                **({"arguments": [f"{{{name}}}" for name in arguments]} if arguments else {}),
                **({"root": True} if root else {}),
            },
            "no_undo": _UNDO,
        },
        f"Blind: lines of a shell, of which Keyturn cannot tell what they do.\n{_NO_SIGNS}",
    )


def _find_problems(script: str, argument_count: int) -> list[str]:
    """Return why a host could not be sent these lines."""
    if not script.isascii():
        return ["these lines have other than ASCII characters: write them without"]
    try:
        make_script("declared-step", script, argument_count)
    except ValueError as error:
        return [f"{error}"]
    return []


def ask_for_step(draft: Draft, origin: Origin, what: str) -> None:
    """Add a step that a person has to write, in the place of one without a plain meaning."""
    plain = " ".join(show_marks(what).split())[:300]
    draft.add_step(
        origin,
        {
            "title": draft.text(origin.title)[:200] or "A step",
            "when": "TODO: what that was read shows that this is still needed?",
            "do": {"run": [f"TODO: {plain}. Which command does it?"]},
            "no_undo": _UNDO,
        },
    )


def _pass_arguments(code: str) -> tuple[str, list[str]]:
    """Return lines in which values of the request are $1, $2 …, and the names of these values."""
    names: list[str] = []
    script, quote, place = "", "", 0
    while place < len(code):
        character = code[place]
        if found := _MARK.match(code, place):
            if found[1] not in names:
                names.append(found[1])
            number = f"${{{names.index(found[1]) + 1}}}"
            script += {"": f'"{number}"', '"': number, "'": f"'\"{number}\"'"}[quote]
            place = found.end()
            continue
        if character == "#" and not quote and script[-1:] in ("", " ", "\n", "\t"):
            end = len(code) if (end := code.find("\n", place)) < 0 else end
            script += _MARK.sub(r"\1", code[place:end])
            place = end
            continue
        if character == "\\" and quote != "'":
            script += code[place : place + 2]
            place += 2
            continue
        if character in "\"'" and quote in ("", character):
            quote = "" if quote else character
        script += character
        place += 1
    return script, names


def replace_values(
    text: str, pattern: re.Pattern[str], names: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Return a text with marks in place of references to values, and what is wrong with others.

    names: the values of the request by their references, "" for a password.
    """
    problems: list[str] = []

    def replace(found: re.Match[str]) -> str:
        name = next(filter(None, found.groups()))
        if names.get(name):
            return mark(names[name])
        problems.append(
            f"it uses the password {found[0]}, and Keyturn keeps none in a request"
            if name in names
            else f"it uses {found[0]}, which Keyturn does not know"
        )
        return found[0]

    filled = pattern.sub(replace, text)
    return filled, list(dict.fromkeys(problems))
