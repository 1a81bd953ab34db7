"""Changes of services, the kernel and settings of a host: state, command and undo."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bot.features.importing.drafts import (
    Draft,
    Origin,
    Unclear,
    run_as_root,
    show_marks,
)
from bot.features.importing.kinds import access, file_changes
from connectors import systemd

_SERVICE = re.compile("[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,100}|\x01[a-z0-9_]+\x02")
# Units that are started and enabled as services are, and those that are not.
_LIKE_SERVICES = (".timer", ".socket", ".path")
_OTHER_UNITS = (".mount", ".automount", ".target", ".slice", ".swap")
# What systemctl is-enabled takes for enabled.
_ENABLED = '["enabled", "enabled-runtime", "static", "alias", "indirect", "generated"]'
_KEY = re.compile("[a-z][a-z0-9_]*([./][A-Za-z0-9_*-]+)+")
_KEEPS_LOGINS = "logins to the host depend on it, so it stays"


@dataclass(frozen=True)
class _Unit:
    """A unit of systemd that was read, and the expressions that say how it is."""

    name: str
    """Of a service: without `.service`."""
    is_running: str
    active_state: str
    load_state: str
    needs_reload: str
    starts_at_boot: str
    control: Callable[[str], dict[str, Any]]
    """Returns the command that starts or stops it."""
    is_sshd: bool = False
    """Whether it is the service for logins by SSH."""

    @property
    def full_name(self) -> str:
        return self.name if self.name.endswith(_LIKE_SERVICES) else f"{self.name}.service"


def carry_service(
    draft: Draft,
    origin: Origin,
    name: str,
    *,
    running: bool | None = None,
    enabled: bool | None = None,
) -> None:
    """Start or stop a service, and have it start at boot or not."""
    unit = _read_unit(draft, name, is_brought=running is not False and enabled is not False)
    shown = draft.text(unit.name)
    note = f"{shown} is not there yet: its start fails unless an earlier step brings it."
    missing = {"when": f'{unit.load_state} == "not-found"', "text": note}
    if running is not None and missing not in draft.notes:
        draft.notes.append(missing)
    if running is not None:
        verb, other = ("start", "stop") if running else ("stop", "start")
        back = {"no_undo": _KEEPS_LOGINS} if unit.is_sshd else {"undo": unit.control(other)}
        draft.claim(f"whether {unit.name} runs", "yes" if running else "no")
        draft.add_step(
            origin,
            {
                "title": f"{verb.capitalize()} {shown}",
                "when": f"{'!' * running}{unit.is_running}",
                "do": unit.control(verb),
                **back,
                "before": f"{{{unit.active_state}}}",
                "after": "active" if running else "inactive",
            },
        )
        if not running:
            draft.down.append(f"{{host}}/{shown}")
    if enabled is not None:
        _carry_enabled(draft, origin, unit, enabled=enabled)


def _read_unit(draft: Draft, name: str, *, is_brought: bool = False) -> _Unit:
    """Read a service, a timer, a socket or a path. Raises Unclear.

    is_brought: whether it is started at most, or started again while the page is on probation.
    """
    name = name.removesuffix(".service")
    stem, dot, kind = name.rpartition(".")
    is_other = f"{dot}{kind}" in _LIKE_SERVICES
    plain = stem if is_other else name
    if not _SERVICE.fullmatch(plain) or name.endswith(_OTHER_UNITS):
        raise Unclear(f"{name[:80]!r} is not the name of a service")
    is_sshd = access.is_sshd(name)
    if systemd.is_protected(f"{plain}.service") and not (is_brought and is_sshd):
        raise Unclear(f"access to a host may depend on {name}, so Keyturn leaves it alone")
    if is_other:
        _refuse_any(name)
        return _read_other_unit(draft, name)
    _use_service(draft, name)
    reading = {"query": "systemd.query_service", "with": {"name": draft.expression(name)}}
    found = draft.add_reading(f"service_{name}", reading)
    draft.current.append(f"{draft.text(name)} is {{{found}.active_state}}")
    return _Unit(
        name,
        f"{found}.is_running",
        f"{found}.active_state",
        f"{found}.load_state",
        f"{found}.needs_reload",
        f"({found}.starts_at_boot == true)",
        lambda verb: _control(draft, verb, name),
        is_sshd,
    )


def _read_other_unit(draft: Draft, name: str) -> _Unit:
    shown = "LoadState,ActiveState,UnitFileState,NeedDaemonReload"
    run = ["systemctl", "show", "--no-pager", "-p", shown, name]
    found = draft.add_reading(f"unit_{name}", {"run": run, "as": "pairs"})
    draft.current.append(f"{name} is {{{found}.ActiveState}}")
    return _Unit(
        name,
        f'({found}.ActiveState == "active")',
        f"{found}.ActiveState",
        f"{found}.LoadState",
        f'({found}.NeedDaemonReload == "yes")',
        f"({found}.UnitFileState in {_ENABLED})",
        lambda verb: run_as_root("/usr/bin/systemctl", verb, name),
    )


def _refuse_any(name: str) -> None:
    """Refuse a service that a request names: it could be one on which access depends."""
    if "\x01" in name:
        raise Unclear("its service is a value of the request, which may be the one for logins")


def _carry_enabled(draft: Draft, origin: Origin, unit: _Unit, *, enabled: bool) -> None:
    if not enabled:
        _refuse_any(unit.name)
    verb, other = ("enable", "disable") if enabled else ("disable", "enable")
    word = draft.word(unit.full_name)
    disable = run_as_root("/usr/bin/systemctl", other, word)
    back = {"no_undo": _KEEPS_LOGINS} if unit.is_sshd else {"undo": disable}
    draft.claim(f"whether {unit.name} starts at boot", "yes" if enabled else "no")
    draft.add_step(
        origin,
        {
            "title": f"Have {draft.text(unit.name)} {'start' if enabled else 'not start'} at boot",
            "when": f"{'!' * enabled}{unit.starts_at_boot}",
            "do": run_as_root("/usr/bin/systemctl", verb, word),
            **back,
            "before": f"at boot: {{{unit.starts_at_boot} ? 'yes' : 'no'}}",
            "after": f"at boot: {'yes' if enabled else 'no'}",
        },
    )


def carry_mask(draft: Draft, origin: Origin, name: str, *, masked: bool) -> None:
    """Have systemd refuse to start a unit, or not."""
    if masked:
        _refuse_any(name)
    unit = _read_unit(draft, name)
    word = draft.word(unit.full_name)
    verb, other = ("mask", "unmask") if masked else ("unmask", "mask")
    draft.claim(f"whether {unit.name} is masked", "yes" if masked else "no")
    draft.add_step(
        origin,
        {
            "title": f"{verb.capitalize()} {draft.text(unit.name)}",
            "when": f'{unit.load_state} {"!=" if masked else "=="} "masked"',
            "do": run_as_root("/usr/bin/systemctl", verb, word),
            "undo": run_as_root("/usr/bin/systemctl", other, word),
            "before": f"{{{unit.load_state}}}",
            "after": "masked" if masked else "not masked",
        },
    )


def carry_daemon_reload(
    draft: Draft,
    origin: Origin,
    name: str = "",
    changed: Sequence[str] = (),
    *,
    is_asked: bool = False,
) -> None:
    """Have systemd read its unit files again, where they have changed.

    changed: when that is, if it is known. is_asked: whether the draft asks when it is.
    """
    wheres = ("/etc/systemd/", "/lib/systemd/", "/usr/lib/systemd/")
    writes = [] if changed else draft.list_writes(*wheres)
    conditions = [*changed] or draft.list_conditions(writes)
    if draft.asks_when(writes):
        # What is known of the others is not enough.
        conditions, is_asked = [], True
    elif name and not changed:
        conditions.append(_read_unit(draft, name).needs_reload)
    if not conditions and is_asked:
        conditions = [""]
    if not conditions:
        raise Unclear("no step before it changes a unit file, so nothing shows when it is needed")
    draft.add_step(
        origin,
        {
            "title": "Have systemd read its unit files again",
            "when": draft.join_any(conditions)
            if any(conditions)
            else "TODO: what that was read shows that a unit file has changed?",
            "do": run_as_root("/usr/bin/systemctl", "daemon-reload"),
            "no_undo": "systemd reads the files as they are: do it again after an undo",
        },
    )


def carry_restart_after(
    draft: Draft, origin: Origin, verb: str, name: str, changed: Sequence[str] = ()
) -> None:
    """Restart or reload a service after the steps before it, and ask whether that is when.

    changed: when it is, if that is known.
    """
    if changed:
        carry_restart(draft, origin, verb, name, changed, is_all=True)
        return
    conditions = draft.list_conditions()
    if not conditions:
        shown = show_marks(name.removesuffix(".service"))
        raise Unclear(f"for this alone, request: service {verb} HOST {shown}")
    carry_restart(draft, origin, verb, name, conditions, is_all=True)
    step = draft.steps[-1][2]
    question = f"TODO: it was done each time. Is it needed only after these? {step['when']}"
    step["when"] = question[:1000]


def carry_restart(
    draft: Draft,
    origin: Origin,
    verb: str,
    name: str,
    conditions: Sequence[str],
    *,
    is_all: bool,
) -> None:
    """Restart or reload a service if one of the steps with these conditions is needed.

    is_all: whether there are no others, so that nothing has to be asked.
    """
    plain = name.removesuffix(".service")
    unit = _read_unit(draft, name, is_brought=access.may_restart(draft, plain))
    name = unit.name
    when = draft.join_any(conditions)
    if not is_all:
        when = f"TODO: it is needed if a step that notifies it is. When are those? {when}".strip()
    draft.add_step(
        origin,
        {
            "title": f"{verb.capitalize()} {draft.text(name)}, since what it reads has changed",
            "when": when[:1000] if not is_all else when,
            "do": unit.control(verb),
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
    if access.is_sshd(name):
        return run_as_root("/usr/bin/systemctl", verb, f"{name}.service")
    given = {"verb": f'"{verb}"', "name": draft.expression(name)}
    return {"command": "systemd.control_service", "with": given}


def carry_sysctl(draft: Draft, origin: Origin, key: str, value: str) -> None:
    """Set a number of the kernel, until the next boot."""
    if not _KEY.fullmatch(key) or not re.fullmatch(r"[0-9]{1,18}", value):
        raise Unclear(f"{key[:60]}={value[:60]} is not one whole number, which can be undone")
    if key.endswith(".disable_ipv6") and value != "0":
        raise Unclear("access to a host may depend on IPv6")
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


def carry_module(draft: Draft, origin: Origin, name: str, *, present: bool) -> None:
    """Have a module of the kernel loaded, until the next boot, or not loaded."""
    if not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{0,60}", name):
        raise Unclear(f"{show_marks(name)[:80]!r} is not the name of a module")
    reading = {"run": ["lsmod"], "as": "table", "columns": ["name", "rest"], "skip": 1}
    found = draft.add_reading("modules", reading)
    # lsmod has _ in names where modprobe takes - too.
    listed = name.replace("-", "_")
    is_loaded = draft.add_state(f"has_{name}", f'{found}.exists(row, row.name == "{listed}")')
    draft.current.append(f"the module {name} is {{{is_loaded} ? 'loaded' : 'not loaded'}}")
    draft.claim(f"whether the module {name} is loaded", "yes" if present else "no")
    load = run_as_root("/usr/sbin/modprobe", "--", name)
    unload = run_as_root("/usr/sbin/modprobe", "-r", "--", name)
    if present:
        note = (
            f"Where {name} is a part of the kernel, lsmod does not list it: leave this step out."
        )
        draft.notes.append({"when": f"!{is_loaded}", "text": note})
    draft.add_step(
        origin,
        {
            "title": f"{'Load' if present else 'Unload'} the module {name}, until the next boot",
            "when": f"{'!' * present}{is_loaded}",
            "do": load if present else unload,
            "undo": unload if present else load,
            "before": f"{{{is_loaded} ? 'loaded' : 'not loaded'}}",
            "after": "loaded" if present else "not loaded",
        },
    )


_MOUNT_OPTIONS = {
    **{one: f"no{one}" for one in ("exec", "suid", "dev")},
    **{f"no{one}": one for one in ("exec", "suid", "dev")},
    "ro": "rw",
    "rw": "ro",
}


_OF_PROGRAMS = re.compile(r"/|(/usr)?(/s?bin|/lib\w*)?")


def carry_remount(draft: Draft, origin: Origin, path: str, options: Sequence[str]) -> None:
    """Have a mounted file system with these options, until it is mounted again."""
    if not re.fullmatch("(/[A-Za-z0-9_.-]+)+|/", path) or not options:
        raise Unclear(f"{path[:80]!r} is not a plain path from /")
    reading = {"run": ["findmnt", "-n", "-o", "OPTIONS", "--mountpoint", path], "as": "text"}
    found = draft.add_reading(f"mount_{path}", reading)
    draft.current.append(f"{path} is mounted with {{{found}}}")
    for option in options:
        if option not in _MOUNT_OPTIONS:
            raise Unclear(f"the option {option[:40]!r} of a mount is not read")
        if _OF_PROGRAMS.fullmatch(path) and option in ("noexec", "nosuid", "ro"):
            raise Unclear(f"with {option} on {path}, no one may become root to undo it")
        other = _MOUNT_OPTIONS[option]
        # A default such as exec is not among the options that are shown.
        shown, sign = (option, "!") if option[:2] in ("no", "ro", "rw") else (other, "")
        draft.claim(f"the option {min(option, other)} of {path}", option)
        draft.add_step(
            origin,
            {
                "title": f"Remount {path} with {option}",
                "when": f'{sign}("{shown}" in split({found}, ","))',
                "do": run_as_root("/usr/bin/mount", "-o", f"remount,{option}", path),
                "undo": run_as_root("/usr/bin/mount", "-o", f"remount,{other}", path),
                "before": other,
                "after": option,
            },
        )


def carry_hostname(draft: Draft, origin: Origin, name: str) -> None:
    """Give the host a name, now and at the next boot."""
    if not re.fullmatch("[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?", name):
        raise Unclear(f"{show_marks(name)[:80]!r} is not the name of a host")
    found = draft.add_reading("name_now", {"run": ["hostname"], "as": "text"})
    state = {"value": found, "pattern": "[A-Za-z0-9][A-Za-z0-9.-]{0,63}"}
    now = draft.add_state("old_name", state)
    draft.current.append(f"it is called {{{now}}}")
    draft.claim("the name of the host", name)
    draft.add_step(
        origin,
        {
            "title": f"Call the host {name}",
            "when": f'{now} != "{name}"',
            "do": run_as_root("/usr/bin/hostname", name),
            "undo": run_as_root("/usr/bin/hostname", f"{{{now}}}"),
            "before": f"{{{now}}}",
            "after": name,
        },
    )
    file_changes.carry_word(draft, origin, "/etc/hostname", name, only_if_there=False)


def carry_alternative(draft: Draft, origin: Origin, folder: str, name: str, path: str) -> None:
    """Have an alternative for a command chosen, of those that are there.

    folder: where the system keeps how each is chosen.
    """
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.+-]{0,60}", name):
        raise Unclear(f"{show_marks(name)[:80]!r} is not the name of an alternative")
    file_changes.refuse_odd_path(path)
    if "\x01" in path:
        raise Unclear("the program of an alternative is a value of the request")
    link = {
        "run": ["readlink", "--", f"/etc/alternatives/{name}"],
        "statuses": [0, 1],
        "as": "text",
    }
    found = draft.add_reading(f"alternative_{name}", link)
    value = {"value": f'{found} == "" ? "{path}" : {found}', "pattern": "/[A-Za-z0-9_.:@+=,/-]*"}
    old = draft.add_state(f"program_{name}", value)
    how = {"run": ["head", "-n", "1", "--", f"{folder}/{name}"], "statuses": [0, 1], "as": "text"}
    mode = draft.add_reading(f"choice_{name}", how)
    draft.current.append(f"{name} is {{{old}}}")
    draft.refuse.append({"when": f'{mode} == ""', "because": f"there is no alternative {name}"})
    draft.claim(f"the alternative {name}", path)
    program = "/usr/bin/update-alternatives" if "dpkg" in folder else "/usr/sbin/alternatives"
    for is_auto, undo in ((True, ("--auto", name)), (False, ("--set", name, f"{{{old}}}"))):
        draft.claim(f"the alternative {name}", path)
        draft.add_step(
            origin,
            {
                "title": f"Choose {path} for {name}",
                "when": f'{old} != "{path}" && {mode} {"==" if is_auto else "!="} "auto"',
                "do": run_as_root(program, "--set", name, path),
                "undo": run_as_root(program, *undo),
                "before": f"{{{old}}}{', as the best one' if is_auto else ''}",
                "after": path,
            },
        )


def carry_timezone(draft: Draft, origin: Origin, zone: str) -> None:
    """Have local time in a zone, as timedatectl sets it."""
    if not re.fullmatch("[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}", zone):
        raise Unclear(f"{show_marks(zone)[:80]!r} is not the name of a time zone")
    target = f"/usr/share/zoneinfo/{zone}"
    file_changes.carry_link(draft, origin, "/etc/localtime", target)
    # Debian has the name there too.
    file_changes.carry_word(draft, origin, "/etc/timezone", zone, only_if_there=True)
