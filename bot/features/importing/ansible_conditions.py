"""Conditions of tasks that a reading shows: whether a path was there that a task looked for."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.features.importing.ansible_play import Look, Play, Task
from bot.features.importing.drafts import Draft, Unclear
from bot.features.importing.file_changes import look_for
from bot.features.importing.sources import is_false

_EXISTS = re.compile(r"\s*(not\s+)?(\w+)\.stat\.exists(?:\s*\|\s*bool)?\s*")
_PLAIN = frozenset({"path", "follow", "get_checksum", "get_md5", "get_mime", "get_attributes",
                    "checksum_algorithm"})  # fmt: skip


def note_look(play: Play, raw: Mapping[str, Any], tasks: Sequence[Task]) -> None:
    """Keep which path a task looks for, if what a page reads at its start is the same."""
    name = str(raw.get("register", ""))
    task = tasks[0]
    draft = play.pages.drafts[-1] if play.pages.drafts else None
    is_plain = (
        name
        and len(tasks) == 1
        and not task.conditions
        and not raw.keys() & {"delegate_to", "loop", "become_user"}
        and not task.given.keys() - _PLAIN
        and is_false(task.given.get("follow", False))
    )
    try:
        path = str(task.scope.fill(task.given.get("path", "")))
    except Unclear:
        return
    if is_plain and not (draft and _may_change(draft, path)):
        play.looks[name] = Look(path, draft)


def _may_change(draft: Draft, path: str) -> bool:
    """Return whether a step so far may make a path, or remove it."""
    is_claimed = any(thing == path for thing, _, _ in draft.claims)
    return is_claimed or any(
        "script" in step["do"] or "TODO" in str(step["do"]) for _, _, step in draft.steps
    )


def _find_look(play: Play, draft: Draft | None, condition: str) -> Look | None:
    """Return what a condition asks for, if a page reads it as it was; None if it does not."""
    found = _EXISTS.fullmatch(condition)
    look = play.looks.get(found[2]) if found else None
    first = play.pages.drafts[0] if play.pages.drafts else None
    return look if look and draft is (look.draft or first) else None


def are_shown(play: Play, conditions: Sequence[str]) -> bool:
    """Return whether the page so far reads what conditions ask for."""
    draft = play.pages.drafts[-1] if play.pages.drafts else None
    return bool(conditions) and all(_find_look(play, draft, one) for one in conditions)


def show_conditions(
    play: Play, draft: Draft, tasks: Sequence[Task]
) -> tuple[list[str], list[str]]:
    """Return the conditions of tasks as expressions of what a page reads, and the other ones."""
    shown, others = list[str](), list[str]()
    for one in dict.fromkeys(one for task in tasks for one in task.conditions):
        look = _find_look(play, draft, one)
        # One that holds for some items alone is asked for.
        if look is None or not all(one in task.conditions for task in tasks):
            others.append(one)
            continue
        is_there, _, _ = look_for(draft, look.path)
        shown.append(f'{is_there} {"==" if one.strip().startswith("not") else "!="} ""')
    return shown, others
