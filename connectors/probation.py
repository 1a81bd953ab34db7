"""Probation: a host restores what was, unless a change that can lock out is confirmed. No I/O.

Three scripts do it. `probation-arm` saves what the change will replace, installs a boot hook,
starts a timer and proves that it runs. `probation-keep` ends the probation, over a connection that
was opened after the change. `probation-expire`, which the timer and the boot hook run, restores
what was saved. Each kind of change has a restore script of its own, which runs in the directory of
its probation, with `save` or `restore` as its first argument. All are in `connectors/scripts`.

    /var/lib/keyturn-probation/NAME.armed      the change, when it expires, the boot id
    /var/lib/keyturn-probation/NAME.restored   the change, the restore's exit status, the time
    /var/lib/keyturn-probation/NAME/           for root: what was saved, and the scripts

Times are seconds since the host booted (/proc/uptime), which includes sleep and which no clock
setting moves. After a reboot the boot hook restores at once.
"""

import re
from dataclasses import dataclass

from connectors.command import (
    Command,
    DeviceCommand,
    Hint,
    Query,
    Setting,
    Shell,
    SwitchLines,
    Word,
)
from connectors.errors import ParseError
from connectors.inventory import compute_fingerprint
from connectors.script import SCRIPTS_DIRECTORY, Script, join_lines, load_code, load_script
from connectors.sudo import RuleWord, SudoRule, WordPattern

# The directory that all paths below are in. Another one is for tests, which take less than 90 s.
ROOT = Setting("probation.root", "/", pattern=r"/[\w./-]*")
# The timer of a probation that is overdue by so many seconds has been lost.
_LOST_SECONDS = 300

HINTS = (
    Hint(
        r"nothing is on probation",
        "the change was not confirmed in time, and the host has restored what was: check whether "
        "the change cut the connection, and try again",
    ),
    Hint(
        r"on probation already",
        "wait some minutes, until the host has restored what was, and try again",
    ),
    Hint(
        r"needs systemd or cron",
        "without either, the host could not restore after a reboot: install cron",
    ),
    Hint(r"(flock|setsid): not found", "install the package util-linux"),
)

_EXPIRE = load_script("probation-expire")
_ARM = load_script("probation-arm")
_KEEP = load_script("probation-keep", argument_count=3)
_SHOW = join_lines(load_code("probation-show"))


@dataclass(frozen=True)
class Probation:
    """What a host saves before a change, and restores unless the change is confirmed."""

    name: str
    """What the change changes: one word, also for files. One probation at a time has it."""
    restore: Script
    """Saves (first argument `save`) and restores (`restore`), in the probation's directory."""
    seconds: Setting
    """Until the host restores. At least 90, and three times as long as the last change took."""
    words: tuple[Word, ...] = ()
    """More arguments of the script, which has to count them all."""

    def arm(self, change: str) -> Shell:
        """Save, start the timer, and prove that it runs. change: identifies what is tried."""
        words = (ROOT, self.name, self.seconds, change, _EXPIRE, self.restore, *self.words)
        return Shell((_ARM, *words), root=True, hints=HINTS, deadline=60)

    def keep(self, change: str) -> Shell:
        """End the probation of a change, over a new connection."""
        words = (ROOT, self.name, change)
        return Shell((_KEEP, *words), root=True, hints=HINTS, new_connection=True)


@dataclass(frozen=True)
class ArmedChange:
    """A change that a command puts on probation or keeps."""

    name: str
    change: str


@dataclass(frozen=True)
class ProbationStatus:
    """What a host knows of one probation."""

    armed: str = ""
    """The change that is on probation; "" for none."""
    seconds_left: int = 0
    """Until the host restores."""
    restored: str = ""
    """The change after which the host restored, until the next probation; "" for none."""
    restore_status: int = 0
    """The exit status of that restore."""
    lasts: int = 0
    """How many seconds the next probation lasts, if that was queried."""
    drill_seconds: int | None = None
    """Seconds since the last successful drill, None if there is none."""

    @property
    def is_lost(self) -> bool:
        """Whether the timer of the armed change has been lost."""
        return bool(self.armed) and self.seconds_left < -_LOST_SECONDS

    def list_notes(self, what: str) -> list[str]:
        """Return the note of a check that *what* is on probation now, if it is."""
        if not self.armed:
            return []
        return [
            f"{what} are on probation: in {max(self.seconds_left, 0)} s the host restores what "
            "was, unless Keyturn confirms the change"
        ]


NOT_ARMED = ProbationStatus()


# The probation of a network device that reverts its configuration, by its own timer. A device has
# one at a time, without a name.
DEVICE = ArmedChange("configuration", "configuration")
_TIMER = DeviceCommand(("show archive config rollback timer",), platforms=("cisco_ios",))


def query_probation(name: str, *seconds: Setting) -> Query[ProbationStatus]:
    """Query one probation. It needs no root.

    A network device does not tell whether a timer that has ended reverted anything.

    seconds: its setting, to query how long the next one lasts.
    """
    if name == DEVICE.name:
        # "none is pending" looks like an error to it.
        return Query(_TIMER, parse_timer, frozenset({0, 1}))
    return Query(Shell(("sh", "-c", _SHOW, "keyturn", ROOT, name, *seconds)), parse_status)


_LINE = re.compile(
    r"armed (?P<armed>\S+) (?P<left>-?\d+)|restored (?P<restored>\S+) (?P<status>\d+) \d+"
    r"|drill (?P<drill>\d+) (?P<ago>-?\d+)|lasts (?P<lasts>\d+)"
)


def parse_status(text: str) -> ProbationStatus:
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise ParseError(f"the probation script printed an unknown line: {line[:100]!r}")
        found |= {key: value for key, value in match.groupdict().items() if value is not None}
    return ProbationStatus(
        armed=found.get("armed", ""),
        seconds_left=int(found.get("left", 0)),
        restored=found.get("restored", ""),
        restore_status=int(found.get("status", 0)),
        lasts=int(found.get("lasts", 0)),
        drill_seconds=int(found["ago"]) if found.get("drill") == "0" else None,
    )


def parse_timer(text: str) -> ProbationStatus:
    """Parse whether a Cisco's timer runs. It prints no time that is left: a minute is assumed."""
    if "No Rollback Confirmed Change pending" in text:
        return ProbationStatus()
    if re.search(r"^Timer value: \d+ min", text, re.MULTILINE):
        return ProbationStatus(armed=DEVICE.change, seconds_left=60)
    raise ParseError(f"the device printed {text[:200]!r} instead of its rollback timer")


def find_armed_change(command: Command) -> ArmedChange | None:
    """Return what this resolved command puts on probation; None for any other command."""
    if isinstance(command, SwitchLines):
        return DEVICE if command.has_timer else None
    words = _find_arguments(command, _ARM)
    return ArmedChange(words[1], words[3]) if len(words) > 3 else None


def get_armed_seconds(command: Command) -> int:
    """Return how long this resolved command arms at least; 0 for any other command."""
    if isinstance(command, SwitchLines):
        return command.timer_minutes * 60
    words = _find_arguments(command, _ARM)
    return int(words[2]) if len(words) > 3 else 0


def find_kept_change(command: Command) -> ArmedChange | None:
    """Return whose probation this resolved command ends; None for any other command."""
    if isinstance(command, SwitchLines):
        return DEVICE if command.is_confirmation else None
    words = _find_arguments(command, _KEEP)
    return ArmedChange(words[1], words[2]) if len(words) > 2 else None


def _find_arguments(command: Command, script: Script) -> tuple[str, ...]:
    words = command.words if isinstance(command, Shell) else ()
    for place, word in enumerate(words[:6]):
        if word == script.text:
            return words[place + 2 :]
        # Also of another version, since a run can outlast an upgrade.
        if word.startswith(f"{SCRIPTS_DIRECTORY}/{script.name}-"):
            return words[place + 1 :]
    return ()


def query_host_keys(address: str, port: int) -> Query[frozenset[str]]:
    """Query, on another host, the fingerprints of the keys that a host shows over SSH."""
    words = ("ssh-keyscan", "-T", "5", "-p", str(port), "--", address)
    hints = (Hint(r"ssh-keyscan\W+not found", "install openssh-client on the vantage"),)
    return Query(Shell(words, hints=hints), _parse_host_keys, frozenset({0, 1}))


def _parse_host_keys(text: str) -> frozenset[str]:
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    try:
        return frozenset(compute_fingerprint(key) for _, _, key in lines)
    except ValueError:
        raise ParseError(f"ssh-keyscan printed {text[:100]!r} instead of host keys") from None


_CHANGE = WordPattern("[0-9a-f]{16}")


def make_sudo_rules(probation: Probation, *words: RuleWord) -> tuple[SudoRule, ...]:
    """Return the rules of one probation. words: of its restore script."""
    name, seconds, restore = probation.name, probation.seconds, probation.restore
    return (
        SudoRule(_ARM, ROOT, name, seconds, _CHANGE, _EXPIRE, restore, *words),
        SudoRule(_KEEP, ROOT, name, _CHANGE),
    )


# It changes nothing: the drill proves that timer, scripts and directory do their work.
_DRILL = load_script("probation-drill", argument_count=1)
_DRILL_SECONDS = Setting("drill.probation", "90", pattern=r"[1-9][0-9]{0,3}")
DRILL = Probation("drill", _DRILL, _DRILL_SECONDS)
DRILL_CHANGE = "d" * 16
# Whether a change on probation needs a drill that succeeded within so many days.
DRILL_DAYS = 90
DRILL_POLICY = Setting("probation.drill", "advised", pattern="advised|required")
SUDO = make_sudo_rules(DRILL)
