"""Empty databases with the schema, for tests: created once, then copied."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from bot.db import migrations
from bot.db.database import Database
from bot.model.signing import SigningKey
from tests.empty_database import create_empty_database
from tests.playground.postgres import Postgres

_SQLITE, _POSTGRESQL = "sqlite", pytest.param("postgresql", marks=pytest.mark.real)
DATABASES = [_SQLITE, _POSTGRESQL]
# What there is on one of the databases only; the other has no test of it to leave out.
on_sqlite = pytest.mark.parametrize("database", [_SQLITE], indirect=True)
on_postgresql = pytest.mark.parametrize("database", [_POSTGRESQL], indirect=True)


def create_database(request: pytest.FixtureRequest, directory: Path) -> Database:
    """Return an empty database of the kind that the parameter of a fixture names."""
    if request.param == _SQLITE:
        return create_sqlite_database(directory / "keyturn.db")
    return create_postgresql_database(request.getfixturevalue("postgres"))


def create_sqlite_database(file: Path, seal: SigningKey | None = None) -> Database:
    """Return a database of SQLite in *file*, which is not there yet."""
    create_empty_database(file)
    return skip_fsync(Database(f"sqlite:///{file}", seal or SigningKey.create()))


def create_postgresql_database(server: Postgres, seal: SigningKey | None = None) -> Database:
    """Return a new database of a server of PostgreSQL."""
    return Database(
        server.new_database(like=_create_template_database(server)), seal or SigningKey.create()
    )


def add_schema(database: Database) -> None:
    """Bring the schema of a database up to date; a file of SQLite that is missing is copied."""
    url = database.engine.url
    if database.embedded and not Path(str(url.database)).exists():
        create_empty_database(Path(str(url.database)))
    migrations.upgrade_schema(database)


def skip_fsync(database: Database) -> Database:
    """Return a database of SQLite that waits for no disk, where the machine will not crash."""
    event.listen(database.engine, "connect", _turn_fsync_off)
    return database


def _turn_fsync_off(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


@cache
def _create_template_database(server: Postgres) -> str:
    database = Database(server.new_database())
    migrations.upgrade_schema(database)
    # Nobody may be connected to what is copied.
    database.close()
    return str(database.engine.url.database)
