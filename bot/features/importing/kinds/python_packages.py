"""Packages of Python: whether one is there, the command of pip, and the undo.

A package is read by the directory that pip has of it, NAME-VERSION.dist-info, as pip itself would
run the code of its environment.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root, show_marks
from bot.features.importing.kinds.file_changes import look_for

_NAME = re.compile("[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")
# As PEP 440 has it, so that the directory has the same one.
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*((a|b|rc)[0-9]+)?(\.post[0-9]+)?")
_PLACES = ("/usr/lib", "/usr/local/lib")
_PATIENCE = 900


@dataclass(frozen=True)
class Environment:
    """Where pip installs: an environment of its own, or the one of the system."""

    folder: str
    """Of an environment; "" for the system's."""
    make: str = ""
    """How one is made that is not there: venv or virtualenv; "" if it has to be there."""
    program: str = "pip3"
    """Of the system's: pip or pip3."""
    options: Sequence[str] = ()
    """Of pip install."""


def carry_environment(draft: Draft, origin: Origin, environment: Environment) -> None:
    """Have an environment of Python, if there is none yet."""
    folder = environment.folder
    found, shown, word = look_for(draft, f"{folder}/bin/pip")
    if not environment.make:
        because = f"{shown} is missing: make the environment first"
        draft.refuse.append({"when": f'{found} == ""', "because": because})
        return
    if any(thing == f"the environment {folder}" for thing, _, _ in draft.claims):
        return
    there, _, _ = look_for(draft, folder)
    because = f"{draft.text(folder)} is there without pip: remove it, then request this again"
    draft.refuse.append({"when": f'{found} == "" && {there} != ""', "because": because})
    draft.claim(f"the environment {folder}", "there")
    word = draft.word(folder)
    do = (
        {"script": 'python3 -m venv -- "$1"', "arguments": [word], "root": True}
        if environment.make == "venv"
        else run_as_root("/usr/bin/virtualenv", word)
    )
    draft.add_step(
        origin,
        {
            "title": f"Make the environment {draft.text(folder)} of Python",
            "when": f'{found} == ""',
            "do": {**do, "seconds": _PATIENCE},
            "undo": run_as_root("/usr/bin/rm", "-rf", "--", word),
            "before": "missing",
            "after": "there",
        },
    )


def carry_package(draft: Draft, origin: Origin, text: str, environment: Environment) -> None:
    """Have pip install a package, NAME or NAME==VERSION, or another version of it."""
    name, _, version = text.partition("==")
    if not _NAME.fullmatch(name) or not (not version or _VERSION.fullmatch(version)):
        raise Unclear(f"{show_marks(text)[:80]!r} is no package, or one of several versions")
    if environment.folder:
        carry_environment(draft, origin, environment)
    places = [f"{environment.folder}/lib"] if environment.folder else [*_PLACES]
    part = re.sub("[._-]", "?", name)
    run = ["find", *places, "-maxdepth", "3", "-path", "*/python3*", "-iname", f"{part}-*-info"]
    # Its status is 1 where there is no such place, and it prints the others.
    lines = {"run": run, "statuses": [0, 1], "as": "lines", "pattern": "(?P<path>.*)"}
    found = draft.add_reading(f"pip_{name}", lines)
    plain = re.sub("[._-]", "[._-]", name)
    end = r"(-py[0-9.]+)?[.](dist|egg)-info$"
    any_one, one = (
        f"{found}.exists(row, row.path.matches({draft.expression(f'(?i)/{plain}-{each}{end}')}))"
        for each in ("[0-9][^/-]*", version.replace(".", "[.]"))
    )
    is_there = draft.add_state(f"has_{name}", any_one)
    folder = environment.folder
    program = f"{folder}/bin/pip" if folder else f"/usr/bin/{environment.program}"
    do = run_as_root(program, "install", *environment.options, text)
    where = f" in {folder}" if folder else ""
    draft.current.append(f"{name}{where} is {{{is_there} ? 'installed' : 'not installed'}}")
    draft.claim(f"the package {name} of Python{where}", version or "any")
    draft.add_step(
        origin,
        {
            "title": f"Install {text} by pip{where}",
            "when": f"!{is_there}",
            "do": {**do, "seconds": _PATIENCE},
            "undo": run_as_root(program, "uninstall", "-y", *environment.options, name),
            "undo_title": f"Remove {name} of Python, without what came with it",
            "before": "not installed",
            "after": version or "installed",
        },
    )
    if version:
        draft.add_step(
            origin,
            {
                "title": f"Install {text} by pip{where}, in place of another version",
                "when": f"{is_there} && !{one}",
                "do": {**do, "seconds": _PATIENCE},
                "no_undo": "which versions came with it is not read",
                "before": "another version",
                "after": version,
            },
        )
