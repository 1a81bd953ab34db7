"""An upgrade starts from each release, is backed up first, and an older version refuses it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from shutil import copytree

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from bot.audit import verification
from bot.db import migrations, runs, tables
from bot.db.database import Database, StoreUnavailable
from bot.maintenance.upgrade import upgrade_database
from bot.model.run import State
from tests.bot.databases import on_postgresql
from tests.bot.maintenance.released import RELEASES, open_release
from tests.cli_process import run_keyturn

FILES = sorted(RELEASES.glob("*.sql"))
NEXT = '''"""Remember a colour of each run.

Revision: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "{}"


def upgrade() -> None:
    op.add_column("run", sa.Column("colour", sa.String(8)))
    {}
'''


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    database = open_release(request.param, tmp_path)
    yield database
    database.close()


def add_migration(directory: Path, more: str = "") -> Path:
    """Return the migrations of a version after this one."""
    scripts = copytree(str(files("migrations")), directory / "migrations")
    newest = migrations.newest_revision()
    (scripts / "versions" / "0002_colour.py").write_text(NEXT.format(newest, more))
    return scripts


def test_database_of_each_release_has_all_facts_after_the_upgrade(
    release: Database, tmp_path: Path
):
    upgrade_database(release, tmp_path)
    with release.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_name": migrations.is_own_table}
        )
        assert compare_metadata(context, tables.metadata) == [], (
            "a released schema does not change: write a new migration"
        )
    with release.reading() as tx:
        assert verification.verify_log(tx).broken is None
        found = [runs.get_run(tx, number) for number in (1, 2, 3)]
        assert [one.state for one in found] == [State.SUCCEEDED, State.SUCCEEDED, State.PENDING]
        assert (found[2].host, found[2].reason) == ("lb2", "it is dark")
        assert [one.person for one in runs.list_decisions(tx, 2)] == ["olga"]


def test_upgrade_copies_the_database_before_it_changes_anything(tmp_path: Path):
    with closing(open_release(FILES[-1], tmp_path)) as database:
        result = upgrade_database(database, tmp_path, scripts=add_migration(tmp_path))
        backup = tmp_path / "keyturn-before-0002.db"
        assert (result.done, result.backup) == ("upgraded", backup)
        assert result.notes == {"0002": "Remember a colour of each run."}
        assert backup.stat().st_mode & 0o777 == 0o600
        with pytest.raises(migrations.NewerSchemaError, match=r"a newer version .* \(0002\)"):
            upgrade_database(database, tmp_path)
    with closing(sqlite3.connect(backup)) as copy:
        assert "colour" not in str(copy.execute("PRAGMA table_info(run)").fetchall())
        assert copy.execute("SELECT count(*) FROM run").fetchone() == (3,)


def test_upgrade_that_fails_changes_nothing_and_can_be_repeated(tmp_path: Path):
    broken = add_migration(tmp_path, 'op.drop_table("nothing")')
    with closing(open_release(FILES[-1], tmp_path)) as database:
        with pytest.raises(StoreUnavailable):
            upgrade_database(database, tmp_path, scripts=broken)
        assert migrations.is_schema_current(database)
        sound = add_migration(tmp_path / "again")
        assert upgrade_database(database, tmp_path, scripts=sound).done == "upgraded"


def test_older_version_says_what_to_do_about_a_newer_schema(tmp_path: Path):
    data = tmp_path / "var"
    data.mkdir(mode=0o700)
    with closing(open_release(FILES[-1], data)) as database:
        upgrade_database(database, data, scripts=add_migration(tmp_path))
    for words in (("serve",), ("db", "upgrade"), ("db", "check")):
        done = run_keyturn(tmp_path, *words)
        assert done.returncode == 1, words
        assert "a newer version of Keyturn made the schema of the database (0002)" in done.stderr
        assert "Traceback" not in done.stderr


@on_postgresql
def test_postgresql_is_upgraded_once_a_person_says_that_it_is_backed_up(
    database: Database, tmp_path: Path
):
    scripts = add_migration(tmp_path)
    with pytest.raises(StoreUnavailable, match="make a backup with pg_dump first"):
        upgrade_database(database, tmp_path, scripts=scripts)
    result = upgrade_database(database, tmp_path, is_backed_up=True, scripts=scripts)
    assert (result.done, result.backup) == ("upgraded", None)
