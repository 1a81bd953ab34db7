"""Directories with all that is in them: whose they are, and their modes."""

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
from bot.features.importing.kinds.access import refuse_access_within
from bot.features.importing.kinds.file_changes import look_for, refuse_link
from bot.features.importing.kinds.modes import read_mode_of_all

# What programs, people's logins or keys are in. A mistake there takes access from everyone.
_TOO_WIDE = re.compile(
    r"/(?!srv$|opt$)[^/]*|/var/(?!www$|log$)[^/]*|/(bin|sbin|lib\w*|boot|dev|proc|sys|root|run)/.*"
    r"|/usr/[^/]*|/usr/(bin|sbin|lib\w*)/.*|/home/[^/]*"
)
_SET_IDS = re.compile("0*[2-7][0-7]{3}|.*s.*")
_PROGRAMS = {"owner": "/usr/bin/chown", "group": "/usr/bin/chgrp", "mode": "/usr/bin/chmod"}
# The test of find for a name or a number, and where names are.
_OWNERS = {
    "owner": ("-user", "-uid", "passwd", "user"),
    "group": ("-group", "-gid", "group", "group"),
}
_LINKS = "{0} has symbolic links, such as {{{1}}}. Ansible would also change what they point to, \
which this page leaves alone."


def carry_tree(
    draft: Draft,
    origin: Origin,
    path: str,
    attributes: Mapping[str, str],
    *,
    by_chmod: bool = False,
    follows: bool = False,
) -> None:
    """Set the owner, group and mode of a directory and of all that is in it.

    by_chmod: as of `carry_attributes`. follows: whether what links within point to was changed
    too, which a note says. Raises Unclear.
    """
    found, shown, word = look_for(draft, path)
    path = path.rstrip("/") or "/"
    refuse_wide(path)
    refuse_link(draft, path)
    if follows:
        run = ["/usr/bin/find", word, "-type", "l", "-print", "-quit"]
        links = draft.add_reading(f"links_{path}", _make_reading(run, statuses=[0, 1]))
        draft.notes.append({"when": f'{links} != ""', "text": _LINKS.format(shown, links)})
    # What steps before it bring belongs to root at first, with the mode that is usual.
    new = [
        str(draft.steps[at][2]["when"])
        for thing, wanted, at in draft.claims
        if thing.startswith(f"{path}/") and wanted != "nothing" and at < len(draft.steps)
    ]
    for name in ("owner", "group", "mode"):
        if not (wanted := attributes.get(name, "")):
            continue
        value = draft.text((wanted.lstrip("0") or "0") if wanted.isdecimal() else wanted)
        _refuse_others(draft, name, path, value)
        if name == "mode":
            argument, tests = read_mode_of_all(wanted, by_chmod=by_chmod)
            known = list[str]()
        else:
            argument, tests, known = _look_for_owner(draft, name, wanted)
        run = ["/usr/bin/find", word, *tests, "-print", "-quit"]
        when = " && ".join([f'{found} != ""', *known])
        reading = {"when": when, **_make_reading(run, statuses=[0])}
        other = draft.add_reading(f"other_{name}_{path}", reading)
        again = draft.join_any(new)
        # It is null where the directory or the user is not there yet.
        is_needed = f'{other} != ""' + (f" || {again}" if again else "")
        is_open = "TODO" in again
        draft.claim(f"the {name} of all in {path}", value)
        draft.add_step(
            origin,
            {
                "title": f"Set the {name} of {shown} and of all in it to {value}",
                "when": f"TODO: is it needed after what is before it? {again}"[:1000]
                if is_open
                else is_needed,
                "do": run_as_root(_PROGRAMS[name], "-R", "--", argument, word),
                "no_undo": f"the {name} that each file had is not kept",
                "before": f'{{{other} == null || {other} == "" ? "not known yet" : '
                f'"another one, such as of " + {other}}}',
                "after": value,
            },
        )
        # chown takes the bits for other users away from a file.
        if name != "mode":
            new = [*new, is_needed] if _SET_IDS.fullmatch(attributes.get("mode", "")) else new
    draft.current.append(f"{shown} {{{found} == '' ? 'is missing' : 'is there'}}")


def _look_for_owner(draft: Draft, name: str, wanted: str) -> tuple[str, list[str], list[str]]:
    """Return the argument of chown, the tests of find, and when the name is known."""
    by_name, by_number, database, what = _OWNERS[name]
    if re.fullmatch("[0-9]{1,10}", wanted):
        return wanted, ["!", by_number, wanted], []
    if not OWNER.fullmatch(wanted) and not is_value(wanted):
        raise Unclear(f"the {name} {show_marks(wanted)[:40]!r} is not read")
    draft.set_pattern(wanted, OWNER.pattern)
    argument = draft.word(wanted)
    reading = {"run": ["getent", database, argument], "statuses": [0, 2], "as": "text"}
    known = draft.add_reading(f"{what}_{wanted}", reading)
    return argument, ["!", by_name, argument], [f'{known} != ""']


def _refuse_others(draft: Draft, name: str, path: str, wanted: str) -> None:
    """Refuse what would undo a part of a step before it. Raises Unclear."""
    for thing, other, _ in draft.claims:
        if thing.startswith(f"the {name} of {path}/") and other != wanted:
            raise Unclear(f"a step before it sets {show_marks(thing)} to {show_marks(other)}")


def refuse_wide(path: str) -> None:
    """Refuse a directory with what access depends on, or one that is not known. Raises Unclear."""
    refuse_access_within(path)
    if path.startswith("\x01") or _TOO_WIDE.fullmatch(path):
        raise Unclear(f"access to a host may depend on what is in {show_marks(path)}")


def _make_reading(run: list[str], *, statuses: list[int]) -> dict[str, Any]:
    return {"run": run, "root": True, "statuses": statuses, "as": "text"}
