"""What programs of a system turn on and off, such as modules of Apache."""

import re
from collections.abc import Mapping

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root, show_marks
from bot.features.importing.kinds.file_changes import look_for

# Of Apache as Debian has it: the last part of a2enmod and the like, the folder, and the suffix.
APACHE_PARTS: Mapping[str, tuple[str, str]] = {
    "mod": ("mods", ".load"),
    "site": ("sites", ".conf"),
    "conf": ("conf", ".conf"),
}
_BOOLEANS = "/var/lib/selinux/targeted/active/booleans.local"
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


def carry_boolean(
    draft: Draft, origin: Origin, name: str, *, wanted: bool, persistent: bool
) -> None:
    """Have a boolean of SELinux on or off, also after the next boot if it is persistent.

    What setsebool -P keeps is in a file, as NAME=1 (libsemanage, src/booleans_file.c).
    """
    if not re.fullmatch("[a-z][a-z0-9_]{0,80}", name):
        raise Unclear(f"{show_marks(name)[:80]!r} is not the name of a boolean")
    pattern = r"\S+ --> (?P<now>on|off)( .*)?"
    reading = {"run": ["getsebool", name], "as": "match", "pattern": pattern}
    found = draft.add_reading(f"boolean_{name}", reading)
    now = draft.add_state(f"old_{name}", {"value": f"{found}.now", "pattern": "on|off"})
    value = "on" if wanted else "off"
    when, kept = f'{now} != "{value}"', ["-P"] if persistent else []
    if persistent:
        run = ["/usr/bin/grep", "-x", "-e", f"{name}={int(wanted)}", "--", _BOOLEANS]
        file = {"run": run, "root": True, "statuses": [0, 1, 2], "as": "text"}
        when += f' || {draft.add_reading(f"kept_{name}", file)} == ""'
    draft.current.append(f"{name} is {{{now}}}")
    draft.claim(f"the boolean {name}", value)
    how = "now and at each boot" if persistent else "until the next boot"
    draft.add_step(
        origin,
        {
            "title": f"Turn the boolean {name} {value}, {how}",
            "when": when,
            "do": run_as_root("/usr/sbin/setsebool", *kept, name, value),
            "undo": run_as_root("/usr/sbin/setsebool", *kept, name, f"{{{now}}}"),
            "before": f"{{{now}}}",
            "after": f"{value}, {how}",
        },
    )


def carry_locale(draft: Draft, origin: Origin, name: str) -> None:
    """Have a locale of Debian generated, of those that /etc/locale.gen has in comments."""
    found = re.fullmatch(r"([a-z]{2,3}_[A-Z]{2})\.(UTF-8|utf8)", name)
    if found is None:
        raise Unclear(f"{show_marks(name)[:60]!r} is not the name of a locale in UTF-8")
    line, shown = f"{found[1]}.UTF-8 UTF-8", f"{found[1]}.utf8"
    reading = {"run": ["locale", "-a"], "as": "lines", "pattern": "(?P<line>.*)"}
    made = draft.add_reading("locales", reading)
    file = {"file": "/etc/locale.gen", "as": "lines", "pattern": "(?P<line>.*)"}
    listed = draft.add_reading("locale_lines", file)
    plain = f"{found[1]}[.]UTF-8 UTF-8 *"
    is_missing = draft.add_state(f"no_{shown}", f'!{made}.exists(row, row.line == "{shown}")')
    is_on = draft.add_state(f"has_{shown}", f'{listed}.exists(row, row.line.matches("^{plain}$"))')
    is_off = f'{listed}.exists(row, row.line.matches("^# *{plain}$"))'
    because = f"/etc/locale.gen does not know {line}"
    draft.refuse.append({"when": f"{is_missing} && !{is_on} && !({is_off})", "because": because})
    draft.current.append(f"{name} is {{{is_missing} ? 'missing' : 'there'}}")
    draft.claim(f"the locale {name}", "there")
    scripts = [
        f"sed -E -i 's/^{old}({plain})$/{new}\\1/' /etc/locale.gen && locale-gen"
        for old, new in (("# *", ""), ("", "# "))
    ]
    do, undo = ({"script": one, "root": True, "seconds": 900} for one in scripts)
    again = {**run_as_root("/usr/sbin/locale-gen"), "seconds": 900}
    for when, rest in (
        (f"!{is_on}", {"do": do, "undo": undo}),
        (is_on, {"do": again, "no_undo": "it only generates what /etc/locale.gen has"}),
    ):
        title = f"Generate the locale {name}"
        step = {"title": title, "when": f"{is_missing} && {when}", **rest}
        draft.add_step(origin, {**step, "before": "missing", "after": "there"})


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
