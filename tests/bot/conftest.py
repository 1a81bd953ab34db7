from collections.abc import Generator
from pathlib import Path

import pytest

from bot.store import schema
from bot.store.database import Database
from bot.store.seal import Seal
from tests.bot.office import Office, an_office
from tests.playground.postgres import Postgres

STORES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)]


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Database]:
    """The store on each database that it works on, with its schema."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}", Seal.new())
    else:
        server: Postgres = request.getfixturevalue("postgres")
        database = Database(server.new_database(), Seal.new())
    schema.upgrade(database)
    yield database
    database.close()


@pytest.fixture
def office(tmp_path: Path) -> Generator[Office]:
    with an_office(tmp_path) as office:
        yield office


@pytest.fixture
def any_office(tmp_path: Path, database: Database) -> Generator[Office]:
    """An office on each database."""
    with an_office(tmp_path, database=database) as office:
        yield office
