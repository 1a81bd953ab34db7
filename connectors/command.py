"""Queries and commands: what Keyturn can send to a host. No I/O.

A `Query` reads and parses what a program prints. A `Shell` or `SwitchLines` command changes
something. A runbook builds both with the functions of the connectors, such as
`zfs.query_status()` and `zfs.start_scrub("tank")`.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar

from connectors.errors import CommandError, SettingError
from connectors.script import SCRIPTS_DIRECTORY, Script
from connectors.step_marker import StepMarker
from connectors.visible_text import quote_text, refuse_invisible

T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """A word of a command that differs between hosts, from the host's `settings`."""

    name: str
    """The key in the inventory's `settings`, such as `haproxy.socket`."""
    default: str
    """The value for hosts without that key."""
    prefix: str = ""
    """Text before the value in the same word, such as `UNIX-CONNECT:`."""
    pattern: str = ".*"
    """A regular expression that must match the whole value."""

    def resolve(self, settings: Mapping[str, str]) -> str:
        """Return the word for one host. Raises SettingError if the value does not match."""
        value = settings.get(self.name, self.default)
        if not re.fullmatch(self.pattern, value, re.ASCII):
            raise SettingError(
                f"the inventory sets {self.name} to {value!r}: it must match {self.pattern}"
            )
        return self.prefix + value

    def __str__(self) -> str:
        return self.prefix + self.default


@dataclass(frozen=True)
class Hint:
    """What a known error of a program means to a person."""

    pattern: str
    """A regular expression that is searched for in the output."""
    meaning: str
    """What is wrong and what to do."""


Word = str | Setting


def _resolve_word(word: Word, settings: Mapping[str, str]) -> str:
    return word.resolve(settings) if isinstance(word, Setting) else word


def _resolve_argv(
    argv: tuple[Word | Script, ...], settings: Mapping[str, str], *, installed: bool
) -> tuple[str, ...]:
    """Return the words for one host. installed: scripts are files on the host."""
    head, *rest = argv
    match head:
        case Script() if installed:
            first: tuple[str, ...] = (head.path,)
        case Script():
            first = ("sh", "-c", head.text, "keyturn")
        case _:
            first = (_resolve_word(head, settings),)
    return first + tuple(
        word.format_argument(installed=installed)
        if isinstance(word, Script)
        else _resolve_word(word, settings)
        for word in rest
    )


@dataclass(frozen=True)
class Shell:
    """A program to run on a host, as separate words: Keyturn does all quoting.

    `hints`, `note` and `marker` are not part of what an approver approves.
    """

    argv: tuple[Word | Script, ...]
    """The program and its arguments. A Setting or a Script is resolved for each host."""
    stdin: str = ""
    """What the program reads on standard input. It may contain newlines."""
    root: bool = False
    """Whether it needs root. For a login that is not root, it runs with `sudo -n`."""
    error_pattern: str = ""
    """A regular expression. Output that contains a match means failure, whatever the status."""
    hints: tuple[Hint, ...] = field(default=(), compare=False, repr=False)
    """What known errors of this program mean. The first match is shown."""
    deadline: int = 30
    """Seconds after which the host stops the command."""
    new_connection: bool = False
    """Whether to open a connection for it alone: success proves that logins still work."""
    enrolled_argv: tuple[Word | Script, ...] = field(default=(), compare=False, repr=False)
    """What runs in place of argv, as root, on a host that checks signatures: the login could
    change the host by what argv opens."""
    note: str = field(default="", compare=False, repr=False)
    """What the host writes to its own log before it starts the command."""
    marker: StepMarker | None = field(default=None, compare=False, repr=False)
    """The step that it is, so that the host runs it at most once and can report on it later."""
    begun_status: int | None = field(default=None, compare=False, repr=False)
    """The exit status by which its program says that the step began before, and is not known to
    have ended."""

    def __post_init__(self) -> None:
        for word in self.words:
            refuse_invisible(word)
        for line in self.stdin.split("\n"):
            refuse_invisible(line)

    def resolve(
        self, settings: Mapping[str, str], *, sudo: bool, scripts: bool = False
    ) -> "Shell":
        """Return the command as one host runs it.

        Args:
            settings: of the host, from the inventory.
            sudo: whether the login needs sudo to be root.
            scripts: whether scripts that sudo runs are files on the host.

        Raises:
            SettingError: a setting of the host does not match its pattern.
        """
        by_sudo = self.root and sudo
        words = _resolve_argv(self.argv, settings, installed=by_sudo and scripts)
        prefix = ("sudo", "-n", "--") if by_sudo else ()
        mark = self.marker.resolve(settings) if self.marker else None
        if (prefix + words, mark) == (self.argv, self.marker) and not self.root:
            return self
        return replace(self, argv=prefix + words, root=False, marker=mark)

    def resolve_for_root(self, settings: Mapping[str, str]) -> "Shell":
        """Return the command as a program of root runs it, with the host's installed scripts."""
        words = _resolve_argv(self.argv, settings, installed=self.root)
        return replace(self, argv=words, root=False)

    @property
    def for_enrolled_host(self) -> "Shell":
        """The query as a host that checks signatures runs it."""
        if not self.enrolled_argv:
            return self
        return replace(self, argv=self.enrolled_argv, enrolled_argv=(), root=True)

    @property
    def words(self) -> tuple[str, ...]:
        head, *rest = self.argv
        first = ("sh", "-c", head.text, "keyturn") if isinstance(head, Script) else (str(head),)
        return first + tuple(str(word) for word in rest)

    def __str__(self) -> str:
        line = shlex.join(self.words)
        stdin = shlex.quote(self.stdin.removesuffix("\n"))
        return f"{line} <<< {stdin}" if self.stdin else line


# Only show commands may be sent. A pipe may filter; other uses of a pipe write files.
_SHOW_LINE = re.compile(
    r"show( [A-Za-z0-9./:_-]+)+( \| (include|exclude|section|begin) [A-Za-z0-9 ./:_^$-]+)?"
)
# A terminal would wrap a longer line, and its echo would not be recognised.
_MAX_SHOW_LENGTH = 200
# Words that leave configuration mode: the next line would be a command. Devices accept any
# abbreviation of a word.
_EXIT_WORDS = {
    word[:length] for word in ("end", "exit", "quit", "logout") for length in range(1, 7)
}


_REVERT_TIMER = "configure terminal revert timer"
_CONFIRM = "configure confirm"


@dataclass(frozen=True)
class SwitchLines:
    """Configuration lines for a network device, entered in one session.

    They change the running configuration, not the startup configuration.
    """

    lines: tuple[str, ...]
    """The lines to enter, in order."""

    @property
    def has_timer(self) -> bool:
        """Whether the device restores its configuration unless it receives a confirmation."""
        return self.timer_minutes > 0

    @property
    def timer_minutes(self) -> int:
        """The minutes after which the device restores its configuration; 0 for never."""
        head, _, minutes = self.lines[0].rpartition(" ") if self.lines else ("", "", "")
        return int(minutes) if head == _REVERT_TIMER else 0

    @property
    def is_confirmation(self) -> bool:
        """Whether it only keeps what was entered with a timer."""
        return self.lines == (_CONFIRM,)

    @property
    def new_connection(self) -> bool:
        """Whether to open a connection for it alone: success proves that logins still work."""
        return self.is_confirmation

    def __post_init__(self) -> None:
        for line in self.lines:
            first = refuse_invisible(line).split(maxsplit=1)[:1]
            if not first or first[0].lower() in _EXIT_WORDS | {"do"}:
                raise ValueError(f"{line!r} is not a configuration line")

    def __str__(self) -> str:
        return "\n".join(self.lines)


def enter_with_timer(minutes: int, *lines: str) -> SwitchLines:
    """Enter lines that the device reverts after some minutes, unless it receives `CONFIRM`."""
    return SwitchLines((f"{_REVERT_TIMER} {minutes}", *lines))


CONFIRM = SwitchLines((_CONFIRM,))


@dataclass(frozen=True)
class DeviceCommand(SwitchLines):
    """A `show` command for a network device, in one spelling for each platform.

    `lines` has one line for each of `platforms`, in the same order.
    """

    platforms: tuple[str, ...] = ()
    """The platforms that know the command, such as `cisco_ios`."""
    hints: tuple[Hint, ...] = field(default=(), compare=False, repr=False)
    """What known errors mean, as for a Shell."""
    deadline: int = 30
    """Seconds to wait for the output."""

    def __post_init__(self) -> None:
        for line in self.lines:
            if not _SHOW_LINE.fullmatch(refuse_invisible(line)) or len(line) > _MAX_SHOW_LENGTH:
                raise ValueError(f"{line!r} is not a show command")

    def for_platform(self, platform: str) -> "DeviceCommand | None":
        """Return the command for one platform, or None if that platform has none."""
        known = dict(zip(self.platforms, self.lines, strict=True))
        if platform not in known:
            return None
        return replace(self, lines=(known[platform],), platforms=(platform,))

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(self.lines))


# Links of a management interface may hold a query; "//" would begin the name of another server.
_API_PATH = re.compile(r"/[A-Za-z0-9._~%:@!$&'()*+,;=-][A-Za-z0-9._~%:@!$&'()*+,;=/?#-]{0,500}")


@dataclass(frozen=True)
class ApiCall:
    """A call of the HTTPS interface that manages a host: its BMC, or the API of an array.

    Keyturn connects to the interface itself and sends the call once. It does not contact the
    system that runs on the host.
    """

    path: str
    """Such as /redfish/v1/Systems/1."""
    method: Literal["GET", "POST", "PATCH"] = "GET"
    """Only GET changes nothing."""
    body: str = ""
    """What is sent, as JSON."""
    watched_path: str = ""
    """After a POST: the resource to read until its `PowerState` is `power_state`."""
    power_state: str = ""
    deadline: int = 0
    """Seconds after the call for reaching the power state."""
    server: str = ""
    """The interface that was approved: its address, and its certificate or CA. "" until the
    command is resolved for a host."""

    def __post_init__(self) -> None:
        for path in (self.path, self.watched_path or self.path):
            if not _API_PATH.fullmatch(path):
                raise ValueError(f"{quote_text(path)} is not the path of a resource")
        refuse_invisible(self.body)

    def __str__(self) -> str:
        call = " ".join(filter(None, (self.method, self.path, self.body)))
        return f"{call}, then wait for {self.power_state}" if self.power_state else call


Command = Shell | SwitchLines | ApiCall


@dataclass(frozen=True)
class Fetch:
    """A document that Keyturn itself downloads over HTTPS for a host.

    The address comes from the inventory, never from a request. The host is not contacted.
    """

    url: Word
    """An https:// address."""
    networks: Word = ""
    """Networks that are not public and where the server may be, separated by commas."""
    authority: Word = ""
    """A PEM file of CA certificates beside the inventory; "" for this machine's trusted ones."""
    proxy: Word = ""
    """The http:// address of a proxy, which resolves the server's name; `networks` is unused."""
    media_types: tuple[str, ...] = ("text/plain",)
    """The media types that are accepted."""
    max_bytes: int = 5 * 1024 * 1024
    """The largest document that is accepted."""
    deadline: int = 20
    """Seconds for the whole download."""

    def resolve(self, settings: Mapping[str, str]) -> "Fetch":
        """Return the download for one host. Raises SettingError."""
        return replace(
            self,
            url=_resolve_word(self.url, settings),
            networks=_resolve_word(self.networks, settings),
            authority=_resolve_word(self.authority, settings),
            proxy=_resolve_word(self.proxy, settings),
        )

    def __str__(self) -> str:
        return f"GET {self.url}"


@dataclass(frozen=True)
class SnmpWalk:
    """Columns of tables that the SNMP agent of a device returns.

    The output has one line for each value, as `snmpwalk -On` prints it, with texts as JSON.
    """

    columns: tuple[str, ...]
    """Their object identifiers, such as `1.3.6.1.2.1.1.1`. An agent may lack some of them."""

    def __str__(self) -> str:
        return f"snmpwalk {' '.join(self.columns)}"


_SNMP_SET_LINE = re.compile(r"1(\.[0-9]+)+ i -?[0-9]+")


@dataclass(frozen=True)
class SnmpSet(SwitchLines):
    """Integers for a device to set, all in one SNMP message.

    Each line is `OID i VALUE`, the words of Net-SNMP's snmpset.
    """

    def __post_init__(self) -> None:
        for line in self.lines:
            if not _SNMP_SET_LINE.fullmatch(line):
                raise ValueError(f"{line!r} is not an object identifier, `i` and a number")


# What needs a connection: to the host, or to a server that knows something about it.
RemoteCommand = Command | Fetch | SnmpWalk
# What a query may use. A Setting is read from the inventory, without a connection.
QueryCommand = RemoteCommand | Setting


@dataclass(frozen=True)
class Answer:
    """The output of a program and its exit status. Bytes that are not UTF-8 become `\\xNN`."""

    status: int
    """The exit status."""
    out: str
    """Standard output."""
    err: str = ""
    """Standard error."""
    omitted_bytes: int = 0
    """Bytes missing from the middle of a very long output; a line in their place says so."""

    @property
    def text(self) -> str:
        """Both streams, without blank ends: what an error message quotes."""
        return "\n".join(part for part in (self.out.strip(), self.err.strip()) if part)


# Receives complete lines of a command's output.
OutputListener = Callable[[Sequence[str]], None]


def _allow() -> None:
    return


@dataclass(frozen=True)
class RunHooks:
    """Functions to call while a command runs, in the thread that waits for the command."""

    before_send: Callable[[], None] = _allow
    """Called right before the command is sent. Raise HostError in it to send nothing.

    Connecting, logging in and waiting for other commands take seconds, or hours where this
    machine is suspended meanwhile. So what was decided before is checked again here.
    """
    on_output: OutputListener | None = None
    """Called with each line of output. Do not decide by it: the exit status is not known yet."""


NO_HOOKS = RunHooks()


@dataclass(frozen=True)
class Query(Generic[T]):
    """A command that changes nothing, with the parser of its output."""

    command: QueryCommand
    """What to run."""
    parse: Callable[[str], T]
    """Turns standard output into a value.

    Raises ParseError for output that it does not know, or CommandError where the program prints
    its errors on standard output.
    """
    statuses: frozenset[int] = frozenset({0})
    """Exit statuses of success. Any other is a CommandError."""


class QueryRunner(Protocol):
    """Runs queries: the only access to the outside that a runbook has.

    A runbook receives one in `read(self, run_query)`.
    """

    def __call__(self, host: str, query: Query[T], /) -> T:
        """Run *query* on *host* and return its parsed output.

        Raises:
            HostError: the host cannot be reached, the command failed (CommandError), or its
                output is not understood (ParseError). Let it pass: an error must never look
                like an empty state.
        """
        ...


_SUDO_REFUSAL = "sudo: a password is required"
# Where sudo looks for programs, as `keyturn sudoers` sets it.
SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_program_check(command: QueryCommand, answer: Answer) -> Shell | None:
    """Return a command that prints "missing" if the program that sudo refused is not installed.

    For a program that does not exist, sudo finds no matching rule and asks for a password, as it
    does for one that the login may not run. Returns None if sudo did not refuse *command*.
    """
    if not isinstance(command, Shell) or command.words[:3] != ("sudo", "-n", "--"):
        return None
    if _SUDO_REFUSAL not in answer.err:
        return None
    program = command.words[3]
    script = f'PATH={SUDO_PATH}; command -v -- "$1" >/dev/null && echo there || echo missing'
    return Shell(("sh", "-c", script, "keyturn", program))


def make_missing_program_answer(command: QueryCommand) -> Answer:
    """Return the answer of sudo for a program that is not installed."""
    program = command.words[3] if isinstance(command, Shell) else ""
    return Answer(1, "", f"sudo: {program}: command not found")


# Errors that any command can have, whatever its program.
_COMMON_HINTS = (
    Hint(
        r"sudo: (a password is required|a terminal is required)",
        "the login may not run this with sudo: install the sudo rules that `keyturn sudoers` "
        "prints for the host",
    ),
    Hint(
        rf"sudo: {SCRIPTS_DIRECTORY}/\S+: command not found",
        "this script is missing on the host, or has another version: install what `keyturn "
        "sudoers HOST --scripts` prints",
    ),
)
_NOT_FOUND = re.compile(
    r"sudo: (?P<sudo>\S+): command not found"
    r"|timeout: failed to run command \W?(?P<timeout>[\w./+-]+)\W?: No such file"
    r"|(?P<shell>[\w./+-]+): (?:command )?not found"
)
# Which package provides a program on Debian and Ubuntu; elsewhere mostly the same.
_PACKAGES = {
    **dict.fromkeys(("zpool", "zfs"), "zfsutils-linux"),
    **dict.fromkeys(("tc", "ip", "ss", "bridge"), "iproute2"),
    **dict.fromkeys(("sysctl", "pgrep"), "procps"),
    **dict.fromkeys(("findmnt", "mount", "lsblk", "flock", "setsid", "last"), "util-linux"),
    **dict.fromkeys(("systemctl", "journalctl"), "systemd"),
    **dict.fromkeys(("postqueue", "postconf"), "postfix"),
    **dict.fromkeys(("apachectl", "apache2ctl"), "apache2"),
    **{"exportfs": "nfs-kernel-server", "mdadm": "mdadm", "nginx": "nginx", "sudo": "sudo"},
    **{"modinfo": "kmod", "exim": "exim4", "csf": "ConfigServer Firewall", "socat": "socat"},
    **{"haproxy": "haproxy", "ethtool": "ethtool", "iptables": "iptables", "ipset": "ipset"},
}


def format_missing_program(program: str) -> str:
    """Return an error message for a program that is not installed, with its package."""
    name = program.rpartition("/")[2]
    if name not in _PACKAGES:
        return f"the program {program} is missing: install it, or correct its name"
    return f"the program {program} is missing: install {_PACKAGES[name]}"


def _explain_missing_program(output: str) -> str:
    found = _NOT_FOUND.search(output)
    return (
        format_missing_program(found["sudo"] or found["timeout"] or found["shell"])
        if found
        else ""
    )


def find_failure(
    command: QueryCommand, answer: Answer, statuses: frozenset[int]
) -> CommandError | None:
    """Return the error of a command that failed, with what to do; None if it succeeded."""
    shell = command if isinstance(command, Shell) else None
    show = command if isinstance(command, DeviceCommand) else None
    printed_error = shell is not None and bool(
        shell.error_pattern and re.search(shell.error_pattern, answer.out + answer.err)
    )
    if answer.status in statuses and not printed_error:
        return None
    hints = shell.hints if shell else show.hints if show else ()
    known = next(
        (hint for hint in hints + _COMMON_HINTS if re.search(hint.pattern, answer.text)), None
    )
    meaning = known.meaning if known else _explain_missing_program(answer.text)
    output = _format_last_lines(answer.text) or f"none, exit status {answer.status}"
    return CommandError(f"{meaning} (output: {output})" if meaning else f"output: {output}")


def _format_last_lines(text: str) -> str:
    return " / ".join(line.strip() for line in text.splitlines()[-3:])[:400]
