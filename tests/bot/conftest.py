from collections.abc import Generator
from pathlib import Path

import pytest

from bot.db.database import Database
from tests.bot.databases import DATABASES, create_database
from tests.bot.harness import Harness, open_harness
from tests.playground.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres]:
    # Each test has a database of its own, of five hundred files: to write them all to the disk,
    # and to take them away from there, would take longer than the tests.
    with Postgres(fsync="off") as server:
        yield server


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Database]:
    """The store on each database that it works on, with its schema."""
    database = create_database(request, tmp_path)
    yield database
    database.close()


@pytest.fixture
def harness(tmp_path: Path) -> Generator[Harness]:
    with open_harness(tmp_path) as harness:
        yield harness


@pytest.fixture
def db_harness(tmp_path: Path, database: Database) -> Generator[Harness]:
    """A harness on each database."""
    with open_harness(tmp_path, database=database) as harness:
        yield harness
