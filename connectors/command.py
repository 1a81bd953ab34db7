"""What can be said to a host: a query that reads, or a command that changes. No I/O."""

import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from connectors.errors import CommandError, SettingError
from connectors.script import SCRIPTS_DIRECTORY, Script
from connectors.step_marker import StepMarker

T = TypeVar("T")

# Control, format, surrogate, private and unassigned characters, and line or paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class InvisibleCharacterError(ValueError):
    """A value holds a character that people cannot see and that programs may act on."""


def refuse_invisible(text: str) -> str:
    """Return *text* unchanged, or raise InvisibleCharacterError for its first such character."""
    # What can be printed holds none of them. Few texts have to be looked at letter by letter.
    if text.isprintable():
        return text
    for character in text:
        if unicodedata.category(character) in _INVISIBLE:
            name = unicodedata.name(character, "a control character")
            raise InvisibleCharacterError(
                f"holds the invisible character U+{ord(character):04X} ({name}): type it without"
            )
    return text


def quote_text(text: object) -> str:
    """Return what was typed between quotation marks; what cannot be printed is spelt out."""
    return f"'{''.join(map(_escape_unprintable, str(text)))}'"


def _escape_unprintable(character: str) -> str:
    # Any space is shown as one, also a no-break space.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()


@dataclass(frozen=True)
class Setting:
    """A word that differs between hosts: looked up in the inventory's `settings` of the host.

    prefix: stands before the value in the same word, such as `UNIX-CONNECT:`.
    pattern: a regular expression that the whole value must fit; any other is refused.
    """

    name: str
    default: str
    prefix: str = ""
    pattern: str = ".*"

    def resolve(self, settings: Mapping[str, str]) -> str:
        value = settings.get(self.name, self.default)
        if not re.fullmatch(self.pattern, value, re.ASCII):
            raise SettingError(
                f"the inventory sets {self.name} to {value!r}, and it must fit {self.pattern}"
            )
        return self.prefix + value

    def __str__(self) -> str:
        return self.prefix + self.default


@dataclass(frozen=True)
class Hint:
    """What a known error text means, and what to do: *pattern* is searched for in the answer."""

    pattern: str
    meaning: str


Word = str | Setting


def _resolve_word(word: Word, settings: Mapping[str, str]) -> str:
    return word.resolve(settings) if isinstance(word, Setting) else word


def _resolve_argv(
    argv: tuple[Word | Script, ...], settings: Mapping[str, str], *, installed: bool
) -> tuple[str, ...]:
    """Return the words for one host; installed: its scripts lie there as files."""
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
    """A program on a host, given as separate words so that nothing is ever quoted by hand.

    argv: the program and its arguments. A Setting is resolved per host before anything is shown,
        and so is a Script, which stands for a program, or for the text of one within another.
    stdin: what the program reads, sent as it is; may hold newlines.
    root: needs root. Where the login is not root, the resolved command begins with `sudo -n`.
    trouble: a regular expression; output that it is found in means failure, whatever the status.
    hints: what known errors of this program mean to a person; not part of what is approved.
    deadline: seconds of wall clock after which the host stops the command by itself.
    anew: goes over a connection opened for it alone, so that its arrival proves that the host
        still lets us in.
    note: what the host writes into its own log before it begins; not part of what is approved.
    mark: which step of which run it is, so that its host runs it once at the most and can be asked
        about it later; not part of what is approved.
    """

    argv: tuple[Word | Script, ...]
    stdin: str = ""
    root: bool = False
    error_pattern: str = ""
    hints: tuple[Hint, ...] = field(default=(), compare=False, repr=False)
    deadline: int = 30
    new_connection: bool = False
    note: str = field(default="", compare=False, repr=False)
    marker: StepMarker | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for word in self.words:
            refuse_invisible(word)
        for line in self.stdin.split("\n"):
            refuse_invisible(line)

    def resolve(
        self, settings: Mapping[str, str], *, sudo: bool, scripts: bool = False
    ) -> "Shell":
        """Return the command as one host will run it: settings filled in, sudo where needed.

        scripts: those that sudo runs lie there as files.
        """
        by_sudo = self.root and sudo
        words = _resolve_argv(self.argv, settings, installed=by_sudo and scripts)
        prefix = ("sudo", "-n", "--") if by_sudo else ()
        mark = self.marker.resolve(settings) if self.marker else None
        if (prefix + words, mark) == (self.argv, self.marker) and not self.root:
            return self
        return replace(self, argv=prefix + words, root=False, marker=mark)

    @property
    def words(self) -> tuple[str, ...]:
        head, *rest = self.argv
        first = ("sh", "-c", head.text, "keyturn") if isinstance(head, Script) else (str(head),)
        return first + tuple(str(word) for word in rest)

    def __str__(self) -> str:
        line = shlex.join(self.words)
        told = shlex.quote(self.stdin.removesuffix("\n"))
        return f"{line} <<< {told}" if self.stdin else line


# A network device is only shown things; a pipe may filter, where others write files.
_SHOW_LINE = re.compile(
    r"show( [A-Za-z0-9./:_-]+)+( \| (include|exclude|section|begin) [A-Za-z0-9 ./:_^$-]+)?"
)
# A longer line would be broken by a terminal, and its echo not known again.
_MAX_SHOW_LENGTH = 200
# What leaves the configuration, so that the next line would be a command. Devices take any
# beginning of a word for the word.
_EXIT_WORDS = {
    word[:length] for word in ("end", "exit", "quit", "logout") for length in range(1, 7)
}


@dataclass(frozen=True)
class SwitchLines:
    """Configuration lines for a network device, entered in one session.

    They change what runs, not what the device starts with.
    """

    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        for line in self.lines:
            first = refuse_invisible(line).split(maxsplit=1)[:1]
            if not first or first[0].lower() in _EXIT_WORDS | {"do"}:
                raise ValueError(f"{line!r} is no line of a configuration")

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True)
class DeviceCommand(SwitchLines):
    """One line that a network device answers, outside of its configuration, and that only shows.

    lines: the same question in the words of each of `platforms`, in their order.
    hints: as of a Shell. deadline: seconds after which nobody waits for the answer any more.
    """

    platforms: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = field(default=(), compare=False, repr=False)
    deadline: int = 30

    def __post_init__(self) -> None:
        for line in self.lines:
            if not _SHOW_LINE.fullmatch(refuse_invisible(line)) or len(line) > _MAX_SHOW_LENGTH:
                raise ValueError(f"{line!r} is no line that only shows something")

    def for_platform(self, platform: str) -> "DeviceCommand | None":
        """Return the question in the words of one platform, or None if it has none."""
        known = dict(zip(self.platforms, self.lines, strict=True))
        if platform not in known:
            return None
        return replace(self, lines=(known[platform],), platforms=(platform,))

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(self.lines))


Command = Shell | SwitchLines


@dataclass(frozen=True)
class Fetch:
    """A document that Keyturn itself gets over HTTPS, on behalf of a host; the host is not asked.

    Where it is comes from the inventory, never from a person's words.

    url: an https:// address. networks: where its server may be though they are not public, with
    commas between them. authority: a file beside the inventory with the certificates that the
    server's must be signed by; "" for those that this machine trusts. proxy: the http:// address
    of a proxy that leads to the server by its name; networks has no effect then.
    types: the media types that count. most: bytes. deadline: seconds for all of it.
    """

    url: Word
    networks: Word = ""
    authority: Word = ""
    proxy: Word = ""
    media_types: tuple[str, ...] = ("text/plain",)
    max_bytes: int = 5 * 1024 * 1024
    deadline: int = 20

    def resolve(self, settings: Mapping[str, str]) -> "Fetch":
        """Return what is fetched on behalf of one host."""
        return replace(
            self,
            url=_resolve_word(self.url, settings),
            networks=_resolve_word(self.networks, settings),
            authority=_resolve_word(self.authority, settings),
            proxy=_resolve_word(self.proxy, settings),
        )

    def __str__(self) -> str:
        return f"GET {self.url}"


# What somebody has to be reached for: the host, or who knows something about it.
RemoteCommand = Command | Fetch
# What may be asked for a host. A Setting is read in the inventory, and nobody is reached for it.
QueryCommand = RemoteCommand | Setting


@dataclass(frozen=True)
class Answer:
    """What a program said, and how it ended. Bytes that are not UTF-8 appear as `\\xNN`.

    left_out: bytes missing in the middle of a very long output; a line there says so.
    """

    status: int
    out: str
    err: str = ""
    omitted_bytes: int = 0

    @property
    def text(self) -> str:
        return "\n".join(part for part in (self.out.strip(), self.err.strip()) if part)


# Takes whole lines of a command's output.
OutputListener = Callable[[Sequence[str]], None]


def _allow() -> None:
    return


@dataclass(frozen=True)
class RunHooks:
    """What Keyturn calls while it runs a command, in the thread that waits for the command."""

    before_send: Callable[[], None] = _allow
    """Called right before the command is sent; raises HostError to send nothing.

    Between the decision and the packet lie a connection, a login and a wait for others: seconds,
    or hours where this machine was suspended meanwhile.
    """
    on_output: OutputListener | None = None
    """Called with each line while the command runs. Decide nothing by it: no end was seen yet."""


NO_HOOKS = RunHooks()


@dataclass(frozen=True)
class Query(Generic[T]):
    """A command that changes nothing, and how to understand its answer.

    parse: turns standard output into a type; raises ParseError, or CommandError where the
        program reports its errors as output.
    statuses: exit statuses that are answers; any other is a failure.
    """

    command: QueryCommand
    parse: Callable[[str], T]
    statuses: frozenset[int] = frozenset({0})


class QueryRunner(Protocol):
    """Puts a query to a host. It is all that a runbook may do to the outside world."""

    def __call__(self, host: str, query: Query[T], /) -> T: ...


_SUDO_REFUSAL = "sudo: a password is required"
# Where sudo looks for programs, by the lines that `keyturn sudoers` prints.
SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_program_check(told: QueryCommand, answer: Answer) -> Shell | None:
    """Return what says "missing" where a program is not there that sudo did not let a login run.

    sudo matches no rule for a program that is not there, and then says that a password is
    required, as for one that the login may not run. None where sudo let the command through.
    """
    if not isinstance(told, Shell) or told.words[:3] != ("sudo", "-n", "--"):
        return None
    if _SUDO_REFUSAL not in answer.err:
        return None
    program = told.words[3]
    script = f'PATH={SUDO_PATH}; command -v -- "$1" >/dev/null && echo there || echo missing'
    return Shell(("sh", "-c", script, "keyturn", program))


def make_missing_program_answer(told: QueryCommand) -> Answer:
    """Return what sudo would have said of a program that is not there."""
    program = told.words[3] if isinstance(told, Shell) else ""
    return Answer(1, "", f"sudo: {program}: command not found")


# What any command may run into, whatever its program.
_COMMON_HINTS = (
    Hint(
        r"sudo: (a password is required|a terminal is required)",
        "the login may not run this with sudo: install what `keyturn sudoers` prints for the host",
    ),
    Hint(
        rf"sudo: {SCRIPTS_DIRECTORY}/\S+: command not found",
        "this script is not on the host, or is of another version: install what `keyturn sudoers "
        "HOST --scripts` prints",
    ),
)
_NOT_FOUND = re.compile(
    r"sudo: (?P<sudo>\S+): command not found"
    r"|timeout: failed to run command \W?(?P<timeout>[\w./+-]+)\W?: No such file"
    r"|(?P<shell>[\w./+-]+): (?:command )?not found"
)
# What brings a program that is not there, on Debian and its like; elsewhere mostly the same.
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
    """Say that a program is not on a host, and what brings it there."""
    name = program.rpartition("/")[2]
    if name not in _PACKAGES:
        return f"the program {program} is not there: install it, or see that its name is right"
    return f"the program {program} is not there: install {_PACKAGES[name]}"


def _find_missing_program(said: str) -> str:
    found = _NOT_FOUND.search(said)
    return (
        format_missing_program(found["sudo"] or found["timeout"] or found["shell"])
        if found
        else ""
    )


def find_failure(
    command: QueryCommand, answer: Answer, statuses: frozenset[int]
) -> CommandError | None:
    """Judge an answer: None if the command did its work, else what went wrong and what to do."""
    shell = command if isinstance(command, Shell) else None
    shown = command if isinstance(command, DeviceCommand) else None
    said_trouble = shell is not None and bool(
        shell.error_pattern and re.search(shell.error_pattern, answer.out + answer.err)
    )
    if answer.status in statuses and not said_trouble:
        return None
    hints = shell.hints if shell else shown.hints if shown else ()
    known = next(
        (hint for hint in hints + _COMMON_HINTS if re.search(hint.pattern, answer.text)), None
    )
    meaning = known.meaning if known else _find_missing_program(answer.text)
    said = _format_last_lines(answer.text) or f"exit status {answer.status}, no words"
    return CommandError(f"{meaning} (it said: {said})" if meaning else f"it said: {said}")


def _format_last_lines(text: str, *, most: int = 3) -> str:
    return " / ".join(line.strip() for line in text.splitlines()[-most:])[:400]
