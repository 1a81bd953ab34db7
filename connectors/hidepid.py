"""The hidepid option of /proc, which hides other users' processes. No I/O.

Formats: proc(5), fstab(5), findmnt(8).
"""

import re
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from connectors import probation
from connectors.command import Hint, Query, QueryRunner, Setting, Shell
from connectors.errors import ParseError
from connectors.probation import Probation
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern

# The kernel has always accepted numbers, and prints words since 5.8.
_WORDS = {"off": 0, "noaccess": 1, "invisible": 2, "ptraceable": 4}
_OPTIONS = re.compile(r"[A-Za-z0-9=,._-]+", re.ASCII)
_HINTS = (
    Hint(
        r"more than hidepid would change",
        "fstab's line for /proc was edited meanwhile: request the change again",
    ),
    Hint(r"must be superuser", "this requires root: add the login's sudo rule"),
    Hint(r"bad option|Invalid argument", "this kernel does not support this value of hidepid"),
    Hint(r"permission denied", "this is a container's /proc: only its host can change it"),
)

# A line of fstab for /proc, up to its options.
_BEFORE_OPTIONS = r"^([[:space:]]*[^#[:space:]]+[[:space:]]+/proc[[:space:]]+proc[[:space:]]+)"
_SED = ("sed", "-i", "--follow-symlinks", "-E", "-e")
_SET = load_script("hidepid-fstab", argument_count=1, BEFORE=_BEFORE_OPTIONS)
_ADD = load_script("hidepid-add", argument_count=1)
_LINE = "proc /proc proc {} 0 0"
_RESTORE = load_script("hidepid-restore", argument_count=1)
_SECONDS = Setting("hidepid.probation", "120", pattern=r"[1-9][0-9]{0,3}")
PROBATION = Probation("hidepid", _RESTORE, _SECONDS)


@dataclass(frozen=True)
class ProcMount:
    """How /proc is mounted now, and how fstab mounts it at boot."""

    hidepid: int
    gid: int | None
    """The group that sees all processes, None if there is none."""
    fstab_options: str | None
    """The options in fstab, None if it has no line for /proc."""

    @property
    def hidepid_after_boot(self) -> int:
        """The value after the next boot."""
        return parse_hidepid(self.fstab_options or "")


def parse_hidepid(options: str) -> int:
    """Return the value of hidepid in mount options; 0, which hides nothing, without one."""
    value = _find_option(options, "hidepid") or "0"
    number = _WORDS.get(value, int(value) if value.isdecimal() else None)
    if number is None:
        raise ParseError(f"/proc is mounted with the unknown value hidepid={value[:40]}")
    return number


def query_current() -> Query[tuple[int, int | None]]:
    """Query the value in force, and the group that it does not apply to."""
    shell = Shell(("findmnt", "-J", "-o", "TARGET,FSTYPE,OPTIONS", "--mountpoint", "/proc"))
    return Query(shell, parse_current)


def query_fstab() -> Query[str | None]:
    """Query the options of /proc in fstab; None if it has no line there."""
    shell = Shell(("findmnt", "-J", "-o", "TARGET,FSTYPE,OPTIONS", "--fstab", "/proc"))
    return Query(shell, parse_fstab, frozenset({0, 1}))


def read_proc(run_query: QueryRunner, host: str) -> ProcMount:
    value, gid = run_query(host, query_current())
    return ProcMount(value, gid, run_query(host, query_fstab()))


class _FindmntFilesystem(BaseModel):
    target: str
    fstype: str
    options: str


class _FindmntOutput(BaseModel):
    filesystems: list[_FindmntFilesystem] = Field(min_length=1)


def parse_current(answer: str) -> tuple[int, int | None]:
    options = _parse_proc(answer).options
    gid = _find_option(options, "gid")
    return parse_hidepid(options), int(gid) if gid else None


def parse_fstab(answer: str) -> str | None:
    if not answer.strip():
        return None
    options = _parse_proc(answer).options
    if not _OPTIONS.fullmatch(options):
        raise ParseError(f"fstab has unknown options for /proc: {options[:200]!r}")
    return options


def remount_proc(value: int) -> Shell:
    """Apply the value immediately, for all processes. The group does not change."""
    return Shell(("mount", "-o", f"remount,hidepid={value}", "/proc"), root=True, hints=_HINTS)


def set_fstab_options(options: str) -> Shell:
    """Set the options of fstab's line for /proc."""
    return Shell((_SET, _require_options(options)), root=True, hints=_HINTS)


def add_fstab_line(options: str) -> Shell:
    """Add a line for /proc at the end of fstab."""
    return Shell((_ADD, _LINE.format(_require_options(options))), root=True)


def remove_fstab_line(options: str) -> Shell:
    """Remove the line that `add_fstab_line` has added."""
    line = (
        re.escape(_LINE.format(_require_options(options))).replace("\\ ", " ").replace("\\-", "-")
    )
    return Shell((*_SED, f"\\|^{line}$|d", "/etc/fstab"), root=True)


def _require_options(options: str) -> str:
    if not _OPTIONS.fullmatch(options):
        raise ValueError(f"{options!r} are not mount options")
    return options


def _find_option(options: str, name: str) -> str | None:
    values = re.findall(rf"(?:^|,){name}=([^,]*)", options)
    return values[-1] if values else None


def _parse_proc(answer: str) -> _FindmntFilesystem:
    try:
        filesystem = _FindmntOutput.model_validate_json(answer).filesystems[-1]
    except ValidationError:
        raise ParseError(f"findmnt printed {answer[:200]!r} instead of /proc") from None
    if filesystem.fstype != "proc":
        raise ParseError(f"/proc is a mount of type {filesystem.fstype[:40]!r}")
    return filesystem


_LINE_BEFORE, _LINE_AFTER = _LINE.split("{}")
_ADDED = r"defaults,hidepid=[12]"
SUDO = (
    *probation.make_sudo_rules(PROBATION),
    # 4 is only ever restored by an undo.
    SudoRule("/usr/bin/mount", "-o", WordPattern(r"[0124]", prefix="remount,hidepid="), "/proc"),
    SudoRule(_SET, WordPattern(r"[A-Za-z0-9][A-Za-z0-9=,._-]*")),
    SudoRule(_ADD, WordPattern(_ADDED, prefix=_LINE_BEFORE, suffix=_LINE_AFTER)),
    SudoRule(
        *("/usr/bin/sed", *_SED[1:]),
        WordPattern(_ADDED, prefix=rf"\|^{_LINE_BEFORE}", suffix=f"{_LINE_AFTER}$|d"),
        "/etc/fstab",
    ),
)
