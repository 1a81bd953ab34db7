"""The I/O queue of a Linux block device, in /sys/block/…/queue. No I/O.

Format: https://docs.kernel.org/block/ and Documentation/ABI/stable/sysfs-block of the kernel.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connectors.block_settings import VALUES
from connectors.command import Hint, Query, Shell
from connectors.errors import CommandError, ParseError
from connectors.rows import NamedRows, parse_each, parse_named
from connectors.script import load_script
from connectors.sudo import RepeatedPattern, SudoRule, WordPattern
from connectors.visible_text import quote_text

# Kernel names of devices have no slash and no period, so no path leads out of /sys/block.
DEVICE = r"[A-Za-z][A-Za-z0-9!_-]{0,63}"

_HINTS = (
    Hint(
        r"(Invalid argument|I/O error)",
        "the kernel refuses this value for this device: it is out of range, or the scheduler's "
        "module cannot be loaded",
    ),
    Hint(r"Numerical result out of range", "the number is too large for the kernel"),
    Hint(
        r"[Pp]ermission denied",
        "this requires root, or the scheduler has no such tunable",
    ),
    Hint(
        r"cannot create|can't cd to|queue/.*: No such file",
        "the device does not exist any more, or its scheduler has no such tunable",
    ),
)
_MODINFO_MISSING = Hint(
    r"modinfo.*(not found|No such file)|failed to run command .modinfo",
    "Keyturn cannot check whether the host has the scheduler's module: install kmod there",
)

_QUEUE = ("scheduler", "read_ahead_kb", "nr_requests", "rotational")
# Files that identify a device whatever its name: SCSI and SATA disks, NVMe, and device mapper
# (LVM, multipath).
_IDENTITIES = ("device/wwid", "wwid", "dm/uuid")
# Characters that udev and the shell take literally. Other identities are not used.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{3,127}", re.ASCII)
_LINE = re.compile(rf"/sys/block/({DEVICE})/([a-z0-9_/]+):(.*)", re.ASCII)
_NAME = re.compile(r"[a-z0-9_-]+", re.ASCII)
_TUNABLES = "queue/iosched/"

_SET = load_script("block-set")


@dataclass(frozen=True)
class BlockQueue:
    """How the kernel orders and merges the reads and writes of one device."""

    device: str
    scheduler: str
    """The scheduler in use; "none" where requests pass in order."""
    available_schedulers: tuple[str, ...]
    """Schedulers that can be set now. Modules that were never loaded are not included."""
    read_ahead_kb: int
    nr_requests: int | None
    """The queue's length; None where the device only passes requests on."""
    rotational: bool
    tunables: Mapping[str, int]
    """Settings of the scheduler. Changing the scheduler resets them."""
    identity: tuple[str, str] | None = None
    """A file below the device and its content, which identify the device whatever its name."""

    @property
    def slice_idle(self) -> int | None:
        """Milliseconds that bfq or cfq waits for the next request of the same process."""
        return self.tunables.get("slice_idle")

    def get_setting(self, setting: str) -> str:
        """Return the content of one file below `queue`; "" if there is no such file."""
        if setting == "scheduler":
            return self.scheduler
        number = {"read_ahead_kb": self.read_ahead_kb, "nr_requests": self.nr_requests}.get(
            setting, self.tunables.get(setting.removeprefix("iosched/"))
        )
        return "" if number is None else str(number)


def query_queues(devices: Iterable[str]) -> Query[NamedRows[str, BlockQueue]]:
    """Query the queues of these devices, by name. A device that does not exist is an error."""
    named = tuple(devices)
    files = [f"{_make_path(name)}/queue/{file}" for name in named for file in (*_QUEUE, "iosched")]
    files += [f"{_make_path(name)}/{file}" for name in named for file in _IDENTITIES]
    # Many devices lack some of the files: the status is 2, and the other files are printed.
    shell = Shell(("grep", "-r", "-s", "-H", "^", "--", *files))
    return Query(shell, lambda answer: parse_queues(answer, named), frozenset({0, 1, 2}))


def parse_queues(answer: str, devices: Iterable[str]) -> NamedRows[str, BlockQueue]:
    """Read `FILE:VALUE` lines, one for each file."""
    values: dict[str, dict[str, str]] = {name: {} for name in devices}
    lines = parse_each(answer.splitlines(), _parse_line)
    for device, file, value in lines:
        values.setdefault(device, {})[file] = value
    queues = parse_named(values, _parse_queue)
    return NamedRows(queues.items(), [*lines.odd, *queues.odd])


def _parse_line(line: str) -> tuple[str, str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ParseError("it is no setting of a block device")
    return match[1], match[2], match[3].strip()


def query_module(scheduler: str) -> Query[bool]:
    """Query whether the host can load this scheduler. Setting it loads its module."""
    if not _NAME.fullmatch(scheduler):
        raise ValueError(f"{quote_text(scheduler)} is not the name of a scheduler")
    shell = Shell(("modinfo", "-n", f"{scheduler}-iosched"), hints=(_MODINFO_MISSING,))
    return Query(shell, lambda answer: bool(answer.strip()), frozenset({0, 1}))


def set_queue_setting(device: str, setting: str, value: str | int) -> Shell:
    """Write one file below `queue`, such as `scheduler` or `iosched/slice_idle`."""
    _make_path(device)
    return Shell((_SET, device, f"{setting}={value}"), root=True, hints=_HINTS)


def is_settable(setting: str, value: str) -> bool:
    """Return whether Keyturn may write this value: the sudo rule allows no other."""
    return re.fullmatch(VALUES[setting], value, re.ASCII) is not None


def restore_queue(queue: BlockQueue) -> Shell:
    """Restore a scheduler with all settings that changing it has reset."""
    # The kernel also shows slice_idle as the more precise slice_idle_us, which comes last in
    # this order.
    values = {f"iosched/{name}": queue.tunables[name] for name in sorted(queue.tunables)}
    size = {} if queue.nr_requests is None else {"nr_requests": queue.nr_requests}
    pairs = {"scheduler": queue.scheduler, **size, **values}
    words = tuple(f"{file}={value}" for file, value in pairs.items())
    _make_path(queue.device)
    return Shell((_SET, queue.device, *words), root=True, hints=_HINTS)


def _make_path(device: str) -> str:
    if not re.fullmatch(DEVICE, device, re.ASCII):
        raise ValueError(f"{quote_text(device)} is not the name of a block device")
    return f"/sys/block/{device}"


def _parse_queue(device: str, values: Mapping[str, str]) -> BlockQueue:
    if not values:
        raise CommandError(f"the host has no block device {device}, or it is only a partition")
    scheduler, offered = _parse_schedulers(values.get("queue/scheduler", "none"))
    return BlockQueue(
        device,
        scheduler,
        offered,
        read_ahead_kb=_parse_number(values, "queue/read_ahead_kb"),
        nr_requests=_parse_number(values, "queue/nr_requests")
        if "queue/nr_requests" in values
        else None,
        rotational=bool(_parse_number(values, "queue/rotational")),
        tunables={
            file.removeprefix(_TUNABLES): _parse_number(values, file)
            for file in values
            if file.startswith(_TUNABLES)
        },
        identity=next(
            (
                (file, values[file])
                for file in _IDENTITIES
                if _PLAIN.fullmatch(values.get(file, ""))
            ),
            None,
        ),
    )


def _parse_schedulers(text: str) -> tuple[str, tuple[str, ...]]:
    """Read `[none] mq-deadline`, or `none` where there is nothing to choose."""
    words = text.split()
    chosen = [word for word in words if word.startswith("[") and word.endswith("]")]
    names = tuple(word.strip("[]") for word in words)
    if not all(_NAME.fullmatch(name) for name in names):
        raise ParseError(f"{text[:200]!r} is not a list of schedulers")
    if len(chosen) == 1:
        return chosen[0].strip("[]"), names
    if len(names) == 1:
        return names[0], names
    raise ParseError(f"{text[:200]!r} does not mark the scheduler in use")


def _parse_number(values: Mapping[str, str], file: str) -> int:
    text = values.get(file, "")
    if not re.fullmatch(r"-?\d{1,20}", text, re.ASCII):
        raise ParseError(f"{file} is {text[:80]!r}, not a number")
    return int(text)


_SCHEDULER = f"scheduler=({VALUES['scheduler']})"
_ONE = "|".join(f"{name}=({values})" for name, values in VALUES.items())
# Any tunable of a scheduler may be restored; their names differ between kernels.
_FORGOTTEN = r"(nr_requests|iosched/[a-z0-9_]{1,40})=-?[0-9]{1,12}"
SUDO = (
    SudoRule(_SET, WordPattern(DEVICE), WordPattern(_ONE)),
    SudoRule(
        *(_SET, WordPattern(DEVICE), WordPattern(_SCHEDULER), RepeatedPattern(_FORGOTTEN)),
        risk="set the tunables of a disk's scheduler to other numbers",
    ),
)
