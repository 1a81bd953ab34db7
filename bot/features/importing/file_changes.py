"""Changes of files: what shows the state, the command, and the undo."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from bot.features.importing.drafts import (
    OWNER,
    Draft,
    Origin,
    Unclear,
    is_value,
    run_as_root,
    show_marks,
)
from connectors.visible_text import refuse_invisible
from runbooks._declared_parsers import compile_pattern

_PATH = re.compile("(/[A-Za-z0-9_.:@+=,%\x01\x02-]+)+/?")
_MODE = re.compile("0?[0-7]{3,4}")
# What Python, RE2, CEL and sed -E understand alike.
_PATTERN = re.compile(
    r"\^?(?:[A-Za-z0-9_ ,=:/%@\"'<>;-]|\\[.\[\]()*+?^$|/]|\\s|#|\.|[*+?]|\[[A-Za-z0-9_ ^-]+\])*\$?"
)
# Who may log in and become root, which a mistake takes from everyone.
_OF_ACCESS = re.compile(
    r"/etc/(sudoers|ssh/|sysconfig/sshd|default/ssh|pam\.d/|security/|passwd|shadow|group|gshadow|nsswitch\.conf|hosts\.(allow|deny))"
)
_MOST_INPUT = 8000
_MOST_TEXT = 4000


def carry_line(
    draft: Draft,
    origin: Origin,
    path: str,
    line: str,
    *,
    pattern: str = "",
    present: bool = True,
    create: bool = False,
) -> None:
    """Have a file contain a line, in place of one that matches the pattern; or no such line.

    create: whether the file is made if there is none.
    """
    _refuse_odd_path(path)
    _refuse_access(path)
    if "\x01" in path + line + pattern:
        raise Unclear("a value of the request is a part of the line")
    _refuse_odd_text(line)
    _refuse_odd_pattern(pattern)
    if create and present:
        carry_file(draft, origin, path, {})
    name = draft.add_reading(f"lines_{path}", _read_lines(path, may_miss=create or not present))
    draft.claim(f"the content of {path}", "other lines")
    draft.claim(f"the line {line[:80]} of {path}", "there" if present else "gone")
    wanted = draft.expression(line)
    if not present:
        _carry_no_line(draft, origin, path, name, pattern or f"^{_escape_ere(line)}$")
        return
    shown = draft.text(line)[:200]
    draft.current.append(f"{path} has {{count({name}.size(), 'line')}}")
    is_missing = f"!{name}.exists(row, row.line == {wanted})"
    if pattern:
        matches = f"{name}.filter(row, row.line.matches({draft.expression(pattern)}))"
        found = draft.add_state(f"matching_{path}", matches)
        is_other = f"{found}.exists(row, row.line != {wanted})"
        is_missing = f"{found}.size() == 0 && {is_missing}"
        draft.refuse.append(
            {
                "when": f"{found}.size() > 1 && {is_other}",
                "because": f"{{{found}.size()}} lines of {path} match {draft.text(pattern)}: "
                "leave one of them, then request this again",
            }
        )
        draft.claim(f"the line of {path} that matches {pattern}", shown)
        draft.add_step(
            origin,
            {
                "title": f"Replace a line of {path} by: {shown}",
                "when": is_other,
                "do": _sed(path, f"/{_delimit(pattern)}/c\\{_escape_text(line)}"),
                "no_undo": f"put the line back by hand: {{{found}[0].line}}",
                "before": f"{{{found}[0].line}}",
                "after": shown,
            },
        )
    _add_line(draft, origin, path, name, line, is_missing, create=create)


def _add_line(
    draft: Draft,
    origin: Origin,
    path: str,
    name: str,
    line: str,
    is_missing: str,
    *,
    create: bool,
) -> None:
    shown = draft.text(line)[:200]
    last = ("a line", _sed(path, f"$a\\{_escape_text(line)}"), f"{name}.size() > 0")
    # sed has no last line of an empty file after which it could add one.
    tee = {**run_as_root("/usr/bin/tee", "-a", "--", path), "stdin": f"{draft.word(line)}\n"}
    first = ("a first line", tee, f"{name}.size() == 0")
    for what, do, when in (first, last) if create else (last,):
        draft.add_step(
            origin,
            {
                "title": f"Add {what} to {path}: {shown}",
                "when": f"{is_missing} && {when}" if create else is_missing,
                "do": do,
                "undo": _sed(path, f"/^{_delimit(_escape_ere(line))}$/d"),
                "before": "no such line",
                "after": shown,
            },
        )
    if not create:
        because = f"{path} is empty: write a first line, then request this again"
        draft.refuse.append({"when": f"{name}.size() == 0", "because": because})


def _carry_no_line(draft: Draft, origin: Origin, path: str, name: str, pattern: str) -> None:
    matches = f"row, row.line.matches({draft.expression(pattern)})"
    draft.current.append(f"{{count({name}.filter({matches}).size(), 'line')}} of {path} match")
    draft.add_step(
        origin,
        {
            "title": f"Remove lines from {path}",
            "when": f"{name}.exists({matches})",
            "do": _sed(path, f"/{_delimit(pattern)}/d"),
            "no_undo": "put the lines back by hand: "
            f"{{join({name}.filter({matches}).map(row, row.line), ' | ')}}",
            "before": f"{{join({name}.filter({matches}).map(row, row.line), ' | ')}}",
            "after": "no such line",
        },
    )


def _read_lines(path: str, *, may_miss: bool) -> dict[str, Any]:
    reading = {"file": path, "root": True, "as": "lines", "pattern": "(?P<line>.*)"}
    return {**reading, "statuses": [0, 1]} if may_miss else reading


def _sed(path: str, code: str) -> dict[str, Any]:
    return run_as_root("/usr/bin/sed", "-E", "-i", "-e", code, path)


def _escape_ere(text: str) -> str:
    return re.sub(r"[][\\.^$*+?{}()|]", r"\\\g<0>", text)


def _delimit(pattern: str) -> str:
    """Return a pattern between slashes."""
    return re.sub(r"(?<!\\)/", r"\/", pattern)


def _escape_text(line: str) -> str:
    """Return a line as the commands a and c of sed take it."""
    return line.replace("\\", "\\\\")


def _refuse_odd_pattern(pattern: str) -> None:
    unclear = Unclear(f"the pattern {pattern[:80]!r} may mean something else to sed")
    if not _PATTERN.fullmatch(pattern):
        raise unclear
    try:
        compile_pattern(pattern)
    except ValueError:
        raise unclear from None


def carry_content(
    draft: Draft, origin: Origin, path: str, content: str, attributes: Mapping[str, str]
) -> None:
    """Have a file with this content."""
    _refuse_odd_path(path, draft)
    _refuse_access(path)
    if len(content) > _MOST_INPUT:
        raise Unclear(f"the content has more than {_MOST_INPUT:,} characters")
    draft.word(content)
    for line in show_marks(content).split("\n"):
        _refuse_odd_text(line)
    shown, word = draft.text(path), draft.word(path)
    if "\x01" in content:
        name, is_there, after = _compare_text(draft, path, word, content)
    else:
        name, is_there, after = _compare_digest(draft, path, word, content)
    draft.current.append(f"{shown} {{{is_there} ? 'is as requested' : 'has other content'}}")
    write = {**run_as_root("/usr/bin/tee", "--", word), "stdin": draft.word(content)}
    draft.claim(path, "a file")
    for title, when, undo in (
        ("Create", f'{name} == ""', {"undo": run_as_root("/usr/bin/rm", "-f", "--", word)}),
        (
            "Replace the content of",
            f'{name} != "" && !{is_there}',
            {"no_undo": "what was in the file is not kept: copy it first"},
        ),
    ):
        draft.claim(f"the content of {path}", after)
        draft.add_step(
            origin,
            {
                "title": f"{title} {shown}",
                "when": when,
                "do": write,
                **undo,
                "before": f'{{{name} == "" ? "no file" : "other content"}}',
                "after": after,
            },
        )
    carry_attributes(draft, origin, path, attributes)


def _compare_digest(draft: Draft, path: str, word: str, content: str) -> tuple[str, str, str]:
    digest = hashlib.sha256(content.encode()).hexdigest()
    run = ["/usr/bin/sha256sum", "--", word]
    # Without such a file, it prints nothing and its status is 1.
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "text"}
    name = draft.add_reading(f"content_{path}", reading)
    return name, f'{name}.startsWith("{digest}")', f"content with the SHA-256 {digest[:12]}"


def _compare_text(draft: Draft, path: str, word: str, content: str) -> tuple[str, str, str]:
    """Compare a file with text in which values of the request are."""
    if len(content) > _MOST_TEXT:
        raise Unclear(f"a text with values has at most {_MOST_TEXT:,} characters")
    reading = {"file": word, "root": True, "statuses": [0, 1], "as": "text"}
    name = draft.add_reading(f"content_{path}", reading)
    parts = re.findall("(?:\x01[a-z0-9_]+\x02|[^\x01]){1,400}", content.rstrip("\n"))
    wanted = [draft.add_state(f"wanted_{path}", draft.expression(part)) for part in parts]
    return name, f"({name} == {' + '.join(wanted)})", "content with the values of the request"


def carry_attributes(
    draft: Draft, origin: Origin, path: str, attributes: Mapping[str, str]
) -> None:
    """Set the mode, owner and group of a file or directory."""
    _refuse_odd_path(path, draft)
    found = _read_attributes(draft, path)
    for name, place, program, allowed in (
        ("mode", 1, "/usr/bin/chmod", _MODE),
        ("owner", 2, "/usr/bin/chown", OWNER),
        ("group", 3, "/usr/bin/chgrp", OWNER),
    ):
        wanted = attributes.get(name, "")
        if not wanted:
            continue
        wanted = _read_mode(wanted) if name == "mode" else wanted
        if not allowed.fullmatch(wanted) and (name == "mode" or not is_value(wanted)):
            raise Unclear(f"the {name} {wanted[:40]!r} is not read")
        draft.set_pattern(wanted, OWNER.pattern)
        wanted = wanted.lstrip("0") if name == "mode" else wanted
        shown, word, known = draft.text(wanted), draft.word(wanted), draft.expression(wanted)
        value = f'{found} == "" ? {known} : split({found}, ",")[{place}]'
        pattern = "[0-7]{3,4}" if name == "mode" else "[a-z_][a-z0-9_-]*"
        now = draft.add_state(f"{name}_{path}", {"value": value, "pattern": pattern})
        draft.current.append(f"the {name} of {draft.text(path)} is {{{now}}}")
        draft.claim(f"the {name} of {path}", wanted)
        draft.add_step(
            origin,
            {
                "title": f"Set the {name} of {draft.text(path)} to {shown}",
                "when": f'{found} == "" || {now} != {known}',
                "do": run_as_root(program, word, draft.word(path)),
                "undo": run_as_root(program, f"{{{now}}}", draft.word(path)),
                "before": f"{{{now}}}",
                "after": shown,
            },
        )


def _read_mode(mode: str) -> str:
    """Return a mode such as u=rwx,g=rx,o= in digits; one that changes only a part as it is."""
    mode = mode.removeprefix("0o")
    parts = dict(re.findall(r"(?:^|,)([ugo])=(r?w?x?)(?=,|$)", mode))
    if "".join(parts) not in ("ugo", "uog", "guo", "gou", "oug", "ogu"):
        return mode
    if mode != ",".join(f"{who}={bits}" for who, bits in parts.items()):
        return mode
    values = {"r": 4, "w": 2, "x": 1}
    return "".join(str(sum(values[bit] for bit in parts[who])) for who in "ugo")


def carry_word(draft: Draft, origin: Origin, path: str, word: str, *, only_if_there: bool) -> None:
    """Have a file with one word, such as /etc/hostname. only_if_there: and make none."""
    reading = {"file": path, "root": True, "statuses": [0, 1], "as": "text"}
    found, is_there = draft.add_reading(f"content_{path}", reading), _read_attributes(draft, path)
    value = {
        "value": f'{found} == "" ? "{word}" : {found}',
        "pattern": "[A-Za-z0-9_./][A-Za-z0-9_./+-]*",
    }
    old = draft.add_state(f"word_{path}", value)
    draft.claim(f"the content of {path}", word)
    tee = run_as_root("/usr/bin/tee", "--", path)
    for title, when, undo in (
        ("Create", f'{is_there} == ""', {"undo": run_as_root("/usr/bin/rm", "-f", "--", path)}),
        (
            "Change",
            f'{is_there} != "" && {found} != "{word}"',
            {"undo": {**tee, "stdin": f"{{{old}}}\n"}},
        ),
    ):
        if title == "Create" and only_if_there:
            continue
        draft.add_step(
            origin,
            {
                "title": f"{title} {path}: {word}",
                "when": when,
                "do": {**tee, "stdin": f"{word}\n"},
                **undo,
                "before": f"{{{is_there} == '' ? 'no file' : {found}}}",
                "after": word,
            },
        )


def _read_attributes(draft: Draft, path: str) -> str:
    run = ["/usr/bin/stat", "-c", "%F,%a,%U,%G", draft.word(path)]
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "text"}
    return draft.add_reading(f"file_{path}", reading)


def look_for(draft: Draft, path: str) -> tuple[str, str, str]:
    """Read whether a path is there; return the reading, the path as a text, and as a word."""
    _refuse_odd_path(path, draft)
    found, shown = _read_attributes(draft, path), draft.text(path)
    draft.current.append(f"{shown} {{{found} == '' ? 'is missing' : 'is there'}}")
    return found, shown, draft.word(path)


def carry_directory(
    draft: Draft, origin: Origin, path: str, attributes: Mapping[str, str]
) -> None:
    """Have a directory, with those above it."""
    found, _, word = look_for(draft, path)
    make = run_as_root("/usr/bin/mkdir", "-p", "--", word)
    undo = run_as_root("/usr/bin/rmdir", "--", word)
    when = f'!{found}.startsWith("directory,")'
    _create(draft, origin, path, "directory", {"when": when, "do": make, "undo": undo})
    carry_attributes(draft, origin, path, attributes)


def carry_file(draft: Draft, origin: Origin, path: str, attributes: Mapping[str, str]) -> None:
    """Have a file, empty if it is new."""
    found, _, word = look_for(draft, path)
    make = run_as_root("/usr/bin/touch", "--", word)
    undo = run_as_root("/usr/bin/rm", "-f", "--", word)
    _create(draft, origin, path, "file", {"when": f'{found} == ""', "do": make, "undo": undo})
    carry_attributes(draft, origin, path, attributes)


def _create(
    draft: Draft, origin: Origin, path: str, kind: str, work: Mapping[str, object]
) -> None:
    shown = draft.text(path)
    draft.claim(path, f"a {kind}")
    draft.add_step(
        origin,
        {
            "title": f"Create the {kind} {shown}",
            **work,
            "before": f"no such {kind}",
            "after": shown,
        },
    )


def carry_removal(draft: Draft, origin: Origin, path: str, *, whole: bool) -> None:
    """Remove a file; with *whole*, a directory with all that is in it too."""
    _refuse_odd_path(path, draft)
    _refuse_access(path)
    if path.count("/") < 2 and not path.startswith("\x01"):
        raise Unclear(f"{path} is at the top of the file system")
    found, shown, word = look_for(draft, path)
    draft.claim(path, "nothing")
    draft.add_step(
        origin,
        {
            "title": f"Remove {shown}{', and all that is in it' if whole else ''}",
            "when": f'{found} != ""',
            "do": run_as_root("/usr/bin/rm", "-rf" if whole else "-f", "--", word),
            "no_undo": "what is removed is not kept",
            "before": f"{{{found}}}",
            "after": "nothing at this path",
        },
    )


def carry_link(draft: Draft, origin: Origin, path: str, target: str) -> None:
    """Have a symbolic link."""
    _refuse_odd_path(path, draft)
    if not _PATH.fullmatch(f"/{target.lstrip('/')}") or "\x01" in target:
        raise Unclear(f"the target {target[:80]!r} is not a plain path")
    run = ["/usr/bin/readlink", "--", draft.word(path)]
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"link_{path}", reading)
    exists = _read_attributes(draft, path)
    shown, word = draft.text(path), draft.word(path)
    value = f'{found} == "" ? "{target}" : {found}'
    pattern = "[A-Za-z0-9_./][A-Za-z0-9_./:@+=,-]*"
    old = draft.add_state(f"target_{path}", {"value": value, "pattern": pattern})
    draft.current.append(f"{shown} points to {{{found} == '' ? 'nothing' : {found}}}")
    create = run_as_root("/usr/bin/ln", "-sfn", "--", target, word)
    for title, when, undo in (
        (
            "Create",
            f'{found} == "" && {exists} == ""',
            run_as_root("/usr/bin/rm", "-f", "--", word),
        ),
        (
            "Change",
            f'{found} != "" && {found} != "{target}"',
            run_as_root("/usr/bin/ln", "-sfn", "--", f"{{{old}}}", word),
        ),
    ):
        draft.claim(path, f"a link to {target}")
        draft.add_step(
            origin,
            {
                "title": f"{title} the link {shown} to {target}",
                "when": when,
                "do": create,
                "undo": undo,
                "before": f"{{{found} == '' ? 'no link' : {found}}}",
                "after": target,
            },
        )


def _refuse_access(path: str) -> None:
    if _OF_ACCESS.match(path):
        raise Unclear(
            f"access to a host may depend on {path}, so Keyturn leaves its content alone"
        )


def _refuse_odd_path(path: str, draft: Draft | None = None) -> None:
    if draft and path.startswith("\x01"):
        draft.set_pattern(path.partition("\x02")[0], "/[A-Za-z0-9_./-]{1,200}")
        path = f"/{path}"
    if not _PATH.fullmatch(path) or "/../" in f"{path}/":
        raise Unclear(f"{path[:80]!r} is not a plain path from /")


def _refuse_odd_text(line: str) -> None:
    try:
        refuse_invisible(line)
    except ValueError as error:
        raise Unclear(str(error)) from None
    if not line.isascii():
        raise Unclear("it has other than ASCII characters, which sudo rules cannot hold")
