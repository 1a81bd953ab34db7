"""Changes of lines of files: a line that is there, or in place of one that matches, or gone."""

from typing import Any, Literal

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root
from bot.features.importing.file_changes import (
    carry_file,
    refuse_access,
    refuse_odd_path,
    refuse_odd_text,
)
from bot.features.importing.patterns import delimit, escape, read_pattern


def carry_line(
    draft: Draft,
    origin: Origin,
    path: str,
    line: str,
    *,
    pattern: str = "",
    wanted: Literal["there", "gone", "created", "replaced"] = "there",
) -> None:
    """Have a file contain a line, in place of one that matches the pattern; or no such line.

    wanted: whether the line is there, or gone, or the file is made too if there is none, or only
    a line that matches is replaced.
    """
    present, create = wanted != "gone", wanted == "created"
    refuse_odd_path(path)
    refuse_access(path)
    if "\x01" in path + line + pattern:
        raise Unclear("a value of the request is a part of the line")
    refuse_odd_text(line)
    pattern = read_pattern(pattern)
    if create:
        carry_file(draft, origin, path, {})
    name = draft.add_reading(f"lines_{path}", _read_lines(path, may_miss=create or not present))
    draft.claim(f"the content of {path}", "other lines")
    draft.claim(f"the line {line[:80]} of {path}", "there" if present else "gone")
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
        is_other = f"{found}.exists(row, row.line != {plain})"
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
                "do": _sed(path, f"/{delimit(pattern)}/c\\{_escape_text(line)}"),
                "no_undo": f"put the line back by hand: {{{found}[0].line}}",
                "before": f"{{{found}[0].line}}",
                "after": shown,
            },
        )
    if wanted != "replaced":
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


def _read_lines(path: str, *, may_miss: bool) -> dict[str, Any]:
    reading = {"file": path, "root": True, "as": "lines", "pattern": "(?P<line>.*)"}
    return {**reading, "statuses": [0, 1]} if may_miss else reading


def _sed(path: str, code: str) -> dict[str, Any]:
    return run_as_root("/usr/bin/sed", "-E", "-i", "-e", code, path)


def _escape_text(line: str) -> str:
    """Return a line as the commands a and c of sed take it."""
    return line.replace("\\", "\\\\")
