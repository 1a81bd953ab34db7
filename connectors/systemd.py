"""What can be said to systemd about its services. No I/O.

Formats: systemctl(1) `show`, systemd.time(7).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from connectors.command import Hint, Query, Shell
from connectors.sudo import Fits, SudoRule
from connectors.trouble import NotUnderstood

_HINTS = (
    Hint(
        r"not been booted with systemd|Failed to connect to bus",
        "this host does not run systemd: its services are looked after by something else",
    ),
    Hint(
        r"neither a valid invocation ID nor unit name|is missing the instance name",
        "this is no name of a service; one of several needs its instance, such as getty@tty1",
    ),
    Hint(
        r"Interactive authentication required|Access denied",
        "only root may do this: the login's sudo rule for it is missing",
    ),
    Hint(
        r"attempted too often|repeated too quickly|start-limit-hit",
        "it was started too often in a short time, and systemd will not start it again before "
        "somebody runs `systemctl reset-failed` for it",
    ),
    Hint(
        r"Job for .* (failed|canceled)",
        "the service did not come up again: look at `journalctl -u` and the service's own log",
    ),
)

# Ids and relations, so that an alias such as sshd is known for what it is.
_SHOWN = (
    "Id,Description,LoadState,ActiveState,SubState,Result,ActiveEnterTimestamp,MainPID,NRestarts,"
    "MemoryCurrent,RefuseManualStart,RefuseManualStop,NeedDaemonReload,RequiredBy,BoundBy,"
    "ConsistsOf"
)

# Services may take their whole time to stop and to start, 90 s each by default.
_PATIENCE = 240


@dataclass(frozen=True)
class Service:
    """What systemd knows of a service.

    name: its own name, whatever alias it was asked by. load: loaded, masked, not-found, error, …
    active: active, inactive, failed, activating, deactivating, reloading. sub: the finer state.
    result: success, or how it ended. started_at: when it last came up; None if never.
    memory: bytes, None where nobody counts them. restarts: by systemd itself, after it ended.
    by_hand: whether people may start and stop it. outdated: whether its file was edited since
    systemd read it. dragged: what is restarted with it, if it runs.
    """

    name: str
    description: str
    load: str
    active: str
    sub: str
    result: str
    started_at: datetime | None
    pid: int
    restarts: int
    memory: int | None
    by_hand: bool
    outdated: bool
    dragged: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        return self.active == "active"


def service(name: str) -> Query[Service]:
    """Ask about one service; one that does not exist is an answer too (load is not-found)."""
    # The time zone is for our eyes: without it the host's own would be printed by its short name.
    words = ("env", "TZ=UTC", "systemctl", "show", "--no-pager", "-p", _SHOWN, "--", unit(name))
    return Query(Shell(words, hints=_HINTS), parse_service)


def restart(name: str) -> Shell:
    """Stop a service and start it again. Status 0 does not mean that it stays up."""
    words = ("systemctl", "restart", "--no-ask-password", "--", unit(name))
    return Shell(words, root=True, hints=_HINTS, deadline=_PATIENCE)


def clock() -> Query[datetime]:
    """Ask what time the host thinks it is, to the second."""
    return Query(Shell(("date", "+%s")), parse_clock)


def unit(name: str) -> str:
    """Return the name of the service's unit. A bare number would be taken for a job."""
    return name if name.endswith(".service") else f"{name}.service"


def parse_clock(answer: str) -> datetime:
    if not re.fullmatch(r"\d{1,11}\n?", answer, re.ASCII):
        raise NotUnderstood(f"date answered {answer[:80]!r} instead of seconds")
    return datetime.fromtimestamp(int(answer), UTC)


def parse_service(answer: str) -> Service:
    told = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
    try:
        return _service(told)
    except (KeyError, ValueError) as error:
        raise NotUnderstood(
            f"systemctl answered {answer[:200]!r} instead of a service: {error}"
        ) from None


def _service(told: Mapping[str, str]) -> Service:
    related = (*told["RequiredBy"].split(), *told["BoundBy"].split(), *told["ConsistsOf"].split())
    return Service(
        name=told["Id"],
        description=told["Description"],
        load=told["LoadState"],
        active=told["ActiveState"],
        sub=told["SubState"],
        result=told["Result"],
        started_at=_moment(told["ActiveEnterTimestamp"]),
        pid=int(told["MainPID"]),
        # Systemd counts them since 235, and says [not set] where it does not count memory.
        restarts=int(told.get("NRestarts", "0")),
        memory=_count(told.get("MemoryCurrent", "[not set]")),
        by_hand=not _yes(told["RefuseManualStart"]) and not _yes(told["RefuseManualStop"]),
        outdated=_yes(told["NeedDaemonReload"]),
        dragged=tuple(dict.fromkeys(related)),
    )


def _yes(word: str) -> bool:
    if word not in ("yes", "no"):
        raise ValueError(f"{word!r} is neither yes nor no")
    return word == "yes"


def _count(text: str) -> int | None:
    # Before 245 the unset value was the highest number there is.
    return int(text) if text.isdecimal() and int(text) < 2**63 else None


def _moment(text: str) -> datetime | None:
    if text in ("", "n/a"):
        return None
    return datetime.strptime(text.partition(" ")[2], "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)


_UNIT = Fits(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}\.service")
SUDO = (SudoRule("/usr/bin/systemctl", "restart", "--no-ask-password", "--", _UNIT),)
