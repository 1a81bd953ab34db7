"""Modules of Ansible for packages and their sources."""

import re
from collections.abc import Callable, Mapping

from bot.features.importing import file_changes, file_parts, packages
from bot.features.importing.ansible_given import Given
from bot.features.importing.drafts import Draft, Origin, Unclear, show_marks


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
            packages.carry_package(
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


PACKAGE_MODULES: Mapping[str, Callable[[Draft, Origin, Given], None]] = {
    "apt": _make_package_carrier("apt-get"),
    "yum": _make_package_carrier("yum"),
    "dnf": _make_package_carrier("dnf"),
    "package": _carry_any_package,
    "apt_repository": _carry_repository,
}
