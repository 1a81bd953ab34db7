"""File systems that are mounted, by /etc/fstab and now, and swap."""

import re
from dataclasses import dataclass

from bot.features.importing.drafts import Draft, Origin, Unclear, run_as_root, show_marks
from bot.features.importing.kinds.file_changes import carry_directory, look_for, refuse_odd_path
from bot.features.importing.kinds.file_lines import Which, carry_line
from bot.features.importing.kinds.patterns import escape

_FSTAB = "/etc/fstab"
_WORD = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")
# What is there already would be hidden: programs, people's keys, and what the host runs with.
_HIDES = re.compile(
    r"/|/(usr|etc|var|home|root|boot|bin|sbin|lib\w*|dev|proc|sys|run|opt|srv)"
    r"|/(usr|etc|root|boot|bin|sbin|lib\w*|proc|sys)/.*|/home/[^/]*|/run/(sshd|systemd)(/.*)?"
    r"|/var/(lib|run|empty)(/.*)?"
)
_AT_BOOT = (
    "A host may stop at its next boot at a line of /etc/fstab that is wrong, unless it has the "
    "option nofail: look at `findmnt --verify` on it."
)
_BLANKS = r"\s+"
_SOURCE = "[A-Za-z0-9/][A-Za-z0-9/_.:=@%,-]*"
_UNITS = {"": 1, "b": 512, "c": 1, "k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"([0-9]{1,12})([bckKMG]?)(?:(?<=[kKMG])iB)?")


@dataclass(frozen=True)
class Mount:
    """The fields of a line of fstab(5)."""

    source: str
    path: str
    kind: str
    options: str = "defaults"
    dump: str = "0"
    order: str = "0"

    @property
    def line(self) -> str:
        return " ".join((self.source, self.path, self.kind, self.options, self.dump, self.order))


def carry_mount(draft: Draft, origin: Origin, mount: Mount, *, now: bool) -> None:
    """Have a file system in /etc/fstab. now: and mounted, with what the line says."""
    is_swap = mount.kind == "swap"
    _refuse_odd_mount(mount)
    first = len(draft.steps)
    if now and not is_swap:
        carry_directory(draft, origin, mount.path, {})
        first = len(draft.steps)
    # Of swap that is at no place, the source is what one line has alone.
    of_swap = rf"{escape(mount.source)}\s+none\s+swap"
    which = of_swap if is_swap else rf"{_SOURCE}\s+{escape(mount.path)}"
    lines = Which(rf"^\s*{which}\s", _match_fields(mount))
    carry_line(draft, origin, _FSTAB, mount.line, pattern=lines)
    if {"text": _AT_BOOT} not in draft.notes:
        draft.notes.append({"text": _AT_BOOT})
    if now and not is_swap:
        changed = [str(step["when"]) for _, _, step in draft.steps[first:]]
        _carry_mounted(draft, origin, mount.path, draft.join_any(changed))


def _refuse_odd_mount(mount: Mount) -> None:
    if mount.kind != "swap":
        refuse_odd_path(mount.path)
        if _HIDES.fullmatch(mount.path):
            raise Unclear(f"what is at {mount.path} would be hidden, and the host may need it")
    for one in (mount.source, mount.kind, mount.options):
        if not _WORD.fullmatch(one) or "password" in one:
            raise Unclear(f"{show_marks(one)[:60]!r} is not a plain word of /etc/fstab")
    if not re.fullmatch("[0-9]{1,2} [0-9]{1,2}", f"{mount.dump} {mount.order}"):
        raise Unclear("its numbers of a dump and of a check are not read")


def _match_fields(mount: Mount) -> str:
    """Return the pattern of lines with the same fields, of which the last two may be missing."""
    fields = (mount.source, mount.path, mount.kind, mount.options)
    last = {"0 0": r"(\s+0(\s+0)?)?"}.get(
        f"{mount.dump} {mount.order}", rf"\s+{mount.dump}\s+{mount.order}"
    )
    return rf"^\s*{_BLANKS.join(map(escape, fields))}{last}\s*$"


def _read_mount(draft: Draft, path: str) -> str:
    run = ["findmnt", "-n", "-o", "TARGET", "--mountpoint", path]
    found = draft.add_reading(f"mounted_{path}", {"run": run, "statuses": [0, 1], "as": "text"})
    draft.current.append(f"{path} {{{found} == '' ? 'is not mounted' : 'is mounted'}}")
    return found


def _carry_mounted(draft: Draft, origin: Origin, path: str, is_changed: str) -> None:
    found = _read_mount(draft, path)
    draft.claim(f"whether {path} is mounted", "mounted")
    draft.add_step(
        origin,
        {
            "title": f"Mount {path}",
            "when": f'{found} == ""',
            "do": run_as_root("/usr/bin/mount", path),
            "undo": run_as_root("/usr/bin/umount", path),
            "before": "not mounted",
            "after": "mounted",
        },
    )
    draft.add_step(
        origin,
        {
            "title": f"Remount {path} as its line is now",
            "when": f'{found} != "" && ({is_changed})',
            "do": run_as_root("/usr/bin/mount", "-o", "remount", path),
            "no_undo": "remount it once its line is as before",
        },
    )


def carry_unmounted(draft: Draft, origin: Origin, path: str) -> None:
    """Have a file system mounted no more, until it is mounted again."""
    refuse_odd_path(path)
    if _HIDES.fullmatch(path):
        raise Unclear(f"the host may need what is at {path}")
    found = _read_mount(draft, path)
    draft.claim(f"whether {path} is mounted", "not mounted")
    draft.add_step(
        origin,
        {
            "title": f"Unmount {path}",
            "when": f'{found} != ""',
            "do": run_as_root("/usr/bin/umount", path),
            "no_undo": "mount it again by hand, if /etc/fstab does not have it",
            "before": "mounted",
            "after": "not mounted",
        },
    )


def read_size(text: str) -> int:
    """Return a size in bytes, as `fallocate` and `dd` take it. Raises Unclear."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise Unclear(f"the size {text[:40]!r} is not read")
    return int(found[1]) * _UNITS[found[2]]


def carry_zeros(draft: Draft, origin: Origin, path: str, size: int, *words: str) -> None:
    """Have a file of a size in bytes, if there is none. words: the command that makes it."""
    refuse_odd_path(path)
    if path.startswith(("/dev/", "/proc/", "/sys/")) or "\x01" in path:
        raise Unclear(f"{show_marks(path)[:80]} is no file of a disk")
    found, shown, _ = look_for(draft, path)
    run = ["/usr/bin/stat", "-c", "%s", path]
    size_now = draft.add_reading(
        f"size_{path}", {"run": run, "root": True, "statuses": [0, 1], "as": "text"}
    )
    because = f"{shown} is there with another size, {{{size_now}}} bytes"
    when = f'{size_now} != "" && {size_now} != "{size}"'
    draft.refuse.append({"when": when, "because": because})
    draft.claim(path, "a file")
    draft.add_step(
        origin,
        {
            "title": f"Make {shown} of {size:,} bytes",
            "when": f'{found} == ""',
            "do": {**run_as_root(*words), "seconds": 900},
            "undo": run_as_root("/usr/bin/rm", "-f", "--", path),
            "before": "no file",
            "after": f"{size:,} bytes",
        },
    )


def carry_swap_format(draft: Draft, origin: Origin, path: str) -> None:
    """Have a file that is new, or is no swap so far, as swap."""
    _, when = _read_swap(draft, path)
    makers = [
        str(draft.steps[at][2]["when"])
        for thing, wanted, at in draft.claims
        if (thing, wanted) == (path, "a file")
    ]
    if not makers:
        raise Unclear("nothing shows whether it is swap already, and what is in it would be lost")
    draft.claim(f"whether {path} can be swap", "yes")
    draft.add_step(
        origin,
        {
            "title": f"Make swap of {path}",
            "when": f"({draft.join_any(makers)}) && {when}",
            "do": run_as_root("/usr/sbin/mkswap", path),
            "no_undo": "the undo of the file takes it away",
            "before": "a new file",
            "after": "swap",
        },
    )


def carry_swap(draft: Draft, origin: Origin, path: str, *, on: bool) -> None:
    """Have swap of a file used, or not, until the next boot."""
    is_on, is_off = _read_swap(draft, path)
    turn_on = run_as_root("/usr/sbin/swapon", path)
    turn_off = run_as_root("/usr/sbin/swapoff", path)
    draft.claim(f"whether {path} is used as swap", "yes" if on else "no")
    draft.add_step(
        origin,
        {
            "title": f"{'Use' if on else 'Stop using'} {path} as swap",
            "when": is_off if on else is_on,
            "do": {**(turn_on if on else turn_off), "seconds": 900},
            "undo": turn_off if on else turn_on,
            "before": "not used" if on else "used",
            "after": "used" if on else "not used",
        },
    )


def _read_swap(draft: Draft, path: str) -> tuple[str, str]:
    """Return whether a file is used as swap, and whether it is not."""
    refuse_odd_path(path)
    if "\x01" in path:
        raise Unclear("its file is a value of the request")
    rows = _read_swaps(draft)
    is_on = (
        f'{rows}.exists(row, row.line.startsWith("{path} ") || row.line.startsWith("{path}\\t"))'
    )
    draft.current.append(f"{path} {{{is_on} ? 'is' : 'is not'}} used as swap")
    return is_on, f"!{is_on}"


def _read_swaps(draft: Draft) -> str:
    reading = {"file": "/proc/swaps", "as": "lines", "pattern": "(?P<line>.*)"}
    return draft.add_reading("swaps", reading)


def carry_no_swap(draft: Draft, origin: Origin) -> None:
    """Have no swap used, until the next boot."""
    rows = _read_swaps(draft)
    used = f'{rows}.filter(row, row.line.startsWith("/"))'
    names = f"join({used}.map(row, row.line), ' | ')"
    draft.current.append(f"{{count({used}.size(), 'swap')}} are used")
    draft.claim("whether swap is used", "no")
    draft.add_step(
        origin,
        {
            "title": "Stop using swap",
            "when": f"{used}.size() > 0",
            "do": {**run_as_root("/usr/sbin/swapoff", "-a"), "seconds": 900},
            "no_undo": f"turn on by hand what was used: {{{names}}}",
            "before": f"{{{names}}}",
            "after": "none",
        },
    )
