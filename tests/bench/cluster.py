"""A PostgreSQL cluster whose data stay where they are: what took long to fill in is used again."""

import os
import secrets
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from shutil import chown

import psycopg
from psycopg import sql

from tests.playground.cluster import OWNER, build_owner_command, find_server_program
from tests.playground.daemon import Daemon, find_free_port

_DATABASE = "keyturn"
# A cluster ends in good order, or it would begin by mending itself.
_SECONDS = 120


class Cluster(Daemon):
    """A server over the data in a directory, made there if there are none, with memory for what is
    looked at often; all else as PostgreSQL has it when it is new.

    It refuses to run as root: then it runs as the user that Debian's package has made.
    """

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._data = place / "data"
        self._secret = place / "password"
        self._port = 0
        if not self._secret.exists():
            self._secret.touch(0o600)
            self._secret.write_text(secrets.token_hex(16), encoding="ascii")
            self._make()

    @property
    def url(self) -> str:
        """The address of its database, as SQLAlchemy writes it."""
        return self._address(_DATABASE).replace("postgresql:", "postgresql+psycopg:")

    def stop(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                if self._process:
                    self._process.wait(_SECONDS)
        super().stop()

    def _make(self) -> None:
        self._data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            chown(self._data, OWNER, OWNER)
            chown(self._secret, OWNER, OWNER)
        words = ["-D", str(self._data), "-U", _DATABASE, "-A", "scram-sha-256"]
        words += [f"--pwfile={self._secret}", "-E", "UTF8", "--locale=C.UTF-8"]
        command = build_owner_command(find_server_program("initdb"), *words)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    def _choose_ports(self) -> None:
        self._port = find_free_port("127.0.0.1")

    def _configure(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={self._port}"]
        # A quarter of a small machine's memory, as its manual advises.
        settings.append("shared_buffers=2GB")
        words = [word for setting in settings for word in ("-c", setting)]
        return build_owner_command(find_server_program("postgres"), "-D", str(self._data), *words)

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
                has = "SELECT 1 FROM pg_database WHERE datname = %s"
                if not connection.execute(has, (_DATABASE,)).fetchone():
                    name = sql.Identifier(_DATABASE)
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        except psycopg.OperationalError:
            return False
        return True

    def _address(self, database: str) -> str:
        secret = self._secret.read_text(encoding="ascii")
        return f"postgresql://{_DATABASE}:{secret}@127.0.0.1:{self._port}/{database}"
