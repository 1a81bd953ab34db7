"""The schema: brought up to date, or compared with what this version needs."""

from importlib.resources import as_file, files
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


def upgrade_schema(database: Database) -> Upgrade:
    """Apply every migration that is missing, and return what that did.

    Raises StoreUnavailable, also if our role may not.
    """
    with database.guarded():
        with database.engine.connect() as connection:
            if not _behind(connection):
                return "current"
            is_new = not inspect(connection).has_table(_TABLE)
        _upgrade_as_owner(database)
    return "created" if is_new else "upgraded"


def _upgrade_as_owner(database: Database) -> None:
    try:
        _upgrade(database)
    except ProgrammingError as error:
        raise StoreUnavailable(
            "the database is behind and our role may not change its schema: stop, and run keyturn "
            f"db upgrade with KEYTURN_MIGRATIONS set (the database failed: {error.orig})"
        ) from error


def _upgrade(database: Database) -> None:
    from alembic import command

    with database.engine.connect() as connection:
        # A migration is applied as a whole or not at all.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if database.embedded else "BEGIN")
        if not database.embedded:
            # Of several that begin at once, one upgrades and the others find it done.
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})")
        command.upgrade(_config(connection), "head")
        connection.commit()


def is_schema_current(database: Database) -> bool:
    """Return whether the database has exactly the schema that this version works with.

    Raises StoreUnavailable.
    """
    with database.guarded(), database.engine.connect() as connection:
        return not _behind(connection)


def newest_revision() -> str:
    """Return the revision that this version works with: files of migrations begin with theirs."""
    names = (file.name for file in (files("migrations") / "versions").iterdir())
    return max(name.partition("_")[0] for name in names if name[:1].isdigit())


def _behind(connection: Connection) -> bool:
    if not inspect(connection).has_table(_TABLE):
        return True
    found = connection.exec_driver_sql(_HAS).scalars()
    return list(found) != [newest_revision()]


def _config(connection: Connection) -> "Config":
    from alembic.config import Config

    config = Config()
    with as_file(files("migrations")) as directory:
        config.set_main_option("script_location", str(directory))
    config.attributes["connection"] = connection
    return config
