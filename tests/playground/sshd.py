"""A real OpenSSH server on a free loopback port, for the current user and keys of its own."""

import os
import pwd
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.playground import stray_processes
from tests.playground.daemon import PATH, Daemon, find_free_port, find_program
from tests.playground.keys import KeyPair, KeyType, make_key

SSHD = "/usr/sbin/sshd"
_PRIVILEGE_SEPARATION = Path("/run/sshd")


class Sshd(Daemon):
    """An OpenSSH server that needs no privilege, runs in the foreground and logs to a file.

    address: a loopback address; 127.0.0.1, 127.0.0.2 … look like several hosts.
    port: 0 takes a free one, and the same again after `stop` and `start`.
    client: the key that may log in; by default one made on the spot.
    host_key_types: the first is the one that `host_key` tells.
    max_startups: logins that may be under way at once. max_sessions: channels of one connection.
    options: lines of sshd_config; the first value of a keyword counts, so these go before ours.
    env: variables of each login. A SetEnv among the options would displace them and PATH.

    Logins have an empty HOME of their own, `home`: the start-up files of whoever runs this would
    make logins slow and noisy, and what a test leaves in HOME goes with the playground. They
    begin in the real home directory all the same; sshd goes there by itself.
    It is up when its log says that it listens: a connection to see the banner would take one of
    its startups and stand in the log of a test that counts connections.
    """

    def __init__(
        self,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        client: KeyPair | None = None,
        host_key_types: Sequence[KeyType] = ("ed25519",),
        max_startups: str = "200",
        max_sessions: int = 10,
        options: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._sshd = find_program(SSHD, package="openssh-server")
        super().__init__()
        self.address = address
        self.port = port
        self.client = client or make_key()
        self.client_key = self.client.write(self.directory / "client")
        self.host_keys = {kind: make_key(kind) for kind in host_key_types}
        self._host_key_files = [
            key.write(self.directory / f"host_{kind}") for kind, key in self.host_keys.items()
        ]
        (self.directory / "authorized_keys").write_text(f"{self.client.public}\n")
        self._max_startups = max_startups
        self._max_sessions = max_sessions
        self._options = tuple(options)
        self.home = self.directory / "home"
        self.home.mkdir()
        self._env = {
            "PATH": PATH,
            "HOME": str(self.home),
            **(env or {}),
            stray_processes.DIRECTORY_VARIABLE: str(self.directory),
        }
        self._settled = port != 0

    @property
    def user(self) -> str:
        """The login name: whoever runs this."""
        return pwd.getpwuid(os.getuid()).pw_name

    @property
    def host_key(self) -> str:
        """The public key that the server shows, such as `ssh-ed25519 AAAA…`."""
        return next(iter(self.host_keys.values())).public

    @property
    def accepted(self) -> int:
        """How many logins there have been."""
        return self.log().count("Accepted publickey for ")

    @property
    def connections(self) -> int:
        """How many TCP connections there have been, with or without a login."""
        return self.log().count("Connection from ")

    def inventory_entry(
        self,
        *,
        area: str,
        tags: Iterable[str] = (),
        site: str = "main",
        settings: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, object]:
        """Return this host as the inventory writes it below its name.

        key: the client key's path as the inventory should tell it; by default the absolute one.
        """
        return {
            "address": self.address,
            "port": self.port,
            "user": self.user,
            "key": key or str(self.client_key),
            "host_key": self.host_key,
            "area": area,
            "tags": sorted(tags),
            "site": site,
            "settings": dict(settings or {}),
        }

    def type_by_hand(self, command: str) -> None:
        """Log in with a terminal, as people do, and run a command."""
        login = ["ssh", "-tt", "-F", "none", "-i", str(self.client_key), "-p", str(self.port)]
        unchecked = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        words = [*login, *unchecked, f"{self.user}@{self.address}", command]
        subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def _choose_ports(self) -> None:
        self.port = find_free_port(self.address)

    def _configure(self) -> list[str]:
        if os.getuid() == 0:  # only root's sshd separates privileges, and wants this directory
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        config = self.directory / "sshd_config"
        config.write_text("\n".join(self._lines()) + "\n")
        return [self._sshd, "-D", "-e", "-f", str(config)]

    def _answers(self) -> bool:
        return f"Server listening on {self.address} port {self.port}." in self._read_log()

    def _lines(self) -> list[str]:
        variables = " ".join(f'"{name}={value}"' for name, value in self._env.items())
        return [
            *self._options,
            f"ListenAddress {self.address}",
            f"Port {self.port}",
            *(f"HostKey {file}" for file in self._host_key_files),
            f"AuthorizedKeysFile {self.directory / 'authorized_keys'}",
            f"AllowUsers {self.user}",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "UseDNS no",
            "PermitUserRC no",
            "PidFile none",
            "PrintMotd no",
            "LogLevel VERBOSE",
            f"MaxStartups {self._max_startups}",
            f"MaxSessions {self._max_sessions}",
            f"SetEnv {variables}",
            "Subsystem sftp internal-sftp",
        ]
