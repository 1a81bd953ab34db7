"""A PostgreSQL server with any number of databases, for one test run."""

import itertools
import os
import secrets
from typing import LiteralString, cast

from tests.playground.cluster import ADDRESS, USER, Fsync, Server

_NUMBERS = itertools.count(1)


class Postgres(Server):
    """A server of our own that asks for a password; `with` starts it and takes it away."""

    def __init__(self, *, fsync: Fsync = "off") -> None:
        super().__init__(password=secrets.token_hex(16), fsync=fsync)

    def new_database(self, *, like: str = "template1") -> str:
        """Return the address of a new database, as SQLAlchemy writes it. like: what it copies."""
        name = f"test_{os.getpid()}_{next(_NUMBERS)}"
        # Both names are our own. What is copied file by file is not written to the log as well.
        how = f"CREATE DATABASE {name} TEMPLATE {like} STRATEGY FILE_COPY"
        self.do(cast("LiteralString", how))
        return f"postgresql+psycopg://{USER}:{self._password}@{ADDRESS}:{self.port}/{name}"
