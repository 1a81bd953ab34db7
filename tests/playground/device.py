"""A scripted network device behind an SSH server. It behaves like a Cisco or a Dell."""

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Literal, Self

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.server import InteractiveQuery

from connectors.switch import is_same_port
from tests.playground.keys import KeyPair, make_key

Login = Literal["password", "keyboard-interactive", "none"]

PASSWORD = "correct horse"
INVALID = "                    ^\n% Invalid input detected at '^' marker.\n"


class ScriptedDevice:
    """Listens on a free loopback port and keeps what it was told.

    answers: what it says to a line that shows something, without the line's end; it knows no
        other. slow: lines that it hears and never answers.
    login: how SSH lets a client in. With `none` it asks within its command line, as a Dell does.
    password: of the login. secret: of the privileged mode; "" means that a login is privileged.
    refused: lines of a configuration that it does not take.
    platform: whose prompts and pager it has; by default Cisco's, or Dell's with the login `none`.
    ports: the configuration of each port, by the name that `interface` has; lines about a port
        change it. archive: whether it reverts a configuration by a timer, as a Cisco does.
    after_slow: called when it has heard a line that it never answers.
    open: whether it takes new connections.
    heard: all lines of all sessions, without passwords. configured: lines that are in force.
    logins: how often somebody got as far as a prompt.
    """

    def __init__(
        self,
        answers: Mapping[str, str] | None = None,
        *,
        name: str = "sw1",
        login: Login = "password",
        password: str = PASSWORD,
        secret: str = "",
        slow: tuple[str, ...] = (),
        refused: tuple[str, ...] = (),
        platform: str = "",
        ports: Mapping[str, list[str]] | None = None,
        archive: bool = True,
    ) -> None:
        self.answers = dict(answers or {})
        self.name = name
        self.login: Login = login
        self.password = password
        self.secret = secret
        self.slow = slow
        self.refused = refused
        self.platform = platform or ("dell_powerconnect" if login == "none" else "cisco_ios")
        self.ports = {port: list(lines) for port, lines in (ports or {}).items()}
        self.archive = archive
        self.open = True
        self.after_slow: Callable[[], object] = lambda: None
        self.backup: tuple[list[str], dict[str, list[str]]] | None = None
        self.heard: list[str] = []
        self.configured: list[str] = []
        self.logins = 0
        self.connections = 0
        self.host_key: KeyPair = make_key()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.05)  # closing a socket does not wake who waits for it
        self.address, self.port = self._socket.getsockname()
        self._transports: list[paramiko.Transport] = []
        self._threads: list[threading.Thread] = []
        self._spawn(self._listen)

    def inventory_entry(self, **more: object) -> dict[str, object]:
        """Return this device as the inventory writes it below its name."""
        return {
            "address": self.address,
            "port": self.port,
            "user": "keyturn",
            "platform": self.platform,
            "host_key": self.host_key.public,
            "area": "network",
            **more,
        }

    def let_timer_run_out(self) -> None:
        """Revert to what was when the timer started, as the device does by itself."""
        assert self.backup is not None, "no timer runs"
        (self.configured, self.ports), self.backup = self.backup, None

    def confirm(self) -> None:
        self.backup = None

    def start_timer(self) -> None:
        self.backup = (self.configured.copy(), {n: list(p) for n, p in self.ports.items()})

    def hang_up(self) -> None:
        """End every session, as a device that is switched off."""
        for transport in self._transports:
            transport.close()

    def close(self) -> None:
        self._socket.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _spawn(self, act: object, *arguments: object) -> None:
        assert callable(act)
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                stream, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if not self.open:
                stream.close()
                continue
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._serve(stream)

    def _serve(self, stream: socket.socket) -> None:
        transport = paramiko.Transport(stream)
        transport.set_log_channel("tests.playground.device")
        text = StringIO(self.host_key.private.decode())
        transport.add_server_key(paramiko.Ed25519Key.from_private_key(text))
        self._transports.append(transport)
        with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport.start_server(event=threading.Event(), server=_Server(self))
            self._spawn(self._talk, transport)

    def _talk(self, transport: paramiko.Transport) -> None:
        with contextlib.suppress(EOFError, OSError):
            while transport.is_active():
                channel = transport.accept(0.1)
                if channel is not None:
                    _Talk(self, channel).run()


class _Server(paramiko.ServerInterface):
    # ruff: noqa: ARG002 - it is asked more than it wants to know
    def __init__(self, device: ScriptedDevice) -> None:
        self._device = device

    def get_allowed_auths(self, username: str) -> str:
        return self._device.login

    def check_auth_none(self, username: str) -> int:
        return AUTH_SUCCESSFUL if self._device.login == "none" else AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        right = self._device.login == "password" and password == self._device.password
        return AUTH_SUCCESSFUL if right else AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> int | InteractiveQuery:
        if self._device.login != "keyboard-interactive":
            return AUTH_FAILED
        return InteractiveQuery("", "", ("Password: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return AUTH_SUCCESSFUL if responses == [self._device.password] else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_pty_request(
        self,
        channel: paramiko.Channel,
        term: bytes,
        width: int,
        height: int,
        pixelwidth: int,
        pixelheight: int,
        modes: bytes,
    ) -> bool:
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        return True


# What devices say when they are told how wide and long a terminal is.
_SETTINGS = {
    "set cli screen-width 511": "Screen width set to 511",
    "set cli complete-on-space off": "Disabling complete-on-space",
    "set cli screen-length 0": "Screen length set to 0",
    "terminal width 511": "Width set to 511 columns.",
    "terminal length 0": "Pagination disabled.",
    "no page": "",
}


def _find_port(device: ScriptedDevice, line: str) -> str | None:
    """Return the port whose configuration a line wants to see, also by its short name."""
    if not line.startswith("show running-config interface "):
        return None
    wanted = line.rpartition(" ")[2]
    return next((port for port in device.ports if is_same_port(port, wanted)), None)


class _Talk:
    """One session of the command line, with its mode."""

    def __init__(self, device: ScriptedDevice, channel: paramiko.Channel) -> None:
        self._device = device
        self._channel = channel
        self._lines = channel.makefile("rb")
        self._sign = ">" if device.secret else "#"
        self._configuring = False
        self._port = ""
        self._is_junos = device.platform == "juniper_junos"
        if self._is_junos:
            self._sign = ">"

    def run(self) -> None:
        self._put("\r\n******** Authorised people only ########\r\n\r\n")
        if self._device.login == "none" and not self._asks_who_it_is():
            return
        if self._device.platform == "hp_procurve":
            self._put("Copyright (c) 1991\r\n\x1b[24;1HPress any key to continue")
            self._read()
        self._device.logins += 1
        self._prompt()
        while (line := self._read()) is not None:
            self._put(f"{line}\r\n")
            if line.strip():
                self._device.heard.append(line)
            if line in self._device.slow:
                self._device.after_slow()
            else:
                self._obey(line.strip())
                self._prompt()

    def _asks_who_it_is(self) -> bool:
        for _ in range(3):
            self._put("\r\nUser Name:")
            self._put(f"{self._read()}\r\nPassword:")
            if self._read() == self._device.password:
                self._put("\r\n")
                return True
        self._channel.close()
        return False

    def _obey(self, line: str) -> None:
        if line == "enable":
            self._put("Password: ")
            self._sign = "#" if self._read() == self._device.secret else ">"
            self._put("\r\n" if self._sign == "#" else "\r\n% Bad secrets\r\n\r\n")
        elif line in {"configure terminal", "configure"} and self._sign == "#":
            self._configuring = True
        elif line == "end":
            self._configuring = False
        elif self._configuring and line:
            self._configure(line)
        elif line.startswith("configure ") or "archive" in line:
            self._put(self._revert(line).replace("\n", "\r\n"))
        elif line:
            self._put(self._show(line).replace("\n", "\r\n"))

    def _show(self, line: str) -> str:
        device = self._device
        if port := _find_port(device, line):
            lines = "".join(f" {each}\n" for each in device.ports[port])
            return f"Building configuration...\n\ninterface {port}\n{lines}end\n\n"
        if line in device.answers:
            return device.answers[line] + "\n"
        if line in _SETTINGS:
            return f"{_SETTINGS[line]}\n"
        return "" if line.startswith("terminal ") else INVALID

    def _revert(self, line: str) -> str:
        """Answer what is about the archive and its timer, in Cisco's words."""
        device = self._device
        if line == "show archive":
            name = " The next archive file will be named flash:old-1\n"
            return name if device.archive else " Archive feature not enabled\n"
        if line.startswith("configure terminal revert timer "):
            if not device.archive:
                return "%Turn config archive on before using Rollback Confirmed Change\n"
            device.start_timer()
            self._configuring = True
            return "Rollback Confirmed Change: Backing up current running config to flash:old-1\n"
        if device.backup is None:
            return "%No Rollback Confirmed Change pending\n"
        if line == "configure confirm":
            device.confirm()
        elif line == "configure revert now":
            device.let_timer_run_out()
            return "Rollback Confirmed Change: Rolling to: flash:old-1\n"
        return "Timer type: absolute timer\nTimer value: 5 min\nUser: keyturn\n" * (
            line == "show archive config rollback timer"
        )

    def _configure(self, line: str) -> None:
        if line in self._device.refused:
            self._put(INVALID.replace("\n", "\r\n"))
            return
        self._device.configured.append(line)
        if line.startswith("interface "):
            self._port = line.removeprefix("interface ")
        elif self._port in self._device.ports:
            wanted = line.removeprefix("no ")
            kind = wanted.rstrip("0123456789 ")
            kept = [each for each in self._device.ports[self._port] if not each.startswith(kind)]
            self._device.ports[self._port] = kept + [line] * (wanted == line)

    def _prompt(self) -> None:
        mode = "(config)" if self._configuring else ""
        name = f"keyturn@{self._device.name}" if self._is_junos else self._device.name
        self._put(f"{name}{mode}{self._sign}{' ' * self._is_junos}")

    def _put(self, text: str) -> None:
        self._channel.sendall(text.encode())

    def _read(self) -> str | None:
        line = self._lines.readline()
        return line.decode().rstrip("\r\n") if line else None
