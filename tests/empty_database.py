"""A database of SQLite that needs no migration: made once in each process, then copied."""

import tempfile
from functools import cache
from pathlib import Path

from bot.db import migrations
from bot.db.database import Database
from bot.model.signing import SigningKey


def create_empty_database(file: Path) -> None:
    """Create a database with the schema and nothing else in *file*."""
    file.write_bytes(_read_empty_database())


@cache
def _read_empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "empty.db"
        database = Database(f"sqlite:///{file}", SigningKey.create())
        migrations.upgrade_schema(database)
        database.close()
        return file.read_bytes()
