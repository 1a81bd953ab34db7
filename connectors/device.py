"""One warm connection to one network device: logged in, privileged, and out of its pager."""

import logging
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import paramiko

from connectors import key_file, password
from connectors.command import NO_HOOKS, Answer, DeviceCommand, RunHooks, SwitchLines
from connectors.errors import (
    CommandTimeoutError,
    HostError,
    LoginError,
    OutputLimitError,
    SetupError,
    UnknownOutcomeError,
    UnreachableError,
)
from connectors.inventory import Host
from connectors.password import Password
from connectors.ssh_stream import Stream
from connectors.ssh_transport import (
    ConnectionLostError,
    SshLimits,
    format_address,
    open_tcp_connection,
    open_transport,
)

if TYPE_CHECKING:
    from netmiko import BaseConnection

T = TypeVar("T")

# netmiko logs what it writes; what fails is told in words here.
logging.getLogger("netmiko").setLevel(logging.CRITICAL + 1)

# The inventory's platforms in netmiko's words. FRR's vtysh takes after Cisco's.
_DRIVERS = {
    "cisco_ios": "cisco_ios",
    "dell_powerconnect": "dell_powerconnect",
    "frr": "cisco_ios",
}
_CONFIGURE = {
    "cisco_ios": "configure terminal",
    "dell_powerconnect": "configure",
    "frr": "configure terminal",
}
# A name stands before its sign, so that a banner's frame of "####" is no prompt.
_PROMPT = re.compile(r"(?:\A|\n)[\w.:/@-]{1,63}(?:\([^\n()]*\))?[>#] ?\Z")
_CONFIGURING = re.compile(r"\([^\n()]*\)# ?\Z")
_USER = re.compile(r"(?:user ?name|login):\s*\Z", re.IGNORECASE)
_PASSWORD = re.compile(r"password:\s*\Z", re.IGNORECASE)
# A device has no exit status, so its words must tell. A line of its log begins with "%" too.
_ERROR = re.compile(
    r"^\s*%\s?(?!warning|portfast|[a-z][a-z0-9_]*-\d-)\S"
    r"|^\s*(command not found|error:|invalid input)|: command not found$"
    r"|^\w+d is not running",
    re.IGNORECASE | re.MULTILINE,
)
_MAX_CHARACTERS = 8 * 1024 * 1024
_LINE_SECONDS = 30


class JumpConnection(Protocol):
    """What leads to a host that is not reached directly: the connection to its jump host."""

    def open_tunnel(self, host: Host) -> Stream: ...

    @property
    def is_expired(self) -> bool: ...


def connect(
    host: Host, keys: Path, limits: SshLimits | None = None, *, via: JumpConnection | None = None
) -> "DeviceSession":
    """Connect to a network device, log in, and enter its privileged mode if it has a secret.

    keys: the directory that key and password files are relative to.
    """
    limits = limits or SshLimits()
    if host.host_key is None:
        raise SetupError(
            f"{host.name} is known by host_ca only, which network devices have no use for: "
            "give its host_key in the inventory (ssh-keyscan prints it)"
        )
    login = password.load_password(keys / host.password_file) if host.password_file else None
    secret = password.load_password(keys / host.enable_file) if host.enable_file else None
    key = login or key_file.load_key(keys / host.key)
    below = via.open_tunnel(host) if via else open_tcp_connection(host, limits)
    transport, stream = open_transport(host, key, limits, below)
    # paramiko waits without end for the replies to what makes a terminal of a channel.
    watchdog = threading.Timer(limits.connect + 2 * limits.login + 30, transport.close)
    watchdog.daemon = True
    watchdog.start()
    try:
        return DeviceSession(host, transport, stream, limits, via=via, login=login, secret=secret)
    except HostError:
        transport.close()
        raise
    except Exception as trouble:  # noqa: BLE001 - netmiko and paramiko raise whatever befell them
        transport.close()
        raise SetupError(
            f"{format_address(host)} let us in and then did not behave like a {host.platform}: "
            f"is its platform right in the inventory? ({type(trouble).__name__})"
        ) from None
    finally:
        watchdog.cancel()


class NoEchoError(UnknownOutcomeError):
    """The device hung up on us, and not even an echo of what was sent came back."""


class _SilenceError(Exception):
    """The device did not say in time what we wait for; holds the last that it said."""


class _HangUpError(Exception):
    """The device ended the session; holds all that it said."""


class DeviceSession:
    """A connection that is logged in. One command at a time: whoever keeps it sees to that."""

    def __init__(
        self,
        host: Host,
        transport: paramiko.Transport,
        stream: Stream,
        limits: SshLimits,
        *,
        via: JumpConnection | None,
        login: Password | None,
        secret: Password | None,
    ) -> None:
        self.via = via
        self._host = host
        self._transport = transport
        self._stream = stream
        self._limits = limits
        self._channel = _open_terminal(transport, limits)
        self._wake = threading.Event()
        self._channel.in_buffer.set_event(self._wake)
        self._netmiko = _make_netmiko(host, self._channel)
        self._log_in(login)
        self._become_privileged(secret)
        self._send_line("")  # netmiko wants to hear something
        self._netmiko.session_preparation()
        name = re.escape(self._netmiko.base_prompt.rstrip(">#"))
        self._prompt = re.compile(rf"(?:\A|\n){name}[^\s>#]*[>#] ?\Z")

    @property
    def is_usable(self) -> bool:
        is_old = self._stream.is_expired or (self.via is not None and self.via.is_expired)
        return self._transport.is_active() and not self._channel.closed and not is_old

    def close(self) -> None:
        self._transport.close()
        self._netmiko.disconnect()  # takes its filter off the log

    def run(self, command: SwitchLines, hooks: RunHooks = NO_HOOKS) -> Answer:
        """Say one line that shows something, or enter lines into the configuration.

        The answer has status 1 where the device's own words tell of a failure.
        """
        if not self._transport.is_active() or self._channel.closed:
            self.close()
            raise ConnectionLostError(
                f"the connection to {format_address(self._host)} was lost before anything was sent"
            )
        self._stream.begin_work()
        try:
            if isinstance(command, DeviceCommand):
                return self._run_show_command(command, hooks)
            return self._run_configuration(command, hooks)
        finally:
            self._stream.end_work()

    def _run_show_command(self, command: DeviceCommand, hooks: RunHooks) -> Answer:
        hooks.before_send()
        (line,) = command.lines
        try:
            said, _ = self._run_line(line, self._prompt, command.deadline)
        except NoEchoError as trouble:
            raise ConnectionLostError(str(trouble)) from None  # a question may be put again
        return Answer(1 if _ERROR.search(said) else 0, said)

    def _run_configuration(self, command: SwitchLines, hooks: RunHooks) -> Answer:
        hooks.before_send()
        self._enter_configuration_mode()
        hooks.before_send()
        told: list[str] = []
        for line in command.lines:
            said, prompt = self._run_line(line, _PROMPT, _LINE_SECONDS)
            told.append(said)
            left = not _CONFIGURING.search(prompt)
            if left or _ERROR.search(said):
                self.close()  # which leaves the configuration too
                what = "leaves the configuration at" if left else "refuses"
                before = f"; the lines before it, {len(told) - 1}, are in force"
                return Answer(1, said, f"it {what} {line!r}{before if told[1:] else ''}")
        try:
            self._run_line("end", self._prompt, _LINE_SECONDS)
        except HostError:
            self.close()  # all lines are in force, and the next command gets a new connection
        return Answer(0, "".join(told))

    def _enter_configuration_mode(self) -> None:
        if not self._is_privileged:
            raise SetupError(
                f"{self._host.name} lets {self._host.user} look and not configure: name the "
                "secret of its privileged mode as enable_file in the inventory. Nothing was sent"
            )
        word = _CONFIGURE[self._host.platform]
        said, prompt = self._run_line(word, _PROMPT, _LINE_SECONDS)
        if not _CONFIGURING.search(prompt):
            self.close()
            raise UnreachableError(
                f"{format_address(self._host)} does not let us into its configuration, and "
                "nothing was "
                f"changed: is somebody else configuring it? (it said: {said.strip()[-200:]})"
            )

    def _run_line(self, line: str, prompt: re.Pattern[str], seconds: float) -> tuple[str, str]:
        """Say a line; return what came between its echo and the prompt, and the prompt."""
        try:
            self._netmiko.read_channel()  # what was said unasked, such as a line of a log
            self._send_line(line)
            return self._read_until(partial(_find_answer, line, prompt), seconds)
        except _SilenceError as silence:
            self.close()
            raise CommandTimeoutError(
                f"{self._host.name} did not come to an end of its answer to {line!r} within "
                f"{seconds:g} s (the last that came was: {silence})"
            ) from None
        except HostError:
            self.close()
            raise
        except Exception as trouble:  # noqa: BLE001 - paramiko and netmiko raise whatever befell them
            self.close()
            heard = isinstance(trouble, _HangUpError) and trouble.args[0]
            raise (UnknownOutcomeError if heard else NoEchoError)(
                f"{self._host.name} hung up after {line!r} was sent and before its answer was "
                "whole: whether it took it is not known"
            ) from None

    def _send_line(self, line: str) -> None:
        self._netmiko.write_channel(line + self._netmiko.RETURN)

    def _read_until(self, find: Callable[[str], T | None], seconds: float) -> T:
        """Listen until *find* finds what it looks for in all that was heard meanwhile."""
        end = time.monotonic() + seconds
        heard = ""
        while True:
            # Asked before reading: what came before the end is still to be read.
            over = self._channel.eof_received or self._channel.closed
            heard += self._netmiko.read_channel()
            found = find(heard)
            if found is not None:
                return found
            if over:
                raise _HangUpError(heard)
            if len(heard) > _MAX_CHARACTERS:
                raise OutputLimitError(
                    f"{self._host.name} answered more than {_MAX_CHARACTERS} characters"
                )
            left = end - time.monotonic()
            if left <= 0:
                raise _SilenceError(repr(heard[-120:].strip()))
            self._wake.wait(left)

    def _log_in(self, login: Password | None) -> None:
        """Answer what the device asks in its own command line, as Dell's do, each once."""
        answers = {"user": self._host.user, "password": login.text if login else ""}
        asked = self._read_prompt()
        while asked in answers:
            answer = answers.pop(asked)
            if not answer:
                raise LoginError(
                    f"{format_address(self._host)} asks for a password in its command line: "
                    "name its password_file in the inventory"
                )
            self._send_line(answer)
            asked = self._read_prompt()
        if asked in {"user", "password"}:
            where = f" ({login.file})" if login else ""
            raise LoginError(
                f"{format_address(self._host)} refuses {self._host.user} with our "
                f"password{where}: "
                "put the right one there"
            )

    def _become_privileged(self, secret: Password | None) -> None:
        # Dell's let nobody look at anything before that, and some want no secret.
        if self._is_privileged or not (secret or self._host.platform == "dell_powerconnect"):
            return
        self._send_line("enable")
        if self._read_prompt() == "password":
            if secret is None:
                raise SetupError(
                    f"{format_address(self._host)} wants a secret for its privileged mode: "
                    "name its enable_file in the inventory"
                )
            self._send_line(secret.text)
            self._read_prompt()
        if not self._is_privileged:
            where = f" ({secret.file})" if secret else ""
            raise LoginError(
                f"{format_address(self._host)} lets {self._host.user} in and does not take our "
                "secret for "
                f"its privileged mode{where}: put the right one there"
            )

    def _read_prompt(self) -> str:
        """Return what the device waits for: `user`, `password`, or `>` or `#` for a command."""
        try:
            asked = self._read_until(_find_prompt, self._limits.login)
        except (_SilenceError, _HangUpError) as trouble:
            is_silent = isinstance(trouble, _SilenceError)
            said = f" (it said {trouble})" if is_silent else ", it hung up"
            raise UnreachableError(
                f"{format_address(self._host)} let us in and then showed no command line{said}"
            ) from None
        self._is_privileged = asked == "#"
        return asked


def _find_prompt(heard: str) -> str | None:
    if _USER.search(heard):
        return "user"
    if _PASSWORD.search(heard):
        return "password"
    return heard.rstrip()[-1] if _PROMPT.search(heard) else None


def _find_answer(line: str, prompt: re.Pattern[str], heard: str) -> tuple[str, str] | None:
    """Return what stands between a line's echo and the prompt, and that, once both are there."""
    echo = heard.find(line)
    if echo < 0:
        return None
    said = heard[echo + len(line) :]
    found = prompt.search(said, max(0, len(said) - 300))
    return (said[: found.start() + 1].lstrip("\r\n"), found[0]) if found else None


def _open_terminal(transport: paramiko.Transport, limits: SshLimits) -> paramiko.Channel:
    """Open a command line so wide that no device breaks a line."""
    channel = transport.open_session(timeout=limits.channel)
    channel.settimeout(limits.login)
    channel.get_pty(term="vt100", width=511, height=1000)
    channel.invoke_shell()
    return channel


def _make_netmiko(host: Host, channel: paramiko.Channel) -> "BaseConnection":
    """Give netmiko a command line to work on; it never connects, nor learns a password."""
    # It takes more than a second to import, and most who start this never meet a device.
    from netmiko import ConnectHandler
    from netmiko.channel import SSHChannel

    connection = ConnectHandler(
        device_type=_DRIVERS[host.platform],
        host=host.address,
        username=host.user,
        auto_connect=False,
        ssh_strict=True,  # were it ever to connect by itself
    )
    connection.remote_conn_pre = None
    connection.remote_conn = channel
    connection.channel = SSHChannel(conn=channel, encoding="utf-8")
    connection.ansi_escape_codes = True
    return connection
