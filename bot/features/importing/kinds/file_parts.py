"""Parts of files: a block between two markers, a job of cron, a source of packages.

A part is read by its first line, which is a marker, and as many lines after it as it should have.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from bot.features.importing.drafts import OWNER, Draft, Origin, Unclear, run_as_root, show_marks
from bot.features.importing.kinds.access import find_trial, protect
from bot.features.importing.kinds.file_changes import (
    carry_attributes,
    carry_file,
    look_for,
    refuse_odd_path,
    refuse_odd_text,
)
from bot.features.importing.kinds.file_lines import escape_text, find_place, read_lines
from bot.features.importing.kinds.patterns import delimit, escape
from bot.features.importing.kinds.trials import carry_trial

_SED, _TEE, _GREP = "/usr/bin/sed", "/usr/bin/tee", "/usr/bin/grep"
_EMPTY = "regular empty file,"
_MOST_TEXT, _MOST_PART = 3000, 400
_TIME = re.compile("[0-9*/,A-Za-z-]{1,60}")


def carry_block(
    draft: Draft,
    origin: Origin,
    path: str,
    lines: list[str],
    attributes: Mapping[str, str],
    *,
    create: bool,
    place: tuple[str, str] | None = None,
) -> None:
    """Have a file contain a block at its end, or in place of one between the same markers.

    lines: those of the block, of which the first and the last are the markers. place: after or
    before which line a new one is, by its pattern; "" is the first one.
    """
    _refuse_odd_part(draft, path, lines)
    before = len(draft.steps)
    create = create or draft.makes_file(path)
    if create and not draft.makes_file(path):
        carry_file(draft, origin, path, {})
    first, last = lines[0], lines[-1]
    is_there, shown, _ = look_for(draft, path)
    found = _read_part(draft, path, first, len(lines) - 1)
    run = [_GREP, "-Fx", "-e", first, "-e", last, "--", path]
    marks = draft.add_reading(f"marks_{path}", _make_reading(run))
    both = draft.expression(f"{first}\n{last}")
    because = f"{path} has one of the markers alone, or several of them: leave one pair"
    draft.refuse.append({"when": f'!({marks} in ["", {both}])', "because": because})
    wanted = _state_text(draft, f"wanted_{path}", "\n".join(lines))
    text = "".join(f"{line}\n" for line in lines)
    pair = f"/^{delimit(escape(first))}$/,/^{delimit(escape(last))}$/d"
    end = f"/^{delimit(escape(last))}$/r /dev/stdin"
    draft.claim(f"the content of {path}", "other lines")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    draft.claim_once(f"the block of {path} after {first}", f"one with the SHA-256 {digest}")
    if not create:
        draft.refuse.append({"when": f'{is_there} == ""', "because": f"{shown} is missing"})
    is_missing = f'{marks} == ""'
    if place:
        is_missing = _insert_block(draft, origin, path, lines, is_missing, place, pair)
    _add_part(draft, origin, path, text, (is_missing, is_there), pair, is_made=create)
    draft.add_step(
        origin,
        {
            "title": f"Replace the block of {shown} after {draft.text(first)}",
            "when": f'{marks} != "" && {found} != {wanted}',
            "do": {
                **run_as_root(_SED, "--follow-symlinks", "-i", "-e", end, "-e", pair, path),
                "stdin": draft.input(text),
            },
            "no_undo": f"put the block back by hand, which began so: {{{found}}}",
            "before": f"{{{found}}}",
            "after": draft.text(" | ".join(lines))[:200],
        },
    )
    carry_trial(draft, before, find_trial(path))
    carry_attributes(draft, origin, path, attributes)


def _insert_block(
    draft: Draft,
    origin: Origin,
    path: str,
    lines: list[str],
    is_missing: str,
    place: tuple[str, str],
    pair: str,
) -> str:
    """Add a block after or before the line that matches; return when it is to be at the end."""
    # One of these is its own.
    if sum(thing == f"the content of {path}" for thing, _, _ in draft.claims) > 1:
        raise Unclear("it goes by a line of the file, which a step before it changes")
    name = draft.add_reading(f"lines_{path}", read_lines(path, may_miss=True))
    is_there, address, where = find_place(draft, path, name, is_missing, place)
    text = "".join(f"{line}\n" for line in lines)
    if place[0] == "after":
        words, stdin = ["-e", f"{address}r /dev/stdin"], {"stdin": draft.input(text)}
    elif all(lines):
        words, stdin = list[str](), {}
        for line in lines:
            words += ["-e", f"{address}i\\{escape_text(line)}"]
    else:
        raise Unclear("it has empty lines, and is to be before another one")
    draft.add_step(
        origin,
        {
            "title": f"Add lines to {path} {where}",
            "when": f"{is_missing} && {is_there}",
            "do": {**run_as_root(_SED, "--follow-symlinks", "-i", *words, path), **stdin},
            "undo": run_as_root(_SED, "--follow-symlinks", "-i", "-e", pair, path),
            "before": "no such lines",
            "after": draft.text(" | ".join(lines))[:200],
        },
    )
    return f"{is_missing} && !({is_there})"


def carry_job(
    draft: Draft, origin: Origin, path: str, user: str, name: str, job: str, *, present: bool
) -> None:
    """Have a job of cron under a name, as Ansible marks it, or none of that name.

    path: of the file with the jobs. user: whose crontab it is; "" for a file of the system.
    """
    lines = [f"#Ansible: {name}", job]
    _refuse_odd_part(draft, path, lines)
    if user and not OWNER.fullmatch(user):
        raise Unclear(f"{show_marks(user)[:40]!r} is not a plain name")
    is_there, shown, _ = look_for(draft, path)
    found = _read_part(draft, path, lines[0], 1)
    marker = f"/^{delimit(escape(lines[0]))}$/"
    pair, text = f"{marker},+1d", f"{lines[0]}\n{job}\n"
    draft.claim_once(f"the job {name} of {path}", job if present else "none")
    if not present:
        draft.add_step(
            origin,
            {
                "title": f"Remove the job {name} of {shown}",
                "when": f'{found} != ""',
                "do": run_as_root(_SED, "--follow-symlinks", "-i", "-e", pair, path),
                "no_undo": f"put it back by hand: {{{found}}}",
                "before": f"{{{found}}}",
                "after": "no such job",
            },
        )
        return
    same = draft.add_reading(f"same_{path}", _make_reading([_GREP, "-Fx", "-e", job, "--", path]))
    because = f"{path} has this job without its name: remove that line, then request this again"
    draft.refuse.append({"when": f'{found} == "" && {same} != ""', "because": because})
    crontab = ("/usr/bin/crontab", "-u", user)
    make, unmake = (
        (run_as_root(*crontab, "-"), run_as_root(*crontab, "-r"))
        if user
        else (run_as_root(_TEE, "--", path), run_as_root("/usr/bin/rm", "-f", "--", path))
    )
    create = {"do": {**make, "stdin": draft.input(text)}, "undo": unmake}
    _make_or_add(draft, origin, path, text, (found, is_there), pair, create)
    change = ("-e", f"{marker}{{n;r /dev/stdin", "-e", "d", "-e", "}")
    draft.add_step(
        origin,
        {
            "title": f"Change the job {name} of {shown}",
            "when": f'{found} != "" && {found} != {draft.expression(text.rstrip())}',
            "do": {
                **run_as_root(_SED, "--follow-symlinks", "-i", *change, path),
                "stdin": draft.input(f"{job}\n"),
            },
            "no_undo": f"put it back by hand: {{{found}}}",
            "before": f"{{{found}}}",
            "after": draft.text(job),
        },
    )


def make_job(user: str, command: str, special: str, times: list[str]) -> str:
    """Return the line of a job. user: "" in a crontab of one user. Raises Unclear."""
    command = command.strip("\r\n")
    if not command or (special and {*times} != {"*"}):
        raise Unclear("it has no command, or two kinds of time")
    if not all(map(_TIME.fullmatch, [special or "*", *times])):
        raise Unclear(f"its time {' '.join(times)[:80]!r} is not read")
    when = f"@{special}" if special else " ".join(times)
    return " ".join(filter(None, (when, user, command)))


def carry_source(draft: Draft, origin: Origin, path: str, source: str) -> None:
    """Have a source of packages of Debian in one of its files, and read its list."""
    _refuse_odd_part(draft, path, [source])
    is_there, _, _ = look_for(draft, path)
    where = ["/etc/apt/sources.list", "/etc/apt/sources.list.d"]
    run = [_GREP, "-rhFx", "--include=*.list", "-e", source, "--", *where]
    found = draft.add_reading(f"source_{path}", _make_reading(run))
    draft.claim_once(f"the source {source}", "there")
    write = {**run_as_root(_TEE, "--", path), "stdin": draft.input(f"{source}\n")}
    create = {"do": write, "undo": run_as_root("/usr/bin/rm", "-f", "--", path)}
    line = f"/^{delimit(escape(source))}$/d"
    _make_or_add(draft, origin, path, f"{source}\n", (found, is_there), line, create)


def carry_module_file(draft: Draft, origin: Origin, name: str) -> None:
    """Have a module of the kernel loaded at boot, unless a file of systemd says so already."""
    path, folder = f"/etc/modules-load.d/{name}.conf", "/etc/modules-load.d"
    is_there, _, _ = look_for(draft, path)
    pattern = rf"^ *{name} *([#;].*)?$"
    run = [_GREP, "-rhE", "--include=*.conf", "-e", pattern, "--", folder]
    found = draft.add_reading(f"modules_{path}", _make_reading(run))
    write = {**run_as_root(_TEE, "--", path), "stdin": f"{name}\n"}
    because = f"{path} is there without the module: add it by hand"
    when = f'{found} == "" && {is_there}'
    draft.refuse.append({"when": f'{when} != ""', "because": because})
    draft.claim(path, "a file")
    draft.add_step(
        origin,
        {
            "title": f"Have {name} loaded at boot",
            "when": f'{when} == ""',
            "do": write,
            "undo": run_as_root("/usr/bin/rm", "-f", "--", path),
            "before": "not at boot",
            "after": f"by {path}",
        },
    )


def _refuse_odd_part(draft: Draft, path: str, lines: list[str]) -> None:
    refuse_odd_path(path)
    protect(draft, path)
    if "\x01" in path + "".join(lines):
        raise Unclear("a value of the request is a part of these lines")
    for line in lines:
        refuse_odd_text(line)


def _make_reading(run: list[str]) -> dict[str, Any]:
    # It prints nothing and its status is 1 or 2 without such a line or file.
    return {"run": run, "root": True, "statuses": [0, 1, 2], "as": "text"}


def _read_part(draft: Draft, path: str, first: str, more: int) -> str:
    run = [_GREP, "-Fx", "-A", str(more), "-e", draft.word(first), "--", path]
    found = draft.add_reading(f"part_{path}", _make_reading(run))
    draft.current.append(f"{path} {{{found} == '' ? 'has no such part' : 'has such a part'}}")
    return found


def _make_or_add(
    draft: Draft,
    origin: Origin,
    path: str,
    text: str,
    readings: tuple[str, str],
    undo: str,
    create: Mapping[str, object],
) -> None:
    """Add the steps that make a file of some lines, or append them.

    readings: of the lines, and of the file. create: the command that makes it, and its undo.
    """
    found, is_there = readings
    if draft.makes_file(path):
        # Another step before this makes it, which was not there when it was read.
        _add_part(draft, origin, path, text, (f'{found} == ""', is_there), undo)
        return
    shown = draft.text(text.replace("\n", " | "))[:200]
    draft.claim(path, "a file")
    title = f"Create {draft.text(path)} with these lines"
    when = f'{found} == "" && {is_there} == ""'
    step = {"title": title, "when": when, **create, "before": "no file", "after": shown}
    draft.add_step(origin, step)
    is_missing = f'{found} == "" && {is_there} != ""'
    _add_part(draft, origin, path, text, (is_missing, is_there), undo)


def _add_part(
    draft: Draft,
    origin: Origin,
    path: str,
    text: str,
    states: tuple[str, str],
    undo: str,
    *,
    is_made: bool = False,
) -> None:
    """Add the steps that append lines to a file that is there.

    states: the condition that it has none of them, and the reading of the file. is_made: whether
    a step before it makes the file if there is none.
    """
    is_missing, is_there = states
    shown = draft.text(path)
    # sed has no last line of an empty file after which it could add one.
    empty = {**run_as_root(_TEE, "-a", "--", path), "stdin": draft.input(text)}
    other = {
        **run_as_root(_SED, "--follow-symlinks", "-i", "-e", "$r /dev/stdin", path),
        "stdin": draft.input(text),
    }
    is_empty = f'{is_there}.startsWith("{_EMPTY}")'
    first = f'({is_there} == "" || {is_empty})' if is_made else is_empty
    for what, do, when in (
        ("the first lines", empty, first),
        ("lines", other, f"!{first}"),
    ):
        draft.add_step(
            origin,
            {
                "title": f"Add {what} to {shown}",
                "when": f"{is_missing} && {when}",
                "do": do,
                "undo": run_as_root(_SED, "--follow-symlinks", "-i", "-e", undo, path),
                "before": "no such lines",
                "after": draft.text(text.replace("\n", " | "))[:200],
            },
        )


def _state_text(draft: Draft, name: str, text: str) -> str:
    """Return an expression of a long text, whose parts are states."""
    if len(text) > _MOST_TEXT:
        raise Unclear(f"the block has more than {_MOST_TEXT:,} characters")
    parts = [text[at : at + _MOST_PART] for at in range(0, len(text), _MOST_PART)]
    return f"({' + '.join(draft.add_state(name, draft.expression(one)) for one in parts)})"
