"""Changes of packages: state, command and undo."""

import re
from collections.abc import Sequence

from bot.features.importing.drafts import Draft, NextPage, Origin, Unclear, run_as_root
from bot.features.importing.kinds.switches import add_switch

# apt-get install NAME- removes that package.
_PACKAGE = re.compile("[A-Za-z0-9]([A-Za-z0-9.+:_-]{0,99}[A-Za-z0-9.+:_])?")
# Without which no one logs in or becomes root.
_OF_ACCESS = frozenset(
    """
    openssh-server openssh ssh sudo bash dash login passwd util-linux systemd systemd-sysv udev
    libpam-modules libpam-runtime libpam-systemd libc6 glibc pam netplan.io ifupdown
    network-manager NetworkManager networkd-dispatcher isc-dhcp-client dhcpcd dhcpcd-base sssd
    """.split()  # noqa: SIM905 - so many names are easier to read this way
)
_VERSION = re.compile("[A-Za-z0-9][A-Za-z0-9.+:~_-]*")
_PATIENCE, _MOST_PATIENCE = 900, 3600
# What steps set, as they claim it.
_LISTS, _ALL, _PACKAGE_CLAIM = "the lists of packages", "the packages of the host", "the package "
_SOURCES = "/etc/apt/"
# When the lists of packages were read: as Ansible finds it in lib/ansible/modules/apt.py.
_STAMPS = ("/var/lib/apt/periodic/update-success-stamp", "/var/lib/apt/lists")
HOUR = 3600
# A source that gives nothing is an error, as it is to Ansible. Debian notes nowhere that lists
# which have not changed were read.
_UPDATE = f"apt-get -o APT::Update::Error-Mode=any update && touch -c -- {' '.join(_STAMPS)}"
# Lines of `apt-get -s`: Inst NAME [OLD] (NEW …), Remv NAME [OLD].
_SIMULATED = (
    r"(Inst (?P<new>\S+) (\[(?P<old>[^\] ]+)\] )?\((?P<version>\S+) .*"
    r"|(Remv|Purg) (?P<gone>\S+) .*|.*)"
)
# lib NAME:, then two lines whose words are in the language of the login.
_POLICY = r"(?s:\S+:\n  [^:\n]+: (?P<installed>\S+)\n  [^:\n]+: (?P<candidate>\S+)(\n.*)?)?"


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

    name: of Debian, also with a version, as NAME=VERSION. purge: of Debian: remove its
    configuration too, also where only that is left. options: with which it is installed.
    """
    if "=" in name and manager == "apt-get" and present:
        _carry_version(draft, origin, name, options)
        return
    if not present and (name in _OF_ACCESS or "\x01" in name):
        raise Unclear("access to a host may depend on the package that it removes")
    is_there, found = _read_package(draft, name, manager)
    word, shown = draft.word(name), draft.text(name)
    if purge:
        is_left = f'{is_there} || {found} == "config-files"'
        is_there = draft.add_state(f"has_{name}", is_left)
    draft.current.append(f"{shown} is {{{is_there} ? 'installed' : 'not installed'}}")
    install = _install(manager, word, options)
    remove = _remove(manager, word, ["--purge"] if purge else [])
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


def _install(manager: str, word: str, options: Sequence[str]) -> dict[str, object]:
    run = run_as_root(f"/usr/bin/{manager}", "-y", *options, "install", word)
    return {**run, "seconds": _PATIENCE}


def _remove(manager: str, word: str, options: Sequence[str] = ()) -> dict[str, object]:
    run = run_as_root(f"/usr/bin/{manager}", "-y", *options, "remove", word)
    return {**run, "seconds": _PATIENCE}


def _read_package(draft: Draft, name: str, manager: str) -> tuple[str, str]:
    """Return the state of whether a package is installed, and the reading behind it."""
    draft.check_value(name, _PACKAGE.pattern, "the name of one package")
    word = draft.word(name)
    if manager == "apt-get":
        run = ["dpkg-query", "-W", "-f=${db:Status-Status}", word]
        is_there = '{0} == "installed"'
    else:
        run = ["rpm", "-q", word]
        start = draft.expression(f"{name}-")
        is_there = f'!{{0}}.contains(" is not installed") && {{0}}.startsWith({start})'
    reading = {"run": run, "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"package_{name}", reading)
    return draft.add_state(f"has_{name}", is_there.format(found)), found


def _read_version(draft: Draft, name: str, version: str) -> tuple[str, str]:
    """Return the reading of a package's version, and when it is another one or not installed."""
    draft.check_value(name, _PACKAGE.pattern, "the name of one package")
    draft.check_value(version, _VERSION.pattern, "one version of a package")
    run = ["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", draft.word(name)]
    reading = {"run": run, "statuses": [0, 1], "as": "text"}
    found = draft.add_reading(f"version_{name}", reading)
    return found, f"{found} != {draft.expression(f'installed {version}')}"


def _carry_version(draft: Draft, origin: Origin, pair: str, options: Sequence[str]) -> None:
    """Install a package in one version, also in place of another one, as apt-get allows it."""
    name, _, version = pair.partition("=")
    found, is_other = _read_version(draft, name, version)
    shown = draft.text(name)
    draft.current.append(f"{shown} is {{{found} == '' ? 'not installed' : {found}}}")
    is_there = f'{found}.startsWith("installed ")'
    _add_versions(
        draft,
        origin,
        (name, draft.word(pair), draft.text(version)),
        (f"!{is_there}", f"{is_there} && {is_other}", found),
        options,
    )


def carry_hold(draft: Draft, origin: Origin, name: str, *, held: bool) -> None:
    """Have apt-get leave a package of Debian as it is, or not."""
    draft.check_value(name, _PACKAGE.pattern, "the name of one package")
    word, shown = draft.word(name), draft.text(name)
    reading = {"run": ["dpkg-query", "-W", "-f=${db:Status-Want}", word], "statuses": [0, 1]}
    found = draft.add_reading(f"wanted_{name}", {**reading, "as": "text"})
    draft.current.append(f"{shown} is {{{found} == 'hold' ? 'held' : 'not held'}}")
    because = f"{shown} is not installed, so it cannot be held or upgraded"
    draft.refuse.append({"when": f'!({found} in ["hold", "install"])', "because": because})
    hold, unhold = (run_as_root("/usr/bin/apt-mark", verb, word) for verb in ("hold", "unhold"))
    add_switch(
        draft,
        origin,
        f"package {name}",
        f'{found} == "hold"',
        (hold, unhold),
        wanted=held,
        words=("Hold", "Release", "held", "not held"),
    )


def carry_newest(
    draft: Draft, origin: Origin, name: str, options: Sequence[str], *, only_upgrade: bool
) -> None:
    """Install a package of Debian in the newest version that the host's lists have.

    only_upgrade: not if it is not installed at all. Raises NextPage.
    """
    draft.check_value(name, _PACKAGE.pattern, "the name of one package")
    if "\x01" in name:
        raise Unclear("its package is a value of the request, and its version one of the host")
    if "-t" in options:
        raise Unclear("it takes the newest version of one release")
    if draft.list_claims(_LISTS):
        raise NextPage
    because = f"the lists of packages have no {name}: is its source there, and were they read?"
    reading = {
        "run": ["apt-cache", "policy", name],
        "as": "match",
        "pattern": _POLICY,
    }
    found = draft.add_reading(f"versions_{name}", reading)
    draft.read[found]["refuse"] = [
        {"when": f'{found}.candidate == null || {found}.candidate == "(none)"', "because": because}
    ]
    state = {"value": f"{found}.candidate", "pattern": _VERSION.pattern}
    newest = draft.add_state(f"newest_{name}", state)
    draft.current.append(f"{name} is {{{found}.installed}}")
    missing = f'{found}.installed.startsWith("(")'
    _add_versions(
        draft,
        origin,
        (name, f"{name}={{{newest}}}", f"{{{newest}}}"),
        (
            "" if only_upgrade else missing,
            f"!{missing} && {found}.installed != {newest}",
            f"{found}.installed",
        ),
        options,
    )


def _add_versions(
    draft: Draft,
    origin: Origin,
    wanted: tuple[str, str, str],
    needs: tuple[str, str, str],
    options: Sequence[str],
) -> None:
    """Add the steps that install a package in one version, or instead of another one.

    wanted: the package, it with its version as a word, and the version. needs: when it is missing
    ("" if that asks for nothing), when it has another version, and the reading of that.
    """
    name, word, version = wanted
    missing, is_other, old = needs
    shown, install = draft.text(name), _install("apt-get", word, options)
    draft.claim(f"the package {name}", "there")
    if missing:
        draft.add_step(
            origin,
            {
                "title": f"Install the package {shown} {version}",
                "when": missing,
                "do": install,
                "undo": _remove("apt-get", draft.word(name)),
                "undo_title": f"Remove {shown}, without what came with it",
                "before": "not installed",
                "after": version,
            },
        )
    draft.add_step(
        origin,
        {
            "title": f"Install {shown} {version} in place of another version",
            "when": is_other,
            "do": install,
            "no_undo": "the version before it may be gone, and its data be of the new one",
            "before": f"{{{old}}}",
            "after": version,
        },
    )


_WHATS = {
    "upgrade": "Upgrade packages",
    "dist-upgrade": "Upgrade packages, and remove others",
    "autoremove": "Remove packages that nothing needs",
}


def carry_simulated(
    draft: Draft, origin: Origin, words: Sequence[str], options: Sequence[str] = ()
) -> None:
    """Do what apt-get says that it would do now, such as for upgrade and autoremove.

    words: those for apt-get, the last of which is one of `_WHATS`. options: of the step alone. All
    packages and their versions are in the plan. Raises NextPage.
    """
    if draft.list_claims(_LISTS, _PACKAGE_CLAIM, _ALL):
        raise NextPage
    what = _WHATS[words[-1]]
    reading = {"run": ["apt-get", "-s", *words], "as": "lines", "pattern": _SIMULATED}
    found = draft.add_reading("_".join(words), reading)
    rows = draft.add_state("changes", f"{found}.filter(row, row.new != null || row.gone != null)")
    new = f"{rows}.filter(row, row.new != null)"
    now = f'{new}.filter(row, row.old != null).map(row, row.new + "=" + row.old)'
    now = draft.add_state("versions_now", now)
    then = draft.add_state("versions_then", f'{new}.map(row, row.new + "=" + row.version)')
    gone = f"{rows}.filter(row, row.gone != null).map(row, row.gone)"
    gone = draft.add_state("removed", gone)
    draft.current.append(f"{words[-1]} would change {{count({rows}.size(), 'package')}}")
    draft.claim(_ALL, what)
    is_upgrade = what.startswith("Upgrade")
    if is_upgrade:
        draft.notes.append({"text": "Services of packages that are upgraded may be restarted."})
        draft.down.append("{host}")
    run = run_as_root("/usr/bin/apt-get", "-y", *options, *words)
    draft.add_step(
        origin,
        {
            "title": f"{what}: {{count({rows}.size(), 'package')}}",
            "when": f"{rows}.size() > 0",
            "do": {**run, "seconds": _MOST_PATIENCE},
            "no_undo": "versions before may be gone, and data be of the new ones"
            if is_upgrade
            else "what is removed has to be installed again",
            "before": f"{{join({now} + {gone}, ', ')}}",
            "after": f"{{join({then} + {gone}.map(row, 'no ' + row), ', ')}}",
        },
    )


def carry_update(draft: Draft, origin: Origin, changed: str) -> None:
    """Read the lists of packages again. changed: when. Raises NextPage."""
    if any(one.get("run", [""])[0] in ("apt-cache", "apt-get") for one in draft.read.values()):
        raise NextPage
    draft.claim(_LISTS, "read")
    draft.add_step(
        origin,
        {
            "title": "Read the lists of packages again",
            "when": changed,
            "do": {"script": _UPDATE, "root": True, "seconds": _PATIENCE},
            "no_undo": "it only reads lists: do it again after an undo",
        },
    )


def carry_old_lists(
    draft: Draft, origin: Origin, seconds: int = HOUR, names: Sequence[str] = ()
) -> None:
    """Read the lists of packages again where they are older, or a step before adds a source.

    seconds: the age that is too old. names: packages, with or without a version, of which one has
    to be missing; none if it is done in any case.
    """
    run = ["stat", "-c", "%n %Y", "--", *_STAMPS]
    reading = {
        "run": run,
        "statuses": [0, 1],
        "as": "lines",
        "pattern": r"(?P<path>\S+) (?P<time>[0-9]+)",
        "numbers": ["time"],
    }
    found = draft.add_reading("package_lists", reading)
    now = draft.add_reading("time_now", {"run": ["date", "+%s"], "as": "number", "least": 0})
    is_old = draft.add_state(
        f"lists_are_old_{seconds}",
        f"{found}.size() == 0 || {now} - {found}[0].time > {seconds}",
    )
    draft.current.append(f"the lists of packages are {{{is_old} ? 'old' : 'new'}}")
    # A source that was added after they were read last is in none of them.
    last = max(draft.list_claims(_LISTS), default=-1)
    sources = [at for at in draft.list_writes(_SOURCES) if at > last]
    when = draft.join_any([is_old, *draft.list_conditions(sources)])
    if names:
        when = f"({when}) && ({draft.join_any([_find_missing(draft, one) for one in names])})"
    if all(step["when"] not in (when, f"({is_old})") for _, _, step in draft.steps):
        carry_update(draft, origin, when)


def _find_missing(draft: Draft, name: str) -> str:
    name, _, version = name.partition("=")
    if version:
        return _read_version(draft, name, version)[1]
    return f"!{_read_package(draft, name, 'apt-get')[0]}"
