"""Options in sections of a file, as in INI files."""

import re

from bot.features.importing.drafts import Draft, Origin, Unclear, show_marks
from bot.features.importing.kinds.access import refuse_access
from bot.features.importing.kinds.file_changes import carry_file, refuse_odd_path, refuse_odd_text
from bot.features.importing.kinds.patterns import escape
from connectors.script import load_code

_SECTION = re.compile("[A-Za-z0-9_.:@-]{1,80}")
_OPTION = re.compile("[A-Za-z0-9_.:@/-]{1,80}")


def carry_option(
    draft: Draft,
    origin: Origin,
    path: str,
    names: tuple[str, str],
    value: str,
    *,
    sign: str = " = ",
    create: bool = True,
) -> None:
    """Have an option in a section once, with a value, in place of what sets it or would.

    names: of the section and the option. sign: what is between the option and its value. create:
    whether the file is made if there is none. Raises Unclear.
    """
    section, option = names
    refuse_odd_path(path)
    refuse_access(path)
    if "\x01" in path + section + option + value:
        raise Unclear("a value of the request is a part of the option")
    if not _SECTION.fullmatch(section) or not _OPTION.fullmatch(option):
        raise Unclear(f"the option {show_marks(option)[:40]!r} of {section[:40]!r} is not read")
    refuse_odd_text(value)
    if not value or value != value.strip():
        raise Unclear("its value is empty, or begins or ends with a blank")
    create = create or draft.makes_file(path)
    if create and not draft.makes_file(path):
        carry_file(draft, origin, path, {})
    rows = _read_section(draft, path, section, create=create)
    line = f"{option}{sign}{value}"
    plain, known = draft.expression(line), escape(option)
    pattern = rf"^[ \t]*{known}[ \t]*(=|$)|^[ \t]*[#;][ \t]*{known}[ \t]*="
    matches = f"{rows}.filter(row, row.line.matches({draft.expression(pattern)}))"
    found = draft.add_state(f"lines_{option}", matches)
    shown = draft.text(line)
    where = f"[{section}] of {path}"
    draft.claim(f"the content of {path}", "other lines")
    draft.claim(f"the option {option} of {where}", shown)
    lines = f"join({found}.map(row, row.line), ' | ')"
    for title, when, kind in (
        (f"Add the section {where} with {shown}", f"{rows}.size() == 0", "new"),
        (f"Add to {where}: {shown}", f"{rows}.size() > 0 && {found}.size() == 0", "old"),
        (
            f"Set in {where}: {shown}",
            f"{found}.size() > 1 || {found}.exists(row, row.line != {plain})",
            "",
        ),
    ):
        undo = {"undo": _run("ini-unset", path, section, draft.word(line), kind)}
        reason = {"no_undo": f"put back by hand: {{{lines}}}"}
        draft.add_step(
            origin,
            {
                "title": title,
                "when": when,
                "do": _run("ini-set", path, section, option, draft.word(line), draft.word(value)),
                **(undo if kind else reason),
                "before": "no such line" if kind else f"{{{lines}}}",
                "after": shown,
            },
        )


def _read_section(draft: Draft, path: str, section: str, *, create: bool) -> str:
    """Read the lines of a section, with its first one and that of the next section."""
    run = ["/usr/bin/sed", "-n", "-e", rf"/^\[{escape(section)}\]/,/^\[/p", "--", path]
    # Its status is 2 without such a file.
    reading = {"run": run, "root": True, "statuses": [0, 2] if create else [0], "as": "lines"}
    rows = draft.add_reading(f"section_{section}_{path}", {**reading, "pattern": "(?P<line>.*)"})
    heads = f'{rows}.filter(row, row.line.startsWith("[{section}]")).size()'
    draft.current.append(f"{path} has {{count({rows}.size(), 'line')}} of [{section}]")
    because = f"{path} has the section [{section}] several times: leave one of them"
    refusal = {"when": f"{heads} > 1", "because": because}
    if refusal not in draft.refuse:
        draft.refuse.append(refusal)
    return rows


def _run(name: str, *arguments: str) -> dict[str, object]:
    return {"script": load_code(name), "arguments": [*arguments], "root": True}
