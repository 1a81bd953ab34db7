from collections.abc import Generator
from pathlib import Path

import pytest

from bot.db.database import Database
from tests.bot.empty import STORES, empty, empty_on
from tests.bot.office import Office, an_office
from tests.playground.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres]:
    # Each test has a database of its own, of five hundred files: to write them all to the disk,
    # and to take them away from there, would take longer than the tests.
    with Postgres(fsync="off") as server:
        yield server


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Database]:
    """The store on each database that it works on, with its schema."""
    if request.param == "sqlite":
        database = empty(tmp_path / "keyturn.db")
    else:
        database = empty_on(request.getfixturevalue("postgres"))
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
