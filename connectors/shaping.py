"""Traffic limits of a host's interfaces, with Linux's tc. No I/O.

Outgoing packets wait in a token bucket (tbf) at the interface's root. Incoming packets are
redirected to an ifb device with such a bucket: they have already arrived, so senders slow down
only when packets are dropped. Each queue is at most 50 ms long. Nothing is written to disk: a
reboot removes the limits.

Formats: tc(8) and tc-tbf(8); `tc -j qdisc show` prints rates in bytes/s. `tc -j class show` is not
JSON, at least up to iproute2 6.1.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connectors import probation
from connectors.command import Hint, Query, Setting, Shell
from connectors.errors import ParseError
from connectors.probation import Probation
from connectors.rows import NamedRows, Rows, parse_each
from connectors.script import load_script
from connectors.sudo import SudoRule, WordPattern, make_range_pattern

# kbit/s. With less, a login by SSH is not usable.
MIN_RATE, MAX_RATE = 256, 10_000_000
# Keyturn's queues have this handle ("Kt"); the kernel's own queues have the handle 0.
_HANDLE = "4b74:"
_OURS = "kt-in"
# Seconds: enough for Keyturn to reconnect with the new limits.
_SECONDS = Setting("shaping.probation", "120", pattern=r"[1-9][0-9]{0,3}")

_HINTS = (
    Hint(
        r"another program's queue",
        "another program has added a queue meanwhile, which Keyturn could not restore",
    ),
    *probation.HINTS,
    Hint(r"Specified qdisc kind is unknown", "the host's kernel lacks tc's tbf (sch_tbf)"),
    Hint(
        r"Failed to load TC action|TC classifier not found|Unknown device type",
        "the host's kernel cannot limit what comes in: it lacks ifb, cls_u32 or act_mirred",
    ),
    Hint(r"Operation not permitted", "this requires root: add the login's sudo rule"),
    Hint(r"Device \S+ does not exist|Cannot find device", "the interface does not exist any more"),
)

_SHOW = load_script("shaping-show", argument_count=0)
_RESTORE = load_script("shaping-restore", argument_count=2, HANDLE=_HANDLE)
_TRY = load_script("shaping-try", argument_count=4, HANDLE=_HANDLE)


@dataclass(frozen=True)
class Rates:
    """Traffic limits of an interface in kbit/s; None for no limit."""

    down: int | None = None
    """The limit of incoming traffic."""
    up: int | None = None
    """The limit of outgoing traffic."""

    @property
    def arguments(self) -> tuple[str, str]:
        """Both limits as arguments of the scripts."""
        return str(self.down or 0), str(self.up or 0)

    def __str__(self) -> str:
        if self == Rates():
            return "no limit"
        limits = ((self.down, "in"), (self.up, "out"))
        return ", ".join(f"{rate:,} kbit/s {way}" for rate, way in limits if rate)


@dataclass(frozen=True)
class QueueingDiscipline:
    """A queueing discipline (qdisc) of an interface."""

    kind: str
    rate: int | None
    """kbit/s; None if it has no rate."""
    dropped: int
    """Packets dropped so far."""
    overlimits: int
    """Packets over the limit so far."""


@dataclass(frozen=True)
class ShapedInterface:
    """A network interface with its queues."""

    name: str
    is_loopback: bool
    down_queue: QueueingDiscipline | None = None
    """Keyturn's queue of incoming traffic."""
    up_queue: QueueingDiscipline | None = None
    """Keyturn's queue of outgoing traffic."""
    foreign_queues: tuple[QueueingDiscipline, ...] = ()
    """Queues from neither the kernel nor Keyturn."""

    @property
    def rates(self) -> Rates:
        """Keyturn's limits in force."""
        return Rates(
            self.down_queue and self.down_queue.rate, self.up_queue and self.up_queue.rate
        )

    @property
    def limits(self) -> str:
        """Keyturn's limits in force, as text."""
        return str(self.rates)


def query_interfaces() -> Query[Mapping[str, ShapedInterface]]:
    """Query all interfaces by name, without Keyturn's own ifb devices."""
    return Query(Shell((_SHOW,), hints=_HINTS), parse_interfaces)


def query_list() -> Query[Rows[ShapedInterface]]:
    """Query the same in the order of the host."""
    return Query(Shell((_SHOW,), hints=_HINTS), parse_list)


def query_classes(interface: str) -> Query[Sequence[str]]:
    """Query the classes of an htb from another program, one line for each."""
    return Query(Shell(("tc", "class", "show", "dev", interface), hints=_HINTS), parse_classes)


def make_probation(interface: str) -> Probation:
    """Return the probation of an interface's limits."""
    return Probation("shaping", _RESTORE, _SECONDS, (interface,))


def try_limits(interface: str, rates: Rates) -> Shell:
    """Set both limits, on probation."""
    words = (_TRY, probation.ROOT, interface, *rates.arguments)
    return Shell(words, root=True, hints=_HINTS)


def set_limits(interface: str, down: int | None = None, up: int | None = None) -> Shell:
    """Set both limits in kbit/s, on probation; None for no limit."""
    return try_limits(interface, Rates(down, up))


def parse_interfaces(answer: str) -> NamedRows[str, ShapedInterface]:
    interfaces = parse_list(answer)
    return NamedRows(((each.name, each) for each in interfaces), interfaces.odd)


def parse_list(answer: str) -> Rows[ShapedInterface]:
    try:
        links, queues, *marks = answer.splitlines()
        found, qdiscs = _parse_rows(links), _parse_rows(queues)
    except (ValueError, TypeError):
        raise ParseError(
            f"ip and tc printed {answer[:200]!r} instead of interfaces and their queues"
        ) from None
    led = parse_each(marks, _parse_redirection)
    queues_of = parse_each(qdiscs, _parse_placed_queue)
    interfaces = parse_each(found, lambda link: _parse_interface(link, queues_of, {*led}))
    return Rows(interfaces, [*led.odd, *queues_of.odd, *interfaces.odd])


def _parse_rows(line: str) -> list[dict[str, Any]]:
    rows = json.loads(line)
    if not isinstance(rows, list):
        raise TypeError(line)
    return cast("list[dict[str, Any]]", rows)


def _parse_redirection(line: str) -> str:
    mark = re.fullmatch(r"led (\S+)", line)
    if mark is None:
        raise ValueError(line)
    return mark[1]


@dataclass(frozen=True)
class _PlacedQueue:
    device: str
    is_own: bool
    is_configured: bool
    queue: QueueingDiscipline


def _parse_interface(
    link: Any, queues: Sequence[_PlacedQueue], led: set[str]
) -> ShapedInterface | None:
    name, inner = str(link["ifname"]), f"{_OURS}{link['ifindex']}"
    if name.startswith(_OURS):
        return None
    put = [each for each in queues if each.device == name and each.is_configured]
    up = [each.queue for each in put if each.is_own]
    down = [each.queue for each in queues if each.device == inner and each.is_own]
    down = down if name in led else []
    others = [each.queue for each in put if not each.is_own]
    return ShapedInterface(
        name=name,
        is_loopback="LOOPBACK" in link["flags"],
        down_queue=down[0] if down else None,
        up_queue=up[0] if up else None,
        foreign_queues=tuple(each for each in others if not (down and each.kind == "ingress")),
    )


def _parse_placed_queue(qdisc: Any) -> _PlacedQueue:
    kind, is_root = str(qdisc["kind"]), bool(qdisc.get("root"))
    is_incoming = kind in ("ingress", "clsact")
    return _PlacedQueue(
        device=str(qdisc["dev"]),
        is_own=is_root and (kind, qdisc["handle"]) == ("tbf", _HANDLE),
        is_configured=is_incoming or (is_root and qdisc["handle"] != "0:"),
        queue=QueueingDiscipline(
            kind=kind,
            rate=int(qdisc["options"]["rate"]) * 8 // 1000 if kind == "tbf" else None,
            dropped=int(qdisc["drops"]),
            overlimits=int(qdisc["overlimits"]),
        ),
    )


def parse_classes(answer: str) -> Rows[str]:
    return parse_each(filter(None, answer.splitlines()), _parse_class)


def _parse_class(line: str) -> str:
    found = re.match(r"class htb (\S+) .*?rate (\S+) ceil (\S+)", line)
    if found is None:
        raise ParseError("it is no class of htb")
    return f"class {found[1]} {found[2]} to {found[3]}"


_INTERFACE = WordPattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
# 0 is no limit.
_RATE = WordPattern(f"0|{make_range_pattern(MIN_RATE, MAX_RATE)}")
SUDO = (
    *probation.make_sudo_rules(make_probation(""), _INTERFACE),
    SudoRule(_TRY, probation.ROOT, _INTERFACE, _RATE, _RATE),
)
