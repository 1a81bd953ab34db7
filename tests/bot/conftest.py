from collections.abc import Generator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient

from bot.db.database import Database
from tests.bot.databases import DATABASES, create_database
from tests.bot.harness import Harness, open_harness
from tests.playground.postgres import Postgres


@pytest.fixture(scope="module", autouse=True)
def shared_event_loop() -> Generator[None]:
    """One event loop for all requests of a module: each would start a thread and its own loop."""
    with start_blocking_portal() as portal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestClient, "portal", portal)
        yield


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres]:
    with Postgres() as server:
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
