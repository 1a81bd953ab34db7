"""Changes of packages: state, command and undo."""

import re
from collections.abc import Sequence

from bot.features.importing.drafts import Draft, Origin, run_as_root

# apt-get install NAME- removes that package.
_PACKAGE = re.compile("[A-Za-z0-9]([A-Za-z0-9.+:_-]{0,99}[A-Za-z0-9.+:_])?")
_PATIENCE = 900


def carry_package(
    draft: Draft,
    origin: Origin,
    name: str,
    manager: str,
    *,
    present: bool,
    purge: bool = False,
    options: Sequence[str] = (),
) -> None:
    """Install or remove a package of Debian (apt-get) or of Red Hat (dnf, yum).

    purge: of Debian: remove its configuration too, also where only that is left. options: with
    which it is installed.
    """
    draft.check_value(name, _PACKAGE.pattern, "the name of one package")
    word, shown = draft.word(name), draft.text(name)
    if manager == "apt-get":
        run = ["dpkg-query", "-W", "-f=${db:Status-Status}", word]
        is_there = '{0} == "installed"'
    else:
        run = ["rpm", "-q", word]
        start = draft.expression(f"{name}-")
        is_there = f'!{{0}}.contains(" is not installed") && {{0}}.startsWith({start})'
    reading = {"run": run, "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"package_{name}", reading)
    is_there = draft.add_state(f"has_{name}", is_there.format(found))
    if purge:
        is_left = f'{is_there} || {found} == "config-files"'
        is_there = draft.add_state(f"has_{name}", is_left)
    draft.current.append(f"{shown} is {{{is_there} ? 'installed' : 'not installed'}}")
    program = f"/usr/bin/{manager}"
    install = {**run_as_root(program, "-y", *options, "install", word), "seconds": _PATIENCE}
    words = ["--purge"] if purge else []
    remove = {**run_as_root(program, "-y", *words, "remove", word), "seconds": _PATIENCE}
    draft.claim(f"the package {name}", "there" if present else "gone")
    draft.add_step(
        origin,
        {
            "title": f"{'Install' if present else 'Remove'} the package {shown}",
            "when": f"!{is_there}" if present else is_there,
            "do": install if present else remove,
            **(
                {"undo": remove, "undo_title": f"Remove {shown}, without what came with it"}
                if present
                else {"no_undo": "its configuration and data may be gone: install it again"}
            ),
            "before": f"{{{is_there} ? 'installed' : 'not installed'}}",
            "after": "installed" if present else "not installed",
        },
    )


def carry_update(draft: Draft, origin: Origin, changed: str) -> None:
    """Read the lists of packages again, where a source of them is new."""
    draft.add_step(
        origin,
        {
            "title": "Read the lists of packages",
            "when": changed,
            "do": {**run_as_root("/usr/bin/apt-get", "update"), "seconds": 900},
            "no_undo": "it only reads lists: do it again after an undo",
        },
    )
