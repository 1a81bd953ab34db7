"""Modules of Ansible with a plain meaning, and their arguments.

Each argument has to be taken: a task with one that is not read has no plain meaning.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bot.features.importing import (
    changes,
    file_changes,
    file_lines,
    file_parts,
    file_sources,
)
from bot.features.importing.drafts import Draft, Origin, Unclear, show_marks
from bot.features.importing.sources import (
    Plain,
    SourceError,
    as_list,
    is_false,
    is_file_within,
    is_list,
    is_true,
    read_bytes,
)
from bot.features.importing.template_values import ROLE, Facts
from bot.features.importing.variables import find_folder

# How it is done, not what.
_NO_MEANING = frozenset(
    {"backup", "cache_valid_time", "update_cache_retries", "update_cache_retry_max_delay",
     "force_apt_get", "lock_timeout"}
)  # fmt: skip


_PATHS = frozenset({"path", "dest", "destfile"})


class Given:
    """The arguments of a module, each of which has to be taken."""

    def __init__(
        self,
        file: Path,
        given: Mapping[str, Any],
        fill: Callable[..., str],
        facts: Facts,
        changed: Sequence[str] = (),
        *,
        is_asked: bool = False,
    ) -> None:
        """changed: when the steps are needed after which it runs, if it runs only after some.

        is_asked: whether the draft asks which those are.
        """
        self._file, self.fill, self.facts = file, fill, facts
        self.changed, self.is_asked = changed, is_asked
        self._given = {key: value for key, value in given.items() if key not in _NO_MEANING}

    def take(self, *names: str, default: str = "") -> str:
        """Return an argument as text, by the first of its names. Raises Unclear."""
        for name in names:
            if name in self._given:
                text = _read_text(name, self._given.pop(name))
                return re.sub("//+", "/", text) if name in _PATHS else text
        return default

    def take_flag(self, *names: str, default: bool = False) -> bool:
        """Return an argument that is yes or no. Raises Unclear for any other text."""
        value = self.take(*names)
        if value and not (is_true(value) or is_false(value)):
            raise Unclear(f"its {names[0]} is {value[:40]}, which is neither yes nor no")
        return is_true(value) if value else default

    def take_presence(self) -> bool:
        """Return whether the state is present, and not absent. Raises Unclear."""
        state = self.take("state", default="present")
        if state not in ("present", "absent"):
            raise Unclear(f"the state {state[:40]} is not read")
        return state == "present"

    def take_list(self, *names: str) -> list[str]:
        for name in names:
            value = self._given.pop(name, None)
            if is_list(value):
                return [_read_text(name, each) for each in as_list(value)]
            if value is not None:
                return [one.strip() for one in _read_text(name, value).split(",")]
        return []

    def has(self, name: str) -> bool:
        return name in self._given

    def take_attributes(self) -> dict[str, str]:
        return {name: self.take(name) for name in ("mode", "owner", "group")}

    def read_file(self, folder: str, name: str) -> str:
        """Return the content of a file beside the playbook, or of its role. Raises Unclear."""
        place, role = self._file.absolute().parent, find_folder(self._file)
        if name.startswith(f"{ROLE}/"):
            name, folder, place = name.removeprefix(f"{ROLE}/"), ".", role
        if not name or name.startswith("/") or ".." in Path(name).parts or "\x01" in name:
            raise Unclear(f"its source {show_marks(name)[:80]!r} is no file beside the playbook")
        for file in (role / folder / name, role / name, place / folder / name, place / name):
            if is_file_within(file, role):
                try:
                    return read_bytes(file).decode()
                except (UnicodeDecodeError, SourceError):
                    raise Unclear(f"{name} is no small file of text") from None
        raise Unclear(f"its source {name[:80]} is not beside the playbook")

    def refuse_unless(self, name: str, *plain: str) -> None:
        """Take an argument that has to be as it is without it, or alike. Raises Unclear."""
        value = self.take(name, default=plain[0])
        if value not in plain and value.lower() not in plain:
            raise Unclear(f"its argument {name} is not read")

    def refuse_rest(self) -> None:
        if "validate" in self._given:
            raise Unclear("it tries the file before it is used, which a step cannot")
        if self._given:
            raise Unclear(f"its argument {next(iter(self._given))} is not read")


def _read_text(name: str, value: object) -> str:
    """Return an argument as the text that Ansible takes it for. Raises Unclear."""
    # A mode without quotation marks is octal to Ansible too.
    if isinstance(value, Plain) and name != "mode":
        value = value.read()
    if not isinstance(value, str | int):
        raise Unclear(f"{name} is not one value")
    return str(value)


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
    file_lines.carry_line(draft, origin, file, f"{name}={value}", pattern=pattern)


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
    state = given.take("state", default="file")
    target, attributes = given.take("src"), given.take_attributes()
    if state == "link":
        given.take("force")
    for name in ("access_time", "modification_time") if state == "touch" else ():
        given.refuse_unless(name, "preserve")
    given.refuse_rest()
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


def _make_package_carrier(manager: str) -> Callable[[Draft, Origin, Given], None]:
    def carry(draft: Draft, origin: Origin, given: Given) -> None:
        names = given.take_list("name", "pkg", "package")
        state = given.take("state", default="present")
        purge = manager == "apt-get" and given.take_flag("purge")
        given.take("update_cache", "update-cache")
        # It has a meaning for versions alone, which no name of a package has here.
        given.take_flag("allow_downgrade")
        options = _take_options(given) if manager == "apt-get" else []
        given.refuse_rest()
        if not names:
            raise Unclear("it updates lists of packages, which leaves no state")
        if state not in ("present", "installed", "absent", "removed"):
            raise Unclear(f"the state {state} depends on what there is to install")
        for name in names:
            present = state in ("present", "installed")
            changes.carry_package(
                draft,
                origin,
                name,
                manager,
                present=present,
                purge=purge and not present,
                options=options if present else [],
            )

    return carry


def _take_options(given: Given) -> list[str]:
    """Return options of apt-get install. Raises Unclear."""
    options: list[str] = []
    if given.has("install_recommends"):
        no = "" if given.take_flag("install_recommends") else "no-"
        options.append(f"--{no}install-recommends")
    release = given.take("default_release", "default-release")
    if release:
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9.+~-]*", release):
            raise Unclear(f"the release {show_marks(release)[:40]!r} is not read")
        options += ["-t", release]
    return options


def _carry_any_package(draft: Draft, origin: Origin, given: Given) -> None:
    if given.take("use", default="auto") != "auto":
        raise Unclear("its argument use is not read")
    manager = str(given.facts["pkg_mgr"])
    _make_package_carrier({"apt": "apt-get"}.get(manager, manager))(draft, origin, given)


def _carry_user(draft: Draft, origin: Origin, given: Given) -> None:
    name, present = given.take("name", "user"), given.take_presence()
    fields = {field: given.take(field) for field in ("uid", "comment", "home", "shell")}
    group, groups = given.take("group"), given.take_list("groups")
    append = given.take_flag("append")
    given.refuse_unless("generate_ssh_key", "false")
    has_home = given.take_flag("create_home", "createhome", default=True)
    is_system, whole = given.take_flag("system"), given.take_flag("remove")
    given.refuse_rest()
    if not present:
        options = ["-r"] if whole else []
        changes.carry_account(draft, origin, "passwd", name, present=False, options=options)
        return
    if groups and not append:
        raise Unclear("it takes the user out of all other groups")
    options = ["-m" if has_home else "-M", *(["-r"] if is_system else [])]
    options += ["-g", group] if group else []
    for field, value in fields.items():
        options += [changes.ACCOUNT_FIELDS[field][1], value] if value else []
    changes.carry_account(draft, origin, "passwd", name, options=options)
    for field, value in fields.items():
        if value:
            changes.carry_account_field(draft, origin, name, field, value)
    if group:
        changes.carry_first_group(draft, origin, name, group)
    for each in groups:
        changes.carry_membership(draft, origin, name, each)


def _carry_group(draft: Draft, origin: Origin, given: Given) -> None:
    name, present, is_system = given.take("name"), given.take_presence(), given.take_flag("system")
    number = given.take("gid") if present else ""
    given.refuse_rest()
    options = [*(["-r"] if is_system and present else []), *(["-g", number] if number else [])]
    changes.carry_account(draft, origin, "group", name, present=present, options=options)
    if number:
        changes.carry_group_number(draft, origin, name, number)


def _carry_hostname(draft: Draft, origin: Origin, given: Given) -> None:
    name = given.take("name")
    given.refuse_unless("use", "")
    given.refuse_rest()
    changes.carry_hostname(draft, origin, name)


def _carry_timezone(draft: Draft, origin: Origin, given: Given) -> None:
    name = given.take("name")
    given.refuse_rest()
    changes.carry_timezone(draft, origin, name)


def _carry_key(draft: Draft, origin: Origin, given: Given) -> None:
    user, path, key = given.take("user"), given.take("path"), given.take("key").strip()
    present = given.take_presence()
    manages = given.take_flag("manage_dir", default=True)
    given.refuse_rest()
    if not path:
        raise Unclear(
            f"it is not known where the keys of {show_marks(user)[:40]} are: give `path`"
        )
    if manages:
        raise Unclear("it sets the owner and the mode of the directory too")
    if not re.fullmatch(r"(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=* [A-Za-z0-9@._-]+", key):
        raise Unclear("its key is not one key with a comment and without options")
    if not present:
        raise Unclear("without this key, someone may be locked out of the host")
    file_lines.carry_line(draft, origin, path, key)


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
    given.refuse_unless("insertafter", "EOF")
    given.refuse_rest()
    if not present or not block:
        raise Unclear("it removes a block, whatever is in it")
    if marks[0] == marks[1] or "\n" in marker:
        raise Unclear("its markers are not two lines")
    lines = [marks[0], *block.removesuffix("\n").split("\n"), marks[1]]
    file_parts.carry_block(draft, origin, path, lines, attributes, create=create)


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


def _carry_repository(draft: Draft, origin: Origin, given: Given) -> None:
    source, file = " ".join(given.take("repo").split()), given.take("filename")
    reads = given.take_flag("update_cache", "update-cache", default=True)
    present, mode = given.take_presence(), given.take("mode")
    given.refuse_rest()
    if not present or not re.fullmatch(r"deb(-src)? (\[[^]#]+\] )?[a-z]+://[^ #]+ [^#]+", source):
        raise Unclear("it is not one line of a source that is to be there")
    # As its _suggest_filename does.
    place = re.sub(r"\w+://", "", re.sub(r"\[[^\]]+\]", "", source)).split()[1].partition("@")
    file = file or "_".join(re.findall("[a-zA-Z0-9]+", place[2] or place[0]))
    path = f"/etc/apt/sources.list.d/{file}.list"
    before = len(draft.steps)
    file_parts.carry_source(draft, origin, path, source)
    new = [step["when"] for _, _, step in draft.steps[before:]]
    if mode:
        file_changes.carry_attributes(draft, origin, path, {"mode": mode})
    if reads:
        file_parts.carry_update(draft, origin, draft.join_any(new))


MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "service": _carry_service,
    "systemd": _carry_service,
    "systemd_service": _carry_service,
    "lineinfile": _carry_line,
    "blockinfile": _carry_block,
    "cron": _carry_cron,
    "apt_repository": _carry_repository,
    "copy": _carry_copy,
    "template": _carry_template,
    "sysctl": _carry_sysctl,
    "replace": _carry_replace,
    "get_url": _carry_fetched,
    "alternatives": _carry_alternative,
    "modprobe": _carry_module,
    "file": _carry_file,
    "apt": _make_package_carrier("apt-get"),
    "yum": _make_package_carrier("yum"),
    "dnf": _make_package_carrier("dnf"),
    "package": _carry_any_package,
    "user": _carry_user,
    "group": _carry_group,
    "hostname": _carry_hostname,
    "timezone": _carry_timezone,
    "authorized_key": _carry_key,
}
