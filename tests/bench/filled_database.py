"""Databases that are filled once and reused while their schema matches."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import inspect
from sqlalchemy.schema import CreateTable

from bot.db import migrations, tables
from bot.db.database import Database
from bot.model import signing
from bot.model.canonical import hash_canonical
from tests.bench import fill_database
from tests.bench.cluster import Cluster

_NOTE = "filled.json"
_CHUNK = 1 << 22


@dataclass(frozen=True)
class FilledDatabase:
    """A database with so many entries and runs. seconds: that it took. place: its directory.

    began: microseconds; the first run was asked for half a minute later.
    """

    database: Database
    place: Path
    entries: int
    runs: int
    seconds: float
    began: int


@dataclass(frozen=True)
class _Note:
    """What is kept beside it. digest: of what is filled in, and of the tables that it is in."""

    digest: str
    seconds: float
    began: int


@contextmanager
def open_filled_database(name: str, entries: int, keep: Path | None) -> Generator[FilledDatabase]:
    """Yield a database with so many entries. name: SQLite or PostgreSQL.

    keep: a directory; what fits is taken from there, and what is filled stays there. None: it is
    taken away.
    """
    with ExitStack() as stack:
        if keep is None:
            keep = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyturn-bench-")))
            keep.chmod(0o755)
        place = keep / f"{name}-{entries}"
        if not (place / _NOTE).exists():
            # In a process of its own: it takes memory that is none of what is measured.
            words = [
                sys.executable,
                "-m",
                "tests.bench.filled_database",
                name,
                str(entries),
                str(place),
            ]
            subprocess.run(words, check=True)
        _read_once(place)
        database = stack.enter_context(_opened(name, place))
        note = _Note(**json.loads((place / _NOTE).read_text(encoding="utf-8")))
        if note.digest != _digest(database):
            raise SystemExit(f"{place} holds what is filled in no more: take it away")
        _mend_tables(database)
        _mend_indexes(database)
        runs = fill_database.runs_of(entries)
        yield FilledDatabase(database, place, entries, runs, note.seconds, note.began)


def _read_once(place: Path) -> None:
    """Have the machine's memory hold what of it has room there, as after some hours of service."""
    for file in sorted(path for path in place.rglob("*") if path.is_file()):
        with file.open("rb", buffering=0) as opened:
            while opened.read(_CHUNK):
                pass


@contextmanager
def _opened(name: str, place: Path) -> Generator[Database]:
    key = signing.load_signing_key(place / "changelog.key")
    with ExitStack() as stack:
        if name == "SQLite":
            url = f"sqlite:///{place / 'keyturn.db'}"
        else:
            url = stack.enter_context(Cluster(place)).url
        database = Database(url, key)
        stack.callback(database.close)
        yield database


def _fill(name: str, entries: int, place: Path) -> None:
    # What is left of one that was broken off is of no use.
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with _opened(name, place) as database:
        migrations.upgrade_schema(database)
        clock = time.perf_counter()
        began = fill_database.fill(
            database, entries, signing.load_signing_key(place / "changelog.key")
        )
        note = _Note(_digest(database), time.perf_counter() - clock, began)
        (place / _NOTE).write_text(json.dumps(asdict(note)), encoding="utf-8")


def _digest(database: Database) -> str:
    dialect = database.engine.dialect
    made = [str(CreateTable(table).compile(dialect=dialect)) for table in fill_database.TABLES]
    return hash_canonical([fill_database.EDITION, *made])


def _mend_tables(database: Database) -> None:
    """Make those anew that nothing is filled into, where they have other columns by now."""
    with database.engine.connect() as connection:
        schema = inspect(connection)
        names = schema.get_table_names()
        for table in tables.metadata.sorted_tables:
            is_there = table.name in names
            columns = schema.get_columns(table.name) if is_there else ()
            there = {str(column["name"]) for column in columns}
            if table not in fill_database.TABLES and there != set(table.columns.keys()):
                table.drop(connection, checkfirst=True)
                table.create(connection)
        connection.commit()


def _mend_indexes(database: Database) -> None:
    """Make the indexes what they are to be now: that is quicker than to fill it all again."""
    with database.engine.connect() as connection:
        for table in fill_database.TABLES:
            there = {
                str(index["name"]): index["column_names"]
                for index in inspect(connection).get_indexes(table.name)
                if "duplicates_constraint" not in index
            }
            wanted = {str(index.name): index for index in table.indexes}
            for name, columns in there.items():
                if name not in wanted or columns != [c.name for c in wanted[name].columns]:
                    connection.exec_driver_sql(f'DROP INDEX "{name}"')
            kept = {
                name
                for name, index in wanted.items()
                if there.get(name) == [column.name for column in index.columns]
            }
            for name in wanted.keys() - kept:
                wanted[name].create(connection)
        connection.commit()


if __name__ == "__main__":
    _fill(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
