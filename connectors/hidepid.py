"""Whether a host shows people the processes of others: the option hidepid of /proc. No I/O.

Formats: proc(5), fstab(5), findmnt(8).
"""

import re
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from connectors.command import Hint, Query, Shell
from connectors.script import Script
from connectors.sudo import Fits, SudoRule
from connectors.trouble import NotUnderstood

# The kernel took numbers always, and tells words since 5.8.
_WORDS = {"off": 0, "noaccess": 1, "invisible": 2, "ptraceable": 4}
_OPTIONS = re.compile(r"[A-Za-z0-9=,._-]+", re.ASCII)
_HINTS = (
    Hint(
        r"more than hidepid would change",
        "fstab's line for /proc was edited meanwhile: ask again",
    ),
    Hint(r"must be superuser", "only root may do this: the login's sudo rule for it is missing"),
    Hint(r"bad option|Invalid argument", "this kernel does not know this value of hidepid"),
    Hint(r"permission denied", "this is a container's /proc, which only its host can change"),
)

# A line of fstab for /proc, up to its options. `sed -i` replaces the file at once and keeps its
# owner, mode and label.
_BEFORE_OPTIONS = r"^([[:space:]]*[^#[:space:]]+[[:space:]]+/proc[[:space:]]+proc[[:space:]]+)"
_SED = ("sed", "-i", "--follow-symlinks", "-E", "-e")
# Give fstab's line for /proc the options of the first argument, which may differ in hidepid only.
_SET = Script(
    "hidepid-fstab",
    'bare() { printf "%s\\n" "$1" | tr , "\\n" | grep -vxE "hidepid=[a-z0-9]+|defaults"; }; '
    "case $1 in *[!A-Za-z0-9=,._-]*) exit 1;; esac; "
    f"was=$(sed -nE 's|{_BEFORE_OPTIONS}([^[:space:]]+).*|\\2|p' /etc/fstab) && "
    '[ -n "$was" ] && [ "$(bare "$was")" = "$(bare "$1")" ] || '
    '{ echo "more than hidepid would change in fstab: $was" >&2; exit 1; }; '
    f'exec sed -i --follow-symlinks -E -e "s|{_BEFORE_OPTIONS}[^[:space:]]+|\\1$1|" /etc/fstab',
    words=1,
)
_ADD = Script(
    "hidepid-add",
    "! grep -Eqs '^[[:space:]]*[^#[:space:]]+[[:space:]]+/proc[[:space:]]' /etc/fstab || "
    '{ echo "fstab has a line for /proc by now" >&2; exit 1; }; '
    '[ -z "$(tail -c 1 /etc/fstab)" ] || echo >> /etc/fstab; printf "%s\\n" "$1" >> /etc/fstab',
    words=1,
)
_LINE = "proc /proc proc {} 0 0"


@dataclass(frozen=True)
class ProcMount:
    """How /proc is mounted now (hidepid, gid), and with which options fstab would mount it.

    gid: the group that sees all processes, None if there is none. fstab: None without a line.
    """

    hidepid: int
    gid: int | None
    fstab: str | None

    @property
    def after_boot(self) -> int:
        return hidden(self.fstab or "")


def hidden(options: str) -> int:
    """Return the value of hidepid in a mount's options; 0, which hides nothing, without one."""
    value = _last(options, "hidepid") or "0"
    number = _WORDS.get(value, int(value) if value.isdecimal() else None)
    if number is None:
        raise NotUnderstood(f"/proc is mounted with hidepid={value[:40]}, which nobody knows")
    return number


def with_hidepid(options: str, value: int) -> str:
    """Return a mount's options with this value of hidepid in the place of another."""
    rest = [each for each in options.split(",") if not each.startswith("hidepid=")]
    return ",".join([*rest, *([f"hidepid={value}"] if value else [])]) or "defaults"


def now() -> Query[tuple[int, int | None]]:
    """Ask for the value in force, and for the group that it does not apply to."""
    shell = Shell(("findmnt", "-J", "-o", "TARGET,FSTYPE,OPTIONS", "--mountpoint", "/proc"))
    return Query(shell, parse_now)


def at_boot() -> Query[str | None]:
    """Ask for the options of /proc in fstab; None if it has no line there."""
    shell = Shell(("findmnt", "-J", "-o", "TARGET,FSTYPE,OPTIONS", "--fstab", "/proc"))
    return Query(shell, parse_at_boot, frozenset({0, 1}))


class _Told(BaseModel):
    target: str
    fstype: str
    options: str


class _Answer(BaseModel):
    filesystems: list[_Told] = Field(min_length=1)


def parse_now(answer: str) -> tuple[int, int | None]:
    options = _proc(answer).options
    gid = _last(options, "gid")
    return hidden(options), int(gid) if gid else None


def parse_at_boot(answer: str) -> str | None:
    if not answer.strip():
        return None
    options = _proc(answer).options
    if not _OPTIONS.fullmatch(options):
        raise NotUnderstood(f"fstab mounts /proc with {options[:200]!r}")
    return options


def remount(value: int) -> Shell:
    """Have the value in force at once, for all processes. The group is left as it is."""
    return Shell(("mount", "-o", f"remount,hidepid={value}", "/proc"), root=True, hints=_HINTS)


def set_options(options: str) -> Shell:
    """Give fstab's line for /proc these options."""
    return Shell((_SET, _plain(options)), root=True, hints=_HINTS)


def add_line(options: str) -> Shell:
    """Add a line for /proc at the end of fstab."""
    return Shell((_ADD, _LINE.format(_plain(options))), root=True)


def remove_line(options: str) -> Shell:
    """Take away the line that `add_line` has added."""
    line = re.escape(_LINE.format(_plain(options))).replace("\\ ", " ").replace("\\-", "-")
    return Shell((*_SED, f"\\|^{line}$|d", "/etc/fstab"), root=True)


def _plain(options: str) -> str:
    if not _OPTIONS.fullmatch(options):
        raise ValueError(f"{options!r} are no options of a mount")
    return options


def _last(options: str, name: str) -> str | None:
    values = re.findall(rf"(?:^|,){name}=([^,]*)", options)
    return values[-1] if values else None


def _proc(answer: str) -> _Told:
    try:
        told = _Answer.model_validate_json(answer).filesystems[-1]
    except ValidationError:
        raise NotUnderstood(f"findmnt answered {answer[:200]!r} instead of /proc") from None
    if told.fstype != "proc":
        raise NotUnderstood(f"/proc is a mount of type {told.fstype[:40]!r}")
    return told


_LINE_BEFORE, _LINE_AFTER = _LINE.split("{}")
_ADDED = r"defaults,hidepid=[12]"
SUDO = (
    # 4 is only ever brought back.
    SudoRule("/usr/bin/mount", "-o", Fits(r"[0124]", before="remount,hidepid="), "/proc"),
    SudoRule(_SET, Fits(r"[A-Za-z0-9][A-Za-z0-9=,._-]*")),
    SudoRule(_ADD, Fits(_ADDED, before=_LINE_BEFORE, after=_LINE_AFTER)),
    SudoRule(
        *("/usr/bin/sed", *_SED[1:]),
        Fits(_ADDED, before=rf"\|^{_LINE_BEFORE}", after=f"{_LINE_AFTER}$|d"),
        "/etc/fstab",
    ),
)
