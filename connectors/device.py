"""Session on a network device: logged in, in privileged mode, with the pager off."""

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

# netmiko logs what it sends; errors are raised here with messages.
logging.getLogger("netmiko").setLevel(logging.CRITICAL + 1)

# FRR's vtysh resembles Cisco's command line. Other platforms have netmiko's names.
_DRIVERS = {"frr": "cisco_ios"}
_CONFIGURE = {
    "cisco_ios": "configure terminal",
    "dell_powerconnect": "configure",
    "frr": "configure terminal",
}
# A prompt has a name before its sign, so the frame "####" of a banner is not one.
_PROMPT = re.compile(r"(?:\A|\n)[\w.:/@-]{1,63}(?:\([^\n()]*\))?[>#] ?\Z")
_CONFIGURING = re.compile(r"\([^\n()]*\)# ?\Z")
_USER = re.compile(r"(?:user ?name|login):\s*\Z", re.IGNORECASE)
# An HP waits for a key between its banner and its prompt.
_ANY_KEY = re.compile(r"any key to continue\W*\Z", re.IGNORECASE)
_PASSWORD = re.compile(r"password:\s*\Z", re.IGNORECASE)
# A device has no exit status, so errors are found in its output. Its log lines begin with "%" too.
_ERROR = re.compile(
    r"^\s*%\s?(?!warning|portfast|[a-z][a-z0-9_]*-\d-)\S"
    r"|^\s*(command not found|error:|(invalid|ambiguous) input|unknown command|syntax error)"
    r"|: command not found$"
    r"|^\w+d is not running",
    re.IGNORECASE | re.MULTILINE,
)
_MAX_CHARACTERS = 8 * 1024 * 1024
_LINE_SECONDS = 30


class JumpConnection(Protocol):
    """The connection to a jump host."""

    def open_tunnel(self, host: Host) -> Stream: ...

    @property
    def is_expired(self) -> bool: ...


def connect(
    host: Host, keys: Path, limits: SshLimits | None = None, *, via: JumpConnection | None = None
) -> "DeviceSession":
    """Connect to a network device, log in, and enter privileged mode if it has a secret.

    keys: the directory that key and password files are relative to. Raises HostError.
    """
    limits = limits or SshLimits()
    if host.host_key is None:
        raise SetupError(
            f"{host.name} has only host_ca, which network devices do not support: "
            "set its host_key in the inventory (ssh-keyscan prints it)"
        )
    login = password.load_password(keys / host.password_file) if host.password_file else None
    secret = password.load_password(keys / host.enable_file) if host.enable_file else None
    key = login or key_file.load_key(keys / host.key)
    below = via.open_tunnel(host) if via else open_tcp_connection(host, limits)
    transport, stream = open_transport(host, key, limits, below)
    # paramiko waits without a limit for the replies that make a channel a terminal.
    watchdog = threading.Timer(limits.connect + 2 * limits.login + 30, transport.close)
    watchdog.daemon = True
    watchdog.start()
    try:
        return DeviceSession(host, transport, stream, limits, via=via, login=login, secret=secret)
    except HostError:
        transport.close()
        raise
    except Exception as error:  # noqa: BLE001 - netmiko and paramiko raise errors of any type
        transport.close()
        raise SetupError(
            f"{format_address(host)} accepted the login and then did not behave like a "
            f"{host.platform}: check its platform in the inventory ({type(error).__name__})"
        ) from None
    finally:
        watchdog.cancel()


class NoEchoError(UnknownOutcomeError):
    """The device closed the session, and no echo of what was sent came back."""


class _SilenceError(Exception):
    """The expected output did not arrive in time; holds the last output."""


class _HangUpError(Exception):
    """The device ended the session; holds all its output."""


class DeviceSession:
    """A connection that is logged in. It runs one command at a time: the pool ensures that."""

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
        self._send_line("")  # netmiko reads a prompt first
        self._netmiko.session_preparation()
        name = re.escape(self._netmiko.base_prompt.rstrip(">#"))
        self._prompt = re.compile(rf"(?:\A|\n){name}[^\s>#]*[>#] ?\Z")

    @property
    def is_usable(self) -> bool:
        is_old = self._stream.is_expired or (self.via is not None and self.via.is_expired)
        return self._transport.is_active() and not self._channel.closed and not is_old

    def close(self) -> None:
        self._transport.close()
        self._netmiko.disconnect()  # removes its filter from the log

    def run(self, command: SwitchLines, hooks: RunHooks = NO_HOOKS) -> Answer:
        """Run one show command, or enter lines into the configuration.

        The answer has status 1 where the output is an error message. Raises HostError.
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
            if command.is_confirmation:
                return self._run_confirmation(command, hooks)
            return self._run_configuration(command, hooks)
        finally:
            self._stream.end_work()

    def _run_show_command(self, command: DeviceCommand, hooks: RunHooks) -> Answer:
        hooks.before_send()
        (line,) = command.lines
        try:
            said, _ = self._run_line(line, self._prompt, command.deadline)
        except NoEchoError as error:
            raise ConnectionLostError(str(error)) from None  # a show command can be repeated
        return Answer(1 if _ERROR.search(said) else 0, said)

    def _run_confirmation(self, command: SwitchLines, hooks: RunHooks) -> Answer:
        hooks.before_send()
        (line,) = command.lines
        output, _ = self._run_line(line, self._prompt, _LINE_SECONDS)
        return Answer(1 if _ERROR.search(output) else 0, output)

    def _run_configuration(self, command: SwitchLines, hooks: RunHooks) -> Answer:
        hooks.before_send()
        first, *rest = command.lines
        word = first if command.has_timer else _CONFIGURE.get(self._host.platform)
        if word is None:
            raise SetupError(
                f"Keyturn does not configure devices of platform {self._host.platform}, such as "
                f"{self._host.name}. Nothing was sent"
            )
        self._enter_configuration_mode(word)
        hooks.before_send()
        outputs: list[str] = []
        for line in rest if command.has_timer else command.lines:
            output, prompt = self._run_line(line, _PROMPT, _LINE_SECONDS)
            outputs.append(output)
            left = not _CONFIGURING.search(prompt)
            if left or _ERROR.search(output):
                error = "left configuration mode at" if left else "refused"
                if command.has_timer:
                    self._revert_now(left=left)
                    applied = "; it reverted all lines"
                else:
                    applied = _format_applied_lines(len(outputs) - 1)
                self.close()  # which leaves the configuration too
                return Answer(1, output, f"the device {error} {line!r}{applied}")
        try:
            self._run_line("end", self._prompt, _LINE_SECONDS)
        except HostError:
            self.close()  # all lines are in force, and the next command gets a new connection
        return Answer(0, "".join(outputs))

    def _revert_now(self, *, left: bool) -> None:
        """Let a device with a running timer revert at once. Raises UnknownOutcomeError."""
        if not left:
            self._run_line("end", self._prompt, _LINE_SECONDS)
        output, _ = self._run_line("configure revert now", self._prompt, _LINE_SECONDS)
        if _ERROR.search(output):
            raise UnknownOutcomeError(
                f"{self._host.name} refused a line, and did not revert the lines before it at "
                f"once: its timer will (output: {output.strip()[-200:]})"
            )

    def _enter_configuration_mode(self, word: str) -> None:
        if not self._is_privileged:
            raise SetupError(
                f"{self._host.user} has no privileged mode on {self._host.name}: set enable_file "
                "in the inventory to a file with the secret. Nothing was sent"
            )
        output, prompt = self._run_line(word, _PROMPT, _LINE_SECONDS)
        if not _CONFIGURING.search(prompt):
            self.close()
            raise UnreachableError(
                f"{format_address(self._host)} refuses configuration mode. Nothing was changed. "
                "Check whether someone else is configuring it "
                f"(output: {output.strip()[-200:]})"
            )

    def _run_line(self, line: str, prompt: re.Pattern[str], seconds: float) -> tuple[str, str]:
        """Send a line; return the output between its echo and the prompt, and the prompt."""
        try:
            self._netmiko.read_channel()  # discards earlier output, such as a log line
            self._send_line(line)
            return self._read_until(partial(_find_answer, line, prompt), seconds)
        except _SilenceError as silence:
            self.close()
            raise CommandTimeoutError(
                f"{self._host.name} did not finish its output of {line!r} within "
                f"{seconds:g} s (last output: {silence})"
            ) from None
        except HostError:
            self.close()
            raise
        except Exception as error:  # noqa: BLE001 - paramiko and netmiko raise errors of any type
            self.close()
            output = isinstance(error, _HangUpError) and error.args[0]
            raise (UnknownOutcomeError if output else NoEchoError)(
                f"{self._host.name} closed the session after {line!r} was sent and before its "
                "output was complete: it is unknown whether the device accepted the line"
            ) from None

    def _send_line(self, line: str) -> None:
        self._netmiko.write_channel(line + self._netmiko.RETURN)

    def _read_until(self, find: Callable[[str], T | None], seconds: float) -> T:
        """Read until *find* returns something for all the output so far, and return that."""
        end = time.monotonic() + seconds
        output = ""
        while True:
            # Checked before reading, because data before the end is still to be read.
            over = self._channel.eof_received or self._channel.closed
            output += self._netmiko.read_channel()
            found = find(output)
            if found is not None:
                return found
            if over:
                raise _HangUpError(output)
            if len(output) > _MAX_CHARACTERS:
                raise OutputLimitError(
                    f"{self._host.name} printed more than {_MAX_CHARACTERS} characters"
                )
            left = end - time.monotonic()
            if left <= 0:
                raise _SilenceError(repr(output[-120:].strip()))
            self._wake.wait(left)

    def _log_in(self, login: Password | None) -> None:
        """Answer the login prompts in the device's command line, as Dell's has, each once."""
        answers = {"user": self._host.user, "password": login.text if login else ""}
        prompt = self._read_prompt()
        if prompt == "key":
            self._send_line("")
            prompt = self._read_prompt()
        while prompt in answers:
            answer = answers.pop(prompt)
            if not answer:
                raise LoginError(
                    f"{format_address(self._host)} prompts for a password: "
                    "set its password_file in the inventory"
                )
            self._send_line(answer)
            prompt = self._read_prompt()
        if prompt in {"user", "password"}:
            where = f" in {login.file}" if login else ""
            raise LoginError(
                f"{format_address(self._host)} refuses {self._host.user} with the "
                f"password{where}: correct it"
            )

    def _become_privileged(self, secret: Password | None) -> None:
        # Dell's devices show nothing before that, and some require no secret.
        if self._is_privileged or not (secret or self._host.platform == "dell_powerconnect"):
            return
        self._send_line("enable")
        if self._read_prompt() == "password":
            if secret is None:
                raise SetupError(
                    f"{format_address(self._host)} requires a secret for its privileged mode: "
                    "set its enable_file in the inventory"
                )
            self._send_line(secret.text)
            self._read_prompt()
        if not self._is_privileged:
            where = f" in {secret.file}" if secret else ""
            raise LoginError(
                f"{format_address(self._host)} accepts {self._host.user} and refuses the "
                f"secret of its privileged mode{where}: correct it"
            )

    def _read_prompt(self) -> str:
        """Return what the device waits for: `user`, `password`, `key`, or a command (`>`, `#`)."""
        try:
            prompt = self._read_until(_find_prompt, self._limits.login)
        except (_SilenceError, _HangUpError) as error:
            is_silent = isinstance(error, _SilenceError)
            detail = f" (last output: {error})" if is_silent else " and closed the session"
            raise UnreachableError(
                f"{format_address(self._host)} accepted the login, showed no command line{detail}"
            ) from None
        self._is_privileged = prompt == "#"
        return prompt


def _find_prompt(output: str) -> str | None:
    if _USER.search(output):
        return "user"
    if _PASSWORD.search(output):
        return "password"
    if _ANY_KEY.search(output):
        return "key"
    return output.rstrip()[-1] if _PROMPT.search(output) else None


def _find_answer(line: str, prompt: re.Pattern[str], output: str) -> tuple[str, str] | None:
    """Return the output between a line's echo and the prompt, and the prompt; None if not yet."""
    echo = output.find(line)
    if echo < 0:
        return None
    rest = output[echo + len(line) :]
    found = prompt.search(rest, max(0, len(rest) - 300))
    return (rest[: found.start() + 1].lstrip("\r\n"), found[0]) if found else None


def _format_applied_lines(count: int) -> str:
    """Return how many lines the device accepted before the one that stopped it; "" if none."""
    if not count:
        return ""
    if count == 1:
        return "; the line before it is in force"
    return f"; the {count} lines before it are in force"


def _open_terminal(transport: paramiko.Transport, limits: SshLimits) -> paramiko.Channel:
    """Open a terminal so wide that no device wraps a line."""
    channel = transport.open_session(timeout=limits.channel)
    channel.settimeout(limits.login)
    channel.get_pty(term="vt100", width=511, height=1000)
    channel.invoke_shell()
    return channel


def _make_netmiko(host: Host, channel: paramiko.Channel) -> "BaseConnection":
    """Give netmiko an open channel; it never connects by itself and never receives a password."""
    # The import takes more than a second, and most processes never use a device.
    from netmiko import ConnectHandler
    from netmiko.channel import SSHChannel

    connection = ConnectHandler(
        device_type=_DRIVERS.get(host.platform, host.platform),
        host=host.address,
        username=host.user,
        auto_connect=False,
        ssh_strict=True,  # in case it ever connected by itself
    )
    connection.remote_conn_pre = None
    connection.remote_conn = channel
    connection.channel = SSHChannel(conn=channel, encoding="utf-8")
    connection.ansi_escape_codes = True
    return connection
