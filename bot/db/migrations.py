"""The schema: brought up to date, or compared with what this version needs."""

from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Literal

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import ProgrammingError

from bot.db.database import Database, StoreUnavailable

if TYPE_CHECKING:
    from alembic.config import Config

Upgrade = Literal["created", "upgraded", "current"]

# Alembic takes a fifth of a second to load: that is done when there is something to migrate.
_TABLE, _HAS = "alembic_version", "SELECT version_num FROM alembic_version"
# Any number that nothing else in the database locks by.
_UPGRADE_LOCK = 0x6B747570


def is_own_table(name: str | None, kind: str, _parents: object) -> bool:
    """Say whether it belongs to our schema; the distributed engine lays out its own tables."""
    return kind != "table" or not (name or "").startswith("procrastinate_")


class NewerSchemaError(StoreUnavailable):
    """A version that this one does not know made the schema."""


def upgrade_schema(database: Database, scripts: Traversable | None = None) -> Upgrade:
    """Apply every migration that is missing, and return what that did.

    scripts: the directory of the migrations; that of this version if omitted. Raises
    NewerSchemaError, and StoreUnavailable, also if our role may not.
    """
    scripts = scripts or files("migrations")
    with database.guarded():
        with database.engine.connect() as connection:
            if not _behind(connection, scripts):
                return "current"
            is_new = not inspect(connection).has_table(_TABLE)
        _upgrade_as_owner(database, scripts)
    return "created" if is_new else "upgraded"


def _upgrade_as_owner(database: Database, scripts: Traversable) -> None:
    try:
        _upgrade(database, scripts)
    except ProgrammingError as error:
        raise StoreUnavailable(
            "the database is behind and our role may not change its schema: stop, and run keyturn "
            f"db upgrade with KEYTURN_MIGRATIONS set (the database failed: {error.orig})"
        ) from error


def _upgrade(database: Database, scripts: Traversable) -> None:
    from alembic import command

    with database.engine.connect() as connection:
        # A migration is applied as a whole or not at all.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if database.embedded else "BEGIN")
        if not database.embedded:
            # Of several that begin at once, one upgrades and the others find it done.
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
        command.upgrade(_config(connection, scripts), "head")
        connection.commit()


def is_schema_current(database: Database) -> bool:
    """Return whether the database has exactly the schema that this version works with.

    Raises NewerSchemaError and StoreUnavailable.
    """
    with database.guarded(), database.engine.connect() as connection:
        return not _behind(connection, files("migrations"))


def list_missing(database: Database, scripts: Traversable | None = None) -> Mapping[str, str]:
    """Return what each missing migration does, by revision; all of them for an empty database.

    Raises NewerSchemaError and StoreUnavailable.
    """
    scripts = scripts or files("migrations")
    with database.guarded(), database.engine.connect() as connection:
        found = _read_revision(connection, scripts)
    titles = {
        revision: file.read_text().partition("\n")[0].strip('"')
        for revision, file in _list_files(scripts).items()
    }
    return {revision: title for revision, title in titles.items() if revision > found}


def list_revisions(scripts: Traversable | None = None) -> list[str]:
    """Return every revision that this version knows, the oldest first."""
    return [*_list_files(scripts or files("migrations"))]


def newest_revision(scripts: Traversable | None = None) -> str:
    """Return the revision that this version works with."""
    return max(_list_files(scripts or files("migrations")))


def _list_files(scripts: Traversable) -> Mapping[str, Traversable]:
    """Return the files of the migrations, whose names begin with their revision."""
    found = (file for file in (scripts / "versions").iterdir() if file.name[:1].isdigit())
    return {file.name.partition("_")[0]: file for file in sorted(found, key=lambda one: one.name)}


def _behind(connection: Connection, scripts: Traversable) -> bool:
    return _read_revision(connection, scripts) != newest_revision(scripts)


def _read_revision(connection: Connection, scripts: Traversable) -> str:
    """Return the revision of the schema; "" if there is none. Raises NewerSchemaError."""
    if not inspect(connection).has_table(_TABLE):
        return ""
    found = connection.exec_driver_sql(_HAS).scalars().first() or ""
    if found and found not in _list_files(scripts):
        raise NewerSchemaError(
            f"a newer version of Keyturn made the schema of the database ({found}), and version "
            f"{version('keyturn')} knows only {newest_revision(scripts)}: install that version "
            "again, or restore the backup that was made before its upgrade"
        )
    return found


def _config(connection: Connection, scripts: Traversable) -> "Config":
    from alembic.config import Config

    config = Config()
    with as_file(scripts) as directory:
        config.set_main_option("script_location", str(directory))
    config.attributes["connection"] = connection
    return config
