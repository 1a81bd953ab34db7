"""A network device made of an SSH server and a script: it speaks as a Cisco or a Dell does."""

import contextlib
import socket
import threading
from collections.abc import Mapping
from io import StringIO
from typing import Literal, Self

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED
from paramiko.server import InteractiveQuery

from tests.playground.keys import KeyPair, make_key

Login = Literal["password", "keyboard-interactive", "none"]

PASSWORD = "correct horse"
INVALID = "                    ^\r\n% Invalid input detected at '^' marker.\r\n"


class ScriptedDevice:
    """Listens on a free loopback port and keeps what it was told.

    answers: what it says to a line that shows something, without the line's end; it knows no
        other. slow: lines that it hears and never answers.
    login: how SSH lets a client in. With `none` it asks within its command line, as a Dell does.
    password: of the login. secret: of the privileged mode; "" means that a login is privileged.
    refused: lines of a configuration that it does not take.
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
    ) -> None:
        self.answers = dict(answers or {})
        self.name = name
        self.login: Login = login
        self.password = password
        self.secret = secret
        self.slow = slow
        self.refused = refused
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
            "platform": "dell_powerconnect" if self.login == "none" else "cisco_ios",
            "host_key": self.host_key.public,
            "area": "network",
            **more,
        }

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


class _Talk:
    """One session of the command line, with its mode."""

    def __init__(self, device: ScriptedDevice, channel: paramiko.Channel) -> None:
        self._device = device
        self._channel = channel
        self._lines = channel.makefile("rb")
        self._sign = ">" if device.secret else "#"
        self._configuring = False

    def run(self) -> None:
        self._put("\r\n******** Authorised people only ########\r\n\r\n")
        if self._device.login == "none" and not self._asks_who_it_is():
            return
        self._device.logins += 1
        self._prompt()
        while (line := self._read()) is not None:
            self._put(f"{line}\r\n")
            if line.strip():
                self._device.heard.append(line)
            if line not in self._device.slow:
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
        elif line in self._device.answers:
            self._put(self._device.answers[line].replace("\n", "\r\n") + "\r\n")
        elif line and not line.startswith("terminal "):
            self._put(INVALID)

    def _configure(self, line: str) -> None:
        if line in self._device.refused:
            self._put(INVALID)
        else:
            self._device.configured.append(line)

    def _prompt(self) -> None:
        mode = "(config)" if self._configuring else ""
        self._put(f"{self._device.name}{mode}{self._sign}")

    def _put(self, text: str) -> None:
        self._channel.sendall(text.encode())

    def _read(self) -> str | None:
        line = self._lines.readline()
        return line.decode().rstrip("\r\n") if line else None
