"""Modules of Ansible for packages and their sources."""

import re
from collections.abc import Callable, Mapping

from bot.features.importing.ansible.given import Given
from bot.features.importing.drafts import Draft, Origin, Unclear, show_marks
from bot.features.importing.kinds import (
    file_changes,
    file_parts,
    packages,
    python_packages,
)

# Of a task that is made of another one: the packages before which lists are read.
LISTS_FOR = "lists_for"
NAMES = ("name", "pkg", "package")
APT = "apt-get"


def _make_package_carrier(manager: str) -> Callable[[Draft, Origin, Given], None]:
    return lambda draft, origin, given: _carry_packages(draft, origin, given, manager)


def _carry_packages(draft: Draft, origin: Origin, given: Given, manager: str) -> None:
    if manager == APT:
        _carry_debian(draft, origin, given)
        return
    names, state = (
        given.take_list("name", "pkg", "package"),
        given.take("state", default="present"),
    )
    # It has a meaning for versions alone, which no name of a package has here.
    given.take_flag("allow_downgrade")
    if given.take_flag("update_cache", "update-cache"):
        given.notes.append(f"{manager} reads its lists by itself, where they have expired")
    given.refuse_rest()
    if not names:
        raise Unclear("it updates lists of packages, which leaves no state")
    for name in names:
        present = _is_present(state)
        packages.carry_package(draft, origin, name, manager, present=present)


def _is_present(state: str) -> bool:
    if state not in ("present", "installed", "absent", "removed"):
        raise Unclear(f"the state {state[:40]} depends on what there is to install")
    return state in ("present", "installed")


def _carry_debian(draft: Draft, origin: Origin, given: Given) -> None:
    if given.has("update_cache"):
        _carry_lists(draft, origin, given)
        return
    names, state = given.take_list(*NAMES), given.take("state", default="present")
    is_all = names == ["*"] and state == "latest"
    if is_all or not names:
        _carry_whole(draft, origin, given, "yes" if is_all else "no")
        return
    purge, only_upgrade = given.take_flag("purge"), given.take_flag("only_upgrade")
    given.take("force_apt_get")
    options = _take_options(given)
    for other in ("autoremove", "autoclean", "upgrade"):
        given.refuse_unless(other, "no", "false")
    given.refuse_rest()
    if only_upgrade and state != "latest":
        raise Unclear("it only upgrades, to no version that is known")
    for name in names:
        if state == "latest":
            packages.carry_newest(draft, origin, name, options, only_upgrade=only_upgrade)
        elif _is_present(state):
            packages.carry_package(draft, origin, name, APT, present=True, options=options)
        else:
            packages.carry_package(draft, origin, name, APT, present=False, purge=purge)


def _carry_lists(draft: Draft, origin: Origin, given: Given) -> None:
    """Read lists of packages again, for themselves or before packages are installed."""
    given.take("update_cache")
    names, seconds = given.take_list(LISTS_FOR), given.take("cache_valid_time")
    given.refuse_rest()
    if given.changed:
        packages.carry_update(draft, origin, draft.join_any(given.changed))
        return
    if not re.fullmatch("[0-9]{1,9}", seconds):
        raise Unclear(f"its cache_valid_time {show_marks(seconds)[:40]!r} is no number of seconds")
    if not int(seconds):
        given.notes.append(
            "Ansible reads lists each time; the step if they are older than an hour"
        )
    if names:
        given.notes.append("lists are read only where one of these packages is missing")
    packages.carry_old_lists(draft, origin, int(seconds) or packages.HOUR, names)


def _carry_whole(draft: Draft, origin: Origin, given: Given, upgrade: str) -> None:
    """Upgrade all packages, or remove those that are not needed any more, or old files."""
    upgrade = given.take("upgrade", default=upgrade).lower()
    removes, cleans = given.take_flag("autoremove"), given.take_flag("autoclean")
    purge, is_apt_get = given.take_flag("purge"), given.take_flag("force_apt_get")
    options = _take_options(given)
    given.refuse_rest()
    if upgrade in ("no", "false"):
        # Ansible ends after autoclean.
        if cleans or not removes:
            raise Unclear(
                "it names no package; which old files of them there are, only root reads"
            )
        words = [*(["--purge"] if purge else []), "autoremove"]
    elif upgrade in ("yes", "true", "safe", "dist", "full"):
        is_dist = upgrade in ("dist", "full")
        words = ["dist-upgrade"] if is_dist else ["--with-new-pkgs", "upgrade"]
        words = [*(["--auto-remove"] if removes else []), *words]
        if upgrade != "dist" and not is_apt_get:
            given.notes.append("Ansible takes aptitude instead of apt-get where there is one")
    else:
        raise Unclear(f"its upgrade {show_marks(upgrade)[:40]!r} is not read")
    packages.carry_simulated(draft, origin, words, options)


def _take_options(given: Given) -> list[str]:
    """Return options of apt-get install. Raises Unclear."""
    options: list[str] = []
    for one in given.take("dpkg_options", default="force-confdef,force-confold").split(","):
        if not re.fullmatch("force-conf(def|old|new|miss)", one.strip()):
            raise Unclear(f"the option {show_marks(one)[:40]!r} of dpkg is not read")
        options += ["-o", f"Dpkg::Options::=--{one.strip()}"]
    if given.take_flag("allow_downgrade"):
        options.append("--allow-downgrades")
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
        packages.carry_update(draft, origin, draft.join_any(new))


# In the order in which the module writes them, as lib/ansible/modules/deb822_repository.py.
_LISTS = ("architectures", "components", "languages", "suites", "targets", "types", "uris")
_FLAGS = ("allow_downgrade_to_insecure", "allow_insecure", "allow_weak", "by_hash", "check_date",
          "check_valid_until", "enabled", "pdiffs", "trusted")  # fmt: skip


def _carry_deb822(draft: Draft, origin: Origin, given: Given) -> None:
    name, present = given.take("name"), given.take_presence()
    key, mode = given.take("signed_by"), given.take("mode", default="0644")
    given.take("install_python_debian")
    fields = {"name": name, "signed_by": key, "types": "deb"}
    fields |= {one: " ".join(given.take_list(one)) for one in _LISTS if given.has(one)}
    fields |= {one: "yes" if given.take_flag(one) else "no" for one in _FLAGS if given.has(one)}
    given.refuse_rest()
    # As the module makes it of the name.
    slug = re.sub("[^a-z0-9-]+", "", re.sub(r"[_\s]+", "-", name.lower()))
    if not present or not slug or "\x01" in name:
        raise Unclear("it is no source with a plain name that is to be there")
    if not re.fullmatch("/[A-Za-z0-9_./+-]+", key or "/x") or ".." in key:
        raise Unclear("its key is fetched in each run, or is a part of the source")
    if any("\n" in text for text in fields.values()):
        raise Unclear("one of its fields has several lines")
    odd = {"name": "X-Repolib-Name", "uris": "URIs"}
    lines = [
        f"{odd.get(one, one.replace('_', '-').title())}: {fields[one]}\n"
        for one in sorted(fields)
        if fields[one]
    ]
    path = f"/etc/apt/sources.list.d/{slug}.sources"
    file_changes.carry_content(draft, origin, path, "".join(lines), {"mode": mode})


def _carry_selection(draft: Draft, origin: Origin, given: Given) -> None:
    name, selection = given.take("name"), given.take("selection")
    given.refuse_rest()
    if selection not in ("hold", "install"):
        raise Unclear("dpkg would remove the package by it at another time")
    packages.carry_hold(draft, origin, name, held=selection == "hold")


def _carry_pip(draft: Draft, origin: Origin, given: Given) -> None:
    names, version = given.take_list("name"), given.take("version")
    folder, program = given.take("virtualenv").rstrip("/"), given.take("executable")
    command = given.take("virtualenv_command", default="virtualenv")
    flags = given.take("extra_args").split()
    flags += ["--break-system-packages"] if given.take_flag("break_system_packages") else []
    given.refuse_unless("state", "present")
    given.refuse_rest()
    make = {"virtualenv": "virtualenv", "/usr/bin/virtualenv": "virtualenv"}.get(command, "")
    make = "venv" if re.fullmatch("(/usr/bin/)?python3 -m venv", command) else make
    if folder and not make:
        raise Unclear(f"{show_marks(command)[:60]!r} makes its environment")
    if not folder and (found := re.fullmatch("(/.+)/bin/pip3?", program)) and found[1] != "/usr":
        folder, make, program = found[1], "", "pip3"
    program = program.removeprefix("/usr/bin/") or "pip3"
    if program not in ("pip", "pip3") or {*flags} - {"--break-system-packages", "--no-cache-dir"}:
        raise Unclear("its program or its arguments are not read")
    if not folder and given.facts["os_family"] != "Debian":
        raise Unclear("a host with several Pythons has packages of each: name an environment")
    if version and len(names) != 1:
        raise Unclear("it has one version for several packages")
    if not names or "\x01" in folder:
        raise Unclear("it names no package, or its environment is a value of the request")
    place = python_packages.Environment(folder, make, program, flags)
    for name in names:
        text = f"{name}=={version}" if version else name
        python_packages.carry_package(draft, origin, text, place)


# Of yum_repository, as lib/ansible/modules/yum_repository.py writes them. None is a secret.
_YUM_TEXTS = ("cost", "metadata_expire", "metalink", "mirrorlist", "priority", "proxy", "retries",
              "sslcacert", "sslclientcert", "sslclientkey", "timeout")  # fmt: skip
_YUM_FLAGS = ("countme", "enabled", "enablegroups", "gpgcheck", "module_hotfixes",
              "repo_gpgcheck", "skip_if_unavailable", "sslverify")  # fmt: skip
_YUM_LISTS = {"baseurl": "\n\t", "gpgkey": "\n\t", "exclude": " ", "includepkgs": " "}


def _carry_yum_repository(draft: Draft, origin: Origin, given: Given) -> None:
    section, text, present = given.take("name"), given.take("description"), given.take_presence()
    path = f"/etc/yum.repos.d/{given.take('file') or section}.repo"
    attributes = given.take_attributes()
    fields = {one: given.take(one) for one in _YUM_TEXTS if given.has(one)}
    fields |= {one: str(int(given.take_flag(one))) for one in _YUM_FLAGS if given.has(one)}
    fields |= {one: _YUM_LISTS[one].join(given.take_list(one)) for one in _YUM_LISTS
               if given.has(one)}  # fmt: skip
    given.refuse_rest()
    fields["name"] = text
    if not present or not text or not re.fullmatch("[A-Za-z0-9_.:-]+", section):
        raise Unclear("it is no source with a plain name that is to be there")
    if any("\n" in fields[one] for one in fields.keys() - _YUM_LISTS.keys()):
        raise Unclear("one of its fields has several lines")
    lines = [f"{one} = {fields[one]}\n" for one in sorted(fields)]
    # What other sections there are would be lost.
    run = ["/usr/bin/grep", "-o", "^\\[.*\\]", "--", path]
    reading = {"run": run, "root": True, "statuses": [0, 1, 2], "as": "lines"}
    found = draft.add_reading(f"sections_{path}", {**reading, "pattern": "(?P<line>.*)"})
    because = f"{path} has other sources too: remove them, or write it by hand"
    other = f'{found}.exists(row, row.line != "[{section}]")'
    draft.refuse.append({"when": other, "because": because})
    content = "".join((f"[{section}]\n", *lines, "\n"))
    file_changes.carry_content(draft, origin, path, content, attributes)
    given.notes.append("the file has to be as Ansible writes it, and not only to mean the same")


PACKAGE_MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "apt": _make_package_carrier("apt-get"),
    "yum": _make_package_carrier("yum"),
    "dnf": _make_package_carrier("dnf"),
    "package": _carry_any_package,
    "apt_repository": _carry_repository,
    "pip": _carry_pip,
    "dpkg_selections": _carry_selection,
    "yum_repository": _carry_yum_repository,
    "deb822_repository": _carry_deb822,
}
