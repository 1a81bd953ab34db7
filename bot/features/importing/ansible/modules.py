"""Modules of Ansible with a plain meaning, and their arguments."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from bot.features.importing.ansible.account_modules import ACCOUNT_MODULES
from bot.features.importing.ansible.file_modules import FILE_MODULES
from bot.features.importing.ansible.given import Given
from bot.features.importing.ansible.package_modules import PACKAGE_MODULES
from bot.features.importing.ansible.switch_modules import SWITCH_MODULES
from bot.features.importing.drafts import Draft, Origin, Unclear
from bot.features.importing.kinds import (
    changes,
    file_changes,
    file_lines,
    file_parts,
    file_sources,
    file_trees,
    trials,
)


def _carry_service(draft: Draft, origin: Origin, given: Given) -> None:
    name = given.take("name", "service", "unit")
    state, has_enabled = given.take("state"), given.has("enabled")
    enabled = given.take_flag("enabled")
    reload = given.take_flag("daemon_reload", "daemon-reload")
    has_mask, masked = given.has("masked"), given.take_flag("masked")
    given.refuse_unless("scope", "system")
    given.refuse_unless("use", "auto", "service", "systemd")
    given.refuse_rest()
    if state not in ("", "started", "stopped", "restarted", "reloaded"):
        raise Unclear(f"the state {state[:40]} is not read")
    if not (state or has_enabled or has_mask or reload) or not (name or reload):
        raise Unclear("it asks for no state of a service")
    if reload:
        changes.carry_daemon_reload(draft, origin, name, given.changed, is_asked=given.is_asked)
    # What is masked can neither be started nor disabled.
    if has_mask and not masked:
        changes.carry_mask(draft, origin, name, masked=False)
    running = {"started": True, "stopped": False}.get(state)
    if running is not None or (has_enabled and not (has_mask and masked)):
        at_boot = enabled if has_enabled and not (has_mask and masked) else None
        changes.carry_service(draft, origin, name, running=running, enabled=at_boot)
    if has_mask and masked:
        changes.carry_mask(draft, origin, name, masked=True)
    if state in ("restarted", "reloaded"):
        changes.carry_restart_after(draft, origin, state.removesuffix("ed"), name, given.changed)


def _carry_line(draft: Draft, origin: Origin, given: Given) -> None:
    path = given.take("path", "dest", "destfile", "name")
    line, pattern = given.take("line", "value"), given.take("regexp", "regex")
    place = _take_place(given)
    present = given.take_presence()
    create, only_replaces = given.take_flag("create"), given.take_flag("backrefs")
    attributes = given.take_attributes()
    given.refuse_rest()
    if only_replaces and ("\\" in line or not present or create or not pattern):
        raise Unclear("its line has parts of the one that it replaces")
    there = "replaced" if only_replaces else "created" if create else "there"
    wanted = there if present else "gone"
    file_lines.carry_line(
        draft, origin, path, line, pattern=pattern, wanted=wanted, place=place if present else None
    )
    if any(attributes.values()):
        file_changes.carry_attributes(draft, origin, path, attributes)


def _take_place(given: Given) -> tuple[Literal["after", "before"], str] | None:
    """Return after or before which line a new one is added, by its pattern; None at the end."""
    after, before = given.take("insertafter"), given.take("insertbefore")
    if after and before:
        raise Unclear("it has two places for the line")
    if "BOF" in (after, before):
        return ("before", "")
    if before:
        return ("before", before)
    return ("after", after) if after not in ("", "EOF") else None


def _carry_replace(draft: Draft, origin: Origin, given: Given) -> None:
    path = given.take("path", "dest", "destfile", "name")
    pattern, new = given.take("regexp"), given.take("replace")
    attributes = given.take_attributes()
    given.refuse_rest()
    file_lines.carry_replacement(draft, origin, path, pattern, new)
    if any(attributes.values()):
        file_changes.carry_attributes(draft, origin, path, attributes)


def _carry_fetched(draft: Draft, origin: Origin, given: Given) -> None:
    address, path = given.take("url"), given.take("dest")
    checksum, attributes = given.take("checksum"), given.take_attributes()
    is_forced = given.take_flag("force", "thirsty")
    given.take("timeout")
    given.refuse_unless("validate_certs", "true")
    given.refuse_rest()
    if is_forced and not checksum:
        raise Unclear("it fetches the file each time, whatever is in it")
    if path.endswith("/"):
        raise Unclear("the name of its file is known only in a run")
    file_sources.carry_fetched(draft, origin, address, path, checksum, attributes)


def _carry_alternative(draft: Draft, origin: Origin, given: Given) -> None:
    name, path = given.take("name"), given.take("path")
    given.refuse_unless("state", "selected")
    given.refuse_rest()
    folder = {"Debian": "/var/lib/dpkg/alternatives", "RedHat": "/var/lib/alternatives"}
    changes.carry_alternative(draft, origin, folder[given.facts["os_family"]], name, path)


def _carry_copy(draft: Draft, origin: Origin, given: Given) -> None:
    path, content, source = given.take("dest"), given.take("content"), given.take("src")
    attributes, of_host = given.take_attributes(), given.take_flag("remote_src")
    keeps = not given.take_flag("force", default=True)
    given.refuse_rest()
    if of_host and keeps:
        raise Unclear("it leaves a file that is there as it is, though it copies one of the host")
    if of_host and (not source or path.endswith("/") or source.endswith("/")):
        raise Unclear("it copies a directory, or into one")
    if of_host:
        file_sources.carry_copy(draft, origin, source, path, attributes)
        return
    if source:
        content = given.read_file("files", source)
        path = f"{path}{Path(source).name}" if path.endswith("/") else path
    file_changes.carry_content(draft, origin, path, content, attributes, keeps=keeps)


def _carry_template(draft: Draft, origin: Origin, given: Given) -> None:
    path, source = given.take("dest"), given.take("src")
    attributes, keeps = given.take_attributes(), not given.take_flag("force", default=True)
    lstrip = given.take_flag("lstrip_blocks")
    given.refuse_rest()
    content = given.fill(given.read_file("templates", source), lstrip=lstrip)
    # Ansible keeps the suffix too: lib/ansible/modules/copy.py, original_basename.
    path = f"{path}{Path(source).name}" if path.endswith("/") else path
    file_changes.carry_content(draft, origin, path, content, attributes, keeps=keeps)


def _carry_sysctl(draft: Draft, origin: Origin, given: Given) -> None:
    name, value = given.take("name", "key"), given.take("value", "val")
    file = given.take("sysctl_file", default="/etc/sysctl.conf")
    present, reload = given.take_presence(), given.take_flag("reload", default=True)
    given.take("sysctl_set")
    given.take("ignoreerrors")
    given.refuse_rest()
    if not (present and reload):
        raise Unclear("it leaves the kernel as it is")
    changes.carry_sysctl(draft, origin, name, value)
    pattern = f"^ *{re.escape(name)} *="
    line = f"{name}={value}"
    # Debian 13 has no such file at first.
    file_lines.carry_line(draft, origin, file, line, pattern=pattern, wanted="created")


def _carry_module(draft: Draft, origin: Origin, given: Given) -> None:
    name, present = given.take("name"), given.take_presence()
    at_boot = given.take("persistent", default="disabled")
    given.refuse_unless("params", "")
    given.refuse_rest()
    if at_boot not in ("disabled", "present") or (at_boot == "present" and not present):
        raise Unclear("it keeps a module from being loaded at boot, in any file")
    changes.carry_module(draft, origin, name, present=present)
    if at_boot == "present":
        file_parts.carry_module_file(draft, origin, name)


def _carry_file(draft: Draft, origin: Origin, given: Given) -> None:
    path = given.take("path", "dest", "name").rstrip("/") or "/"
    is_tree = given.take_flag("recurse")
    state = given.take("state", default="directory" if is_tree else "file")
    target, attributes = given.take("src"), given.take_attributes()
    if state == "link":
        given.take("force")
    for name in ("access_time", "modification_time") if state == "touch" else ():
        given.refuse_unless(name, "preserve")
    if is_tree:
        follows = given.take_flag("follow", default=True)
        given.refuse_rest()
        if state != "directory":
            raise Unclear("it sets all that is in what may be no directory")
        file_changes.carry_directory(draft, origin, path, {})
        file_trees.carry_tree(draft, origin, path, attributes, follows=follows)
        return
    given.refuse_rest()
    _carry_path(draft, origin, path, state, target, attributes)


def _carry_path(
    draft: Draft,
    origin: Origin,
    path: str,
    state: str,
    target: str,
    attributes: dict[str, str],
) -> None:
    match state:
        case "directory":
            # Of a directory, X is x.
            attributes["mode"] = attributes["mode"].replace("X", "x")
            file_changes.carry_directory(draft, origin, path, attributes)
        case "touch":
            file_changes.carry_file(draft, origin, path, attributes)
        case "absent":
            file_changes.carry_removal(draft, origin, path, whole=True)
        case "link" if not any(attributes.values()):
            file_changes.carry_link(draft, origin, path, target)
        case "file" if any(attributes.values()):
            file_changes.carry_attributes(draft, origin, path, attributes)
        case _:
            raise Unclear(f"the state {state[:40]} is not read")


def _carry_hostname(draft: Draft, origin: Origin, given: Given) -> None:
    name = given.take("name")
    given.refuse_unless("use", "")
    given.refuse_rest()
    changes.carry_hostname(draft, origin, name)


def _carry_timezone(draft: Draft, origin: Origin, given: Given) -> None:
    name = given.take("name")
    given.refuse_rest()
    changes.carry_timezone(draft, origin, name)


def _carry_block(draft: Draft, origin: Origin, given: Given) -> None:
    path = given.take("path", "dest", "destfile", "name")
    block = given.take("block", "content")
    marker = given.take("marker", default="# {mark} ANSIBLE MANAGED BLOCK")
    marks = [
        given.take(f"marker_{each.lower()}", default=each).join(marker.split("{mark}"))
        for each in ("BEGIN", "END")
    ]
    present, create = given.take_presence(), given.take_flag("create")
    attributes = given.take_attributes()
    place = _take_place(given)
    given.refuse_rest()
    if not present or not block:
        raise Unclear("it removes a block, whatever is in it")
    if marks[0] == marks[1] or "\n" in marker:
        raise Unclear("its markers are not two lines")
    lines = [marks[0], *block.removesuffix("\n").split("\n"), marks[1]]
    file_parts.carry_block(draft, origin, path, lines, attributes, create=create, place=place)


def _carry_cron(draft: Draft, origin: Origin, given: Given) -> None:
    name, file = given.take("name"), given.take("cron_file")
    user, command = given.take("user", default="" if file else "root"), given.take("job", "value")
    present, special = given.take_presence(), given.take("special_time")
    names = (("minute",), ("hour",), ("day", "dom"), ("month",), ("weekday", "dow"))
    times = [given.take(*each, default="*") for each in names]
    is_off = given.take_flag("disabled")
    given.refuse_rest()
    if not name or (file and not (user and present)):
        raise Unclear("it has no name, or is one of a file without a user or to remove")
    job = file_parts.make_job(user if file else "", command, special, times) if present else "-"
    job = f"#{job}" if is_off else job
    folder = {"Debian": "/var/spool/cron/crontabs", "RedHat": "/var/spool/cron"}
    path = f"{'/etc/cron.d' if file else folder[given.facts['os_family']]}/{file or user}"
    path = file if file.startswith("/") else path
    if path == "/etc/crontab":
        raise Unclear("Ansible does not change /etc/crontab either")
    file_parts.carry_job(draft, origin, path, "" if file else user, name, job, present=present)


MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "service": _carry_service,
    "systemd": _carry_service,
    "systemd_service": _carry_service,
    "lineinfile": _carry_line,
    "blockinfile": _carry_block,
    "cron": _carry_cron,
    "copy": _carry_copy,
    "template": _carry_template,
    "sysctl": _carry_sysctl,
    "replace": _carry_replace,
    "get_url": _carry_fetched,
    "alternatives": _carry_alternative,
    "modprobe": _carry_module,
    "file": _carry_file,
    "hostname": _carry_hostname,
    "timezone": _carry_timezone,
    **PACKAGE_MODULES,
    **ACCOUNT_MODULES,
    **FILE_MODULES,
    **SWITCH_MODULES,
}


def carry_module_steps(module: str, draft: Draft, origin: Origin, given: Given) -> None:
    """Add the steps of a task, which try first what they write if it says so. Raises Unclear."""
    first, validate = len(draft.steps), given.take("validate")
    MODULES[module](draft, origin, given)
    if validate:
        trials.carry_trial(draft, first, trials.read_trial(validate))
        trials.refuse_untried(draft, first)
