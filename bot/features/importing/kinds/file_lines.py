"""Changes of lines of files: a line that is there, or in place of one that matches, or gone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root
from bot.features.importing.kinds.access import find_trial, protect, refuse_keys
from bot.features.importing.kinds.file_changes import (
    carry_file,
    refuse_odd_path,
    refuse_odd_text,
)
from bot.features.importing.kinds.patterns import (
    delimit,
    escape,
    escape_new,
    read_pattern,
    read_replacement,
)
from bot.features.importing.kinds.trials import carry_trial


@dataclass(frozen=True)
class Which:
    """Which line of a file another one takes the place of."""

    pattern: str
    same: str = ""
    """What the lines among them match that are as good."""


def carry_line(
    draft: Draft,
    origin: Origin,
    path: str,
    line: str,
    *,
    pattern: "str | Which" = "",
    wanted: Literal["there", "gone", "created", "replaced"] = "there",
    place: tuple[Literal["after", "before"], str] | None = None,
) -> None:
    """Have a file contain a line, in place of one that matches the pattern; or no such line.

    wanted: whether the line is there, or gone, or the file is made too if there is none, or only
    a line that matches is replaced. place: after or before which line, by its pattern, a new one
    is added, if there is such a line; "" is the first one. Otherwise at the end.
    """
    first = len(draft.steps)
    which = pattern if isinstance(pattern, Which) else Which(pattern)
    if wanted == "gone" or which.pattern:
        refuse_keys(path)
    _carry_line(draft, origin, path, line, which, wanted, place)
    carry_trial(draft, first, find_trial(path))


def _carry_line(
    draft: Draft,
    origin: Origin,
    path: str,
    line: str,
    which: "Which",
    wanted: Literal["there", "gone", "created", "replaced"],
    place: tuple[Literal["after", "before"], str] | None,
) -> None:
    pattern, same = which.pattern, which.same
    present, create = wanted != "gone", wanted == "created"
    refuse_odd_path(path)
    protect(draft, path)
    _refuse_odd_line(path, line, [pattern, place[1] if place else ""], create=create)
    if present and not line:
        raise Unclear("its line is empty")
    pattern = read_pattern(pattern)
    if create and not draft.makes_file(path):
        carry_file(draft, origin, path, {})
    name = draft.add_reading(f"lines_{path}", read_lines(path, may_miss=create or not present))
    draft.claim(f"the content of {path}", "other lines")
    whole = f"the line {line} of {path}"
    _refuse_followers(draft, path, pattern, line)
    if present:
        draft.claim_once(whole, "there")
    else:
        draft.claim(whole, "gone")
    plain = draft.expression(line)
    if not present:
        _carry_no_line(draft, origin, path, name, pattern or f"^{escape(line)}$")
        return
    shown = draft.text(line)[:200]
    draft.current.append(f"{path} has {{count({name}.size(), 'line')}}")
    is_missing = f"!{name}.exists(row, row.line == {plain})"
    if pattern:
        matches = f"{name}.filter(row, row.line.matches({draft.expression(pattern)}))"
        found = draft.add_state(f"matching_{path}", matches)
        is_as_good = f" && !row.line.matches({draft.expression(same)})" if same else ""
        is_other = f"{found}.exists(row, row.line != {plain}{is_as_good})"
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
                "do": _sed(path, f"/{delimit(pattern)}/c\\{escape_text(line)}"),
                "no_undo": f"put the line back by hand: {{{found}[0].line}}",
                "before": f"{{{found}[0].line}}",
                "after": shown,
            },
        )
    if wanted != "replaced" and place:
        # A first line comes before those that a step adds to an empty file.
        _refuse_followers(draft, path, "." * (create and not place[1]), line)
        is_missing = _insert_line(draft, origin, path, name, line, is_missing, place)
    if wanted != "replaced":
        _add_line(draft, origin, path, name, line, is_missing, create=create)


def _refuse_odd_line(path: str, line: str, patterns: Sequence[str], *, create: bool) -> None:
    if "\x01" in path + line + "".join(patterns):
        raise Unclear("a value of the request is a part of the line")
    refuse_odd_text(line.replace("\t", " "))
    if create and "\t" in line:
        raise Unclear("its line has a tab, and the file may be a new one")
    for one in filter(None, patterns):
        # A reading has no lines without text.
        if re.search(read_pattern(one), ""):
            raise Unclear(f"the pattern {one[:80]!r} matches lines without text")


def _refuse_followers(draft: Draft, path: str, pattern: str, line: str = "") -> None:
    """Refuse a pattern that matches what a step before it adds, since no reading has that.

    line: one that may match. Raises Unclear.
    """
    added = [
        thing.removeprefix("the line ").removesuffix(f" of {path}")
        for thing, wanted, _ in draft.claims
        if wanted == "there" and thing.startswith("the line ") and thing.endswith(f" of {path}")
    ]
    if any(one != line and re.search(pattern, one) for one in added if pattern):
        raise Unclear(f"it goes by a line of {path} that a step before it adds")


def _insert_line(
    draft: Draft,
    origin: Origin,
    path: str,
    name: str,
    line: str,
    is_missing: str,
    place: tuple[str, str],
) -> str:
    """Add a line after or before the one that matches; return when it is to be at the end."""
    _refuse_followers(draft, path, place[1], line)
    is_there, address, where = find_place(draft, path, name, is_missing, place)
    shown = draft.text(line)[:200]
    code = f"{address}{'a' if place[0] == 'after' else 'i'}\\{escape_text(line)}"
    draft.add_step(
        origin,
        {
            "title": f"Add a line to {path} {where}: {shown}",
            "when": f"{is_missing} && {is_there}",
            "do": _sed(path, code),
            "undo": _sed(path, f"/^{delimit(escape(line))}$/d"),
            "before": "no such line",
            "after": shown,
        },
    )
    return f"{is_missing} && !({is_there})"


def find_place(
    draft: Draft, path: str, name: str, is_missing: str, place: tuple[str, str]
) -> tuple[str, str, str]:
    """Return when a file has the one line after or before which others are added, its address for
    sed, and where that is, in words. Where several match, the request is refused.

    name: the reading of the lines of the file. place: after or before, and the pattern; "" is the
    first line.
    """
    where, pattern = place
    if not pattern:
        return f"{name}.size() > 0", "1", "as the first one"
    pattern = read_pattern(pattern)
    matches = f"{name}.filter(row, row.line.matches({draft.expression(pattern)}))"
    found = draft.add_state(f"place_{path}", matches)
    because = (
        f"{{{found}.size()}} lines of {path} match {draft.text(pattern)}, and the new line is "
        f"to be {where} one: leave one of them, or add the line by hand"
    )
    draft.refuse.append({"when": f"{is_missing} && {found}.size() > 1", "because": because})
    return (
        f"{found}.size() == 1",
        f"/{delimit(pattern)}/",
        f"{where} {{{found}[0].line}}",
    )


def carry_replacement(draft: Draft, origin: Origin, path: str, pattern: str, new: str) -> None:
    """Have each text of a file that matches a pattern be another one."""
    refuse_odd_path(path)
    protect(draft, path)
    refuse_keys(path)
    if "\x01" in path + pattern + new:
        raise Unclear("a value of the request is a part of what it replaces")
    pattern, new = read_replacement(pattern, new)
    if any(one[0] != new for one in re.finditer(pattern, new)):
        raise Unclear("what is new matches again, so that it is replaced each time")
    refuse_odd_text(new)
    refuse_odd_text(pattern)
    # It prints each text that matches.
    run = ["/usr/bin/grep", "-hoE", "-e", draft.word(pattern), "--", path]
    reading = {"run": run, "root": True, "statuses": [0, 1], "as": "lines"}
    found = draft.add_reading(f"texts_{path}", {**reading, "pattern": "(?P<line>.*)"})
    is_other = f"row.line != {draft.expression(new)}"
    draft.current.append(f"{{count({found}.size(), 'text')}} of {path} match")
    draft.claim(f"the content of {path}", "other lines")
    draft.claim(f"what matches {pattern} in {path}", new)
    others = f"join({found}.filter(row, {is_other}).map(row, row.line), ' | ')"
    draft.add_step(
        origin,
        {
            "title": f"Replace in {path}: {draft.text(pattern)[:120]}",
            "when": f"{found}.exists(row, {is_other})",
            "do": _sed(path, f"s/{delimit(pattern)}/{escape_new(new)}/g"),
            "no_undo": f"put back by hand: {{{others}}}",
            "before": f"{{{others}}}",
            "after": draft.text(new)[:200] or "nothing",
        },
    )
    carry_trial(draft, len(draft.steps) - 1, find_trial(path))


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
    last = ("a line", _sed(path, f"$a\\{escape_text(line)}"), f"{name}.size() > 0")
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
                "undo": _sed(path, f"/^{delimit(escape(line))}$/d"),
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
            "do": _sed(path, f"/{delimit(pattern)}/d"),
            "no_undo": "put the lines back by hand: "
            f"{{join({name}.filter({matches}).map(row, row.line), ' | ')}}",
            "before": f"{{join({name}.filter({matches}).map(row, row.line), ' | ')}}",
            "after": "no such line",
        },
    )


def read_lines(path: str, *, may_miss: bool) -> dict[str, Any]:
    reading = {"file": path, "root": True, "as": "lines", "pattern": "(?P<line>.*)"}
    return {**reading, "statuses": [0, 1]} if may_miss else reading


def _sed(path: str, code: str) -> dict[str, Any]:
    return run_as_root("/usr/bin/sed", "--follow-symlinks", "-E", "-i", "-e", code, path)


def escape_text(line: str) -> str:
    """Return a line as the commands a and c of sed take it, with its tabs as signs."""
    return line.replace("\\", "\\\\").replace("\t", r"\t")
