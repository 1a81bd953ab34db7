"""Modules of Ansible for archives, clones, mounts and options of files."""

from collections.abc import Callable, Mapping

from bot.features.importing.ansible.given import Given
from bot.features.importing.drafts import Draft, Origin, Unclear
from bot.features.importing.kinds import (
    file_archives,
    file_changes,
    file_mounts,
    file_options,
)
from bot.features.importing.kinds.file_mounts import Mount


def _carry_archive(draft: Draft, origin: Origin, given: Given) -> None:
    source, path, creates = given.take("src"), given.take("dest"), given.take("creates")
    of_host = given.take_flag("remote_src") or not given.take_flag("copy", default=True)
    mode, owner, group = (given.take(name) for name in ("mode", "owner", "group"))
    options = given.take_list("extra_opts")
    # Such as two words for one option.
    options = [word for one in options for word in one.split()]
    for at, one in enumerate(options[:-1]):
        if one in ("--strip-components", "--strip"):
            options[at : at + 2] = [f"{one}={options[at + 1]}"]
    options += [f"--exclude={one}" for one in given.take_list("exclude")]
    options += given.take_list("include")
    given.take("list_files")
    given.refuse_unless("validate_certs", "true")
    given.refuse_rest()
    if not of_host and "://" not in source:
        raise Unclear("its archive is where Ansible runs: give the hosts its address")
    need = draft.join_any(given.changed) if given.changed else " && ".join(given.shown)
    if not creates and not need:
        raise Unclear("nothing shows whether it is unpacked already: name a file by `creates`")
    attributes = (mode, owner, group)
    file_archives.carry_archive(draft, origin, source, path, options, attributes, (creates, need))


def _carry_clone(draft: Draft, origin: Origin, given: Given) -> None:
    repository, path = given.take("repo", "name"), given.take("dest")
    version, depth = given.take("version", default="HEAD"), given.take("depth")
    updates = given.take_flag("update", default=True)
    single = ["--single-branch"] if given.take_flag("single_branch") else []
    is_accepted = given.take_flag("accept_hostkey") or given.take_flag("accept_newhostkey")
    # Of a clone that is there already.
    is_forced = given.take_flag("force")
    given.take("track_submodules")
    given.refuse_unless("remote", "origin")
    for name in ("clone", "recursive"):
        given.refuse_unless(name, "yes", "true")
    given.refuse_rest()
    if is_accepted and not repository.startswith(("https:", "http:", "git:")):
        raise Unclear("it takes the key of any host for the right one")
    if depth and not depth.isdecimal():
        raise Unclear(f"its depth {depth[:40]} is not a number")
    options = [*([f"--depth={depth}"] if depth else []), *single]
    whole = ["--recurse-submodules"]
    version = "" if version == "HEAD" else version
    if len(version) == 40 and (options or is_forced):
        raise Unclear("it has a depth for one commit, or writes over what was changed since")
    options += whole
    file_archives.carry_clone(draft, origin, repository, path, version, options, updates=updates)


def _carry_mount(draft: Draft, origin: Origin, given: Given) -> None:
    path, source = given.take("path", "name").rstrip("/") or "/", given.take("src")
    kind, state = given.take("fstype"), given.take("state")
    options = given.take("opts", default="defaults") or "defaults"
    dump, order = given.take("dump", default="0"), given.take("passno", default="0")
    given.refuse_unless("fstab", "/etc/fstab")
    given.refuse_unless("boot", "true", "yes")
    given.refuse_rest()
    if state == "unmounted":
        file_mounts.carry_unmounted(draft, origin, path)
        return
    if state not in ("present", "mounted"):
        raise Unclear(f"the state {state[:40]} is not read")
    # Ansible names swap by its source only where it is at no place.
    if kind == "swap" and path not in ("none", "/none"):
        raise Unclear("it is swap that is at a place")
    mount = Mount(source, "none" if kind == "swap" else path, kind, options, dump, order)
    file_mounts.carry_mount(draft, origin, mount, now=state == "mounted")


def _carry_option(draft: Draft, origin: Origin, given: Given) -> None:
    path, section = given.take("path", "dest"), given.take("section")
    option, value = given.take("option"), given.take("value")
    present, create = given.take_presence(), given.take_flag("create", default=True)
    sign = "=" if given.take_flag("no_extra_spaces") else " = "
    attributes = given.take_attributes()
    for name, plain in (("exclusive", "true"), ("modify_inactive_option", "true"),
                        ("ignore_spaces", "false"), ("allow_no_value", "false")):  # fmt: skip
        given.refuse_unless(name, plain, {"true": "yes", "false": "no"}[plain])
    given.refuse_rest()
    if not present:
        raise Unclear("it takes an option away, whatever it is")
    file_options.carry_option(
        draft, origin, path, (section, option), value, sign=sign, create=create
    )
    if any(attributes.values()):
        file_changes.carry_attributes(draft, origin, path, attributes)


FILE_MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "unarchive": _carry_archive,
    "git": _carry_clone,
    "mount": _carry_mount,
    "ini_file": _carry_option,
}
