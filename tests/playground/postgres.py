"""A PostgreSQL server of our own on loopback, for as long as a test run lasts.

PostgreSQL refuses to run as root; Debian's `pg_virtualenv -t` starts a throwaway cluster as root
and as a user alike, and takes it away when the command that it wraps ends.
"""

import fcntl
import itertools
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg
from psycopg import sql

from tests.playground.daemon import program

_NUMBERS = itertools.count(1)
_NAMES = ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD")


class Postgres:
    """A cluster; `with` starts it and takes it away."""

    def __enter__(self) -> "Postgres":
        # Two that start at the same moment would choose the same port.
        with (Path(tempfile.gettempdir()) / "keyturn-postgres.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            self._start()
        return self

    def _start(self) -> None:
        wrapper = program("/usr/bin/pg_virtualenv", package="postgresql")
        says = " ".join(f'"${name}"' for name in _NAMES)
        # The wrapped command tells where the cluster is and then waits for its input to end.
        self._process = subprocess.Popen(
            [wrapper, "-t", "-o", "fsync=on", "sh", "-c", f"printf '%s\\n' {says} ready; cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        assert self._process.stdout
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "ready":
                break
        self._place = dict(zip(_NAMES, lines[-5:-1], strict=True))

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            # A throwaway cluster need not end in good order.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        self._process.stdout.close()

    def new_database(self, *, like: str = "template1") -> str:
        """Return the address of a new database, as SQLAlchemy writes it. like: what it copies."""
        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            names = sql.Identifier(name), sql.Identifier(like)
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        return self._address(name).replace("postgresql://", "postgresql+psycopg://")

    def _address(self, database: str) -> str:
        place = self._place
        return (
            f"postgresql://{place['PGUSER']}:{place['PGPASSWORD']}"
            f"@{place['PGHOST']}:{place['PGPORT']}/{database}"
        )
