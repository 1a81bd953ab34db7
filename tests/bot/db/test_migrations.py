"""Schema revisions: which one a database has, and which one this version works with."""

from importlib.resources import as_file, files
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

from bot.db import migrations
from bot.db.database import Database
from tests.bot.databases import on_postgresql


def test_newest_revision_is_the_head_of_the_migrations() -> None:
    config = Config()
    with as_file(files("migrations")) as directory:
        config.set_main_option("script_location", str(directory))
        script = ScriptDirectory.from_config(config)
        revisions = [Path(one.path).name.split("_")[0] for one in script.walk_revisions()]
        assert revisions == [one.revision for one in script.walk_revisions()]
        assert [migrations.newest_revision()] == script.get_heads()


def test_schema_of_no_revision_is_not_current(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'keyturn.db'}")
    assert not migrations.is_schema_current(database)
    migrations.upgrade_schema(database)
    assert migrations.is_schema_current(database)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("DELETE FROM alembic_version")
    assert not migrations.is_schema_current(database)
    database.close()


@on_postgresql
def test_postgresql_cleans_runs_early(database: Database) -> None:
    with database.reading() as tx:
        query = "SELECT reloptions FROM pg_class WHERE oid = 'run'::regclass"
        assert tx.sql.exec_driver_sql(query).scalar() == ["autovacuum_vacuum_scale_factor=0.05"]
