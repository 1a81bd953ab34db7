"""Changes of services, the kernel, packages and accounts: state, command and undo."""

import re
from collections.abc import Sequence
from typing import Any

from bot.features.importing.drafts import Draft, Origin, Unclear
from bot.features.importing.words import OWNER, run_as_root, set_pattern
from connectors import systemd

_SERVICE = re.compile("[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,100}|\x01[a-z0-9_]+\x02")
# apt-get install NAME- removes that package.
_PACKAGE = re.compile("[A-Za-z0-9]([A-Za-z0-9.+:_-]{0,99}[A-Za-z0-9.+:_])?")
_KEY = re.compile("[a-z][a-z0-9_]*([./][A-Za-z0-9_*-]+)+")
_PATIENCE = 900


def carry_service(
    draft: Draft,
    origin: Origin,
    name: str,
    *,
    running: bool | None = None,
    enabled: bool | None = None,
) -> None:
    """Start or stop a service, and have it start at boot or not."""
    name = name.removesuffix(".service")
    if not _SERVICE.fullmatch(name):
        raise Unclear(f"{name[:80]!r} is not the name of a service")
    if systemd.is_protected(f"{name}.service"):
        raise Unclear(f"access to a host may depend on {name}, so Keyturn leaves it alone")
    _use_service(draft, name)
    reading = {"query": "systemd.query_service", "with": {"name": draft.expression(name)}}
    service = draft.add_reading(f"service_{name}", reading)
    shown = draft.text(name)
    draft.current.append(f"{shown} is {{{service}.active_state}}")
    note = f"{shown} is not there yet: its start fails unless an earlier step brings it."
    missing = {"when": f'{service}.load_state == "not-found"', "text": note}
    if running is not None and missing not in draft.notes:
        draft.notes.append(missing)
    if running is not None:
        verb, other = ("start", "stop") if running else ("stop", "start")
        draft.claim(f"whether {name} runs", "yes" if running else "no")
        draft.add_step(
            origin,
            {
                "title": f"{verb.capitalize()} {shown}",
                "when": f"{'!' * running}{service}.is_running",
                "do": _control(draft, verb, name),
                "undo": _control(draft, other, name),
                "before": f"{{{service}.active_state}}",
                "after": "active" if running else "inactive",
            },
        )
        if not running:
            draft.down.append(f"{{host}}/{draft.text(name)}")
    if enabled is not None:
        _carry_enabled(draft, origin, name, service, enabled=enabled)


def _carry_enabled(
    draft: Draft, origin: Origin, name: str, service: str, *, enabled: bool
) -> None:
    verb, other = ("enable", "disable") if enabled else ("disable", "enable")
    unit = f"{draft.word(name)}.service"
    draft.claim(f"whether {name} starts at boot", "yes" if enabled else "no")
    draft.add_step(
        origin,
        {
            "title": f"Have {draft.text(name)} {'start' if enabled else 'not start'} at boot",
            "when": f"{service}.starts_at_boot != {str(enabled).lower()}",
            "do": run_as_root("/usr/bin/systemctl", verb, unit),
            "undo": run_as_root("/usr/bin/systemctl", other, unit),
            "before": f"at boot: {{{service}.starts_at_boot == true ? 'yes' : 'no'}}",
            "after": f"at boot: {'yes' if enabled else 'no'}",
        },
    )


def carry_restart(
    draft: Draft, origin: Origin, verb: str, name: str, conditions: Sequence[str]
) -> None:
    """Restart or reload a service if one of the steps with these conditions is needed."""
    name = name.removesuffix(".service")
    if not _SERVICE.fullmatch(name) or systemd.is_protected(f"{name}.service"):
        raise Unclear(f"Keyturn does not {verb} {name[:80]}")
    _use_service(draft, name)
    draft.add_step(
        origin,
        {
            "title": f"{verb.capitalize()} {draft.text(name)}, since what it reads has changed",
            "when": " || ".join(f"({one})" for one in dict.fromkeys(conditions)),
            "do": _control(draft, verb, name),
            "no_undo": f"it only makes the change take effect: {verb} it again after an undo",
        },
    )
    draft.down.append(f"{{host}}/{draft.text(name)}")


def _use_service(draft: Draft, name: str) -> None:
    """Give a value of the request that is the name of a service this type."""
    for field in draft.fields:
        if name == f"\x01{field}\x02" and draft.fields[field].get("pattern") == "TODO":
            del draft.fields[field]["pattern"]
            draft.fields[field]["type"] = "service"


def _control(draft: Draft, verb: str, name: str) -> dict[str, Any]:
    given = {"verb": f'"{verb}"', "name": draft.expression(name)}
    return {"command": "systemd.control_service", "with": given}


def carry_sysctl(draft: Draft, origin: Origin, key: str, value: str) -> None:
    """Set a number of the kernel, until the next boot."""
    if not _KEY.fullmatch(key) or not re.fullmatch(r"[0-9]{1,18}", value):
        raise Unclear(f"{key[:60]}={value[:60]} is not one whole number, which can be undone")
    reading = {"run": ["sysctl", "-n", key], "as": "number", "least": 0}
    name = draft.add_reading(key, reading)
    draft.current.append(f"{key} is {{{name}}}")
    draft.claim(key, value)
    draft.add_step(
        origin,
        {
            "title": f"Set {key} to {value}, until the next boot",
            "when": f"{name} != {value}",
            "do": run_as_root("/usr/sbin/sysctl", "-w", f"{key}={value}"),
            "undo": run_as_root("/usr/sbin/sysctl", "-w", f"{key}={{{name}}}"),
            "before": f"{{{name}}}",
            "after": value,
        },
    )


def carry_package(draft: Draft, origin: Origin, name: str, manager: str, *, present: bool) -> None:
    """Install or remove a package of Debian (apt-get) or of Red Hat (dnf, yum)."""
    if not _PACKAGE.fullmatch(name):
        raise Unclear(f"{name[:80]!r} is not the name of one package")
    if manager == "apt-get":
        run = ["dpkg-query", "-W", "-f=${db:Status-Status}", name]
        is_there = '{0} == "installed"'
    else:
        run = ["rpm", "-q", name]
        is_there = f'!{{0}}.contains(" is not installed") && {{0}}.startsWith("{name}-")'
    reading = {"run": run, "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"package_{name}", reading)
    is_there = draft.add_state(f"has_{name}", is_there.format(found))
    draft.current.append(f"{name} is {{{is_there} ? 'installed' : 'not installed'}}")
    program = f"/usr/bin/{manager}"
    install = {**run_as_root(program, "-y", "install", name), "seconds": _PATIENCE}
    remove = {**run_as_root(program, "-y", "remove", name), "seconds": _PATIENCE}
    draft.claim(f"the package {name}", "there" if present else "gone")
    draft.add_step(
        origin,
        {
            "title": f"{'Install' if present else 'Remove'} the package {name}",
            "when": f"!{is_there}" if present else is_there,
            "do": install if present else remove,
            **(
                {"undo": remove, "undo_title": f"Remove {name}, without what came with it"}
                if present
                else {"no_undo": "its configuration and data may be gone: install it again"}
            ),
            "before": f"{{{is_there} ? 'installed' : 'not installed'}}",
            "after": "installed" if present else "not installed",
        },
    )


def carry_account(
    draft: Draft,
    origin: Origin,
    database: str,
    name: str,
    *,
    present: bool = True,
    options: Sequence[str] = (),
) -> None:
    """Have a user (database passwd) or a group (database group), or none of the name."""
    is_user = database == "passwd"
    if not OWNER.fullmatch(name) and not re.fullmatch("\x01[a-z0-9_]+\x02", name):
        raise Unclear(f"{name[:80]!r} is not a plain name")
    set_pattern(draft, name, "[a-z_][a-z0-9_-]{0,31}")
    reading = {"run": ["getent", database, draft.word(name)], "statuses": [0, 2], "as": "text"}
    found = draft.add_reading(f"{'user' if is_user else 'group'}_{name}", reading)
    what, shown = ("user" if is_user else "group"), draft.text(name)
    draft.current.append(f"the {what} {shown} {{{found} == '' ? 'is missing' : 'is there'}}")
    words = [draft.word(each) for each in options]
    add = run_as_root(f"/usr/sbin/{what}add", *words, draft.word(name))
    delete = run_as_root(f"/usr/sbin/{what}del", draft.word(name))
    draft.claim(f"the {what} {name}", "there" if present else "gone")
    draft.add_step(
        origin,
        {
            "title": f"{'Add' if present else 'Remove'} the {what} {shown}",
            "when": f'{found} {"==" if present else "!="} ""',
            "do": add if present else delete,
            **({"undo": delete} if present else {"no_undo": f"the {what} has to be added again"}),
            "before": f"{{{found} == '' ? 'missing' : {found}}}",
            "after": "there" if present else "missing",
        },
    )
