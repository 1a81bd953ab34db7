"""Changes of files that a program tries first, as Ansible's `validate` and visudo do."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from bot.features.importing.drafts import Draft, Unclear, show_marks
from connectors.script import load_code

_WORD = re.compile("[A-Za-z0-9_./:=,@+-]+")
_KINDS = {"/usr/bin/sed": "trial-lines", "/usr/bin/tee": "trial-content"}


def read_trial(validate: str) -> list[str]:
    """Return the words before %s, which is the file. Raises Unclear for more than such words."""
    try:
        words = shlex.split(validate)
    except ValueError:
        words = []
    *trial, file = words or [""]
    if file != "%s" or not trial or not all(map(_WORD.fullmatch, trial)):
        shown = show_marks(validate)[:80]
        raise Unclear(f"it tries the file by {shown!r}, which is more than words and the file")
    return trial


def carry_trial(draft: Draft, first: int, trial: Sequence[str]) -> None:
    """Have the steps from one on try what sed and tee write to a file, before it is there.

    trial: the program with its arguments, but the file; nothing if no program tries it.
    """
    for _, _, step in draft.steps[first:] if trial else ():
        for key in step.keys() & {"do", "undo"}:
            step[key] = _try_first(step[key], trial)


def refuse_untried(draft: Draft, first: int) -> None:
    """Refuse steps of which none tries anything. Raises Unclear."""
    if not any(
        step["do"].get("script", "").startswith("TRIAL=") for _, _, step in draft.steps[first:]
    ):
        raise Unclear("it tries the file in a way that a step cannot")


def _try_first(command: Mapping[str, Any], trial: Sequence[str]) -> Mapping[str, Any]:
    """Return a command that does the same to a copy of the file, and tries that."""
    program, *words = command.get("run", [""])
    # sed that writes what it reads is none that changes a file.
    if program not in _KINDS or "-n" in words:
        return command
    code = load_code(_KINDS[program], TRIAL=" ".join(trial))
    edit = words[:-1] if program.endswith("sed") else []
    others = {key: value for key, value in command.items() if key != "run"}
    return {"script": _shorten(code), "arguments": [words[-1], *edit], **others}


def _shorten(code: str) -> str:
    """Return shell code without its comments: a page has it at each step."""
    lines = [line for line in code.splitlines() if line and not line.lstrip().startswith("#")]
    return "\n".join(lines)
