"""Changes of files: what shows the state, the command, and the undo."""

import hashlib
import re
from collections.abc import Mapping

from bot.features.importing.drafts import (
    OWNER,
    Draft,
    Origin,
    Unclear,
    is_value,
    run_as_root,
    show_marks,
)
from bot.features.importing.kinds.access import (
    can_protect,
    find_trial,
    protect,
    refuse_access,
    refuse_access_within,
    refuse_keys,
    refuse_odd_mode,
)
from bot.features.importing.kinds.modes import Mode, read_mode
from bot.features.importing.kinds.trials import carry_trial
from connectors.visible_text import refuse_invisible

_PATH = re.compile("(/[A-Za-z0-9_.:@+=,%\x01\x02-]+)+/?")
# Of the Filesystem Hierarchy Standard.
_AT_TOP = re.compile(
    r"/(bin|boot|dev|etc|home|lib\w*|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)/?"
)
_MOST_INPUT = 8000
_TAB = "<TAB>"
_MOST_TEXT = 4000


def carry_content(
    draft: Draft,
    origin: Origin,
    path: str,
    content: str,
    attributes: Mapping[str, str],
    *,
    keeps: bool = False,
) -> None:
    """Have a file with this content. keeps: unless there is one, whatever is in it."""
    refuse_odd_path(path, draft)
    protect(draft, path)
    if not keeps:
        refuse_keys(path)
    write = _make_write(draft, path, content)
    refuse_link(draft, path)
    refuse_directory(draft, path)
    shown, word = draft.text(path), draft.word(path)
    if "\x01" in content:
        name, is_there, after = _compare_text(draft, path, word, content)
    else:
        name, is_there, after = _compare_digest(draft, path, content)
    draft.current.append(f"{shown} {{{is_there} ? 'is as requested' : 'has other content'}}")
    draft.claim(path, "a file")
    first = len(draft.steps)
    for title, when, undo in (
        ("Create", f'{name} == ""', {"undo": run_as_root("/usr/bin/rm", "-f", "--", word)}),
        (
            "Replace the content of",
            f'{name} != "" && !{is_there}',
            {"no_undo": "what was in the file is not kept: copy it first"},
        ),
    )[: 1 if keeps else 2]:
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
    carry_trial(draft, first, find_trial(path))
    carry_attributes(draft, origin, path, attributes)


def _make_write(draft: Draft, path: str, content: str) -> dict[str, object]:
    """Return the command that writes a content. A plan has no sign that people cannot see, so each
    tab is a word there, which sed replaces."""
    shown = content.replace("\t", _TAB)
    if len(shown) > _MOST_INPUT:
        raise Unclear(f"the content has more than {_MOST_INPUT:,} characters")
    for line in show_marks(shown).split("\n"):
        refuse_odd_text(line)
    if shown == content:
        return {**run_as_root("/usr/bin/tee", "--", draft.word(path)), "stdin": draft.input(shown)}
    if _TAB in content or "\x01" in content or find_trial(path):
        raise Unclear("it has tabs, beside values of the request, or is tried before it is used")
    words = ("-n", "-e", rf"s/{_TAB}/\t/g", "-e", f"w{draft.word(path)}")
    return {**run_as_root("/usr/bin/sed", *words), "stdin": draft.input(shown)}


def refuse_link(draft: Draft, path: str) -> None:
    """Have a request refused where a link is.

    Ansible puts a file in its place, and sets attributes of what it points to, which are not read.
    """
    _refuse_kind(draft, path, "symbolic link", "name what it points to")


def refuse_directory(draft: Draft, path: str) -> None:
    """Have a request refused where a directory is: a file would go into it, or fail."""
    _refuse_kind(draft, path, "directory", "name the file in it")


def _refuse_kind(draft: Draft, path: str, kind: str, advice: str) -> None:
    """Have a request refused where something of this kind is, as stat calls it."""
    because = f"{draft.text(path)} is a {kind}: {advice}"
    when = f'{_read_attributes(draft, path)}.startsWith("{kind},")'
    if {"when": when, "because": because} not in draft.refuse:
        draft.refuse.append({"when": when, "because": because})


def _compare_digest(draft: Draft, path: str, content: str) -> tuple[str, str, str]:
    digest = hashlib.sha256(content.encode()).hexdigest()
    name = read_digest(draft, path)
    return name, f'{name}.startsWith("{digest}")', f"content with the SHA-256 {digest[:12]}"


def read_digest(draft: Draft, path: str) -> str:
    """Read the SHA-256 of a file, and its path; "" if there is none."""
    run = ["/usr/bin/sha256sum", "--", draft.word(path)]
    # Without such a file, it prints nothing and its status is 1.
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "text"}
    return draft.add_reading(f"content_{path}", reading)


def _compare_text(draft: Draft, path: str, word: str, content: str) -> tuple[str, str, str]:
    """Compare a file with text in which values of the request are."""
    if len(content) > _MOST_TEXT:
        raise Unclear(f"a text with values has at most {_MOST_TEXT:,} characters")
    # What begins with a value of the request is no path of a file to the format.
    where = {"run": ["/usr/bin/cat", "--", word]} if word.startswith("{") else {"file": word}
    reading = {**where, "root": True, "statuses": [0, 1], "as": "text"}
    name = draft.add_reading(f"content_{path}", reading)
    parts = re.findall("(?:\x01[a-z0-9_]+\x02|[^\x01]){1,400}", content.rstrip("\n"))
    wanted = [draft.add_state(f"wanted_{path}", draft.expression(part)) for part in parts]
    return name, f"({name} == {' + '.join(wanted)})", "content with the values of the request"


def carry_attributes(
    draft: Draft,
    origin: Origin,
    path: str,
    attributes: Mapping[str, str],
    *,
    by_chmod: bool = False,
) -> None:
    """Set the owner, group and mode of a file or directory, in this order as Ansible does.

    by_chmod: whether the mode is an argument of chmod, which keeps bits of a directory.
    """
    refuse_odd_path(path, draft)
    if any(attributes.values()):
        refuse_link(draft, path)
    if any(attributes.values()) and can_protect(path):
        protect(draft, path)
    for name, place, program in (("owner", 2, "/usr/bin/chown"), ("group", 3, "/usr/bin/chgrp")):
        wanted = attributes.get(name, "")
        if not wanted:
            continue
        if not OWNER.fullmatch(wanted) and not is_value(wanted):
            raise Unclear(f"the {name} {wanted[:40]!r} is not read")
        draft.set_pattern(wanted, OWNER.pattern)
        found, known = _read_attributes(draft, path), draft.expression(wanted)
        # Of a link, it is never the one that is wanted, so that the request is refused.
        is_link = f'{found}.startsWith("symbolic link,") ? "link-{name}"'
        value = f'{found} == "" ? {known} : {is_link} : split({found}, ",")[{place}]'
        now = draft.add_state(f"{name}_{path}", {"value": value, "pattern": "[a-z_][a-z0-9_-]*"})
        _set_attribute(
            draft,
            origin,
            path,
            name,
            wanted,
            {
                "when": f'{found} == "" || {now} != {known}',
                "do": run_as_root(program, draft.word(wanted), draft.word(path)),
                "undo": run_as_root(program, f"{{{now}}}", draft.word(path)),
                "before": _show_old(found, now),
            },
        )
    if is_value(attributes.get("mode", "")):
        _carry_any_mode(draft, origin, path, attributes["mode"])
    elif attributes.get("mode"):
        _carry_mode(draft, origin, path, read_mode(attributes["mode"], by_chmod=by_chmod))


def _carry_mode(draft: Draft, origin: Origin, path: str, mode: Mode) -> None:
    refuse_odd_mode(path, mode.on, mode.off)
    found, chmod = _read_attributes(draft, path), "/usr/bin/chmod"
    # Of a file that an earlier step brings.
    first = mode.pattern if mode.pattern.isdecimal() else "0644"
    value = f'{found} == "" ? "{first}" : split({found}, ",")[1]'
    now = draft.add_state(f"mode_{path}", {"value": value, "pattern": "[0-7]{4}"})
    patterns = dict.fromkeys((mode.pattern_of_directory, mode.pattern))
    checks = [
        f'{now} != "{one}"' if one.isdecimal() else f'!{now}.matches("^{one}$")'
        for one in patterns
    ]
    is_other = (
        checks[0]
        if len(checks) == 1
        else (f'({found}.startsWith("directory,") ? {checks[0]} : {checks[1]})')
    )
    _set_attribute(
        draft,
        origin,
        path,
        "mode",
        mode.shown,
        {
            "when": f'{found} == "" || {is_other}',
            "do": run_as_root(chmod, mode.word, draft.word(path)),
            # With five digits, it restores each bit of a directory too.
            "undo": run_as_root(chmod, f"0{{{now}}}", draft.word(path)),
            "before": _show_old(found, now),
        },
    )


def _carry_any_mode(draft: Draft, origin: Origin, path: str, wanted: str) -> None:
    """Set the mode that a request has, as four digits."""
    draft.set_pattern(wanted, "[0-7]{4}")
    found, known, word = _read_attributes(draft, path), draft.expression(wanted), draft.word(path)
    value = f'{found} == "" ? {known} : split({found}, ",")[1]'
    now = draft.add_state(f"mode_{path}", {"value": value, "pattern": "[0-7]{4}"})
    step = {
        "when": f'{found} == "" || {now} != {known}',
        "do": run_as_root("/usr/bin/chmod", f"0{draft.word(wanted)}", word),
        "undo": run_as_root("/usr/bin/chmod", f"0{{{now}}}", word),
        "before": _show_old(found, now),
    }
    _set_attribute(draft, origin, path, "mode", wanted, step)


def _show_old(found: str, now: str) -> str:
    """Return a text with what an attribute was, of a file that an earlier step may bring."""
    return f'{{{found} == "" ? "not set yet" : {now}}}'


def _set_attribute(
    draft: Draft, origin: Origin, path: str, name: str, wanted: str, step: Mapping[str, object]
) -> None:
    for thing, other, _ in draft.claims:
        within = thing.removeprefix(f"the {name} of all in ")
        if within != thing and other != wanted and path.startswith(f"{within}/"):
            raise Unclear(f"a step before it sets {thing} to {show_marks(other)}")
    shown = draft.text(wanted)
    draft.current.append(f"the {name} of {draft.text(path)} is {step['before']}")
    draft.claim(f"the {name} of {path}", wanted)
    title = f"Set the {name} of {draft.text(path)} to {shown}"
    draft.add_step(origin, {"title": title, **step, "after": shown})


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
    run = ["/usr/bin/stat", "-c", "%F,%04a,%U,%G", draft.word(path)]
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "text"}
    return draft.add_reading(f"file_{path}", reading)


def look_for(draft: Draft, path: str) -> tuple[str, str, str]:
    """Read whether a path is there; return the reading, the path as a text, and as a word."""
    refuse_odd_path(path, draft)
    found, shown = _read_attributes(draft, path), draft.text(path)
    draft.current.append(f"{shown} {{{found} == '' ? 'is missing' : 'is there'}}")
    return found, shown, draft.word(path)


def carry_directory(
    draft: Draft,
    origin: Origin,
    path: str,
    attributes: Mapping[str, str],
    *,
    new_mode: str = "",
) -> None:
    """Have a directory, with those above it. new_mode: of one that is made."""
    found, _, word = look_for(draft, path)
    refuse_link(draft, path)
    _note_parents(draft, path, attributes)
    mode = ["-m", read_mode(new_mode, by_chmod=True).word] if new_mode else []
    make = run_as_root("/usr/bin/mkdir", "-p", *mode, "--", word)
    undo = run_as_root("/usr/bin/rmdir", "--", word)
    when = f'!{found}.startsWith("directory,")'
    _create(draft, origin, path, "directory", {"when": when, "do": make, "undo": undo})
    carry_attributes(draft, origin, path, attributes)


def _note_parents(draft: Draft, path: str, attributes: Mapping[str, str]) -> None:
    """Note that directories above a new one are root's, where Ansible makes them like it."""
    usual = {"mode": ("", "755", "0755"), "owner": ("", "root"), "group": ("", "root")}
    above = path.rstrip("/").rpartition("/")[0]
    is_usual = all(attributes.get(name, "") in plain for name, plain in usual.items())
    is_made = any(thing == above and wanted != "nothing" for thing, wanted, _ in draft.claims)
    if is_usual or is_made or above.count("/") < 2 or path.startswith("\x01"):
        return
    text = (
        f"{draft.text(above)} is not there: it is made as root's, with the mode that is usual. "
        f"Ansible would give it what {draft.text(path)} has."
    )
    draft.notes.append({"when": f'{_read_attributes(draft, above)} == ""', "text": text})


def carry_file(draft: Draft, origin: Origin, path: str, attributes: Mapping[str, str]) -> None:
    """Have a file, empty if it is new."""
    if not can_protect(path):
        refuse_access(path)
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
    refuse_odd_path(path, draft)
    refuse_access_within(path)
    found, shown, word = look_for(draft, path)
    if path.count("/") < 2 and not path.startswith("\x01"):
        if _AT_TOP.fullmatch(path):
            raise Unclear(f"{path} is at the top of the file system")
        # Such as /swapfile.
        whole = False
        because = f"{shown} is at the top of the file system, and no plain file"
        when = f'{found} != "" && !{found}.startsWith("regular ")'
        draft.refuse.append({"when": when, "because": because})
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


def carry_link(
    draft: Draft, origin: Origin, path: str, target: str, *, replaces: bool = True
) -> None:
    """Have a symbolic link. replaces: also in place of one to something else."""
    refuse_odd_path(path, draft)
    refuse_access(path)
    refuse_keys(path)
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
    when = f'{found} == "" && {exists} != ""'
    draft.refuse.append({"when": when, "because": f"{shown} is there, and is no link"})
    if not replaces:
        when = f'{found} != "" && {found} != "{target}"'
        draft.refuse.append({"when": when, "because": f"{shown} is a link to something else"})
    create = run_as_root("/usr/bin/ln", "-sfn", "--", target, word)
    for title, when, undo in (
        (
            "Create",
            f'{found} == ""',
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


def refuse_odd_path(path: str, draft: Draft | None = None) -> None:
    if draft and path.startswith("\x01"):
        draft.set_pattern(path.partition("\x02")[0] + "\x02", "/[A-Za-z0-9_./-]{1,200}")
        path = f"/{path}"
    if not _PATH.fullmatch(path) or "/../" in f"{path}/":
        raise Unclear(f"{path[:80]!r} is not a plain path from /")


def refuse_odd_text(line: str) -> None:
    try:
        refuse_invisible(line)
    except ValueError as error:
        raise Unclear(str(error)) from None
    if not line.isascii():
        raise Unclear("it has other than ASCII characters, which sudo rules cannot hold")
