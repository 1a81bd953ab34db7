"""Conditions of tasks that a reading shows: of paths that a task looked for, and of its output."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bot.features.importing.ansible.play import Look, Play, Task, take_line
from bot.features.importing.drafts import Draft, Unclear
from bot.features.importing.kinds.file_changes import look_for
from bot.features.importing.shell.lines import has_signs
from bot.features.importing.shell.reads import is_reading
from bot.features.importing.sources import is_false, is_true

_EXISTS = re.compile(
    r"\s*(not\s+)?(\w+)\.stat\.exists(?:\s*\|\s*bool)?"
    r"(?:\s*(==|!=|\bis\s+not\b|\bis\b)\s*([Tt]rue|[Ff]alse))?\s*"
)
_PLAIN = frozenset({"path", "follow", "get_checksum", "get_md5", "get_mime", "get_attributes",
                    "checksum_algorithm"})  # fmt: skip
_TEXT = r"(?:'([^'\\]*)'|\"([^\"\\]*)\")"
_EQUALS = re.compile(rf"\s*(\w+)\.stdout\s*(==|!=)\s*{_TEXT}\s*")
_HOLDS = re.compile(rf"\s*\(?\s*(not\s+)?{_TEXT}\s+(not\s+)?in\s+(\w+)\.stdout\s*\)?\s*")
_LENGTH = re.compile(
    r"\s*\(?(\w+)\.stdout\s*\|\s*(?:length|count)\)?\s*(==|!=|>|<|>=)\s*([01])\s*"
)
_ENDED = re.compile(
    r"\s*(?:(\w+)\.rc\s*(==|!=|>)\s*0|(\w+)(?:\s+is\s+|\s*\|\s*)"
    r"(failed|failure|succeeded|success|not\s+failed))\s*"
)
_UP_TO_ONE = re.compile(r"\s*(\w+)\.rc\s*(?:>\s*1|not\s+in\s+\[\s*0\s*,\s*1\s*\])\s*")
# Programs that print something exactly if they end with 0, with what else they may end.
_PRINTS_IF_FOUND = {"grep": (1, 2), "getent": (2,), "id": (1,), "pgrep": (1,), "pidof": (1,)}
# Of the programs that a reading may run, those that are there on every system.
_IN_BIN = frozenset(
    ["cat", "df", "dpkg-query", "du", "find", "free", "getent", "grep", "groups", "head",
     "hostnamectl", "id", "journalctl", "loginctl", "ls", "lsblk", "lscpu", "md5sum", "nproc",
     "pgrep", "ps", "readlink", "rpm", "sha256sum", "stat", "systemctl", "tail", "timedatectl",
     "uname", "wc", "who"]
)  # fmt: skip
_FILLED = re.compile(r"\$[\w{]|(?:^|[\s'\"])~")
_ACTIVE = ("active", "reloading", "refreshing")


def note_look(play: Play, raw: Mapping[str, Any], tasks: Sequence[Task]) -> None:
    """Keep which path a task looks for, if what a page reads at its start may be the same."""
    task = tasks[0]
    is_plain = not task.given.keys() - _PLAIN and is_false(task.given.get("follow", False))
    with suppress(Unclear):
        path = str(task.scope.fill(task.given.get("path", "")))
        if is_plain:
            _note(play, raw, tasks, Look(path))


def note_output(play: Play, tasks: Sequence[Task]) -> None:
    """Keep which command a task reads with, if a page may read with it too."""
    if not tasks:
        return
    raw = tasks[0].raw
    given = dict(tasks[0].given)
    code = take_line(given)
    given.pop("warn", None)
    # Also without a shell, Ansible fills in variables and the folders of users.
    has_odd = has_signs(code) if tasks[0].module != "command" else _FILLED.search(code)
    if given or "environment" in raw or has_odd:
        return
    with suppress(ValueError):
        words = shlex.split(code)
        is_quiet = words[1:2] == ["-q"] and _name_program(words) == "grep"
        words = [words[0], *words[2:]] if is_quiet else words
        root = is_true(raw.get("become", play.root))
        if root and words[:1] and words[0] in _IN_BIN:
            words = [f"/usr/bin/{words[0]}", *words[1:]]
        if words and is_reading(words) and (not root or words[0].startswith("/")):
            look = Look("", words, is_quiet, root)
            _note(play, raw, tasks, replace(look, statuses=(0, *_list_statuses(raw, words))))


def _name_program(words: Sequence[str]) -> str:
    return words[0].rpartition("/")[2] if words else ""


def _list_statuses(raw: Mapping[str, Any], words: Sequence[str]) -> Sequence[int]:
    """Return with what a program may end beside 0, where Ansible goes on then."""
    if is_false(raw.get("failed_when")) or is_true(raw.get("ignore_errors")):
        return _PRINTS_IF_FOUND.get(_name_program(words), (1, 2, 3, 4))
    known = _UP_TO_ONE.fullmatch(str(raw.get("failed_when")))
    return (1,) if known and known[1] == str(raw.get("register")) else ()


def _note(play: Play, raw: Mapping[str, Any], tasks: Sequence[Task], look: Look) -> None:
    name = str(raw.get("register", ""))
    draft = play.pages.drafts[-1] if play.pages.drafts else None
    is_one = len(tasks) == 1 and not tasks[0].conditions
    if not name or not is_one or raw.keys() & {"delegate_to", "loop", "become_user"}:
        return
    count = len(draft.steps) if draft else 0
    is_first = not count or bool(draft and look.path and not _may_change(draft, look.path))
    play.looks[name] = replace(look, draft=draft, count=count, is_first=is_first)


def _may_change(draft: Draft, path: str) -> bool:
    """Return whether a step so far may make a path, or remove it."""
    is_claimed = any(thing == path for thing, _, _ in draft.claims)
    return is_claimed or any(
        "script" in step["do"] or "TODO" in str(step["do"]) for _, _, step in draft.steps
    )


def _find_look(play: Play, draft: Draft | None, condition: str) -> tuple[Look, str] | None:
    """Return what a condition asks for, if a page reads it as it was, and what is to hold.

    The latter is an expression in which # stands for the reading. None if it does not.
    """
    name, test, kind = _read_condition(play, condition)
    look = play.looks.get(name)
    if not look or not test or bool(look.path) != (kind == "path"):
        return None
    is_alike = _is_read_alike(play, look, draft) and not (look.is_quiet and kind == "output")
    return (look, test) if is_alike else None


def _is_read_alike(play: Play, look: Look, draft: Draft | None) -> bool:
    """Return whether a page, at its start, reads what a task read."""
    drafts = play.pages.drafts
    if look.is_first and draft is (look.draft or (drafts[0] if drafts else None)):
        return True
    # All steps of the page before it were before the task.
    at = next((at for at, one in enumerate(drafts) if one is draft), 0)
    return at > 0 and drafts[at - 1] is look.draft and len(drafts[at - 1].steps) == look.count


def _read_condition(play: Play, condition: str) -> tuple[str, str, str]:
    """Return the variable that a condition is about, its test, and what of it: "" for another."""
    found = _EXISTS.fullmatch(condition)
    if found:
        signs = (found[1], found[3] in ("!=", "is not"), str(found[4]).lower() == "false")
        return found[2], f'# {"==" if sum(map(bool, signs)) % 2 else "!="} ""', "path"
    for kind, read in ((_EQUALS, _read_equal), (_HOLDS, _read_part), (_LENGTH, _read_length)):
        found = kind.fullmatch(condition)
        if found:
            return (*read(found), "output")
    found = _ENDED.fullmatch(condition)
    if not found:
        return "", "", ""
    name = found[1] or found[3]
    ends_well = found[2] == "==" or str(found[4]).startswith(("suc", "not"))
    return name, _test_end(play.looks.get(name), ends_well=ends_well), "end"


def _read_equal(found: re.Match[str]) -> tuple[str, str]:
    text = found[3] if found[3] is not None else found[4]
    return found[1], f"# {found[2]} {json.dumps(text, ensure_ascii=False)}"


def _read_part(found: re.Match[str]) -> tuple[str, str]:
    text = found[2] if found[2] is not None else found[3]
    sign = "!" if bool(found[1]) != bool(found[4]) else ""
    return found[5], f"{sign}#.contains({json.dumps(text, ensure_ascii=False)})"


def _read_length(found: re.Match[str]) -> tuple[str, str]:
    asked = found[2] + found[3]
    if asked == "==0":
        return found[1], '# == ""'
    return found[1], '# != ""' if asked in (">0", "!=0", ">=1") else ""


def _test_end(look: Look | None, *, ends_well: bool) -> str:
    """Return how the output of a command shows that it ended with 0, or not; "" if it does not."""
    words = [*look.words] if look else list[str]()
    program = _name_program(words)
    # A look for lines without text may print nothing and end with 0.
    is_odd = program == "grep" and (
        len(words) != 3 or words[1].startswith("-") or _may_be_empty(words[1])
    )
    if not look or len(look.statuses) < 2 or is_odd:
        return ""
    # Some options have them print nothing, or a number of nothing.
    is_odd = program in ("pgrep", "pidof") and any(one.startswith("-") for one in words)
    if program in _PRINTS_IF_FOUND and not is_odd:
        return f'# {"!=" if ends_well else "=="} ""'
    if program == "systemctl" and len(words) == 3 and words[1] == "is-active":
        tests = [f'# {"==" if ends_well else "!="} "{one}"' for one in _ACTIVE]
        return f"({(' || ' if ends_well else ' && ').join(tests)})"
    return ""


def _may_be_empty(pattern: str) -> bool:
    """Return whether a pattern of grep may find a line without text."""
    return re.fullmatch(r"\^?[\w ./:=-]+\$?", pattern) is None


def are_shown(play: Play, conditions: Sequence[str]) -> bool:
    """Return whether the page so far reads what conditions ask for, and it says what is missing.

    A command that runs where something is there may run again each time.
    """
    draft = play.pages.drafts[-1] if play.pages.drafts else None
    found = [_find_look(play, draft, one) for one in conditions]
    return bool(found) and all(
        one and (one[0].path or one[1].startswith("!") or one[1] == '# == ""') for one in found
    )


def show_conditions(
    play: Play, draft: Draft, tasks: Sequence[Task]
) -> tuple[list[str], list[str]]:
    """Return the conditions of tasks as expressions of what a page reads, and the other ones."""
    shown, others = list[str](), list[str]()
    for one in dict.fromkeys(one for task in tasks for one in task.conditions):
        found = _find_look(play, draft, one)
        # One that holds for some items alone is asked for.
        if found is None or not all(one in task.conditions for task in tasks):
            others.append(one)
            continue
        look, test = found
        name = look_for(draft, look.path)[0] if look.path else _read_output(draft, look)
        shown.append(test.replace("#", name))
    return shown, others


def _read_output(draft: Draft, look: Look) -> str:
    """Have a page read what a command prints, and return the reading."""
    reading = {
        "run": [draft.word(one) for one in look.words],
        **({"root": True} if look.root else {}),
        **({"statuses": [*look.statuses]} if look.statuses != (0,) else {}),
        "as": "text",
    }
    words = [_name_program(look.words), *look.words[1:]]
    name = draft.add_reading("_".join(words[:3]), reading)
    shown = draft.text(" ".join(words))
    draft.current.append(f"{shown} {{{name} == '' ? 'prints nothing' : 'prints something'}}")
    return name
