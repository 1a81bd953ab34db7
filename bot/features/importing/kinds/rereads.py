"""Programs that have a change of some files take effect, where a step before them makes one."""

from collections.abc import Mapping, Sequence

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root

# With the beginnings of the paths that each reads again.
_PROGRAMS: Mapping[str, Sequence[str]] = {
    "sysctl -p": ("/etc/sysctl.conf",),
    "sysctl --system": ("/etc/sysctl.", "/usr/lib/sysctl.d/"),
    "newaliases": ("/etc/aliases",),
    "locale-gen": ("/etc/locale.gen",),
    "update-grub": ("/etc/default/grub", "/etc/grub.d/"),
    "update-initramfs -u": ("/etc/initramfs-tools/", "/etc/modprobe.d/", "/etc/modules"),
    "update-ca-certificates": ("/usr/local/share/ca-certificates/", "/etc/ca-certificates"),
    "ldconfig": ("/etc/ld.so.conf",),
    "augenrules --load": ("/etc/audit/rules.d/",),
    "udevadm control --reload": ("/etc/udev/", "/lib/udev/", "/usr/lib/udev/"),
    "udevadm control --reload-rules": ("/etc/udev/", "/lib/udev/", "/usr/lib/udev/"),
    "exportfs -ra": ("/etc/exports",),
}
_IN_BIN = frozenset({"newaliases", "udevadm"})
_SECONDS = 300


def find_files(words: Sequence[str]) -> Sequence[str]:
    """Return the beginnings of the paths that a program reads again; nothing if it is no such."""
    return _PROGRAMS.get(" ".join(words), ())


def carry_reread(draft: Draft, origin: Origin, words: Sequence[str]) -> None:
    """Have a program read its files again where a step before it changes one. Raises Unclear."""
    program, *rest = words
    steps = draft.list_writes(*find_files(words))
    if not steps:
        raise Unclear(
            f"no step before it changes what {program} reads, so nothing shows when it is needed"
        )
    folder = "/usr/bin" if program in _IN_BIN else "/usr/sbin"
    draft.add_step(
        origin,
        {
            "title": f"Have {program} read what has changed",
            "when": draft.join_steps(steps),
            "do": {**run_as_root(f"{folder}/{program}", *rest), "seconds": _SECONDS},
            "no_undo": "it only makes the change take effect: do it again after an undo",
        },
    )
