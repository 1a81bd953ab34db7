"""A PostgreSQL server that restarts, and one that fails over to a standby."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, LiteralString, Self

import psycopg

from tests.playground.daemon import Daemon, DaemonDidNotStart, find_free_port, find_program, root

ADDRESS, USER = "127.0.0.1", "postgres"
# Where it is not started by a user, it runs as the one that Debian's package has made.
OWNER = "postgres"
Fsync = Literal["on", "off"]
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT
# A database takes nine megabytes, and all tests together make some hundreds.
_ROOM = 4 << 30
# Of throwaway clusters there are several at once, each with a little to keep.
_SMALL = {
    "listen_addresses": ADDRESS,
    "max_connections": "150",
    "shared_buffers": "16MB",
    "unix_socket_directories": "",
    "wal_keep_size": "64MB",
    "hot_standby": "on",
    # It would visit hundreds of databases that hold a few rows.
    "autovacuum": "off",
    # What a server that is killed shares would stay in the memory of the machine.
    "dynamic_shared_memory_type": "mmap",
    # What a server that died leaves behind is not waited for.
    "wal_sender_timeout": "2s",
    "wal_retrieve_retry_interval": "100ms",
    "timezone": "UTC",
}


class Server(Daemon):
    """One server on loopback with the files of its own. like: whose standby it is.

    password: that it asks for; "" for none. fsync: "off" where only its processes crash, and not
    the machine: then its files are in memory, if that has room for thousands, and no test waits
    for a disk that others keep busy.
    """

    def __init__(
        self, like: "Server | None" = None, *, password: str = "", fsync: Fsync = "off"
    ) -> None:
        within = _choose_parent_directory() if fsync == "off" else "/tmp"
        super().__init__(within=within)
        self._like = like
        self._password = password
        self._fsync: Fsync = fsync
        self.port = 0
        if os.geteuid() == 0:
            owner = pwd.getpwnam(OWNER)
            # It has to get through to its own files.
            root(within).chmod(0o711)
            os.chown(self.directory, owner.pw_uid, owner.pw_gid)

    def set_primary(self, like: "Server") -> None:
        """Be the standby of another from the next start on, with files of its own again."""
        self._like = like

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def run(self, command: str, *words: str) -> None:
        """Have one of PostgreSQL's programs do its work."""
        subprocess.run(
            build_owner_command(find_server_program(command), *words),
            check=True,
            capture_output=True,
            timeout=60,
            cwd="/",
            env={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
        )

    def end(self, how: signal.Signals) -> None:
        """Stop it as `pg_ctl stop` does, and leave its files."""
        os.kill(self.pid, how)
        deadline = time.monotonic() + 20
        while self.running:
            assert time.monotonic() < deadline, "PostgreSQL does not stop"
            time.sleep(0.01)
        self.stop()

    def do(self, statement: LiteralString) -> list[tuple[object, ...]]:
        """Do one statement outside any transaction, and return its rows."""
        where = f"host={ADDRESS} port={self.port} user={USER} dbname=postgres"
        secret = self._password or None
        with psycopg.connect(
            where, password=secret, autocommit=True, connect_timeout=2
        ) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        # What it shares with the system it gives back itself, and killed it would not.
        if self.running:
            self.end(IMMEDIATE)
        super().close()

    def _choose_ports(self) -> None:
        self.port = find_free_port(ADDRESS)

    def _configure(self) -> list[str]:
        if not self.data.exists():
            self._create_files()
        settings = {**_SMALL, "fsync": self._fsync, "port": str(self.port)}
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        postgres = build_owner_command(
            find_server_program("postgres"), "-D", str(self.data), *given
        )
        # The symbols of libraries are looked up once, and not by the process of each connection.
        return [find_program("/usr/bin/env", package="coreutils"), "LD_BIND_NOW=1", *postgres]

    def _create_files(self) -> None:
        """Make its files: new ones, or those of the server that it stands by."""
        if self._like is None:
            how = ("-U", USER, "-E", "UTF8", "--no-sync", "--locale=C.UTF-8")
            self.run("initdb", "-D", str(self.data), *how, *self._build_authentication_options())
            return
        where = f"host={ADDRESS} port={self._like.port} user={USER}"
        self.run("pg_basebackup", "-D", str(self.data), "-R", "-c", "fast", "-d", where, "-N")

    def _build_authentication_options(self) -> list[str]:
        """Return how initdb is told whether to ask for a password."""
        if not self._password:
            return ["-A", "trust"]
        file = self.directory / "password"
        file.touch(0o600)
        file.write_text(self._password)
        shutil.chown(file, self.directory.owner(), self.directory.group())
        # SCRAM takes 4,096 rounds for each of the connections, and there are thousands.
        return ["-A", "md5", f"--pwfile={file}"]

    def _answers(self) -> bool:
        try:
            return bool(self.do("SELECT 1"))
        except psycopg.OperationalError:
            return False


def _choose_parent_directory() -> str:
    """Return where files are made and taken away in no time."""
    memory = "/dev/shm"
    room = shutil.disk_usage(memory).free if Path(memory).is_dir() else 0
    return memory if room > _ROOM else "/tmp"


def find_server_program(name: str) -> str:
    """Return where the newest of the machine's servers has it: Debian keeps them off the path."""
    programs = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4])
    )
    return find_program(
        str(programs[-1]) if programs else f"/usr/lib/postgresql/*/bin/{name}",
        package="postgresql",
    )


def build_owner_command(*words: str) -> list[str]:
    """Return the command for somebody else than root, whom PostgreSQL does not run for."""
    if os.geteuid() != 0:
        return [*words]
    setpriv = find_program("/usr/bin/setpriv", package="util-linux")
    who = (f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups")
    return [setpriv, *who, "--", *words]


class Cluster:
    """A server, and a synchronous standby if wanted: who connects to both finds who writes."""

    def __init__(self, *, standby: bool = False) -> None:
        self._now = Server()
        self._standby = Server(self._now) if standby else None
        self._dead: Server | None = None

    def __enter__(self) -> Self:
        try:
            self._now.start()
            if self._standby is not None:
                self._standby.start()
                self._wait_for_each_other()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    def new_database(self) -> str:
        """Make a database and return its address as SQLAlchemy writes it, good for all servers."""
        self._now.do("CREATE DATABASE keyturn")
        hosts = ",".join(ADDRESS for _ in self._servers)
        ports = ",".join(str(server.port) for server in self._servers)
        return (
            f"postgresql+psycopg://{USER}@/keyturn"
            f"?host={hosts}&port={ports}&target_session_attrs=read-write"
        )

    def do(self, statement: LiteralString) -> list[tuple[object, ...]]:
        return self._now.do(statement)

    def restart(self, how: signal.Signals) -> None:
        """how: FAST, which hangs up on everybody, or IMMEDIATE, as if it had crashed."""
        self._now.end(how)
        self._now.start()

    def fail_over(self) -> None:
        """Kill the server for good, and have the standby take its place: it knows all."""
        assert self._standby is not None
        dead, self._now = self._now, self._standby
        self._standby = None
        dead.stop()
        self._now.run("pg_ctl", "promote", "-w", "-D", str(self._now.data))
        self._dead = dead

    def stand_by(self) -> None:
        """Make a standby anew of the server that was killed, at its old place."""
        dead, self._dead = self._dead, None
        assert dead is not None
        shutil.rmtree(dead.data)
        dead.set_primary(self._now)
        dead.start()
        self._standby = dead
        self._wait_for_each_other()

    def _wait_for_each_other(self) -> None:
        """From now on a commit is one once the standby has it on its disk, too."""
        deadline = time.monotonic() + 20
        while not self._now.do("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"):
            if time.monotonic() > deadline:
                raise DaemonDidNotStart("the standby does not follow")
            time.sleep(0.02)
        self._now.do("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._now.do("SELECT pg_reload_conf()")
        while not self._now.do("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            if time.monotonic() > deadline:
                raise DaemonDidNotStart("the standby is not waited for")
            time.sleep(0.02)

    @property
    def _servers(self) -> Sequence[Server]:
        return [one for one in (self._now, self._standby, self._dead) if one is not None]
