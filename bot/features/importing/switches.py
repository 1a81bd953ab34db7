"""What programs of a system turn on and off, such as modules of Apache."""

from collections.abc import Mapping

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root
from bot.features.importing.file_changes import look_for

# Of Apache as Debian has it: the last part of a2enmod and the like, the folder, and the suffix.
APACHE_PARTS: Mapping[str, tuple[str, str]] = {
    "mod": ("mods", ".load"),
    "site": ("sites", ".conf"),
    "conf": ("conf", ".conf"),
}
_APACHE_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,80}"


def carry_apache_part(
    draft: Draft, origin: Origin, part: str, name: str, *, enabled: bool, force: bool = False
) -> None:
    """Have a module, a site or a file of configuration of Apache enabled, or not.

    part: one of APACHE_PARTS. force: disable also what others need, and what Apache itself does.
    """
    folder, end = APACHE_PARTS[part]
    name = name.removesuffix(end)
    draft.check_value(name, _APACHE_NAME, f"the name of a {part} of Apache")
    if part == "mod" and name == "cgi":
        raise Unclear("with threads, a2enmod takes the module cgid for cgi: name that one")
    found, _, _ = look_for(draft, f"/etc/apache2/{folder}-enabled/{name}{end}")
    word = draft.word(name)
    on = run_as_root(f"/usr/sbin/a2en{part}", "-q", word)
    off = run_as_root(f"/usr/sbin/a2dis{part}", "-q", *(["-f"] if force else []), word)
    what = {"mod": "module", "site": "site", "conf": "configuration"}[part]
    add_switch(
        draft,
        origin,
        f"{what} {name} of Apache",
        f'{found} != ""',
        (on, off),
        wanted=enabled,
        words=("Enable", "Disable", "enabled", "disabled"),
    )
    if part == "mod" and enabled:
        draft.steps[-1][2]["undo_title"] = f"Disable {draft.text(name)}, and not what it needs"


def add_switch(
    draft: Draft,
    origin: Origin,
    thing: str,
    is_on: str,
    commands: tuple[dict[str, object], dict[str, object]],
    *,
    wanted: bool,
    words: tuple[str, str, str, str],
) -> None:
    """Add the step that turns something on or off, whose undo is the other one.

    thing: with its kind. is_on: the expression of it. commands: on and off. words: what they are
    called, and how it is then.
    """
    to_on, to_off, on, off = words
    do, back = commands if wanted else commands[::-1]
    shown = draft.text(thing)
    draft.claim(f"whether the {thing} is {on}", "yes" if wanted else "no")
    draft.add_step(
        origin,
        {
            "title": f"{to_on if wanted else to_off} the {shown}",
            "when": f"!({is_on})" if wanted else is_on,
            "do": do,
            "undo": back,
            "before": off if wanted else on,
            "after": on if wanted else off,
        },
    )
